#include "page_sharing/page_sharing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <new>

#include "base/scope_guard.h"
#include "page_sharing/page_sharing_impl.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace uroce::page_sharing {

namespace {

// around the current frame: for stacks that the program allocated
constexpr std::size_t kStackBelow = 64 * 1024, kStackAbove = 16 * 1024;
constexpr std::uintptr_t kMallocHeapBytes = std::uintptr_t{64} << 20;
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;
constexpr std::uint32_t kMovesBetweenCounts = 1024;

// In the child, glibc's fork() writes to the header of every malloc arena before our handler runs. The headers of
// thread arenas are at the start of their heaps, which are aligned to 64 MiB and begin with a pointer to the header
// that follows.
__attribute__((noinline, no_sanitize("address", "thread"))) bool holds_malloc_arena(std::uintptr_t start,
                                                                                    std::uintptr_t end) {
  const std::uintptr_t heap = (start + kMallocHeapBytes - 1) & ~(kMallocHeapBytes - 1);
  for (std::uintptr_t at = heap; at < end; at += kMallocHeapBytes) {
    // Volatile: other threads may write here.
    const std::uintptr_t first = *reinterpret_cast<const volatile std::uintptr_t*>(at);
    if (first > at && first < at + 256) return true;
  }
  return false;
}

}  // namespace

PageSharing::Impl::Impl()
    : process(raw_syscall(SYS_getpid)),
      users(arena),
      leftover(arena),
      originals(arena),
      indirect(arena),
      registrations(ArenaAllocator<Registrations::value_type>(&arena)),
      files(arena) {}

bool PageSharing::Impl::is_ours(const Mapping& mapping) const {
  return file_inode != 0 && mapping.inode == file_inode && mapping.dev_major == file_major &&
         mapping.dev_minor == file_minor;
}

