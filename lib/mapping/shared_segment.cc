#include "mapping/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "mapping/sigbus_guard.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace uroce::mapping {
namespace {

constexpr std::size_t kFirstChunkBytes = 256u << 10;
constexpr std::size_t kLargestChunkBytes = 64u << 20;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

struct Mapping {
  UniqueFd fd;
  std::byte* base = nullptr;
};

// F_SEAL_SHRINK keeps the client from truncating the file. F_SEAL_FUTURE_WRITE, set after the daemon has mapped it,
// keeps the client from writing.
std::optional<Mapping> map_sealed(std::size_t bytes, bool huge, ChunkKind kind) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u);
  Mapping mapping{UniqueFd(::memfd_create("uroce", flags))};
  if (!mapping.fd.valid()) return std::nullopt;
  const int fd = mapping.fd.get();
  // Hugepages are allocated now, as a lack of them would raise SIGBUS later. Other pages are allocated at first
  // use.
  if (huge ? ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0
           : ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return std::nullopt;
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return std::nullopt;
  mapping.base = static_cast<std::byte*>(base);
  int seals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (kind == ChunkKind::kDaemonWrites) seals |= F_SEAL_FUTURE_WRITE;
  if (::fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) {
    ::munmap(base, bytes);
    return std::nullopt;
  }
  return mapping;
}

}  // namespace

SharedSegment::~SharedSegment() {
  while (release_chunk()) {
  }
}

bool SharedSegment::release_chunk() {
  if (chunks_.empty()) return false;
  const Chunk& chunk = chunks_.back();
  SigbusGuard::instance().remove(chunk.base);
  ::munmap(chunk.base, chunk.bytes);
  if (budget_ != nullptr) budget_->give_back(1, chunk.bytes);
  total_bytes_ -= chunk.bytes;
  chunks_.pop_back();
  return true;
}

bool SharedSegment::add_chunk(ChunkKind kind, std::size_t bytes) {
  // Chunks double, so that any number of objects needs few descriptors and mappings.
  std::size_t size = kFirstChunkBytes;
  for (const Chunk& chunk : chunks_) {
    if (chunk.kind == kind) size = std::max(size, std::min(chunk.bytes * 2, kLargestChunkBytes));
  }
  size = round_up(std::max(size, bytes), 4096);
  const auto map = [&](std::size_t of_size, bool huge) {
    if (budget_ != nullptr && !budget_->take(1, of_size)) return std::optional<Mapping>();
    auto made = map_sealed(of_size, huge, kind);
    if (!made && budget_ != nullptr) budget_->give_back(1, of_size);
    if (made) size = of_size;
    return made;
  };
  std::optional<Mapping> mapping;
  if (hugepages_) mapping = map(round_up(size, kHugeBytes), true);
  if (!mapping) mapping = map(size, false);
  if (!mapping) return false;
  if (kind == ChunkKind::kClientWrites && session_ != 0 &&
      !SigbusGuard::instance().add(mapping->base, size, session_)) {
    ::munmap(mapping->base, size);
    if (budget_ != nullptr) budget_->give_back(1, size);
    return false;
  }
  struct stat info {};
  if (::fstat(mapping->fd.get(), &info) != 0) info = {};
  Chunk chunk{kind, mapping->base, size, 0, {}, std::move(mapping->fd), info.st_dev, info.st_ino};
  chunk.holes.emplace(0, size);
  chunks_.push_back(std::move(chunk));
  total_bytes_ += size;
  return true;
}

std::optional<SharedBlock> SharedSegment::take(std::uint32_t number, std::size_t bytes) {
  Chunk& chunk = chunks_[number];
  for (auto hole = chunk.holes.begin(); hole != chunk.holes.end(); ++hole) {
    if (hole->second < bytes) continue;
    const std::size_t offset = hole->first, rest = hole->second - bytes;
    chunk.holes.erase(hole);
    if (rest != 0) chunk.holes.emplace(offset + bytes, rest);
    SharedBlock block{{number, 0, offset}, chunk.base + offset, bytes};
    if (offset < chunk.fresh) std::memset(block.data, 0, std::min(bytes, chunk.fresh - offset));
    chunk.fresh = std::max(chunk.fresh, offset + bytes);
    return block;
  }
  return std::nullopt;
}

std::optional<SharedBlock> SharedSegment::allocate(ChunkKind kind, std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  for (std::uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].kind != kind) continue;
    if (auto block = take(i, bytes)) return block;
  }
  if (!add_chunk(kind, bytes)) return std::nullopt;
  return take(static_cast<std::uint32_t>(chunks_.size() - 1), bytes);
}

void SharedSegment::free(const SharedBlock& block) {
  Chunk& chunk = chunks_[block.place.chunk];
  std::size_t offset = block.place.offset, bytes = block.bytes;
  auto next = chunk.holes.lower_bound(offset);
  if (next != chunk.holes.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = chunk.holes.erase(next);
  }
  if (next != chunk.holes.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  chunk.holes.emplace(offset, bytes);
}

uroce_new_chunks SharedSegment::take_new_chunks(std::vector<UniqueFd>& fds) {
  uroce_new_chunks news{};
  news.first = static_cast<std::uint32_t>(announced_);
  for (; announced_ < chunks_.size() && news.count < std::size(news.chunk); ++announced_, ++news.count) {
    Chunk& chunk = chunks_[announced_];
    news.chunk[news.count].bytes = chunk.bytes;
    news.chunk[news.count].client_writes = chunk.kind == ChunkKind::kClientWrites;
    fds.push_back(std::move(chunk.fd));
  }
  return news;
}

}  // namespace uroce::mapping
