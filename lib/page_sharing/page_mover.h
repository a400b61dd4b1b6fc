// Moves pages between private anonymous memory and a file, at the same address, while other threads use them.
//
// A write of another thread takes effect either before the copy or after the replacement, never in between. A
// process that has several threads and may not use userfaultfd(2) moves nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/mapping_info.h"
#include "page_sharing/original_mappings.h"
#include "page_sharing/write_guard.h"

namespace uroce::page_sharing {

class PageMover {
 public:
  /// Bytes that are protected at a time at most, which bounds how long other threads wait.
  static constexpr std::size_t kStepBytes = std::size_t{64} << 20;

  Userfault& userfault() { return userfault_; }

  /// Replaces [start, start + bytes), private memory of one mapping with protection `protection`, by an unused part
  /// of `file` that begins at `offset`. `single`: the process has no other thread. The range must contain neither
  /// the stack of the calling thread nor other memory that it writes during the call. errno: 0, EBUSY (can't be
  /// moved safely, nothing has changed), ENOMEM (only a part was moved). `original`, if given, receives a copy of
  /// the anonymous mapping, also when only a part was moved; none in a process with several threads that may use
  /// userfaultfd in user mode only.
  int to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                std::uint64_t offset, Original* original);

  /// The reverse: [start, start + bytes), a shared mapping of `file` at `offset`, becomes private anonymous memory.
  /// The file is not changed. Without userfaultfd it becomes a private mapping of the file, all of whose pages are
  /// copied (`in_place`); the program sees no difference.
  int to_private(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                 std::uint64_t offset, Original original, bool& in_place);

  /// to_private() for a process with one thread that will not use the file again: the child of a fork.
  int to_private_alone(std::uintptr_t start, std::size_t bytes, int protection, int file, std::uint64_t offset);

 private:
  int step_to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                     std::uint64_t offset, Original* original);
  int step_to_private(std::uintptr_t start, std::size_t bytes, int protection, bool guard, int file,
                      std::uint64_t offset, Original original);
  void populate(std::uintptr_t page, bool single);
  void return_first_page(std::uintptr_t from, std::uintptr_t to, bool single);
  int to_private_in_place(std::uintptr_t start, std::size_t bytes, int protection, int file, std::uint64_t offset);
  int copy_present(std::uintptr_t start, std::size_t bytes, std::byte* to);

  Userfault userfault_;
};

}  // namespace uroce::page_sharing
