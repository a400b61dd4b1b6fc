// Memory regions of all kinds.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fixtures.h"

namespace conformance {
namespace {

struct Descriptor {
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

/// A dma-buf of the memfd; -1 if the kernel has no udmabuf.
int dmabuf_of(int memfd, std::size_t bytes) {
  const Descriptor maker{open("/dev/udmabuf", O_RDWR | O_CLOEXEC)};
  if (maker.fd < 0) return -1;
  udmabuf_create create{};
  create.memfd = static_cast<std::uint32_t>(memfd);
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = bytes;
  return ioctl(maker.fd, UDMABUF_CREATE, &create);
}

CONFORMANCE_CASE(mr_of_a_dmabuf, "ibv_reg_dmabuf_mr(3)") {
  constexpr std::size_t kBytes = 4 * 4096, kOffset = 4096 + 64, kLength = 5000;
  constexpr std::uint64_t kIova = 0x7000000040;
  const Descriptor memory{memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  CHECK(memory.fd >= 0 && ftruncate(memory.fd, kBytes) == 0 && fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  auto* const bytes =
      static_cast<std::uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0));
  CHECK(bytes != MAP_FAILED);
  const Descriptor dmabuf{dmabuf_of(memory.fd, kBytes)};
  Pair pair(bench);
  // Without udmabuf, the memfd itself: a device may accept any file that can be mapped.
  ibv_mr* const made =
      ibv_reg_dmabuf_mr(pair.right.pd, kOffset, kLength, kIova, dmabuf.fd >= 0 ? dmabuf.fd : memory.fd, kAll);
  if (made == nullptr && dmabuf.fd < 0 && errno == EINVAL) throw Skipped{"there is no /dev/udmabuf"};
  if (made == nullptr && dmabuf.fd >= 0 && errno == EOPNOTSUPP) {
    // A device that accepts other files supports the call, and must accept a real dma-buf.
    const Mr other(ibv_reg_dmabuf_mr(pair.right.pd, kOffset, kLength, kIova, memory.fd, kAll));
    CHECK(other.get() == nullptr);
    throw Skipped{"ibv_reg_dmabuf_mr: not supported"};
  }
  Mr mr(CHECK_MADE(made));
  CHECK_EQ(mr->length, kLength);
  pair.left.buffer.fill(3);
  CHECK_EQ(poll_write(pair, kIova, mr->rkey, kLength), IBV_WC_SUCCESS);
  CHECK(std::memcmp(bytes + kOffset, pair.left.buffer.data(), kLength) == 0);
  CHECK_EQ(int{bytes[kOffset + kLength]}, 0);
  CHECK_OK(pair.left.read(8192, kLength, kIova, mr->rkey));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
  CHECK(pair.left.buffer.holds(3, 8192, kLength, 0));
  CHECK_EQ(poll_write(pair, kIova + kLength - 7, mr->rkey, 8), IBV_WC_REM_ACCESS_ERR);
  CHECK_EQ(mr.destroy(), 0);
  munmap(bytes, kBytes);
}

CONFORMANCE_CASE(mr_of_what_cannot_be_mapped_is_refused, "ibv_reg_dmabuf_mr(3)") {
  const Pd pd = make_pd(bench.left);
  const Descriptor event{eventfd(0, EFD_CLOEXEC)};
  CHECK(ibv_reg_dmabuf_mr(pd.get(), 0, 4096, 0, event.fd, kLocal) == nullptr);
  CHECK(errno == EOPNOTSUPP || errno == EINVAL);
  CHECK(ibv_reg_dmabuf_mr(pd.get(), 0, 4096, 0, -1, kLocal) == nullptr);
  CHECK(errno == EOPNOTSUPP || errno == EBADF);
}

// The kernel and mlx5 register 0 bytes (Linux: drivers/infiniband/core/uverbs_cmd.c, ib_uverbs_reg_mr).
CONFORMANCE_CASE(mr_of_no_bytes, "ibv_reg_mr(3)") {
  Pair pair(bench);
  const Mr empty(CHECK_MADE(ibv_reg_mr(pair.right.pd, pair.right.buffer.data() + 8, 0, kAll)));
  CHECK_EQ(empty->length, 0u);
  CHECK_OK(pair.left.write(0, 0, pair.right.buffer.address(8), empty->rkey));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK_EQ(poll_write(pair, pair.right.buffer.address(8), empty->rkey), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mr_of_no_memory_is_refused, "ibv_reg_mr(3)") {
  const Pd pd = make_pd(bench.left);
  ibv_mr* const unmapped = ibv_reg_mr(pd.get(), reinterpret_cast<void*>(4096), 4096, kLocal);
  CHECK(unmapped == nullptr);
}

/// A file of `bytes` bytes, of which `mapped` bytes are mapped.
struct MappedFile {
  MappedFile(std::size_t bytes, std::size_t size) : mapped(size), file{memfd_create("mapped", MFD_CLOEXEC)} {
    CHECK(file.fd >= 0 && ftruncate(file.fd, static_cast<off_t>(bytes)) == 0);
    void* const at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    CHECK(at != MAP_FAILED);
    data = static_cast<std::uint8_t*>(at);
  }
  ~MappedFile() { munmap(data, mapped); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::uint64_t address(std::size_t at) const { return reinterpret_cast<std::uintptr_t>(data) + at; }

  std::size_t mapped;
  Descriptor file;
  std::uint8_t* data;
};

// Pages past the end of a file cannot be pinned: mmap(2), SIGBUS.
CONFORMANCE_CASE(mr_past_the_end_of_a_file_is_refused, "ibv_reg_mr(3)") {
  Pair pair(bench);
  const MappedFile one(4096, 8 * 4096), partial(2 * 4096 + 1, 8 * 4096), sparse(std::size_t{1} << 30, 8 * 4096);
  const auto refused = [&](const MappedFile& in, std::size_t from, std::size_t bytes) {
    const Mr mr(ibv_reg_mr(pair.right.pd, in.data + from, bytes, kAll));
    return mr.get() == nullptr && errno == EFAULT;
  };
  CHECK(refused(one, 0, 8 * 4096) && refused(one, 0, 4097) && refused(one, 4096, 1));
  CHECK(refused(partial, 0, 3 * 4096 + 1) && refused(partial, 3 * 4096, 4096));
  for (const auto& [in, bytes] : {std::pair{&one, 4096}, {&partial, 3 * 4096}, {&sparse, 8 * 4096}}) {
    const Mr mr(CHECK_MADE(ibv_reg_mr(pair.right.pd, in->data, static_cast<std::size_t>(bytes), kAll)));
    pair.left.buffer.fill(7);
    CHECK_EQ(poll_write(pair, in->address(static_cast<std::size_t>(bytes) - 64), mr->rkey), int{IBV_WC_SUCCESS});
    CHECK_EQ(int{in->data[bytes - 64]}, int{pair.left.buffer.data()[0]});
  }
}

CONFORMANCE_CASE(mr_rereg_past_the_end_of_a_file_is_refused, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096);
  const MappedFile one(4096, 8 * 4096);
  CHECK(ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, one.data, one.mapped, 0) != 0);
  if (errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
  CHECK(poll_write(pair, one.address(3 * 4096), buffer.rkey()) != IBV_WC_SUCCESS);
}

CONFORMANCE_CASE(mr_remote_write_takes_local_write, "ibv_reg_mr(3), access") {
  const Pd pd = make_pd(bench.left);
  int word = 0;
  CHECK(ibv_reg_mr(pd.get(), &word, sizeof(word), int{IBV_ACCESS_REMOTE_WRITE}) == nullptr);
  CHECK_EQ(errno, EINVAL);
  CHECK(ibv_reg_mr(pd.get(), &word, sizeof(word), int{IBV_ACCESS_REMOTE_ATOMIC}) == nullptr);
}

CONFORMANCE_CASE(mr_domain_in_use_is_not_freed, "ibv_dealloc_pd(3)") {
  Pd pd = make_pd(bench.left);
  Buffer buffer(pd.get(), 4096);
  CHECK(pd.destroy() != 0);
}

CONFORMANCE_CASE(mr_optional_access_is_accepted, "ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096, kAll | IBV_ACCESS_RELAXED_ORDERING);
  CHECK_EQ(poll_write(pair, buffer.address(), buffer.rkey()), int{IBV_WC_SUCCESS});
}

CONFORMANCE_CASE(mr_with_an_address_of_its_own, "ibv_reg_mr_iova(3)") {
  Pair pair(bench);
  constexpr std::uint64_t kIova = 0x7000000000;
  std::vector<std::uint8_t> memory(16384);
  // Address and I/O virtual address have the same offset in the page.
  const std::uint64_t iova = kIova + (reinterpret_cast<std::uintptr_t>(memory.data()) & 4095);
  const Mr mr(CHECK_MADE(ibv_reg_mr_iova(pair.right.pd, memory.data(), memory.size(), iova, kAll)));
  pair.left.buffer.fill(3);
  CHECK_EQ(poll_write(pair, iova + 8000, mr->rkey), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(memory.data() + 8000, pair.left.buffer.data(), 64) == 0);
  CHECK(poll_write(pair, iova + 16384 - 63, mr->rkey) != IBV_WC_SUCCESS);
}

CONFORMANCE_CASE(mr_with_an_address_of_its_own_and_options, "ibv_reg_mr_iova(3), ibv_reg_mr_iova2") {
  Pair pair(bench);
  std::vector<std::uint8_t> memory(16384);
  const std::uint64_t iova = 0x6000000000 + (reinterpret_cast<std::uintptr_t>(memory.data()) & 4095);
  constexpr unsigned kAccess = unsigned{kAll} | IBV_ACCESS_RELAXED_ORDERING;
  const Mr mr(CHECK_MADE(ibv_reg_mr_iova2(pair.right.pd, memory.data(), memory.size(), iova, kAccess)));
  pair.left.buffer.fill(5);
  CHECK_EQ(poll_write(pair, iova + 9000, mr->rkey), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(memory.data() + 9000, pair.left.buffer.data(), 64) == 0);
  CHECK(poll_write(pair, iova - 1, mr->rkey) != IBV_WC_SUCCESS);
}

CONFORMANCE_CASE(mr_zero_based, "ibv_reg_mr(3), IBV_ACCESS_ZERO_BASED") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 16384, kAll | IBV_ACCESS_ZERO_BASED);
  pair.left.buffer.fill(6);
  CHECK_EQ(poll_write(pair, 9000, buffer.rkey()), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(buffer.data() + 9000, pair.left.buffer.data(), 64) == 0);
  CHECK_EQ(poll_write(pair, 16384 - 63, buffer.rkey()), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mr_deregistered_key_is_gone, "ibv_dereg_mr(3)") {
  Pair pair(bench);
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  {
    Buffer buffer(pair.right.pd, 4096);
    address = buffer.address();
    key = buffer.rkey();
  }
  CHECK_EQ(poll_write(pair, address, key), int{IBV_WC_REM_ACCESS_ERR});
}

/// How many mappings hold parts of the range (proc(5), /proc/pid/maps).
int mappings_of(const void* start, std::size_t bytes) {
  const auto from = reinterpret_cast<std::uintptr_t>(start), to = from + bytes;
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, end = 0;
    CHECK_EQ(std::sscanf(line.c_str(), "%zx-%zx", &first, &end), 2);
    count += first < to && end > from;
  }
  return count;
}

/// Registers every second page, one after the other and all together.
void leaves_one_mapping(ibv_pd* pd, std::uint8_t* memory, std::size_t bytes) {
  CHECK_EQ(mappings_of(memory, bytes), 1);
  std::vector<Mr> together;
  for (std::size_t at = 0; at < bytes; at += 2 * 4096) {
    Mr alone(CHECK_MADE(ibv_reg_mr(pd, memory + at, 4096, kAll)));
    CHECK_EQ(alone.destroy(), 0);
  }
  CHECK_EQ(mappings_of(memory, bytes), 1);
  for (std::size_t at = 0; at < bytes; at += 2 * 4096) {
    together.emplace_back(CHECK_MADE(ibv_reg_mr(pd, memory + at, 4096, kAll)));
  }
  for (Mr& mr : together) CHECK_EQ(mr.destroy(), 0);
  CHECK_EQ(mappings_of(memory, bytes), 1);
}

CONFORMANCE_CASE(mr_leaves_the_mapping_as_it_was, "ibv_dereg_mr(3)") {
  constexpr std::size_t kBytes = 256 * 4096;
  const Pd pd = make_pd(bench.right);
  // The pages without access rights keep the kernel from joining the memory with its neighbours.
  void* const outer = mmap(nullptr, kBytes + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(outer != MAP_FAILED);
  std::uint8_t* const memory = static_cast<std::uint8_t*>(outer) + 4096;
  CHECK_EQ(mprotect(memory, kBytes, PROT_READ | PROT_WRITE), 0);
  for (std::size_t at = 0; at < kBytes; ++at) memory[at] = static_cast<std::uint8_t>(at * 7 >> 4);
  leaves_one_mapping(pd.get(), memory, kBytes);
  const std::jthread other([](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  });
  leaves_one_mapping(pd.get(), memory, kBytes);
  for (std::size_t at = 0; at < kBytes; ++at) CHECK_EQ(memory[at], static_cast<std::uint8_t>(at * 7 >> 4));
  munmap(outer, kBytes + 2 * 4096);
}

CONFORMANCE_CASE(mr_rereg_translation, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  Buffer first(pair.right.pd, 4096);
  std::vector<std::uint8_t> second(8192);
  const int result =
      ibv_rereg_mr(first.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), second.size(), 0);
  if (result != 0 && errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
  CHECK_EQ(result, 0);
  CHECK_EQ(first.mr()->addr, static_cast<void*>(second.data()));
  CHECK_EQ(first.mr()->length, second.size());
  pair.left.buffer.fill(9);
  const auto address = reinterpret_cast<std::uintptr_t>(second.data());
  CHECK_EQ(poll_write(pair, address + 5000, first.rkey()), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(second.data() + 5000, pair.left.buffer.data(), 64) == 0);
  CHECK(poll_write(pair, first.address(), first.rkey()) != IBV_WC_SUCCESS || first.address() == address);
}

CONFORMANCE_CASE(mr_rereg_access, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096, IBV_ACCESS_REMOTE_READ);
  const int result = ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll);
  if (result != 0 && errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
  CHECK_EQ(result, 0);
  pair.left.buffer.fill(4);
  CHECK_EQ(poll_write(pair, buffer.address(), buffer.rkey()), int{IBV_WC_SUCCESS});
  CHECK(buffer.holds(4, 0, 64, 0));
}

// A region that allows nothing but windows is one for writing, as in the kernel (ib_access_writable).
CONFORMANCE_CASE(mr_rereg_access_of_a_region_for_windows, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096, IBV_ACCESS_MW_BIND);
  const int result = ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll);
  if (result != 0 && errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
  CHECK_EQ(result, 0);
  CHECK_EQ(poll_write(pair, buffer.address(), buffer.rkey()), int{IBV_WC_SUCCESS});
}

// mlx5 changes the region in place (Linux: drivers/infiniband/hw/mlx5/mr.c, umr_rereg_pd_access).
CONFORMANCE_CASE(mr_rereg_access_keeps_the_keys, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096);
  const std::uint32_t lkey = buffer.mr()->lkey, rkey = buffer.mr()->rkey;
  for (const int access : {kAll, int{IBV_ACCESS_LOCAL_WRITE}, kAll, int{IBV_ACCESS_REMOTE_READ}}) {
    const int result = ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
    if (result != 0 && errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
    CHECK_EQ(result, 0);
    CHECK_EQ(buffer.mr()->lkey, lkey);
    CHECK_EQ(buffer.mr()->rkey, rkey);
    if (access == kAll) CHECK_EQ(poll_write(pair, buffer.address(), rkey), int{IBV_WC_SUCCESS});
  }
  CHECK_EQ(poll_write(pair, buffer.address(), rkey), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mr_rereg_domain, "ibv_rereg_mr(3)") {
  Pair pair(bench);
  const Pd other = make_pd(bench.right);
  Buffer buffer(pair.right.pd, 4096);
  const int result = ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0);
  if (result != 0 && errno == EOPNOTSUPP) throw Skipped{"ibv_rereg_mr: EOPNOTSUPP"};
  CHECK_EQ(result, 0);
  CHECK_EQ(buffer.mr()->pd, other.get());
  CHECK_EQ(poll_write(pair, buffer.address(), buffer.rkey()), int{IBV_WC_REM_ACCESS_ERR});
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_PD, pair.right.pd, nullptr, 0, 0), 0);
}

