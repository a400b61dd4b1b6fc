// Descriptors for files that the program has mapped: its own, or opened anew. One for each file, however many
// registrations use it.
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

  /// A descriptor of the file behind a shared mapping, and counts a user of it; -1 if none can be had. `path` is
  /// what the kernel shows for the mapping.
  int acquire(const Mapping& mapping, const char* path, bool writable);
  void release(int fd);
  /// In a child of fork: closes all.
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
