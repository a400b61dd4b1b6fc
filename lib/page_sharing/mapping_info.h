// What is mapped at an address of this process: PROCMAP_QUERY (Linux 6.11), else the text of /proc/self/maps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {

struct Mapping {
  enum class Origin : std::uint8_t {
    kAnonymous,  ///< no file; a name that the program gave counts for nothing
    kHeap,       ///< anonymous, grown by brk
    kStack,      ///< of the main thread
    kFile,       ///< a file, a memfd, shared anonymous memory (which is a file to the kernel), a device
    kSpecial,    ///< of the kernel: vdso and the like
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

/// Reads one process's mappings while it lives; a child of fork needs a reader of its own.
class MappingReader {
 public:
  /// 0, or errno: there is no /proc.
  int open(bool force_text = false);
  /// Not to be left open between uses: the program may close the descriptor, and give the number to a file of its
  /// own.
  void close() { fd_.reset(); }

  /// The mapping that holds `address`, or else the next one above it. 0, ENOENT (none), or another errno.
  int at_or_after(std::uintptr_t address, Mapping& out);

  /// The path that the kernel shows for the mapping found last; empty if none. Valid until the next call.
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
  Mapping last_;            // text: where the reading stands
  std::size_t filled_ = 0;  // text: bytes in text_buffer_
  std::size_t taken_ = 0;   // text: bytes of them that were parsed
  char path_[kPathBytes] = {};
  char buffer_[2 * kPathBytes];
};

/// The threads of this process (bounded), for two questions: is there more than one, and which memory is the stack
/// or the control block of one of them.
class ThreadList {
 public:
  static constexpr std::size_t kMaxThreads = 1024;

  /// False when /proc doesn't tell, or there are more threads than fit.
  bool read();
  bool single() const { return complete_ && count_ == 1; }

  /// Whether [start, end), which lies in `mapping`, may hold a thread's stack or control block.
  bool may_hold_thread(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end) const;

  /// To be called once, early: notes where the main thread's thread-local memory begins. It has no mapping of its
  /// own: what the program maps later joins it.
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