// The program may have closed the memfd with all its other descriptors. What was moved into it then stays there.
bool PageSharing::Impl::ensure_file() {
  struct stat status;
  if (file.valid()) {
    if (::fstat(file.get(), &status) == 0 && status.st_ino == file_inode && major(status.st_dev) == file_major &&
        minor(status.st_dev) == file_minor) {
      return true;
    }
    file.release();
    users.clear();
    leftover.clear();
    originals.clear();
  }
  long fd = raw_syscall(SYS_memfd_create, "uroce-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = raw_syscall(SYS_memfd_create, "uroce-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  RawFd created(fd);
  // ftruncate() past RLIMIT_FSIZE raises SIGXFSZ, which is blocked here but would arrive later.
  std::uint64_t limits[2] = {};
  raw_syscall(SYS_prlimit64, 0, 1 /* RLIMIT_FSIZE */, nullptr, limits);
  if (limits[0] < kFileBytes) return false;
  if (raw_syscall(SYS_ftruncate, created.get(), kFileBytes) != 0) return false;
  if (raw_syscall(SYS_fcntl, created.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return false;
  if (::fstat(created.get(), &status) != 0) return false;
  file = std::move(created);
  file_inode = status.st_ino;
  file_major = major(status.st_dev);
  file_minor = minor(status.st_dev);
  return true;
}

int PageSharing::Impl::inspect_mappings(std::uintptr_t start, std::uintptr_t end, bool writable, Parts& parts,
                                        bool& indirect_only) {
  indirect_only = false;
  if (reader.open() != 0 || !threads.read()) {
    indirect_only = true;  // /proc is not available, or there are too many threads: nothing is moved
    return 0;
  }
  for (std::uintptr_t at = start; at < end;) {
    Mapping mapping;
    if (reader.at_or_after(at, mapping) != 0 || mapping.start > at) return EFAULT;
    if (!mapping.readable || (writable && !mapping.writable)) return EFAULT;
    const std::uintptr_t stop = std::min(end, mapping.end);
    MappedPart part;
    if (!indirect_only && classify(mapping, at, stop, writable, part) != 0) indirect_only = true;
    if (!indirect_only && !parts.push(part)) {
      if (part.kind == MappedPart::Kind::kFile) files.release(part.piece.fd);
      return ENOMEM;
    }
    at = stop;
  }
  return 0;
}

/// 0, or EBUSY: indirect access only.
int PageSharing::Impl::classify(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end, bool writable,
                                MappedPart& part) {
  part = MappedPart{{start, mapping.offset + (start - mapping.start), end - start, -1, false},
                    MappedPart::Kind::kMove,
                    mapping.protection(),
                    mapping.origin == Mapping::Origin::kHeap,
                    mapping.anonymous(),
                    false};
  if (mapping.shared && is_ours(mapping)) {
    if (!ensure_file() || !is_ours(mapping)) return EBUSY;
    part.kind = MappedPart::Kind::kAlreadyShared;
    part.piece.fd = file.get();
    part.piece.moved = true;
    return 0;
  }
  if (mapping.shared && mapping.origin == Mapping::Origin::kFile) {
    part.kind = MappedPart::Kind::kFile;
    part.piece.fd = files.acquire(mapping, reader.path(), writable);
    return part.piece.fd >= 0 ? 0 : EBUSY;
  }
  if (!mapping.shared && (mapping.anonymous() || is_ours(mapping)) && movable(mapping, start, end)) {
    part.heap = mapping.origin == Mapping::Origin::kHeap;
    return 0;
  }
  return EBUSY;
}

bool PageSharing::Impl::movable(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end) {
  if (mapping.executable || end > kAddressEnd) return false;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (start < here + kStackAbove && end > here - kStackBelow) return false;
  if (threads.may_hold_thread(mapping, start, end)) return false;
  if (indirect.any(start, end) || holds_malloc_arena(start, end)) return false;
  if (!threads.single() && mover.userfault().mode() == Userfault::Mode::kForbidden) return false;
  return room_for_mappings() && ensure_file();
}

// Each move can split a mapping into three and keeps a copy of it. A quarter of vm.max_map_count is left to the
// program.
bool PageSharing::Impl::room_for_mappings() {
  if (moves++ % kMovesBetweenCounts != 0) return !crowded;
  std::size_t limit = 65530, count = 0;
  const RawFd fd(raw_syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  if (fd.valid() && raw_syscall(SYS_read, fd.get(), text, sizeof(text) - 1) > 0) {
    limit = 0;
    for (const char* c = text; *c >= '0' && *c <= '9'; ++c) limit = limit * 10 + static_cast<std::size_t>(*c - '0');
  }
  MappingReader& all = reader;
  Mapping mapping;
  for (std::uintptr_t at = 0; all.at_or_after(at, mapping) == 0; at = mapping.end) ++count;
  crowded = count > limit / 4 * 3;
  return !crowded;
}

std::uint64_t PageSharing::Impl::place_for(std::uintptr_t address, std::size_t bytes, bool heap) {
  if (heap && !taken(address, address + bytes)) return address;
  const std::uint64_t size = ((bytes + kPlaceBytes - 1) / kPlaceBytes + 2) * kPlaceBytes;
  bool wrapped = false;
  for (std::uint64_t at = next_place;; at += kPlaceBytes) {
    if (at + size > kFileBytes) {
      if (wrapped) return kFileBytes;
      wrapped = true;
      at = kAddressEnd;
    }
    if (taken(at - kPlaceBytes, at + size)) continue;
    next_place = at + size;
    return at + address % kHugePageBytes;  // congruent to the address, so that huge pages are possible
  }
}

bool PageSharing::Impl::move(MappedPart& part) {
  Piece& piece = part.piece;
  const std::uint64_t place = place_for(piece.address, piece.bytes, part.heap);
  if (place >= kFileBytes || !leftover.add(place, place + piece.bytes)) return false;
  Original original;
  const int error = mover.to_shared(piece.address, piece.bytes, part.protection, threads.single(), file.get(),
                                    place, part.anonymous ? &original : nullptr);
  originals.add(place, place + piece.bytes, original);
  leftover.remove(place, place + piece.bytes, [](std::uint64_t, std::uint64_t) {});
  if (error != 0) {
    if (error != EBUSY) restore(piece.address, place, piece.bytes);
    return false;
  }
  piece.offset = place;
  piece.fd = file.get();
  piece.moved = true;
  return true;
}

// Pieces that continue each other in one file become one.
bool PageSharing::Impl::join(Parts& parts, ArenaVector<Piece>& pieces) {
  const auto continues = [](const Piece& last, const Piece& next) {
    return last.fd == next.fd && last.moved == next.moved && last.offset + last.bytes == next.offset;
  };
  for (MappedPart& part : parts) {
    part.joined = !pieces.empty() && continues(pieces.back(), part.piece);
    if (part.joined) {
      pieces.back().bytes += part.piece.bytes;
    } else if (pieces.size() == kMaxPieces || !pieces.push(part.piece)) {
      return false;
    }
  }
  for (const MappedPart& part : parts) {  // a piece counts as one user of its file
    if (part.joined && part.kind == MappedPart::Kind::kFile) files.release(part.piece.fd);
  }
  return true;
}

void PageSharing::Impl::release_files(const Parts& parts) {
  for (const MappedPart& part : parts) {
    if (part.kind == MappedPart::Kind::kFile) files.release(part.piece.fd);
  }
}

// Moves the parts that need it, counts a user of each moved page, and lists the pieces. False: nothing has changed.
bool PageSharing::Impl::move_parts(Parts& parts, ArenaVector<Piece>& pieces) {
  std::size_t done = 0;
  base::ScopeGuard undo([&] {
    for (std::size_t i = 0; i < done; ++i) {
      ArenaVector<Piece> single(arena);
      if (parts[i].piece.moved && single.push(parts[i].piece)) release(single);
    }
  });
  for (; done < parts.size(); ++done) {
    MappedPart& part = parts[done];
    if (part.kind == MappedPart::Kind::kMove && !move(part)) return false;
    const Piece& piece = part.piece;
    if (piece.moved && !users.add(piece.offset, piece.offset + piece.bytes)) {
      if (part.kind == MappedPart::Kind::kMove) restore(piece.address, piece.offset, piece.bytes);
      return false;
    }
  }
  if (!join(parts, pieces)) return false;
  undo.dismiss();
  return true;
}

int PageSharing::Impl::share(std::uintptr_t address, std::size_t bytes, bool writable, SharedPiece* out,
                             std::size_t& count) {
  count = 0;
  const std::uintptr_t start = page_floor(address), end = page_ceil(address + bytes);
  if (address + bytes < address || end < start) return EFAULT;
  if (!arena.reserve(4)) return ENOMEM;
  Parts parts(arena);
  base::ScopeGuard release_unused([&] { release_files(parts); });
  Registration registration{ArenaVector<Piece>(arena), false};
  bool indirect_only = false;
  const int error = inspect_mappings(start, end, writable, parts, indirect_only);
  if (error != 0) return error;
  if (!indirect_only && move_parts(parts, registration.pieces)) {
    release_unused.dismiss();
  } else {
    registration.pieces.clear();
    registration.indirect = true;
    if (end > start && !indirect.add(start, end)) return ENOMEM;
  }
  for (const Piece& piece : registration.pieces) out[count++] = {piece.fd, piece.offset, piece.bytes};
  if (!arena.reserve(1)) return ENOMEM;
  registrations.emplace(RangeKey{address, bytes}, std::move(registration));
  return 0;
}

// Removes one user of the pages of `pieces`; pages without users become private again.
void PageSharing::Impl::release(ArenaVector<Piece>& pieces) {
  ArenaVector<Range> unused(arena);
  for (const Piece& piece : pieces) {
    if (!piece.moved) {
      files.release(piece.fd);
      continue;
    }
    if (piece.fd != file.get()) continue;  // of a memfd that the program has closed
    users.remove(piece.offset, piece.offset + piece.bytes, [&](std::uint64_t from, std::uint64_t to) {
      const std::uintptr_t at = piece.address + (from - piece.offset);
      unused.push({at, at + (to - from), from, 0});
    });
  }
  for (const Range& range : unused) restore_pages(range.start, range.offset, range.end - range.start);
  // Only now: several of them may return to one original mapping.
  for (const Range& range : unused) {
    originals.remove_unused(range.offset, range.offset + (range.end - range.start), users);
  }
}

void PageSharing::Impl::unshare(std::uintptr_t address, std::size_t bytes) {
  const auto it = registrations.find(RangeKey{address, bytes});
  if (it == registrations.end()) return;
  auto node = registrations.extract(registrations.lower_bound(RangeKey{address, bytes}));
  Registration& registration = node.mapped();
  if (registration.indirect) {
    const std::uintptr_t start = page_floor(address), end = page_ceil(address + bytes);
    if (end > start) indirect.remove(start, end, [](std::uint64_t, std::uint64_t) {});
  }
  release(registration.pieces);
}

PageSharing::PageSharing() : impl_(nullptr) {
  void* at = map_pages(0, page_ceil(sizeof(Impl)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (at == nullptr) return;  // all calls return ENOMEM
  impl_ = new (at) Impl();
  Impl::watched.store(impl_, std::memory_order_release);
}

PageSharing& PageSharing::instance() {
  static PageSharing share;
  return share;
}

int PageSharing::share(const void* address, std::size_t bytes, bool writable, SharedRange& out) {
  if (impl_ == nullptr) return ENOMEM;
  SharedPiece pieces[Impl::kMaxPieces];
  std::size_t count = 0;
  int error = ENOMEM;
  {
    const SignalsBlocked blocked;
    const std::lock_guard lock(impl_->mutex);
    if (raw_syscall(SYS_getpid) != impl_->process) impl_->become_child();
    try {
      error = impl_->share(reinterpret_cast<std::uintptr_t>(address), bytes, writable, pieces, count);
    } catch (...) {  // from the containers; not expected, since callers reserve memory first
    }
    impl_->reader.close();
  }
  if (error != 0) return error;
  try {  // uses the program's malloc, so not with the mutex held
    out.pieces.assign(pieces, pieces + count);
  } catch (...) {
    unshare(address, bytes);
    return ENOMEM;
  }
  return 0;
}

void PageSharing::unshare(const void* address, std::size_t bytes) {
  if (impl_ == nullptr) return;
  const SignalsBlocked blocked;
  const std::lock_guard lock(impl_->mutex);
  if (raw_syscall(SYS_getpid) != impl_->process) return impl_->become_child();
  try {
    impl_->unshare(reinterpret_cast<std::uintptr_t>(address), bytes);
  } catch (...) {
  }
  impl_->reader.close();
}

}  // namespace uroce::page_sharing
