#include "engine/indirect.h"

#include <poll.h>
#include <sys/uio.h>

#include <cerrno>

namespace uroce::engine {
namespace {

iovec local_part(const std::byte* data, std::size_t bytes) { return {const_cast<std::byte*>(data), bytes}; }
iovec remote_part(std::uint64_t address, std::size_t bytes) {
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes};
}

}  // namespace

IndirectMemory::IndirectMemory(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {
  io_.context = this;
  io_.read = [](void* context, std::uint64_t address, std::byte* to, std::size_t bytes) {
    const auto* self = static_cast<const IndirectMemory*>(context);
    const iovec local = local_part(to, bytes), remote = remote_part(address, bytes);
    return self->alive() && ::process_vm_readv(self->pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  };
  io_.write = [](void* context, std::uint64_t address, const std::byte* from, std::size_t bytes) {
    const auto* self = static_cast<const IndirectMemory*>(context);
    const iovec local = local_part(from, bytes), remote = remote_part(address, bytes);
    return self->alive() &&
           ::process_vm_writev(self->pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  };
}

// A pidfd becomes readable when its process ends; only then can the number be given to another.
bool IndirectMemory::alive() const {
  pollfd ended{pidfd_, POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

int IndirectMemory::probe(std::uint64_t address) const {
  std::byte byte{};
  const iovec local = local_part(&byte, 1), remote = remote_part(address, 1);
  if (!alive()) return ESRCH;
  return ::process_vm_readv(pid_, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

}  // namespace uroce::engine
