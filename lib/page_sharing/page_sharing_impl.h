// The implementation of PageSharing. It is in a mapping of its own, never in the program's heap.
//
// Offsets in the file. A page of the brk(2) heap has its address as offset, so that neighbouring pages merge into
// one mapping and one piece. Any other range gets an offset of its own, followed by kPlaceBytes of unused offsets:
// the program may mremap() a registered block (realloc does) and let it grow, and the block must not grow into
// other shared memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include "page_sharing/file_backing.h"
#include "page_sharing/mapping_info.h"
#include "page_sharing/original_mappings.h"
#include "page_sharing/page_arena.h"
#include "page_sharing/page_mover.h"
#include "page_sharing/page_sharing.h"
#include "page_sharing/page_users.h"

namespace uroce::page_sharing {

struct PageSharing::Impl {
  static constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 47;
  static constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kPlaceBytes = std::uint64_t{1} << 30;
  static constexpr std::size_t kMaxPieces = 64;

  struct Piece {
    std::uintptr_t address;
    std::uint64_t offset;
    std::uint64_t bytes;
    int fd;
    bool moved;  ///< in the memfd, with a count of users; else in a file of the program
  };
  struct MappedPart {
    enum class Kind : std::uint8_t { kMove, kAlreadyShared, kFile };
    Piece piece;
    Kind kind;
    int protection;
    bool heap;
    bool anonymous;
    bool joined;  ///< continues the part before it in the same file
  };
  using Parts = ArenaVector<MappedPart>;
  struct Registration {
    ArenaVector<Piece> pieces;
    bool indirect;
  };
  struct Range {
    std::uintptr_t start, end;
    std::uint64_t offset;
    int protection;
  };
  using Ranges = ArenaVector<Range>;
  using RangeKey = std::pair<std::uintptr_t, std::size_t>;
  using Registrations =
      std::multimap<RangeKey, Registration, std::less<>, ArenaAllocator<std::pair<const RangeKey, Registration>>>;

  Impl();

  int share(std::uintptr_t address, std::size_t bytes, bool writable, SharedPiece* pieces, std::size_t& count);
  void unshare(std::uintptr_t address, std::size_t bytes);

  // fork.cc
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();
  /// Replaces the pages that the parent had moved by private copies, and forgets all registrations: for the child.
  void become_child();

  /// The mappings of the memfd, in order of address. False: /proc is not available, or out of memory.
  bool find_mappings(Ranges& out);
  bool is_ours(const Mapping& mapping) const;
  bool ensure_file();

  int inspect_mappings(std::uintptr_t start, std::uintptr_t end, bool writable, Parts& parts, bool& indirect_only);
  int classify(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end, bool writable, MappedPart& part);
  bool movable(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end);
  bool move(MappedPart& part);
  bool move_parts(Parts& parts, ArenaVector<Piece>& pieces);
  bool join(Parts& parts, ArenaVector<Piece>& pieces);
  void release(ArenaVector<Piece>& pieces);
  void release_files(const Parts& parts);
  std::uint64_t place_for(std::uintptr_t address, std::size_t bytes, bool heap);
  bool taken(std::uint64_t start, std::uint64_t end) const {
    return users.any(start, end) || leftover.any(start, end);
  }
  /// Makes pages without users private again; restore() then unmaps the copies of mappings that are not needed.
  void restore_pages(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes);
  void restore(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes);
  bool restore_at(std::uintptr_t address, std::uint64_t offset, std::uint64_t bytes, int protection);
  bool restore_home(std::uintptr_t address, std::uint64_t offset, std::uint64_t& bytes, bool& elsewhere);
  bool restore_elsewhere(std::uint64_t offset, std::uint64_t bytes);
  bool room_for_mappings();

  std::mutex mutex;
  long process = 0;
  Arena arena;
  PageUsers users;     ///< of pages of the memfd
  PageUsers leftover;  ///< pages of the memfd without users that must not be reused
  OriginalMappings originals;
  PageUsers indirect;  ///< addresses that the daemon accesses through /proc/PID/mem: they must not move
  Registrations registrations;
  FileBacking files;
  PageMover mover;
  MappingReader reader;
  ThreadList threads;

  RawFd file;
  std::uint64_t file_inode = 0;
  std::uint32_t file_major = 0, file_minor = 0;
  std::uint64_t next_place = kAddressEnd;

  std::uint32_t moves = 0;  ///< since room_for_mappings() counted the mappings
  bool crowded = false;     ///< the process has more than three quarters of vm.max_map_count mappings

  std::uint64_t signals_before_fork = 0;
  RawFd child_done_read, child_done_write;
  Ranges* fork_ranges = nullptr;

  /// The instance that the fork handlers use. Set once, with release; the handlers load it with acquire.
  static std::atomic<Impl*> watched;
  [[gnu::constructor]] static void on_load();
};

}  // namespace uroce::page_sharing
