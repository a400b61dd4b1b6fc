// Returns pages without users to the program as private anonymous memory.

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>

#include "page_sharing/page_sharing_impl.h"

namespace uroce::page_sharing {

bool PageSharing::Impl::find_mappings(Ranges& out) {
  if (reader.open() != 0) return false;
  Mapping mapping;
  for (std::uintptr_t at = 0; reader.at_or_after(at, mapping) == 0; at = mapping.end) {
    if (!mapping.shared || !is_ours(mapping)) continue;
    if (!out.push({mapping.start, mapping.end, mapping.offset, mapping.protection()})) {
      reader.close();
      return false;
    }
  }
  reader.close();
  return true;
}

/// True: the pages are private now.
bool PageSharing::Impl::restore_at(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes,
                                   int protection) {
  bool good = true;
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset, until = end; at < end; at = until) {
    const Original original = originals.find(at, end, until);
    bool in_place = false;
    const int error = mover.to_private(address + (at - offset), until - at, protection, threads.single(),
                                       file.get(), at, original, in_place);
    // A private mapping shows later changes of the file at pages that it has not copied, so the offsets are not
    // reused.
    if (error == 0 && in_place) leftover.add(at, until);
    if (error != 0) good = false;
  }
  return good;
}

/// Restores pages at the address where they were registered. `bytes` grows if the program has extended the mapping.
bool PageSharing::Impl::restore_home(std::uintptr_t address, std::uint64_t offset, std::uint64_t& bytes,
                                     bool& elsewhere) {
  bool good = true;
  const std::uintptr_t end = address + bytes;
  if (reader.open() != 0) return false;
  for (std::uintptr_t at = address; at < end;) {
    Mapping mapping;
    if (reader.at_or_after(at, mapping) != 0 || mapping.start >= end) {
      elsewhere = true;
      return good;
    }
    const std::uintptr_t from = std::max(at, mapping.start);
    std::uintptr_t to = std::min(end, mapping.end);
    const std::uint64_t expected = offset + (from - address);
    if (mapping.start > at) elsewhere = true;
    at = to;
    if (!mapping.shared || !is_ours(mapping) || mapping.offset + (from - mapping.start) != expected) {
      elsewhere = true;
      continue;
    }
    if (to == end && mapping.end > end) {
      to += users.unused_until(offset + bytes, offset + bytes + (mapping.end - end)) - (offset + bytes);
    }
    if (!restore_at(from, expected, to - from, mapping.protection())) good = false;
    if (to > end) bytes += to - end;
  }
  return good;
}

/// Restores pages at the addresses to which the program has moved them (mremap(2)).
bool PageSharing::Impl::restore_elsewhere(std::uint64_t offset, std::uint64_t bytes) {
  Ranges ranges(arena);
  if (!find_mappings(ranges)) return false;
  bool good = true;
  for (const Range& range : ranges) {
    const std::uint64_t range_end = range.offset + (range.end - range.start);
    if (range_end <= offset || range.offset >= offset + bytes) continue;
    for (std::uint64_t at = range.offset; at < range_end;) {
      const std::uint64_t to = users.unused_until(at, range_end);
      if (to == at) {
        at = std::min(users.used_until(at), range_end);
        continue;
      }
      if (!restore_at(range.start + (at - range.offset), at, to - at, range.protection)) good = false;
      at = to;
    }
  }
  return good;
}

void PageSharing::Impl::restore(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes) {
  restore_pages(address, offset, bytes);
  originals.remove_unused(offset, offset + bytes, users);
}

void PageSharing::Impl::restore_pages(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes) {
  bool elsewhere = false;
  const bool known = threads.read();
  bool good = known && restore_home(address, offset, bytes, elsewhere);
  if (known && elsewhere && !restore_elsewhere(offset, bytes)) good = false;
  if (good) {
    raw_syscall(SYS_fallocate, file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  } else {
    leftover.add(offset, offset + bytes);  // the pages stay shared, which the program does not notice
  }
}

}  // namespace uroce::page_sharing
