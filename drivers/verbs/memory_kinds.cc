// Null regions, device memory, DMA-BUF regions, and advice on regions on demand (ibv_advise_mr(3)).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>

#include "export.h"
#include "memory_file.h"
#include "memory_kinds.h"
#include "memory_region.h"
#include "objects.h"
#include "query.h"

namespace uroce::verbs {
namespace {

std::size_t page_size() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
std::uint64_t round_down(std::uint64_t value) { return value / page_size() * page_size(); }
std::uint64_t round_up(std::uint64_t value) { return round_down(value + page_size() - 1); }

bool inside(const Dm& dm, std::uint64_t offset, std::size_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

int copy_to(ibv_dm* to, std::uint64_t offset, const void* from, std::size_t length) {
  const Dm& dm = *reinterpret_cast<Dm*>(to);
  if (!inside(dm, offset, length)) return EINVAL;
  std::memcpy(static_cast<std::byte*>(dm.data) + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* from, std::uint64_t offset, std::size_t length) {
  const Dm& dm = *reinterpret_cast<Dm*>(from);
  if (!inside(dm, offset, length)) return EINVAL;
  std::memcpy(to, static_cast<const std::byte*>(dm.data) + offset, length);
  return 0;
}

void release(Dm* dm) {
  if (dm->data != nullptr) munmap(dm->data, dm->mapped);
  if (dm->fd >= 0) client::sys::close(dm->fd);
  delete dm;
}
using OwnedDm = std::unique_ptr<Dm, decltype(&release)>;

// Maps the memory and fills in the public struct except for the handle. False: errno is set.
bool open_dm(Dm& dm, ibv_context* context) {
  dm.mapped = round_up(dm.length);
  void* const data = mmap(nullptr, dm.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, dm.fd, 0);
  if (data == MAP_FAILED) return false;
  dm.data = data;
  dm.dm.context = context;
  dm.dm.memcpy_to_dm = copy_to;
  dm.dm.memcpy_from_dm = copy_from;
  return true;
}

OwnedDm new_dm(std::size_t length) {
  OwnedDm dm(new Dm{}, release);
  dm->length = length;
  dm->fd = -1;
  return dm;
}

// Checks that the range is within a region on demand of this PD with the access that the advice needs. `first`: its
// address. errno.
int find_advised(Context& owner, const ibv_pd* pd, const ibv_sge& sge, bool write, std::uint64_t& first) {
  const std::lock_guard lock(owner.objects_mutex);
  const auto at = owner.mrs.find(sge.lkey);
  if (at == owner.mrs.end() || at->second->mr.pd->handle != pd->handle) return ENOENT;
  const Mr& mr = *at->second;
  if ((mr.access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (write && (mr.access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  const std::uint64_t iova = (mr.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : mr.iova, offset = sge.addr - iova;
  if (sge.addr < iova || offset > mr.mr.length || sge.length > mr.mr.length - offset) return EFAULT;
  first = reinterpret_cast<std::uintptr_t>(mr.mr.addr) + offset;
  return 0;
}

// madvise(2), MADV_POPULATE_*. Linux before 5.14 lacks it: the pages are then faulted in when they are used.
int populate(std::uint64_t begin, std::uint32_t length, bool write) {
#ifndef MADV_POPULATE_READ
  constexpr int MADV_POPULATE_READ = 22, MADV_POPULATE_WRITE = 23;
#endif
  if (length == 0) return 0;
  const std::uint64_t first = round_down(begin);
  void* const at = reinterpret_cast<void*>(static_cast<std::uintptr_t>(first));
  const std::size_t bytes = round_up(begin + length) - first;
  if (madvise(at, bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 || errno == EINVAL) return 0;
  return errno == ENOMEM ? EFAULT : errno;
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count) {
  const Verb verb("ibv_advise_mr");
  constexpr auto kNoFault = static_cast<ibv_advise_mr_advice>(2);  // IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != kNoFault) {
    return noted(EOPNOTSUPP);
  }
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0 || list == nullptr)
    return noted(EINVAL);
  const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  Context& owner = *as_context(pd->context);
  std::uint64_t first = 0;
  for (const ibv_sge& sge : std::span(list, count)) {
    if (const int error = find_advised(owner, pd, sge, write, first); error != 0) return noted(error);
  }
  if (advice == kNoFault) return 0;
  for (const ibv_sge& sge : std::span(list, count)) {
    int error = find_advised(owner, pd, sge, write, first);
    if (error == 0) error = populate(first, sge.length, write);
    if (error != 0) return noted(error);
  }
  return 0;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  const Verb verb("ibv_alloc_null_mr");
  return guarded<ibv_mr*>(nullptr, [&]() -> ibv_mr* {
    auto mr = std::make_unique<Mr>();
    const uroce_handle request{pd->handle, 0};
    uroce_reg_mr_response reply{};
    if (const int error = session_of(pd->context).call(UROCE_CMD_ALLOC_NULL_MR, request, reply); error != 0) {
      return null_with(error);
    }
    return finish_mr(std::move(mr), pd, nullptr, SIZE_MAX, reply);
  });
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  const Verb verb("ibv_alloc_dm");
  return guarded<ibv_dm*>(nullptr, [&]() -> ibv_dm* {
    if (attr->comp_mask != 0) return null_with(EOPNOTSUPP);
    ibv_device_attr_ex device{};
    if (const int error = query_device_ex(context, nullptr, &device, sizeof(device)); error != 0) {
      return null_with(error);
    }
    if (attr->length == 0 || static_cast<std::size_t>(std::countr_zero(page_size())) < attr->log_align_req) {
      return null_with(EINVAL);
    }
    if (attr->length > device.max_dm_size) return null_with(ENOMEM);
    OwnedDm dm = new_dm(attr->length);
    dm->fd = make_memory_file("uroce-dm", round_up(attr->length));
    if (dm->fd < 0 || !open_dm(*dm, context)) return null_with(errno);
    const uroce_alloc_dm_request request{attr->length};
    uroce_handle reply{};
    const int error = session_of(context).call(UROCE_CMD_ALLOC_DM, std::as_bytes(std::span(&request, 1)),
                                               std::as_writable_bytes(std::span(&reply, 1)), std::span(&dm->fd, 1));
    if (error != 0) return null_with(error);
    dm->dm.handle = reply.handle;
    return &dm.release()->dm;
  });
}

ibv_dm* import_dm(ibv_context* context, std::uint32_t handle) {
  return guarded<ibv_dm*>(nullptr, [&]() -> ibv_dm* {
    client::ReceivedFds fds;
    const uroce_handle request{handle, 0};
    uroce_import_dm_response reply{};
    if (const int error = session_of(context).call(UROCE_CMD_IMPORT_DM, request, reply, &fds); error != 0) {
      return null_with(error);
    }
    OwnedDm dm = new_dm(reply.length);
    dm->fd = fds.take(0);
    dm->imported = true;
    if (!open_dm(*dm, context)) return null_with(errno);
    dm->dm.handle = handle;
    return &dm.release()->dm;
  });
}

int free_dm(ibv_dm* dm) {
  const Verb verb("ibv_free_dm");
  auto* const freed = reinterpret_cast<Dm*>(dm);
  if (freed->users.load() != 0) return failed(EBUSY);
  if (!freed->imported) {
    if (const int error = session_of(dm->context).release(UROCE_CMD_FREE_DM, dm->handle); error != 0) {
      return failed(error);
    }
  }
  release(freed);
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* ibv, std::uint64_t offset, std::size_t length, unsigned access) {
  const Verb verb("ibv_reg_dm_mr");
  return guarded<ibv_mr*>(nullptr, [&]() -> ibv_mr* {
    Dm& dm = *reinterpret_cast<Dm*>(ibv);
    access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    // Device memory has no address: regions of it must be zero-based (ibv_alloc_dm(3)).
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || (access & IBV_ACCESS_ON_DEMAND) != 0 ||
        !inside(dm, offset, length)) {
      return null_with(EINVAL);
    }
    ibv_mr* const made = register_range(pd, static_cast<std::byte*>(dm.data) + offset, length, 0, access);
    if (made == nullptr) return nullptr;
    auto& mr = *reinterpret_cast<Mr*>(made);
    mr.dm = &dm;
    dm.users.fetch_add(1);
    made->addr = nullptr;
    return made;
  });
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

// The daemon maps the buffer if the exporter permits that, as udmabuf does. Memory that can't be mapped:
// EOPNOTSUPP.
UROCE_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                                       int fd, int flags) {
  const Verb verb("ibv_reg_dmabuf_mr");
  return guarded<ibv_mr*>(nullptr, [&]() -> ibv_mr* {
    const unsigned access = static_cast<unsigned>(flags) & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if (const int error = check_access(access); error != 0) return null_with(error);
    if (length == 0 || offset + length < offset || (access & IBV_ACCESS_ON_DEMAND) != 0) return null_with(EINVAL);
    const std::uint64_t first = round_down(offset), bytes = round_up(offset + length) - first;
    constexpr unsigned kWriting = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    const int protection = (access & kWriting) != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    // The pages of a memory file are allocated here: the daemon allocates none.
    void* const probe = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(first));
    if (probe == MAP_FAILED) return null_with(errno == EBADF ? EBADF : EOPNOTSUPP);
    munmap(probe, bytes);
    auto mr = std::make_unique<Mr>();
    mr->access = access;
    uroce_reg_mr_request request{};
    request.pd = pd->handle;
    request.access = access;
    request.addr = offset - first;  // offset in its first page
    request.length = length;
    request.iova = iova;
    request.piece_count = 1;
    request.piece[0] = {0, 0, first, bytes};
    uroce_reg_mr_response reply{};
    const int error = session_of(pd->context)
                          .call(UROCE_CMD_REG_MR, std::as_bytes(std::span(&request, 1)),
                                std::as_writable_bytes(std::span(&reply, 1)), std::span(&fd, 1));
    if (error != 0) return null_with(error);
    return finish_mr(std::move(mr), pd, nullptr, length, reply);
  });
}

// ibv_dm_export_dmabuf_fd(3), since rdma-core 62.
UROCE_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
  const Verb verb("ibv_dm_export_dmabuf_fd");
  const auto& exported = *reinterpret_cast<Dm*>(dm);
  return export_memory_file(exported.fd, exported.mapped);
}
