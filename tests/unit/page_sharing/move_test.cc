// Moves pages to shared memory and back while other threads use them.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "fixture.h"
#include "page_sharing/mapping_info.h"

namespace uroce::page_sharing {

std::size_t count_mappings() {
  MappingReader reader;
  Mapping mapping;
  std::size_t count = 0;
  EXPECT_EQ(reader.open(), 0);
  for (std::uintptr_t at = 0; reader.at_or_after(at, mapping) == 0; at = mapping.end) ++count;
  return count;
}

bool is_private_anonymous(const void* at) {
  MappingReader reader;
  Mapping mapping;
  EXPECT_EQ(reader.open(), 0);
  EXPECT_EQ(reader.at_or_after(reinterpret_cast<std::uintptr_t>(at), mapping), 0);
  return !mapping.shared && mapping.anonymous();
}

namespace {

/// Threads that write increasing numbers to slots of a buffer, each to its own slots on every page, and check that
/// they find the last value.
class Writers {
 public:
  Writers(unsigned char* at, std::size_t bytes, unsigned threads) : at_(at), slots_(bytes / sizeof(std::uint64_t)) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, i, threads] { run(i, threads + 1); });
    while (writes_.load() == 0) std::this_thread::yield();
  }
  ~Writers() { stop(); }

  std::uint64_t stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    EXPECT_EQ(lost_.load(), 0u);
    return writes_.load();
  }

 private:
  void run(unsigned self, unsigned stride) {
    std::vector<std::uint64_t> expected(slots_, 0);
    std::uint64_t value = 0;
    std::size_t slot = self;
    while (!stop_.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 1000; ++i) {
        auto* place = reinterpret_cast<volatile std::uint64_t*>(at_) + slot;
        if (*place != expected[slot]) ++lost_;
        *place = expected[slot] = ++value;
        slot += stride * 17;
        while (slot >= slots_) slot = slot - slots_ / stride * stride;
        if (slot % stride != self) slot = self;
      }
      writes_ += 1000;
    }
    for (std::size_t s = self; s < slots_; s += stride) {
      if (reinterpret_cast<volatile std::uint64_t*>(at_)[s] != expected[s]) ++lost_;
    }
  }

  unsigned char* at_;
  std::size_t slots_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> writes_ = 0, lost_ = 0;
  std::vector<std::thread> threads_;
};

TEST(PageSharingMove, BothSidesSeeTheSameBytes) {
  unsigned char* at = map_anonymous(16 * kPage);
  std::memset(at, 0x5a, 16 * kPage);
  Shared shared(at + 100, 9 * kPage);
  expect_same_memory(shared, at + 100);
  const DaemonView daemon(shared);
  for (std::size_t i = 0; i < 9 * kPage; i += 97) ASSERT_EQ(daemon.at(i), 0x5a);
  ::munmap(at, 16 * kPage);
}

