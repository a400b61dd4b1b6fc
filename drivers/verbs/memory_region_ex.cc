// Registration as rdma-core 59 and later have it: ibv_reg_mr_ex (ibv_reg_mr(3)), and the buffers of
// ibv_alloc_buf(3). Their verbs.h declares the structs that rdma-core 44 lacks; this file builds with either.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "domain.h"
#include "export.h"
#include "memory_file.h"
#include "memory_region.h"
#include "objects.h"

struct ibv_mr_init_attr;

/// Opaque to programs.
struct ibv_buf {
  ibv_pd* pd;
  void* data;
  std::size_t bytes;   ///< that the program asked for
  std::size_t mapped;  ///< whole pages
  int fd;
};

namespace uroce::verbs {
namespace {

/// enum ibv_mr_init_attr_mask.
constexpr std::uint64_t kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kBuf = 32;

/// Of struct ibv_mr_init_attr.
struct MrInitAttr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask, iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  void* dmah;
  ibv_buf* buf;
};

/// What libibverbs checks before it calls a provider (libibverbs/verbs.c, dummy_ops.c). errno.
int check(const ibv_pd* pd, const MrInitAttr& attr) {
  const std::uint64_t mask = attr.comp_mask;
  if ((mask & ~(kIova | kAddr | kFd | kFdOffset | kBuf)) != 0) return EOPNOTSUPP;
  if ((mask & kFd) != 0) {
    const bool whole = (mask & (kFdOffset | kIova)) == (kFdOffset | kIova);
    return whole && (mask & (kAddr | kBuf)) == 0 ? 0 : EINVAL;
  }
  if ((mask & kAddr) == 0 || (mask & kFdOffset) != 0) return EINVAL;
  if ((mask & kBuf) == 0) return 0;
  const ibv_buf& buffer = *attr.buf;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(attr.addr),
                       base = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (buffer.pd != pd || first < base || first - base > buffer.bytes) return EINVAL;
  return attr.length > buffer.bytes - (first - base) ? EINVAL : 0;
}

/// Calls with which `Verb` names the call of the program.
ibv_mr* register_as(ibv_pd* pd, const MrInitAttr& attr) {
  if (const int error = check(pd, attr); error != 0) return null_with(error);
  if ((attr.comp_mask & kFd) != 0) {
    return ibv_reg_dmabuf_mr(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, attr.access);
  }
  const auto first = reinterpret_cast<std::uintptr_t>(attr.addr);
  return ibv_reg_mr_iova2(pd, attr.addr, attr.length, (attr.comp_mask & kIova) != 0 ? attr.iova : first,
                          static_cast<unsigned>(attr.access));
}

void release(ibv_buf* buffer) {
  if (buffer->data != nullptr) munmap(buffer->data, buffer->mapped);
  if (buffer->fd >= 0) client::sys::close(buffer->fd);
  delete buffer;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

UROCE_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  const Verb verb("ibv_reg_mr_ex");
  return register_as(pd, *reinterpret_cast<const MrInitAttr*>(attr));
}

UROCE_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* addr, std::size_t length, int access) {
  const Verb verb("ibv_reg_buf_mr");
  MrInitAttr attr{};
  attr.length = length;
  attr.access = access;
  attr.comp_mask = kAddr | kBuf;
  attr.addr = addr;
  attr.buf = buffer;
  return register_as(pd, attr);
}

UROCE_EXPORT void* ibv_alloc_buf(ibv_pd* pd, std::size_t bytes, ibv_buf** out) {
  const Verb verb("ibv_alloc_buf");
  return guarded<void*>(nullptr, [&]() -> void* {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes == 0) return null_with(EINVAL);
    if (bytes > SIZE_MAX / 2) return null_with(ENOMEM);
    std::unique_ptr<ibv_buf, decltype(&release)> made(new ibv_buf{}, release);
    made->pd = pd;
    made->bytes = bytes;
    made->mapped = (bytes + page - 1) / page * page;
    made->fd = make_memory_file("uroce-buf", made->mapped);
    if (made->fd < 0) return null_with(errno == EINVAL || errno == EFBIG ? ENOMEM : errno);
    void* const data = mmap(nullptr, made->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
    if (data == MAP_FAILED) return null_with(errno);
    made->data = data;
    *out = made.release();
    return data;
  });
}

UROCE_EXPORT void ibv_free_buf(ibv_buf* buffer) { release(buffer); }

UROCE_EXPORT int ibv_export_buf_dmabuf_fd(ibv_buf* buffer) {
  const Verb verb("ibv_export_buf_dmabuf_fd");
  return export_memory_file(buffer->fd, buffer->mapped);
}