CONFORMANCE_CASE(mr_rereg_nonsense, "ibv_rereg_mr(3), RETURN VALUE") {
  const Pd pd = make_pd(bench.left);
  Buffer buffer(pd.get(), 4096);
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), 1 << 20, nullptr, nullptr, 0, 0), int{IBV_REREG_MR_ERR_INPUT});
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0),
           int{IBV_REREG_MR_ERR_INPUT});
  // rdma-core checks no more than these itself (libibverbs/verbs.c, ibv_rereg_mr): the rest is refused by the
  // kernel.
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_PD, pd.get(), nullptr, 0, kAll),
           int{IBV_REREG_MR_ERR_INPUT});
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), 0, nullptr, nullptr, 0, 0), int{IBV_REREG_MR_ERR_CMD});
  CHECK_EQ(ibv_rereg_mr(buffer.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
           int{IBV_REREG_MR_ERR_CMD});
}

CONFORMANCE_CASE(mr_of_nothing_reads_zeroes, "ibv_alloc_null_mr(3)") {
  Pair pair(bench);
  const Mr null(CHECK_MADE(ibv_alloc_null_mr(pair.left.pd)));
  pair.right.buffer.fill(1);
  ibv_sge list[2] = {{64, 100, null->lkey}, pair.left.buffer.sge(0, 100)};
  ibv_send_wr wr{};
  wr.sg_list = list;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {pair.right.buffer.address(), pair.right.buffer.rkey()};
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
  CHECK(pair.left.buffer.holds(1, 0, 100, 100));  // the first 100 bytes were not written
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  for (int i = 0; i < 100; ++i) CHECK_EQ(int{pair.right.buffer.data()[i]}, 0);
}

