// The memory that one session shares with the daemon: chunks of two kinds (abi/segment.h), and the blocks allocated
// from them. A chunk is a sealed memfd; blocks come and go, chunks stay until the session ends. Used by the control
// thread only.
//
// The daemon keeps only its mapping of a chunk: the descriptor goes to the client with the response that first
// names the chunk, and is then closed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "abi/control.h"
#include "mapping/memory_budget.h"
#include "platform/unique_fd.h"

namespace uroce::mapping {

enum class ChunkKind : std::uint8_t { kClientWrites, kDaemonWrites };

/// A piece of shared memory: where the client finds it, and where the daemon does.
struct SharedBlock {
  uroce_place place{};
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class SharedSegment {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugeBytes = 2u << 20;

  /// `hugepages`: try them first. `session`: for SigbusGuard, since the client may punch holes into chunks that it
  /// writes; 0: none. `budget`: charged for each chunk; nullptr: none.
  explicit SharedSegment(bool hugepages, std::uint64_t session = 0, MemoryBudget* budget = nullptr)
      : hugepages_(hugepages), session_(session), budget_(budget) {}
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// Zeroed, aligned to 64 bytes. nullopt: no memory. May add one chunk.
  std::optional<SharedBlock> allocate(ChunkKind kind, std::size_t bytes);
  void free(const SharedBlock& block);
  /// Unmaps the last chunk. False: there was none. No block is used or allocated any more.
  bool release_chunk();

  /// Chunks made since the last call, for the response, and their descriptors in the same order. At most 4.
  uroce_new_chunks take_new_chunks(std::vector<UniqueFd>& fds);

  /// Whether this file is the first chunk's memfd.
  bool is_first_chunk(dev_t device, ino_t inode) const {
    return !chunks_.empty() && chunks_[0].device == device && chunks_[0].inode == inode;
  }
  std::size_t total_bytes() const { return total_bytes_; }
  std::size_t chunks() const { return chunks_.size(); }

 private:
  struct Chunk {
    ChunkKind kind;
    std::byte* base;
    std::size_t bytes;
    std::size_t fresh;                         ///< bytes from here on were never handed out and are zero
    std::map<std::size_t, std::size_t> holes;  ///< offset -> bytes, merged
    UniqueFd fd;                               ///< until the client has it
    dev_t device;
    ino_t inode;
  };
  std::optional<SharedBlock> take(std::uint32_t number, std::size_t bytes);
  bool add_chunk(ChunkKind kind, std::size_t bytes);

  bool hugepages_;
  std::uint64_t session_;
  MemoryBudget* budget_;
  std::vector<Chunk> chunks_;
  std::size_t announced_ = 0;
  std::size_t total_bytes_ = 0;
};

}  // namespace uroce::mapping
