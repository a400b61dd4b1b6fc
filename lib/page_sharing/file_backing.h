// Descriptors of the files that the program has mapped: duplicates of its own, or opened again. There is one for
// each file, with a count of its users.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "page_sharing/mapping_info.h"
#include "page_sharing/page_arena.h"

namespace uroce::page_sharing {

class FileBacking {
 public:
  explicit FileBacking(Arena& arena) : arena_(&arena), files_(ArenaAllocator<Files::value_type>(&arena)) {}

  /// Returns a descriptor of the file that backs a shared mapping and adds a user; -1 if the file can't be opened.
  /// `path`: the path that the kernel shows for the mapping (proc(5), /proc/PID/maps).
  int acquire(const Mapping& mapping, const char* path, bool writable);
  void release(int fd);
  /// Closes all descriptors: for the child after fork(2).
  void clear();

 private:
  struct Key {
    std::uint32_t dev_major, dev_minor;
    std::uint64_t inode;
    bool writable;
    bool operator<(const Key& other) const {
      return std::tie(dev_major, dev_minor, inode, writable) <
             std::tie(other.dev_major, other.dev_minor, other.inode, other.writable);
    }
  };
  struct File {
    int fd;
    std::uint32_t users;
  };
  using Files = std::map<Key, File, std::less<>, ArenaAllocator<std::pair<const Key, File>>>;

  static bool matches(int fd, const Key& key);
  static int find_open(const Key& key);
  static int open_again(const Mapping& mapping, const char* path, const Key& key);

  Arena* arena_;
  Files files_;
};

}  // namespace uroce::page_sharing
