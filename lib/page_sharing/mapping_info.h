// The mapping at an address of this process, from the ioctl PROCMAP_QUERY (Linux 6.11) or from the text of
// /proc/self/maps (proc(5)).
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {

struct Mapping {
  enum class Origin : std::uint8_t {
    kAnonymous,  ///< no file; a name set by prctl(PR_SET_VMA) is ignored
    kHeap,       ///< anonymous, grown by brk(2)
    kStack,      ///< of the main thread
    kFile,       ///< a file, a memfd, shared anonymous memory (a file to the kernel) or a device
    kSpecial,    ///< made by the kernel, such as the vdso
  };

  std::uintptr_t start = 0, end = 0;
  std::uint64_t offset = 0;  ///< in the file, bytes
  std::uint64_t inode = 0;
  std::uint32_t dev_major = 0, dev_minor = 0;
  bool readable = false, writable = false, executable = false, shared = false;
  Origin origin = Origin::kAnonymous;

  bool anonymous() const { return origin == Origin::kAnonymous || origin == Origin::kHeap; }
  int protection() const;  ///< PROT_*
};

/// Reads the mappings of this process. A child after fork(2) must open it again.
class MappingReader {
 public:
  /// 0, or errno when /proc is not available.
  int open(bool force_text = false);
  /// To be called after each use: the program may close all descriptors and reuse the number for a file of its own.
  void close() { fd_.reset(); }

  /// Finds the mapping that contains `address`, or the next one above it. 0, ENOENT (none), or another errno.
  int at_or_after(std::uintptr_t address, Mapping& out);

  /// The path of the mapping found last, as the kernel shows it; empty if it has none. Valid until the next call.
  const char* path() const { return path_; }

 private:
  int query(std::uintptr_t address, Mapping& out);
  int parse_on(std::uintptr_t address, Mapping& out);
  int next_line(char*& line);
  bool parse_line(char* line, Mapping& out);
  void rewind();
  void set_origin(Mapping& out) const;

  static constexpr std::size_t kPathBytes = 4096 + 64;

  RawFd fd_;
  bool text_ = false;
  Mapping last_;            // text: the mapping parsed last
  std::size_t filled_ = 0;  // text: bytes in buffer_
  std::size_t taken_ = 0;   // text: bytes of buffer_ that were parsed
  char path_[kPathBytes] = {};
  char buffer_[2 * kPathBytes];
};

/// The threads of this process: whether there is more than one, and which memory holds their stacks and control
/// blocks.
class ThreadList {
 public:
  static constexpr std::size_t kMaxThreads = 1024;

  /// False when /proc is not available, or there are more than kMaxThreads.
  bool read();
  bool single() const { return complete_ && count_ == 1; }

  /// Whether [start, end), which lies in `mapping`, may hold a thread's stack or control block.
  bool may_hold_thread(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end) const;

  /// To be called once, when the library is loaded: records where the main thread's thread-local memory begins.
  /// That memory shares its mapping with what the program maps next to it, before (dlopen(3)) or later.
  static void note_main_thread();

 private:
  struct Entry {
    std::uintptr_t block;  // an address inside the C library's control block of the thread
    bool main;
  };
  static std::uintptr_t main_start_;

  std::size_t count_ = 0;
  bool complete_ = false;
  Entry entries_[kMaxThreads];
};

}  // namespace uroce::page_sharing
