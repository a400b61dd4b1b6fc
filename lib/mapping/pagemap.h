// Which pages of a process are mapped now, so that an access does not wait for them (/proc/PID/pagemap, kernel
// documentation admin-guide/mm/pagemap.rst). Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "platform/unique_fd.h"

namespace uroce::mapping {

enum class Pages : std::uint8_t {
  kPresent,
  kAbsent,   ///< one at least; all pages of dma-bufs and other mappings of devices may seem so
  kUnknown,  ///< the file cannot be read
};

class Pagemap {
 public:
  /// Of no process: all pages are unknown.
  Pagemap() = default;
  /// The process may have ended by then.
  explicit Pagemap(pid_t process);
  /// Of this process. Opened by the first call: a daemon that changes its user cannot open it afterwards.
  static const Pagemap& own();

  bool valid() const { return file_.valid(); }
  /// Of [address, address + bytes), one byte at least.
  Pages look(std::uint64_t address, std::size_t bytes) const;

 private:
  UniqueFd file_;
};

}  // namespace uroce::mapping
