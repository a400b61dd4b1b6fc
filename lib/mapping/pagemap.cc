#include "mapping/pagemap.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace uroce::mapping {

Pagemap::Pagemap(pid_t process) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/pagemap", static_cast<int>(process));
  file_.reset(::open(path, O_RDONLY | O_CLOEXEC));
}

const Pagemap& Pagemap::own() {
  static const Pagemap pages(::getpid());
  return pages;
}

Pages Pagemap::look(std::uint64_t address, std::size_t bytes) const {
  if (!valid()) return Pages::kUnknown;
  constexpr std::uint64_t kPage = 4096, kPresent = std::uint64_t{1} << 63, kEntries = 32;
  std::uint64_t entries[kEntries];
  const std::uint64_t end = (address + bytes - 1) / kPage + 1;
  for (std::uint64_t page = address / kPage; page < end; page += kEntries) {
    const std::size_t count = std::min(kEntries, end - page), wanted = count * sizeof(entries[0]);
    const ssize_t n = ::pread(file_.get(), entries, wanted, static_cast<off_t>(page * sizeof(entries[0])));
    if (n != static_cast<ssize_t>(wanted)) return Pages::kUnknown;
    const bool present =
        std::all_of(entries, entries + count, [](std::uint64_t entry) { return entry & kPresent; });
    if (!present) return Pages::kAbsent;
  }
  return Pages::kPresent;
}

}  // namespace uroce::mapping