CONFORMANCE_CASE(mr_of_device_memory, "ibv_alloc_dm(3)") {
  if (bench.right.extended.max_dm_size == 0) throw Skipped{"max_dm_size is 0"};
  Pair pair(bench);
  ibv_alloc_dm_attr attr{};
  attr.length = 8192;
  Dm dm(CHECK_MADE(ibv_alloc_dm(bench.right.context, &attr)));
  Mr mr(CHECK_MADE(ibv_reg_dm_mr(pair.right.pd, dm.get(), 4096, 4096, kAll | IBV_ACCESS_ZERO_BASED)));
  CHECK(ibv_free_dm(dm.get()) != 0);  // in use
  pair.left.buffer.fill(30);
  CHECK_EQ(poll_write(pair, 8, mr->rkey), int{IBV_WC_SUCCESS});
  std::uint8_t got[64];
  CHECK_OK(ibv_memcpy_from_dm(got, dm.get(), 4096 + 8, sizeof(got)));
  CHECK(std::memcmp(got, pair.left.buffer.data(), sizeof(got)) == 0);
  const std::uint64_t value = 11;
  CHECK_OK(ibv_memcpy_to_dm(dm.get(), 4096 + 128, &value, sizeof(value)));
  ibv_sge sge = pair.left.buffer.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
  wr.wr.atomic = {128, 4, 0, mr->rkey};
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_FETCH_ADD);
  std::uint64_t now = 0;
  CHECK_OK(ibv_memcpy_from_dm(&now, dm.get(), 4096 + 128, sizeof(now)));
  CHECK_EQ(now, 15u);
  CHECK(ibv_memcpy_to_dm(dm.get(), 8190, &value, sizeof(value)) != 0);
}

