#include "mapping/client_memory.h"

#include <linux/magic.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "mapping/sigbus_guard.h"
#include "mapping/untrusted_fd.h"
#include "platform/clock.h"

namespace uroce::mapping {
namespace {

using Faults = FileKind::Faults;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kExtentBytes = 64u << 20;
constexpr std::uint64_t kPrefaultBytes = 64u << 20;
constexpr std::uint64_t kMaxFileOffset = std::uint64_t{1} << 62;

// File systems that linux/magic.h leaves out: statfs(2), and their own headers.
constexpr std::uint32_t kJfs = 0x3153464a, kNtfs3 = 0x7366746e, kBcachefs = 0xca451a4e, kZfs = 0x2fc12fc1;

// A file system that fstatfs(2) cannot identify is not trusted.
FileKind classify(int fd, const std::shared_ptr<StallBudget>& stall_budget, FileFacts& facts) {
  if (examine(fd, stall_budget, facts) != 0) return {};
  return kind_of_file(facts);
}

bool sane(const uroce_mr_piece& piece, std::uint64_t page_bytes) {
  return piece.bytes != 0 && piece.bytes % kPage == 0 && piece.offset % page_bytes == 0 &&
         piece.offset < kMaxFileOffset && piece.bytes < kMaxFileOffset;
}

// Pinning finds no page past the end of the file, whose last page may be a partial one. A dma-buf knows its own
// end.
bool has_pages(const uroce_mr_piece& piece, const FileKind& kind, const FileFacts& facts) {
  if (!kind.may_exceed) return true;
  const std::uint64_t pages = facts.bytes / kind.page_bytes + (facts.bytes % kind.page_bytes != 0);
  return piece.offset + piece.bytes <= pages * kind.page_bytes;
}

/// errno of a piece that cannot be mapped, or kWouldWait; 0: it can.
int check(const uroce_mr_piece& piece, const FileKind& kind, const FileFacts& facts, ClientMemory::Use use) {
  if (kind.faults == Faults::kRefused) return EOPNOTSUPP;
  if (kind.faults == Faults::kMayNotEnd || (kind.faults == Faults::kWaitForDisk && !use.may_wait)) {
    return ClientMemory::kWouldWait;
  }
  if (!sane(piece, kPage)) return EINVAL;
  // mmap(2) of hugetlbfs would lengthen the client's file.
  const bool later = use.on_demand && kind.page_bytes == kPage;
  return later || has_pages(piece, kind, facts) ? 0 : EFAULT;
}

// Populates the mapping now rather than by page faults under load. Other clients wait for that, so it ends after
// some time, and at a hole that is guarded.
void prefault(std::byte* base, std::uint64_t bytes, bool writable) {
#ifdef MADV_POPULATE_WRITE
  constexpr std::uint64_t kStep = 2u << 20;
  constexpr Nanos kLongest = 5 * kMillisecond;
  const Nanos end = monotonic_now() + kLongest;
  const std::uint64_t all = std::min(bytes, kPrefaultBytes);
  for (std::uint64_t done = 0; done < all && monotonic_now() < end; done += kStep) {
    const std::uint64_t part = std::min(kStep, all - done);
    if (::madvise(base + done, part, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0) return;
  }
#else
  static_cast<void>(base), static_cast<void>(bytes), static_cast<void>(writable);
#endif
}

bool is_whole(const memory::Loss& loss) { return loss.from.load() == memory::Loss().from.load(); }

int protection(bool writable) { return writable ? PROT_READ | PROT_WRITE : PROT_READ; }

// SigbusGuard guards the holes of mappings that may become writable, which a private one may even if the file is
// open for reading only. Nobody writes to it, so that its pages are the file's.
int sharing(const FileKind& kind, bool writable) {
  return kind.in_memory && !writable && SigbusGuard::instance().guards_holes() ? MAP_PRIVATE : MAP_SHARED;
}

/// Whether the daemon allocates no page there that counts as its memory for as long as the client keeps the file.
bool allocates_nothing(const FileKind& kind, std::byte* base, std::uint64_t bytes) {
  return !kind.in_memory || SigbusGuard::instance().guard_holes(base, bytes);
}

}  // namespace

// The pages of a ramfs stay for as long as the file, and nothing guards its holes.
FileKind kind_of_file(const FileFacts& facts) {
  // A device is in the devtmpfs, a tmpfs, and its driver serves the faults.
  if (!facts.regular && facts.magic != DMA_BUF_MAGIC) return {};
  switch (facts.magic) {
    case HUGETLBFS_MAGIC:
      return {.faults = Faults::kFromMemory, .page_bytes = facts.block_bytes, .in_memory = true};
    case DMA_BUF_MAGIC: return {.faults = Faults::kFromMemory, .may_exceed = false};
    case TMPFS_MAGIC: return {.faults = Faults::kFromMemory, .in_memory = true};
    case RAMFS_MAGIC: return {};
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case REISERFS_SUPER_MAGIC:
    case NILFS_SUPER_MAGIC:
    case MSDOS_SUPER_MAGIC:
    case EXFAT_SUPER_MAGIC:
    case SQUASHFS_MAGIC:
    case EROFS_SUPER_MAGIC_V1:
    case ISOFS_SUPER_MAGIC:
    case UDF_SUPER_MAGIC:
    case kJfs:
    case kNtfs3:
    case kBcachefs:
    case kZfs: return {.faults = Faults::kWaitForDisk};
    default: return {.faults = Faults::kMayNotEnd};
  }
}

FileRange range_to_map(const FileKind& kind, const uroce_mr_piece& piece) {
  // The kernel reserves hugepages for the whole mapping, so such a file is mapped only as far as needed.
  const bool huge = kind.page_bytes != kPage;
  const std::uint64_t unit = huge ? kind.page_bytes : kind.may_exceed ? kExtentBytes : kPage;
  return {piece.offset / unit * unit, (piece.offset + piece.bytes + unit - 1) / unit * unit};
}

ClientMemory::~ClientMemory() {
  for (Extent& extent : extents_) {
    SigbusGuard::instance().remove(extent.base);
    ::munmap(extent.base, extent.map_bytes);
    give_back(extent.maps);
  }
}

bool ClientMemory::take(std::size_t mappings) {
  if (budget_ != nullptr && !budget_->take(mappings, 0)) return false;
  mapping_count_ += mappings;
  return true;
}

void ClientMemory::give_back(std::size_t mappings) {
  if (budget_ != nullptr) budget_->give_back(mappings, 0);
  mapping_count_ -= mappings;
}

ClientMemory::Extent& ClientMemory::add(Extent extent) {
  extents_.push_back(std::move(extent));
  Extent& added = extents_.back();
  added.self = std::prev(extents_.end());
  if (added.inode != 0) shared_.emplace(Place{added.device, added.inode, added.writable, added.offset}, &added);
  return added;
}

// Most extents are one aligned unit of a file. Of longer ones that begin before, a few are tried; a range that is
// not found is mapped again.
ClientMemory::Extent* ClientMemory::find(dev_t device, ino_t inode, std::uint64_t offset, std::uint64_t bytes,
                                         bool writable) {
  constexpr int kTries = 8;
  auto at = shared_.upper_bound(Place{device, inode, writable, offset});
  for (int i = 0; i < kTries && at != shared_.begin(); ++i) {
    Extent& extent = *(--at)->second;
    if (extent.inode != inode || extent.device != device || extent.writable != writable) return nullptr;
    if (!is_whole(*extent.loss)) continue;
    if (offset - extent.offset <= extent.map_bytes && bytes <= extent.map_bytes - (offset - extent.offset)) {
      return &extent;
    }
  }
  return nullptr;
}

int ClientMemory::map_shared(const uroce_mr_piece& piece, int fd, Use use, Hold& out) {
  FileFacts info;
  const FileKind kind = classify(fd, stall_budget_, info);
  const bool writable = use.writable;
  if (const int error = check(piece, kind, info, use)) return error;
  Extent* extent = find(info.device, info.inode, piece.offset, piece.bytes, writable);
  if (extent == nullptr) {
    const auto [start, end] = range_to_map(kind, piece);
    auto loss = std::make_unique<memory::Loss>();
    loss->in_memory = kind.in_memory;
    if (!take(1)) return ENOMEM;
    void* base = ::mmap(nullptr, end - start, protection(writable), sharing(kind, writable) | MAP_NORESERVE, fd,
                        static_cast<off_t>(start));
    if (base == MAP_FAILED) {
      const int error = errno == EPERM ? EACCES : errno;
      give_back(1);
      return error;
    }
    if (!SigbusGuard::instance().add(base, end - start, session_, loss.get())) {
      ::munmap(base, end - start);
      give_back(1);
      return ENOMEM;
    }
    extent = &add({static_cast<std::byte*>(base),
                   end - start,
                   1,
                   0,
                   info.device,
                   info.inode,
                   writable,
                   start,
                   allocates_nothing(kind, static_cast<std::byte*>(base), end - start),
                   {},
                   std::move(loss)});
  }
  ++extent->users;
  out.extent_ = extent;
  out.base_ = extent->base + (piece.offset - extent->offset);
  if (extent->prefault) prefault(out.base_, piece.bytes, writable);
  return 0;
}

int ClientMemory::map_joined(std::span<const uroce_mr_piece> pieces, std::span<const UniqueFd> fds, Use use,
                             Hold& out) {
  const bool writable = use.writable;
  std::uint64_t total = 0;
  FileKind kind;
  FileFacts facts;
  std::vector<FileKind> kinds;
  std::size_t of = fds.size();
  for (const uroce_mr_piece& piece : pieces) {
    if (piece.fd != of) kind = classify(fds[piece.fd].get(), stall_budget_, facts);
    of = piece.fd;
    // Hugepages cannot be mapped at an arbitrary address after another piece.
    if (kind.page_bytes != kPage) return EOPNOTSUPP;
    if (const int error = check(piece, kind, facts, use)) return error;
    total += piece.bytes;
    if (total >= kMaxFileOffset) return EINVAL;
    kinds.push_back(kind);
  }
  auto loss = std::make_unique<memory::Loss>();
  loss->in_memory = std::ranges::all_of(kinds, &FileKind::in_memory);
  if (!take(pieces.size())) return ENOMEM;
  void* window = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (window == MAP_FAILED) {
    give_back(pieces.size());
    return ENOMEM;
  }
  std::byte* const base = static_cast<std::byte*>(window);
  int error = 0;
  std::uint64_t done = 0;
  bool may_prefault = true;
  for (std::size_t i = 0; i < pieces.size() && error == 0; ++i) {
    const uroce_mr_piece& piece = pieces[i];
    if (::mmap(base + done, piece.bytes, protection(writable),
               sharing(kinds[i], writable) | MAP_FIXED | MAP_NORESERVE, fds[piece.fd].get(),
               static_cast<off_t>(piece.offset)) == MAP_FAILED) {
      error = errno == EPERM ? EACCES : errno;
    } else {
      may_prefault = allocates_nothing(kinds[i], base + done, piece.bytes) && may_prefault;
    }
    done += piece.bytes;
  }
  if (error == 0 && !SigbusGuard::instance().add(base, total, session_, loss.get())) error = ENOMEM;
  if (error != 0) {
    ::munmap(window, total);
    give_back(pieces.size());
    return error;
  }
  out.extent_ = &add({base, total, pieces.size(), 1, 0, 0, writable, 0, may_prefault, {}, std::move(loss)});
  out.base_ = base;
  if (may_prefault) prefault(base, total, writable);
  return 0;
}

int ClientMemory::map(std::span<const uroce_mr_piece> pieces, std::span<const UniqueFd> fds, Use use, Hold& out) {
  if (pieces.empty()) return EINVAL;
  for (const uroce_mr_piece& piece : pieces) {
    if (piece.fd >= fds.size()) return EINVAL;
  }
  return pieces.size() == 1 ? map_shared(pieces[0], fds[pieces[0].fd].get(), use, out)
                            : map_joined(pieces, fds, use, out);
}

void ClientMemory::unmap(Hold& hold) {
  Extent* const extent = hold.extent_;
  hold = {};
  if (extent == nullptr || --extent->users != 0) return;
  SigbusGuard::instance().remove(extent->base);
  ::munmap(extent->base, extent->map_bytes);
  give_back(extent->maps);
  const auto [first, end] =
      shared_.equal_range(Place{extent->device, extent->inode, extent->writable, extent->offset});
  const auto indexed = std::find_if(first, end, [extent](const auto& entry) { return entry.second == extent; });
  if (indexed != end) shared_.erase(indexed);
  extents_.erase(extent->self);
}

}  // namespace uroce::mapping
