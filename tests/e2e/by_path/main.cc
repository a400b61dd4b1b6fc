// by_path LIBRARY: loads a libibverbs as collectives do (NCCL, RCCL, MSCCL++, torchcomms), by dlopen and dlvsym.
// Prints its devices; exit status 0 if each function is there and the first device registers memory, without
// copies.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

// What they ask for, in the node that they name.
constexpr struct {
  const char *name, *node;
} kSymbols[] = {{"ibv_fork_init", "IBVERBS_1.1"},
                {"ibv_get_device_list", "IBVERBS_1.1"},
                {"ibv_free_device_list", "IBVERBS_1.1"},
                {"ibv_get_device_name", "IBVERBS_1.1"},
                {"ibv_open_device", "IBVERBS_1.1"},
                {"ibv_close_device", "IBVERBS_1.1"},
                {"ibv_get_async_event", "IBVERBS_1.1"},
                {"ibv_ack_async_event", "IBVERBS_1.1"},
                {"ibv_query_device", "IBVERBS_1.1"},
                {"ibv_query_port", "IBVERBS_1.1"},
                {"ibv_query_gid", "IBVERBS_1.1"},
                {"ibv_query_qp", "IBVERBS_1.1"},
                {"ibv_alloc_pd", "IBVERBS_1.1"},
                {"ibv_dealloc_pd", "IBVERBS_1.1"},
                {"ibv_reg_mr", "IBVERBS_1.1"},
                {"ibv_dereg_mr", "IBVERBS_1.1"},
                {"ibv_create_comp_channel", "IBVERBS_1.0"},
                {"ibv_create_cq", "IBVERBS_1.1"},
                {"ibv_destroy_cq", "IBVERBS_1.1"},
                {"ibv_create_qp", "IBVERBS_1.1"},
                {"ibv_modify_qp", "IBVERBS_1.1"},
                {"ibv_destroy_qp", "IBVERBS_1.1"},
                {"ibv_create_srq", "IBVERBS_1.1"},
                {"ibv_event_type_str", "IBVERBS_1.1"},
                {"ibv_wc_status_str", "IBVERBS_1.1"},
                {"ibv_reg_mr_iova", "IBVERBS_1.7"},
                {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
                {"ibv_query_ece", "IBVERBS_1.10"},
                {"ibv_set_ece", "IBVERBS_1.10"},
                {"_ibv_query_gid_ex", "IBVERBS_1.11"},
                {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
                {"ibv_query_qp_data_in_order", "IBVERBS_1.14"},
                {"ibv_reg_mr_ex", "IBVERBS_1.15"},
                {"ibv_query_port_speed", "IBVERBS_1.16"},
                {"ibv_alloc_buf", "IBVERBS_1.17"},
                {"ibv_create_comp_cntr", "IBVERBS_1.18"}};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "by_path: %s\n", what.c_str());
  std::exit(1);
}

template <class F>
F* function(void* library, const char* name, const char* node) {
  void* const found = dlvsym(library, name, node);
  if (found == nullptr) fail(dlerror());
  return reinterpret_cast<F*>(found);
}

/// Whether the daemon maps the memory (docs/memory-sharing.md): it is in the library's memory file.
bool is_shared(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t dash = 0;
    const std::uintptr_t start = std::stoul(line, &dash, 16), end = std::stoul(line.substr(dash + 1), nullptr, 16);
    if (start <= address && address < end) return line.find("uroce-shared") != std::string::npos;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail("give it the name or the path of a library");
  // Before the library is loaded: the kernel joins it with the mapping that has the main thread's thread-local
  // memory.
  std::vector<char> memory(8 << 20);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  for (const auto& [name, node] : kSymbols) function<void>(library, name, node);
  int count = 0;
  ibv_device** const list = function<ibv_device**(int*)>(library, "ibv_get_device_list", "IBVERBS_1.1")(&count);
  if (list == nullptr || count == 0) fail("no device");
  std::printf("%d device%s:", count, count == 1 ? "" : "s");
  for (int i = 0; i < count; ++i) {
    std::printf(" %s", function<const char*(ibv_device*)>(library, "ibv_get_device_name", "IBVERBS_1.1")(list[i]));
  }
  std::printf("\n");
  ibv_context* const context =
      function<ibv_context*(ibv_device*)>(library, "ibv_open_device", "IBVERBS_1.1")(list[0]);
  if (context == nullptr) fail(std::string("ibv_open_device: ") + std::strerror(errno));
  ibv_pd* const pd = function<ibv_pd*(ibv_context*)>(library, "ibv_alloc_pd", "IBVERBS_1.1")(context);
  if (pd == nullptr) fail(std::string("ibv_alloc_pd: ") + std::strerror(errno));
  ibv_mr* const mr = function<ibv_mr*(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned)>(
      library, "ibv_reg_mr_iova2", "IBVERBS_1.8")(pd, memory.data(), memory.size(),
                                                  reinterpret_cast<std::uintptr_t>(memory.data()),
                                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  if (mr == nullptr) fail(std::string("ibv_reg_mr_iova2: ") + std::strerror(errno));
  if (!is_shared(memory.data())) fail("memory from malloc is reached indirectly");
  const bool released = function<int(ibv_mr*)>(library, "ibv_dereg_mr", "IBVERBS_1.1")(mr) == 0 &&
                        function<int(ibv_pd*)>(library, "ibv_dealloc_pd", "IBVERBS_1.1")(pd) == 0 &&
                        function<int(ibv_context*)>(library, "ibv_close_device", "IBVERBS_1.1")(context) == 0;
  function<void(ibv_device**)>(library, "ibv_free_device_list", "IBVERBS_1.1")(list);
  return released ? 0 : 1;
}