bool on_demand(const Bench& bench, std::uint64_t what) {
  return (bench.right.extended.odp_caps.general_caps & what) == what;
}

CONFORMANCE_CASE(mr_on_demand, "ibv_reg_mr(3), IBV_ACCESS_ON_DEMAND; ibv_advise_mr(3)") {
  if (!on_demand(bench, IBV_ODP_SUPPORT)) throw Skipped{"no IBV_ODP_SUPPORT"};
  Pair pair(bench);
  constexpr std::size_t kBytes = 1 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  Mr mr(CHECK_MADE(ibv_reg_mr(pair.right.pd, memory, kBytes, kAll | IBV_ACCESS_ON_DEMAND)));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  pair.left.buffer.fill(2);
  CHECK_EQ(poll_write(pair, address + 70000, mr->rkey), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(static_cast<std::uint8_t*>(memory) + 70000, pair.left.buffer.data(), 64) == 0);
  ibv_sge sge{address, 65536, mr->lkey};
  CHECK_OK(ibv_advise_mr(pair.right.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
  // From now on the region refers to the new memory at the same address.
  CHECK(mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
  CHECK_EQ(poll_write(pair, address + 70000, mr->rkey), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(static_cast<std::uint8_t*>(memory) + 70000, pair.left.buffer.data(), 64) == 0);
  CHECK_OK(mr.destroy());
  munmap(memory, kBytes);
}

CONFORMANCE_CASE(mr_advice_names_addresses_as_work_requests_do, "ibv_advise_mr(3), sg_list; ibv_reg_mr_iova(3)") {
  if (!on_demand(bench, IBV_ODP_SUPPORT)) throw Skipped{"no IBV_ODP_SUPPORT"};
  constexpr std::size_t kBytes = 1 << 16, kPage = 4096;
  const Pd pd = make_pd(bench.right);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  constexpr std::uint64_t kIova = 0x7000000000;
  {
    const Mr mr(CHECK_MADE(ibv_reg_mr_iova(pd.get(), memory, kBytes, kIova, kAll | IBV_ACCESS_ON_DEMAND)));
    const auto prefetch = [&](std::uint64_t address, std::uint32_t length) {
      ibv_sge sge{address, length, mr->lkey};
      return ibv_advise_mr(pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
    };
    CHECK_OK(prefetch(kIova + 3 * kPage, 2 * kPage));
    unsigned char present[kBytes / kPage];
    CHECK_EQ(mincore(memory, kBytes, present), 0);
    CHECK((present[3] & 1) != 0 && (present[4] & 1) != 0);
    CHECK(prefetch(reinterpret_cast<std::uintptr_t>(memory), kPage) != 0);
    CHECK(prefetch(kIova + kBytes - 8, 16) != 0);
  }
  munmap(memory, kBytes);
}

CONFORMANCE_CASE(mr_of_the_whole_address_space, "ibv_reg_mr(3), implicit on demand") {
  if (!on_demand(bench, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT)) throw Skipped{"no IBV_ODP_SUPPORT_IMPLICIT"};
  Pair pair(bench);
  const Mr mr(CHECK_MADE(ibv_reg_mr(pair.right.pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND)));
  std::uint8_t stack[128] = {};
  pair.left.buffer.fill(2);
  CHECK_EQ(poll_write(pair, reinterpret_cast<std::uintptr_t>(stack), mr->rkey), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(stack, pair.left.buffer.data(), 64) == 0);
}

CONFORMANCE_CASE(mr_advice, "ibv_advise_mr(3), PREFETCH, PREFETCH_NO_FAULT") {
  if (!on_demand(bench, IBV_ODP_SUPPORT)) throw Skipped{"no IBV_ODP_SUPPORT"};
  constexpr std::size_t kBytes = 1 << 16;
  const Pd pd = make_pd(bench.right);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  Mr mr(CHECK_MADE(ibv_reg_mr(pd.get(), memory, kBytes, kAll | IBV_ACCESS_ON_DEMAND)));
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory), kBytes, mr->lkey};
  const auto present = [&] {
    unsigned char pages[kBytes / 4096] = {};
    CHECK_OK(mincore(memory, kBytes, pages));
    return std::count_if(pages, pages + kBytes / 4096, [](unsigned char page) { return (page & 1) != 0; });
  };
  constexpr auto kNoFault = static_cast<ibv_advise_mr_advice>(IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
  const auto before = present();
  CHECK(before < std::ptrdiff_t{kBytes / 4096});
  CHECK_OK(ibv_advise_mr(pd.get(), kNoFault, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
  CHECK_EQ(present(), before);
  CHECK_OK(ibv_advise_mr(pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
  CHECK_EQ(present(), std::ptrdiff_t{kBytes / 4096});
  sge.length += 1;
  CHECK(ibv_advise_mr(pd.get(), kNoFault, 0, &sge, 1) != 0);
  CHECK_OK(mr.destroy());
  munmap(memory, kBytes);
}

CONFORMANCE_CASE(mr_advice_on_what_is_not_ours, "ibv_advise_mr(3)") {
  if (!on_demand(bench, IBV_ODP_SUPPORT)) throw Skipped{"no IBV_ODP_SUPPORT"};
  const Pd pd = make_pd(bench.right);
  ibv_sge sge{4096, 4096, 0x12345};
  CHECK(ibv_advise_mr(pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) != 0);
}

}  // namespace
}  // namespace conformance
