// Empty copies of the mappings that moved pages came from.
//
// The kernel joins two anonymous mappings only if their page offsets, the anon_vma of their pages, flags, NUMA
// policy and name agree (Linux: mm/vma.c, can_vma_merge_after). New memory at the same address has another
// anon_vma, and memory that is made elsewhere and moved there has another page offset, too. Therefore two pages of
// each original mapping are kept, and pages return in an extended copy of those. They have no content and may not
// be accessed.
#pragma once

#include <cstdint>
#include <map>

#include "page_sharing/mapping_info.h"
#include "page_sharing/page_arena.h"
#include "page_sharing/page_users.h"

namespace uroce::page_sharing {

/// The original mapping of a range of pages.
struct Original {
  std::uintptr_t copy = 0;  ///< 0: there is none
  std::uint64_t skip = 0;   ///< bytes from the page that the copy stands for to the first page of the range
  bool locked = false;      ///< mlock(2); the copy is not
};

/// Whether mlock(2) has locked the page.
bool locked(std::uintptr_t page);
/// Moves the first page of the anonymous mapping at `start`, which must not be locked, elsewhere, in a mapping of
/// its own with the same properties, and leaves an absent page. 0: not possible, nothing has changed (mremap(2),
/// MREMAP_DONTUNMAP, Linux 5.7).
std::uintptr_t take_first_page(std::uintptr_t start);
/// Makes the copy to be kept of a page that take_first_page() returned, whose content is lost. 0 on failure.
std::uintptr_t empty_copy(std::uintptr_t page);
/// New memory without access rights that continues the mapping of `original`. Null on failure.
void* map_like(Original original, std::size_t bytes);

/// The copies, by offset of the moved pages in the memfd.
class OriginalMappings {
 public:
  explicit OriginalMappings(Arena& arena) : arena_(&arena), copies_(ArenaAllocator<Copies::value_type>(&arena)) {}

  /// Takes over the copy of the mapping that the pages at [start, end) came from, if there is one. It replaces
  /// those of pages that were at these offsets before.
  void add(std::uint64_t start, std::uint64_t end, const Original& original);
  /// The mapping to which the pages at [start, until) return. `until` is `limit` or less; it may be more than the
  /// range given to add() if the program has extended the mapping.
  Original find(std::uint64_t start, std::uint64_t limit, std::uint64_t& until) const;
  /// Unmaps the copies of ranges that overlap [start, end) and have no users.
  void remove_unused(std::uint64_t start, std::uint64_t end, const PageUsers& users);
  /// Unmaps all copies.
  void clear();
  /// Unmaps those copies that the child of a fork has inherited: those with MADV_DONTFORK are missing.
  void clear_in_child(MappingReader& reader);

 private:
  struct Copy {
    std::uint64_t end;
    std::uintptr_t at;
    bool locked;
  };
  using Copies = std::map<std::uint64_t, Copy, std::less<>, ArenaAllocator<std::pair<const std::uint64_t, Copy>>>;

  void insert(std::uint64_t start, const Copy& copy);
  void make_room(std::uint64_t start, std::uint64_t end);

  Arena* arena_;
  Copies copies_;
};

}  // namespace uroce::page_sharing
