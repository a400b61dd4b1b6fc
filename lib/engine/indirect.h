// Memory of a client that can't be mapped, reached through the kernel (process_vm_readv, process_vm_writev). Called
// by workers; the process is checked to be still the one that connected.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "engine/unique_fd.h"
#include "memory/table.h"

namespace uroce::engine {

class IndirectMemory {
 public:
  /// `pidfd` refers to process `pid`; it tells when that has gone.
  IndirectMemory(pid_t pid, int pidfd);
  IndirectMemory(const IndirectMemory&) = delete;
  IndirectMemory& operator=(const IndirectMemory&) = delete;

  const memory::IndirectIo& io() const { return io_; }
  /// Whether the kernel lets us read the byte at `address`: 0 or an errno.
  int probe(std::uint64_t address) const;

 private:
  bool alive() const;

  pid_t pid_;
  int pidfd_;
  memory::IndirectIo io_;
};

}  // namespace uroce::engine
