// Functions of rdma-core 59 to 65, which this program finds at run time: the system that builds it may have an
// older verbs.h. Skipped where the library lacks them.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "fixtures.h"

namespace conformance {
namespace {

/// struct ibv_mr_init_attr and enum ibv_mr_init_attr_mask.
struct InitAttr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask, iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  void *dmah, *buf;
};
constexpr std::uint64_t kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kBuf = 32, kUnknown = 1 << 20;

struct RegMrEx {
  ibv_mr* operator()(ibv_pd* pd, InitAttr attr) const { return call(pd, &attr); }
  int refuses(ibv_pd* pd, InitAttr attr) const {
    errno = 0;
    const Mr mr(call(pd, &attr));
    return mr.get() == nullptr ? errno : 0;
  }
  ibv_mr* (*call)(ibv_pd*, InitAttr*) = found<ibv_mr*(ibv_pd*, InitAttr*)>("ibv_reg_mr_ex", "IBVERBS_1.15");
};

/// ibv_alloc_buf(3).
struct ProgramBuffer {
  ProgramBuffer(ibv_pd* pd, std::size_t bytes) {
    data = static_cast<std::uint8_t*>(CHECK_MADE(
        (found<void*(ibv_pd*, std::size_t, void**)>("ibv_alloc_buf", "IBVERBS_1.17")(pd, bytes, &handle))));
  }
  ~ProgramBuffer() { found<void(void*)>("ibv_free_buf", "IBVERBS_1.17")(handle); }
  ProgramBuffer(const ProgramBuffer&) = delete;
  ProgramBuffer& operator=(const ProgramBuffer&) = delete;
  ibv_mr* reg(ibv_pd* pd, void* addr, std::size_t length) const {
    return found<ibv_mr*(ibv_pd*, void*, void*, std::size_t, int)>("ibv_reg_buf_mr", "IBVERBS_1.17")(
        pd, handle, addr, length, kAll);
  }
  void* handle = nullptr;
  std::uint8_t* data = nullptr;
};

int write_to(Pair& pair, std::uint64_t address, std::uint32_t rkey, std::size_t length) {
  CHECK_OK(pair.left.write(0, length, address, rkey));
  return wait(pair.left.cq.get()).status;
}

CONFORMANCE_CASE(later_mr_with_an_address_of_its_own, "ibv_reg_mr(3), ibv_reg_mr_ex") {
  const RegMrEx reg;
  Pair pair(bench);
  constexpr std::uint64_t kAt = 0x7000000000;
  InitAttr attr{};
  attr.length = 4096;
  attr.access = kAll;
  attr.comp_mask = kAddr | kIova;
  attr.addr = pair.right.buffer.data();
  attr.iova = kAt;
  const Mr mr(CHECK_MADE(reg(pair.right.pd, attr)));
  pair.left.buffer.fill(5);
  CHECK_EQ(write_to(pair, kAt + 64, mr->rkey, 100), int{IBV_WC_SUCCESS});
  CHECK(pair.right.buffer.holds(5, 64, 100, 0));
  attr.comp_mask = kAddr;  // the address is that of the memory
  const Mr plain(CHECK_MADE(reg(pair.right.pd, attr)));
  CHECK_EQ(write_to(pair, pair.right.buffer.address(1000), plain->rkey, 100), int{IBV_WC_SUCCESS});
  CHECK(pair.right.buffer.holds(5, 1000, 100, 0));
}

CONFORMANCE_CASE(later_mr_of_a_descriptor, "ibv_reg_mr(3), ibv_reg_mr_ex; ibv_dm_export_dmabuf_fd(3)") {
  if (bench.right.extended.max_dm_size == 0) throw Skipped{"max_dm_size is 0"};
  const RegMrEx reg;
  auto* const export_fd = found<int(ibv_dm*)>("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
  Pair pair(bench);
  ibv_alloc_dm_attr memory{};
  memory.length = 8192;
  const Dm dm(CHECK_MADE(ibv_alloc_dm(bench.right.context, &memory)));
  const int fd = export_fd(dm.get());
  CHECK(fd >= 0);
  InitAttr attr{};
  attr.length = 4096;
  attr.access = kAll;
  attr.comp_mask = kFd | kFdOffset | kIova;
  attr.fd = fd;
  attr.fd_offset = 4096;
  attr.iova = 0x1000;
  {
    const Mr mr(CHECK_MADE(reg(pair.right.pd, attr)));
    close(fd);  // the region keeps the memory
    pair.left.buffer.fill(6);
    CHECK_EQ(write_to(pair, 0x1000 + 8, mr->rkey, 64), int{IBV_WC_SUCCESS});
    std::uint8_t got[64];
    CHECK_OK(ibv_memcpy_from_dm(got, dm.get(), 4096 + 8, sizeof(got)));
    CHECK(std::memcmp(got, pair.left.buffer.data(), sizeof(got)) == 0);
  }
  for (const std::uint64_t mask : {kFd, kFd | kFdOffset, kFd | kIova, kFd | kFdOffset | kIova | kAddr}) {
    attr.comp_mask = mask;
    CHECK_EQ(reg.refuses(pair.right.pd, attr), EINVAL);
  }
}

CONFORMANCE_CASE(later_mr_without_an_address_is_refused, "ibv_reg_mr(3), ibv_reg_mr_ex") {
  const RegMrEx reg;
  const Pd pd = make_pd(bench.left);
  std::vector<std::uint8_t> memory(4096);
  InitAttr attr{};
  attr.length = memory.size();
  attr.access = kLocal;
  attr.addr = memory.data();
  for (const std::uint64_t mask : {std::uint64_t{0}, kIova, kAddr | kFdOffset}) {
    attr.comp_mask = mask;
    CHECK_EQ(reg.refuses(pd.get(), attr), EINVAL);
  }
  attr.comp_mask = kAddr | kUnknown;
  CHECK_EQ(reg.refuses(pd.get(), attr), EOPNOTSUPP);
}

CONFORMANCE_CASE(later_buffers, "ibv_alloc_buf(3)") {
  constexpr std::size_t kBytes = 5000;
  const RegMrEx reg;
  auto* const export_fd = found<int(void*)>("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
  Pair pair(bench);
  const ProgramBuffer buffer(pair.right.pd, kBytes);
  CHECK_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 4096, 0u);
  pair.left.buffer.fill(7);
  {
    const Mr mr(CHECK_MADE(buffer.reg(pair.right.pd, buffer.data + 100, 1000)));
    const auto first = reinterpret_cast<std::uintptr_t>(buffer.data) + 100;
    CHECK_EQ(write_to(pair, first, mr->rkey, 1000), int{IBV_WC_SUCCESS});
    CHECK(std::memcmp(buffer.data + 100, pair.left.buffer.data(), 1000) == 0);
    CHECK_EQ(int{buffer.data[1100]}, 0);
    CHECK_EQ(write_to(pair, first + 1, mr->rkey, 1000), int{IBV_WC_REM_ACCESS_ERR});
  }
  const int fd = export_fd(buffer.handle);
  if (fd < 0) {
    CHECK_EQ(errno, ENODATA);
  } else {
    const void* const again = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(again != MAP_FAILED && std::memcmp(again, buffer.data, 4096) == 0);
    munmap(const_cast<void*>(again), 4096);
    close(fd);
  }
  const Pd other = make_pd(bench.right);
  for (const auto& [pd, offset, length] :
       {std::tuple(other.get(), 0, 100), std::tuple(pair.right.pd, 4990, 11), std::tuple(pair.right.pd, -1, 10)}) {
    errno = 0;
    CHECK(buffer.reg(pd, buffer.data + offset, static_cast<std::size_t>(length)) == nullptr);
    CHECK_EQ(errno, EINVAL);
  }
  InitAttr attr{};
  attr.length = kBytes;
  attr.access = kAll;
  attr.buf = buffer.handle;
  attr.addr = buffer.data;
  for (const std::uint64_t mask : {kBuf, kBuf | kAddr | kFd | kFdOffset | kIova}) {
    attr.comp_mask = mask;
    CHECK_EQ(reg.refuses(pair.right.pd, attr), EINVAL);
  }
  attr.comp_mask = kBuf | kAddr;
  CHECK_EQ(reg.refuses(pair.right.pd, attr), 0);
}

CONFORMANCE_CASE(later_buffers_of_no_size, "ibv_alloc_buf(3)") {
  auto* const alloc = found<void*(ibv_pd*, std::size_t, void**)>("ibv_alloc_buf", "IBVERBS_1.17");
  const Pd pd = make_pd(bench.left);
  for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX, SIZE_MAX / 2 - 1}) {
    void* handle = nullptr;
    errno = 0;
    CHECK(alloc(pd.get(), bytes, &handle) == nullptr && handle == nullptr);
    if (errno == EOPNOTSUPP) throw Skipped{"ibv_alloc_buf: not supported"};
    CHECK(errno == EINVAL || errno == ENOMEM);
  }
}

