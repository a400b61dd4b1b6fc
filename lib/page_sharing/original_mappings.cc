#include "page_sharing/original_mappings.h"

#include <sys/mman.h>

#include <algorithm>

#include "page_sharing/raw_syscall.h"

// Missing from older headers.
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif

namespace uroce::page_sharing {

namespace {

// One page is copied to get another mapping like it. A mapping all of whose pages are taken loses its anon_vma, so
// that a second page has to stay.
constexpr std::size_t kCopyBytes = 2 * kPageBytes;

std::uintptr_t remap(std::uintptr_t at, std::size_t bytes, std::size_t new_bytes, int flags) {
  const long result = raw_syscall(SYS_mremap, at, bytes, new_bytes, flags, 0);
  return result < 0 && result > -4096 ? 0 : static_cast<std::uintptr_t>(result);
}

std::uintptr_t address_of(void* at) { return reinterpret_cast<std::uintptr_t>(at); }
void unmap(std::uintptr_t at, std::size_t bytes) { unmap_pages(reinterpret_cast<void*>(at), bytes); }

}  // namespace

// The kernel doesn't reclaim locked pages early.
bool locked(std::uintptr_t page) { return raw_syscall(SYS_madvise, page, kPageBytes, MADV_COLD) == -EINVAL; }

std::uintptr_t take_first_page(std::uintptr_t start) {
  return remap(start, kPageBytes, kPageBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
}

std::uintptr_t empty_copy(std::uintptr_t page) {
  const std::uintptr_t copy = remap(page, kPageBytes, kCopyBytes, MREMAP_MAYMOVE);
  if (copy == 0) {
    unmap(page, kPageBytes);
    return 0;
  }
  if (raw_syscall(SYS_madvise, copy, kCopyBytes, MADV_DONTNEED) == 0 &&
      raw_syscall(SYS_mprotect, copy, kCopyBytes, PROT_NONE) == 0) {
    return copy;
  }
  unmap(copy, kCopyBytes);
  return 0;
}

void* map_like(Original original, std::size_t bytes) {
  const std::uintptr_t page = take_first_page(original.copy);
  if (page == 0) return nullptr;
  const std::uintptr_t at = remap(page, kPageBytes, original.skip + bytes, MREMAP_MAYMOVE);
  if (at == 0) {
    unmap(page, kPageBytes);
    return nullptr;
  }
  if (original.skip > 0) unmap(at, original.skip);
  return reinterpret_cast<void*>(at + original.skip);
}

void OriginalMappings::add(std::uint64_t start, std::uint64_t end, const Original& original) {
  if (original.copy == 0) return;
  make_room(start, end);
  insert(start, {end, original.copy, original.locked});
}

void OriginalMappings::insert(std::uint64_t start, const Copy& copy) {
  if (!arena_->reserve(1) || !copies_.emplace(start, copy).second) unmap(copy.at, kCopyBytes);
}

// Pages of the heap may return and be moved again, to the same offsets, while their neighbours stay.
void OriginalMappings::make_room(std::uint64_t start, std::uint64_t end) {
  auto it = copies_.upper_bound(start);
  if (it != copies_.begin()) --it;
  while (it != copies_.end() && it->first < end) {
    const std::uint64_t first = it->first;
    const Copy old = it->second;
    if (old.end <= start) {
      ++it;
      continue;
    }
    if (old.end > end) {
      void* const rest = map_like({old.at, end - first, false}, kCopyBytes);
      if (rest != nullptr) insert(end, {old.end, address_of(rest), old.locked});
    }
    if (first < start) {
      it->second.end = start;
      ++it;
    } else {
      unmap(old.at, kCopyBytes);
      it = copies_.erase(it);
    }
  }
}

Original OriginalMappings::find(std::uint64_t start, std::uint64_t limit, std::uint64_t& until) const {
  auto it = copies_.upper_bound(start);
  until = it == copies_.end() ? limit : std::min(limit, it->first);
  if (it == copies_.begin()) return {};
  --it;
  if (it->second.end <= start) return {};
  return {it->second.at, start - it->first, it->second.locked};
}

void OriginalMappings::remove_unused(std::uint64_t start, std::uint64_t end, const PageUsers& users) {
  auto it = copies_.upper_bound(start);
  if (it != copies_.begin()) --it;
  while (it != copies_.end() && it->first < end) {
    if (it->second.end <= start || users.any(it->first, it->second.end)) {
      ++it;
      continue;
    }
    unmap(it->second.at, kCopyBytes);
    it = copies_.erase(it);
  }
}

void OriginalMappings::clear() {
  for (const auto& [start, copy] : copies_) unmap(copy.at, kCopyBytes);
  copies_.clear();
}

void OriginalMappings::clear_in_child(MappingReader& reader) {
  ArenaVector<std::uintptr_t> copies(*arena_);
  for (const auto& [start, copy] : copies_) {
    if (!copies.push(copy.at)) break;
  }
  copies_.clear();
  if (copies.empty() || reader.open() != 0) return;
  std::sort(copies.begin(), copies.end());
  Mapping mapping;
  for (std::uintptr_t at = 0; reader.at_or_after(at, mapping) == 0; at = mapping.end) {
    // The child may have mapped memory of its own where a copy is missing.
    if (mapping.protection() != PROT_NONE || mapping.shared || !mapping.anonymous()) continue;
    auto first = std::lower_bound(copies.begin(), copies.end(), mapping.start);
    for (; first != copies.end() && *first + kCopyBytes <= mapping.end; ++first) unmap(*first, kCopyBytes);
  }
  reader.close();
}

}  // namespace uroce::page_sharing