TEST(PageSharingMove, NoWriteIsLostAroundRegistrations) {
  constexpr std::size_t kBytes = 64 * 1024;
  unsigned char* at = map_anonymous(kBytes);
  Writers writers(at, kBytes, 2);
  std::uint64_t from_daemon = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (std::size_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
    const std::size_t first = round * 1237 % (kBytes / 2), bytes = 1 + round * 7919 % (kBytes / 2);
    Shared shared(at + first, bytes);
    ASSERT_TRUE(shared.direct());
    const DaemonView daemon(shared);
    // One slot in three belongs to no thread but to the daemon.
    for (std::size_t slot = (first + 7) / 8; (slot + 1) * 8 <= first + bytes; ++slot) {
      if (slot % 3 != 2) continue;
      daemon.at<std::uint64_t>(slot * 8 - first) = ++from_daemon;
      ASSERT_EQ(reinterpret_cast<volatile std::uint64_t*>(at)[slot], from_daemon);
      slot += 64;
    }
  }
  const std::uint64_t writes = writers.stop();
  EXPECT_GT(writes, 100'000u);
  EXPECT_TRUE(is_private_anonymous(at));
  ::munmap(at, kBytes);
}

TEST(PageSharingMove, NoFirstWriteToAPageIsLost) {
  constexpr std::size_t kPages = 4096;
  for (int round = 0; round < 20; ++round) {
    unsigned char* at = map_anonymous(kPages * kPage);
    std::atomic<std::size_t> page = 0;
    std::thread writer([&] {
      for (; page < kPages; ++page) {
        const std::size_t place = page * 2731 % kPages;  // in pseudo-random order
        reinterpret_cast<volatile std::size_t*>(at + place * kPage)[round] = place + 1;
      }
    });
    while (page < 10) std::this_thread::yield();
    for (std::size_t part = 0; page < kPages; part = (part + 1) % 8) {
      Shared shared(at + part * kPages / 8 * kPage, kPages / 8 * kPage);
      ASSERT_TRUE(shared.direct());
    }
    writer.join();
    std::size_t lost = 0;
    for (std::size_t i = 0; i < kPages; ++i) lost += reinterpret_cast<std::size_t*>(at + i * kPage)[round] != i + 1;
    EXPECT_EQ(lost, 0u);
    ::munmap(at, kPages * kPage);
  }
}

TEST(PageSharingMove, OverlappingAndRepeatedRegistrationsShareOneMove) {
  unsigned char* at = map_anonymous(8 * kPage);
  std::memset(at, 1, 8 * kPage);
  Shared a(at, 4 * kPage);
  Shared again(at, 4 * kPage);
  ASSERT_TRUE(a.direct() && again.direct());
  EXPECT_EQ(a.range().pieces[0].offset, again.range().pieces[0].offset);
  Shared b(at + 2 * kPage + 5, 4 * kPage);
  expect_same_memory(a, at);
  expect_same_memory(b, at + 2 * kPage + 5);
  a.stop();
  expect_same_memory(again, at);  // one registration is left
  again.stop();
  expect_same_memory(b, at + 2 * kPage + 5);
  EXPECT_TRUE(is_private_anonymous(at));
  EXPECT_TRUE(is_private_anonymous(at + kPage));
  EXPECT_FALSE(is_private_anonymous(at + 2 * kPage));
  b.stop();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(is_private_anonymous(at + i * kPage)) << i;
  for (std::size_t i = 0; i < 8 * kPage; ++i) ASSERT_EQ(at[i], 1) << i;
  ::munmap(at, 8 * kPage);
}

TEST(PageSharingMove, OneByteRegions) {
  unsigned char* at = map_anonymous(2 * kPage);
  std::vector<std::unique_ptr<Shared>> bytes;
  for (std::size_t i = kPage - 100; i < kPage + 100; ++i) {
    at[i] = static_cast<unsigned char>(i);
    bytes.push_back(std::make_unique<Shared>(at + i, 1));
    expect_same_memory(*bytes.back(), at + i);
  }
  bytes.clear();
  EXPECT_TRUE(is_private_anonymous(at));
  EXPECT_TRUE(is_private_anonymous(at + kPage));
  EXPECT_EQ(at[kPage + 99], static_cast<unsigned char>(kPage + 99));
  ::munmap(at, 2 * kPage);
}

TEST(PageSharingMove, EmptyRegion) {
  unsigned char byte = 0;
  Shared shared(&byte, 0);
  EXPECT_TRUE(shared.indirect());
}

std::size_t resident_bytes() {
  long pages = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r"); f != nullptr) {
    EXPECT_EQ(std::fscanf(f, "%*d %ld", &pages), 1);
    std::fclose(f);
  }
  return static_cast<std::size_t>(pages) * kPage;
}

TEST(PageSharingMove, SparseFourGigabytesStaySparse) {
  constexpr std::size_t kBytes = std::size_t{4} << 30;
  unsigned char* at = map_anonymous(kBytes);
  at[0] = 1;
  at[kBytes / 2 + 1] = 2;
  at[kBytes - 1] = 3;
  const std::size_t before = resident_bytes();
  Shared shared(at, kBytes);
  ASSERT_TRUE(shared.direct());
  EXPECT_EQ(shared.range().pieces.size(), 1u);
  EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
  {
    const DaemonView daemon(shared);
    EXPECT_EQ(daemon.at(kBytes / 2 + 1), 2);
    EXPECT_EQ(daemon.at(kBytes / 2 + kPage), 0);
    daemon.at(kBytes / 3) = 4;
    EXPECT_EQ(at[kBytes / 3], 4);
  }
  shared.stop();
  EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
  EXPECT_EQ(at[0] + at[kBytes / 2 + 1] + at[kBytes - 1] + at[kBytes / 3], 1 + 2 + 3 + 4);
  ::munmap(at, kBytes);
}

