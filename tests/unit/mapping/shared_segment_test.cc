#include "mapping/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

namespace uroce::mapping {
namespace {

bool all_zero(const SharedBlock& block) {
  return std::all_of(block.data, block.data + block.bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(SharedSegment, HandsOutZeroedAlignedBlocksOfTheRightKind) {
  SharedSegment arena(false);
  const auto a = arena.allocate(ChunkKind::kClientWrites, 100);
  const auto b = arena.allocate(ChunkKind::kDaemonWrites, 64);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->bytes, 128u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a->data) % 64, 0u);
  EXPECT_NE(a->place.chunk, b->place.chunk);
  EXPECT_TRUE(all_zero(*a));
}

TEST(SharedSegment, ZeroesWhatIsUsedAgain) {
  SharedSegment arena(false);
  const auto a = arena.allocate(ChunkKind::kClientWrites, 4096);
  std::memset(a->data, 0xa5, a->bytes);
  arena.free(*a);
  const auto b = arena.allocate(ChunkKind::kClientWrites, 8192);
  EXPECT_EQ(b->place.offset, a->place.offset);
  EXPECT_TRUE(all_zero(*b));
}

TEST(SharedSegment, MergesHolesSoThatFreedSpaceServesLargerBlocks) {
  SharedSegment arena(false);
  std::vector<SharedBlock> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(*arena.allocate(ChunkKind::kDaemonWrites, 1024));
  const std::size_t chunks = arena.chunks();
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  for (const SharedBlock& block : blocks) arena.free(block);
  ASSERT_TRUE(arena.allocate(ChunkKind::kDaemonWrites, 64 * 1024));
  EXPECT_EQ(arena.chunks(), chunks);
}

TEST(SharedSegment, NeverHandsOutOverlappingBlocks) {
  SharedSegment arena(false);
  std::mt19937 random(2);
  std::vector<SharedBlock> live;
  for (int i = 0; i < 2000; ++i) {
    if (live.size() > 50 && random() % 2 == 0) {
      const std::size_t victim = random() % live.size();
      arena.free(live[victim]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const auto block = arena.allocate(ChunkKind::kClientWrites, 1 + random() % 20000);
    ASSERT_TRUE(block);
    for (const SharedBlock& other : live) {
      ASSERT_TRUE(block->data + block->bytes <= other.data || other.data + other.bytes <= block->data);
    }
    live.push_back(*block);
  }
}

TEST(SharedSegment, TenThousandQueuesNeedFewChunks) {
  SharedSegment arena(false);
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(arena.allocate(ChunkKind::kClientWrites, 128 + 128 * 128));
  EXPECT_LE(arena.chunks(), 16u);
}

TEST(SharedSegment, ClientsCannotCutOffAnyChunkNorWriteTheDaemons) {
  SharedSegment arena(false);
  ASSERT_TRUE(arena.allocate(ChunkKind::kClientWrites, 64));
  ASSERT_TRUE(arena.allocate(ChunkKind::kDaemonWrites, 64));
  std::vector<UniqueFd> fds;
  const uroce_new_chunks news = arena.take_new_chunks(fds);
  ASSERT_EQ(news.count, 2u);
  ASSERT_EQ(fds.size(), 2u);
  for (const UniqueFd& fd : fds) {
    EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_NE(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0].get(), 0), MAP_FAILED);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1].get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(fds[1].get(), "x", 1, 0), -1);
  EXPECT_EQ(::fallocate(fds[1].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  void* readable = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fds[1].get(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, 4096, PROT_READ | PROT_WRITE), -1);
}

TEST(SharedSegment, AnnouncesEachChunkOnce) {
  SharedSegment arena(false);
  ASSERT_TRUE(arena.allocate(ChunkKind::kClientWrites, 64));
  std::vector<UniqueFd> fds;
  EXPECT_EQ(arena.take_new_chunks(fds).count, 1u);
  EXPECT_EQ(arena.take_new_chunks(fds).count, 0u);
  ASSERT_TRUE(arena.allocate(ChunkKind::kClientWrites, 32u << 20));
  const uroce_new_chunks news = arena.take_new_chunks(fds);
  EXPECT_EQ(news.count, 1u);
  EXPECT_EQ(news.first, 1u);
  EXPECT_GE(news.chunk[0].bytes, 32u << 20);
}

}  // namespace
}  // namespace uroce::mapping
