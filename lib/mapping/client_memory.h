// A client's registered memory, mapped into the daemon. The files come from the client and are hostile: only files
// whose page faults the kernel serves without waiting are mapped, and SigbusGuard covers every mapping. The client
// allocates the pages of files in memory; the daemon uses those that are there.
//
// MRs in one file share mappings: a run of pages is mapped as part of a whole aligned extent, counted by its MRs,
// so that 10,000 small MRs in one heap cost a few mappings. Used by the control thread only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "abi/control.h"
#include "mapping/memory_budget.h"
#include "mapping/stall_budget.h"
#include "mapping/untrusted_fd.h"
#include "memory/table.h"
#include "platform/unique_fd.h"

namespace uroce::mapping {

/// Which mappings of a file are allowed, by its type and file system.
struct FileKind {
  enum class Faults : std::uint8_t {
    kRefused,      ///< served by a driver, or by what the daemon cannot guard
    kMayNotEnd,    ///< served by another machine or a program
    kWaitForDisk,  ///< also for other users of the disk
    kFromMemory,
  };
  Faults faults = Faults::kRefused;
  std::uint64_t page_bytes = 4096;
  bool may_exceed = true;  ///< may be mapped past its end
  bool in_memory = false;  ///< its pages are nowhere else: on no disk
};
FileKind kind_of_file(const FileFacts& facts);

struct FileRange {
  std::uint64_t begin = 0, end = 0;
};
/// The range of the file that is mapped for a piece: larger than the piece if other regions may share the mapping.
FileRange range_to_map(const FileKind& kind, const uroce_mr_piece& piece);

class ClientMemory {
  struct Extent {
    std::byte* base = nullptr;
    std::uint64_t map_bytes = 0;
    std::size_t maps = 0;  ///< of the kernel's, when every piece counts as one
    std::uint32_t users = 0;
    // Of a run of one file, that other MRs may share; inode 0 otherwise.
    dev_t device = 0;
    ino_t inode = 0;
    bool writable = false;
    std::uint64_t offset = 0;
    bool prefault = false;  ///< before it is used: that allocates nothing
    std::list<Extent>::iterator self;
    std::unique_ptr<memory::Loss> loss;
  };
  /// Extents of files that MRs share, by file and place.
  using Place = std::tuple<dev_t, ino_t, bool, std::uint64_t>;

 public:
  /// What one MR holds.
  class Hold {
   public:
    std::byte* base() const { return base_; }  ///< of the first piece's first byte
    const memory::Loss* loss() const { return extent_->loss.get(); }

   private:
    friend class ClientMemory;
    std::byte* base_ = nullptr;
    Extent* extent_ = nullptr;
  };

  /// `stall_budget`: of the session's user, for files whose server does not answer. `budget`: charged for each
  /// mapping; nullptr: none.
  ClientMemory(std::uint64_t session, std::shared_ptr<StallBudget> stall_budget, MemoryBudget* budget = nullptr)
      : session_(session), stall_budget_(std::move(stall_budget)), budget_(budget) {}
  ~ClientMemory();
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;

  struct Use {
    bool writable = false;   ///< the daemon will write
    bool on_demand = false;  ///< pages past the end of the file may appear later
    bool may_wait = false;   ///< the daemon may wait for a disk: its owner could stop it anyway
  };
  /// Of map(): page faults of a file would make workers wait. The region can be reached indirectly (proc_mem.h).
  static constexpr int kWouldWait = -1;
  /// Maps the pieces side by side. errno: 0, EINVAL (pieces that make no sense), EACCES (a file opened for reading
  /// only), EFAULT (past the end of the file), EOPNOTSUPP (no file that the daemon maps), ENOMEM; or kWouldWait.
  int map(std::span<const uroce_mr_piece> pieces, std::span<const UniqueFd> fds, Use use, Hold& out);
  /// To be called when no worker uses the memory.
  void unmap(Hold& hold);

  std::size_t mappings() const { return mapping_count_; }

 private:
  int map_shared(const uroce_mr_piece& piece, int fd, Use use, Hold& out);
  int map_joined(std::span<const uroce_mr_piece> pieces, std::span<const UniqueFd> fds, Use use, Hold& out);
  bool take(std::size_t mappings);
  void give_back(std::size_t mappings);
  Extent& add(Extent extent);
  Extent* find(dev_t device, ino_t inode, std::uint64_t offset, std::uint64_t bytes, bool writable);

  std::uint64_t session_;
  std::shared_ptr<StallBudget> stall_budget_;
  MemoryBudget* budget_;
  std::list<Extent> extents_;
  std::multimap<Place, Extent*> shared_;
  std::size_t mapping_count_ = 0;
};

}  // namespace uroce::mapping