CONFORMANCE_CASE(later_port_speed, "ibv_query_port_speed(3)") {
  auto* const query =
      found<int(ibv_context*, std::uint32_t, std::uint64_t*)>("ibv_query_port_speed", "IBVERBS_1.16");
  std::uint64_t speed = 0;
  CHECK_OK(query(bench.left.context, 1, &speed));
  CHECK(speed >= 25);  // one lane of SDR, in units of 100 Mbit/s
  CHECK_EQ(query(bench.left.context, 2, &speed), EINVAL);
}

// Programs built with this version ask for more of the port than rdma-core 44 knows.
CONFORMANCE_CASE(later_port_attributes_are_zero, "ibv_query_port(3)") {
  auto* const query = __extension__ verbs_get_ctx_op(bench.left.context, query_port);
  if (query == nullptr) throw Skipped{"the library has no query_port"};
  struct {
    ibv_port_attr attr;
    std::uint32_t later[8];
  } asked;
  std::memset(&asked, 0xff, sizeof(asked));
  CHECK_OK(query->query_port(bench.left.context, 1, &asked.attr, sizeof(asked)));
  CHECK_EQ(asked.attr.state, bench.left.port.state);
  for (const std::uint32_t each : asked.later) CHECK_EQ(each, 0u);
}

CONFORMANCE_CASE(later_names_of_operations, "ibv_wr_opcode_str") {
  auto* const name = found<const char*(std::uint32_t)>("ibv_wr_opcode_str", "IBVERBS_PRIVATE_57");
  CHECK_EQ(std::string(name(IBV_WR_RDMA_READ)), "rdma-read");
  CHECK_EQ(std::string(name(14)), "flush");
  CHECK_EQ(std::string(name(15)), "atomic-write");
  for (const std::uint32_t value : {12u, 13u, 16u, UINT32_MAX}) CHECK_EQ(std::string(name(value)), "unknown");
}

// A device may lack DMA handles, and says so.
CONFORMANCE_CASE(later_objects_or_not_supported, "ibv_alloc_dmah(3)") {
  auto* const handle = found<void*(ibv_context*, void*)>("ibv_alloc_dmah", "IBVERBS_1.15");
  auto* const release = found<int(void*)>("ibv_dealloc_dmah", "IBVERBS_1.15");
  std::uint32_t attributes[4] = {};
  void* const dmah = handle(bench.left.context, attributes);
  CHECK(dmah != nullptr ? release(dmah) == 0 : errno == EOPNOTSUPP || errno == EINVAL);
}

}  // namespace
}  // namespace conformance