TEST(PageSharingMove, TenThousandRegionsOfTheHeap) {
  constexpr std::size_t kRegions = 10'000, kBytes = 3000;
  std::vector<unsigned char*> blocks;
  std::vector<std::unique_ptr<Shared>> shared;
  for (std::size_t i = 0; i < kRegions; ++i) {
    blocks.push_back(static_cast<unsigned char*>(std::malloc(kBytes)));
    std::memset(blocks[i], static_cast<int>(i % 251), kBytes);
    shared.push_back(std::make_unique<Shared>(blocks[i], kBytes));
    ASSERT_EQ(shared[i]->error(), 0) << i;
  }
  std::size_t direct = 0;
  for (std::size_t i = 0; i < kRegions; ++i) direct += shared[i]->direct() ? 1 : 0;
  EXPECT_GT(direct, kRegions - 100);
  for (std::size_t i = 0; i < kRegions; i += 501) {
    if (shared[i]->direct()) expect_same_memory(*shared[i], blocks[i]);
  }
  EXPECT_LT(count_mappings(), 30'000u);
  shared.clear();
  for (std::size_t i = 0; i < kRegions; ++i) {
    for (std::size_t b = 0; b < kBytes; b += 100) ASSERT_EQ(blocks[i][b], i % 251);
    std::free(blocks[i]);
  }
}

TEST(PageSharingMove, TenThousandSeparateRegions) {
  constexpr std::size_t kRegions = 10'000;
  unsigned char* at = map_anonymous(2 * kRegions * kPage);
  std::vector<std::unique_ptr<Shared>> shared;
  for (std::size_t i = 0; i < kRegions; ++i) {
    at[2 * i * kPage] = static_cast<unsigned char>(i);
    shared.push_back(std::make_unique<Shared>(at + 2 * i * kPage, kPage));
    ASSERT_TRUE(shared[i]->direct()) << i;
  }
  for (std::size_t i = 0; i < kRegions; i += 501) expect_same_memory(*shared[i], at + 2 * i * kPage);
  shared.clear();
  for (std::size_t i = 0; i < kRegions; ++i) ASSERT_EQ(at[2 * i * kPage], static_cast<unsigned char>(i));
  ::munmap(at, 2 * kRegions * kPage);
}

TEST(PageSharingMove, AllocatorTrafficAroundRegisteredBlocks) {
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::pair<unsigned char*, std::size_t>> blocks(64, {nullptr, 0});
      std::uint32_t random = t + 1;
      while (!stop) {
        random = random * 1664525 + 1013904223;
        auto& [block, bytes] = blocks[random >> 26];
        for (std::size_t i = 0; i < bytes; ++i) wrong += block[i] != static_cast<unsigned char>(bytes + t) ? 1 : 0;
        if ((random & 3) == 0) {
          std::free(block);
          block = nullptr;
          bytes = 0;
          continue;
        }
        const std::size_t want = 1 + (random >> 8) % 6000;
        auto* grown = static_cast<unsigned char*>(std::realloc(block, want));
        for (std::size_t i = 0; i < std::min(bytes, want); ++i) {
          wrong += grown[i] != static_cast<unsigned char>(bytes + t) ? 1 : 0;
        }
        block = grown;
        bytes = want;
        std::memset(block, static_cast<int>((bytes + t) & 0xff), bytes);
        if (random % 64 != 0) continue;
        Shared shared(block, bytes);  // now and then one of them is registered, next to its neighbours
        if (shared.direct()) wrong += DaemonView(shared).at(bytes / 2) != block[bytes / 2] ? 1 : 0;
      }
      for (auto& [block, bytes] : blocks) std::free(block);
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace uroce::page_sharing
