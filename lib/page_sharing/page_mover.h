// Moves pages between private anonymous memory and a file, in place, while other threads go on using them.
//
// What a thread writes lands before the copy or after the replacement, never between. Where neither the process is
// single-threaded nor userfaultfd allowed, memory is not moved at all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/mapping_info.h"
#include "page_sharing/page_arena.h"
#include "page_sharing/write_guard.h"

namespace uroce::page_sharing {

class PageMover {
 public:
  /// At most this much is protected at a time, so that other threads wait a bounded time.
  static constexpr std::size_t kStepBytes = std::size_t{64} << 20;

  explicit PageMover(Arena& arena) : arena_(&arena) {}

  Userfault& userfault() { return userfault_; }

  /// Replaces [start, start + bytes), private memory of one mapping with protection `protection`, by `file` from
  /// `offset` on, where nothing is yet. `single`: no other thread runs. The range must hold neither the stack of
  /// the calling thread nor anything else that it writes meanwhile. errno: 0, EBUSY (can't be moved safely: nothing
  /// changed), ENOMEM (not all was moved).
  int to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                std::uint64_t offset);

  /// The way back: [start, start + bytes), a shared mapping of `file` from `offset` on, becomes private anonymous
  /// memory. The file is left as it is. Where that can't be done safely for lack of userfaultfd it becomes a
  /// private mapping of the file with all its pages copied (`in_place`), which is the same to the program once the
  /// file is punched there.
  int to_private(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                 std::uint64_t offset, bool& in_place);

  /// As to_private() for a process that has one thread and no use for the file, as a child of fork.
  int to_private_alone(std::uintptr_t start, std::size_t bytes, int protection, int file, std::uint64_t offset);

 private:
  int step_to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                     std::uint64_t offset);
  int step_to_private(std::uintptr_t start, std::size_t bytes, int protection, bool guard, int file,
                      std::uint64_t offset);
  int to_private_in_place(std::uintptr_t start, std::size_t bytes, int protection, int file, std::uint64_t offset);
  int copy_present(std::uintptr_t start, std::size_t bytes, std::byte* to);

  Arena* arena_;
  Userfault userfault_;
};

}  // namespace uroce::page_sharing
