#include "memory/table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <set>
#include <thread>
#include <vector>

namespace uroce::memory {
namespace {

constexpr PdId kPd{7};
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

struct TableTest : ::testing::Test {
  Region region(std::uint64_t iova, std::uint64_t length, std::uint32_t access = kLocalWrite | kRemoteRead) {
    return {.pd = kPd,
            .access = access,
            .iova = iova,
            .length = length,
            .base = bytes.data(),
            .client_address = 0x10000};
  }
  Verdict resolve(Key key, std::uint64_t address, std::uint64_t length, std::uint32_t need = 0, PdId pd = kPd) {
    return table.resolve(key, pd, address, length, need, span);
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  Table table{64, 42};
  Span span;
};

TEST_F(TableTest, ResolvesEveryByteOfTheRegionAndNoneOutside) {
  const Key key = *table.insert(region(0x1000, 4096));
  EXPECT_EQ(resolve(key, 0x1000, 4096), Verdict::kOk);
  EXPECT_EQ(span.data, bytes.data());
  EXPECT_EQ(span.client_address, 0x10000u);
  EXPECT_EQ(resolve(key, 0x1fff, 1), Verdict::kOk);
  EXPECT_EQ(span.data, bytes.data() + 0xfff);
  EXPECT_EQ(span.client_address, 0x10fffu);
  EXPECT_EQ(resolve(key, 0x2000, 0), Verdict::kOk);
  EXPECT_EQ(resolve(key, 0x2000, 1), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(key, 0x1fff, 2), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(key, 0xfff, 1), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(key, 0xfff, 2), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(key, 0, 0x1001), Verdict::kOutOfRange);
}

TEST_F(TableTest, BoundsDoNotWrapAroundTheAddressSpace) {
  const Key low = *table.insert(region(0x1000, 4096));
  EXPECT_EQ(resolve(low, 0x1001, kMax), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(low, 0x1001, kMax - 0x1000), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(low, kMax, 0x1002), Verdict::kOutOfRange);
  const Key high = *table.insert(region(kMax - 4095, 4096));
  EXPECT_EQ(resolve(high, kMax, 1), Verdict::kOk);
  EXPECT_EQ(resolve(high, kMax, 2), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(high, 0, 1), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(high, kMax - 4095, kMax), Verdict::kOutOfRange);
  EXPECT_FALSE(table.insert(region(kMax - 4094, 4096)).has_value());
  EXPECT_FALSE(table.insert(region(2, kMax)).has_value());
  const Key whole = *table.insert(region(0, kMax));
  EXPECT_EQ(resolve(whole, kMax - 1, 1), Verdict::kOk);
  EXPECT_EQ(resolve(whole, kMax, 1), Verdict::kOutOfRange);
}

TEST_F(TableTest, RightsAreNeededOneByOne) {
  const std::uint32_t all[] = {kLocalWrite, kRemoteWrite, kRemoteRead, kRemoteAtomic, kMwBind};
  for (std::uint32_t granted = 0; granted < 32; ++granted) {
    const Key key = *table.insert(region(0x1000, 16, granted));
    for (std::uint32_t need : all) {
      EXPECT_EQ(resolve(key, 0x1000, 8, need), (granted & need) != 0 ? Verdict::kOk : Verdict::kNoAccess);
    }
    EXPECT_EQ(resolve(key, 0x1000, 8, kRemoteWrite | kLocalWrite),
              (granted & 3) == 3 ? Verdict::kOk : Verdict::kNoAccess);
    EXPECT_EQ(resolve(key, 0x1000, 8, 0), Verdict::kOk);
    EXPECT_TRUE(table.retire(key));
    table.release(key);
  }
}

TEST_F(TableTest, AnotherProtectionDomainSeesNoKey) {
  const Key key = *table.insert(region(0x1000, 16));
  EXPECT_EQ(resolve(key, 0x1000, 8, 0, PdId{8}), Verdict::kNoSuchKey);
  EXPECT_EQ(resolve(key, 0x1000, 8, 0, kPd), Verdict::kOk);
}

TEST_F(TableTest, NoOtherKeyResolves) {
  const Key key = *table.insert(region(0x1000, 16));
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    EXPECT_EQ(resolve(Key{key.value ^ (1u << bit)}, 0x1000, 8), Verdict::kNoSuchKey);
  }
  EXPECT_EQ(resolve(Key{0}, 0x1000, 8), Verdict::kNoSuchKey);
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < 1u << 20; ++i) found += resolve(Key{i * 4099}, 0x1000, 8) == Verdict::kOk;
  EXPECT_LE(found, 1u);
}

TEST_F(TableTest, ARecentPlaceIsNoWayAroundAnyCheck) {
  Table::Recent recent;
  Span recent_span;
  const auto verdict = [&](Key key, PdId pd, std::uint64_t address) {
    return table.resolve(recent, key, pd, address, 8, kLocalRead, recent_span);
  };
  const Key key = *table.insert(region(0, 16));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(verdict(key, kPd, 8), Verdict::kOk);
    EXPECT_EQ(verdict(key, PdId{2}, 8), Verdict::kNoSuchKey);
    EXPECT_EQ(verdict(key, kPd, 9), Verdict::kOutOfRange);
    EXPECT_EQ(verdict(Key{key.value ^ 1}, kPd, 8), Verdict::kNoSuchKey);
    EXPECT_EQ(verdict(Key{0}, kPd, 8), Verdict::kNoSuchKey);
  }
  ASSERT_TRUE(table.retire(key));
  EXPECT_EQ(verdict(key, kPd, 8), Verdict::kNoSuchKey);
  table.release(key);
  for (std::uint32_t i = 0; i < 64; ++i) ASSERT_TRUE(table.insert(region(0, 16)).has_value());
  EXPECT_EQ(verdict(key, kPd, 8), Verdict::kNoSuchKey) << "its slot has another key now";
}

TEST_F(TableTest, RetiredKeysResolveNoMoreAndSlotsWaitForRelease) {
  std::vector<Key> keys;
  while (auto key = table.insert(region(0, 16))) keys.push_back(*key);
  EXPECT_EQ(keys.size(), 64u);
  EXPECT_EQ(table.size(), 64u);
  EXPECT_TRUE(table.retire(keys[5]));
  EXPECT_FALSE(table.retire(keys[5]));
  EXPECT_EQ(table.size(), 63u);
  EXPECT_EQ(resolve(keys[5], 0, 16), Verdict::kNoSuchKey);
  EXPECT_FALSE(table.describe(keys[5]).has_value());
  EXPECT_FALSE(table.insert(region(0, 16)).has_value());
  table.release(keys[6]);  // not retired: no effect
  EXPECT_EQ(resolve(keys[6], 0, 16), Verdict::kOk);
  EXPECT_FALSE(table.insert(region(0, 16)).has_value());
  table.release(keys[5]);
  table.release(keys[5]);  // twice: no effect
  const auto again = table.insert(region(0, 16));
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(*again, keys[5]);
  EXPECT_EQ(resolve(keys[5], 0, 16), Verdict::kNoSuchKey);
  EXPECT_EQ(resolve(*again, 0, 16), Verdict::kOk);
  EXPECT_FALSE(table.insert(region(0, 16)).has_value());
}

TEST_F(TableTest, OnlyFastRegistrationsAndTypeTwoWindowsCanBeInvalidated) {
  for (Kind kind : {Kind::kRegistered, Kind::kFast, Kind::kWindow1, Kind::kWindow2}) {
    Region r = region(0, 16);
    r.kind = kind;
    const Key key = *table.insert(r);
    const bool may = kind == Kind::kFast || kind == Kind::kWindow2;
    EXPECT_EQ(table.invalidate(key, PdId{8}), Verdict::kNoSuchKey);
    EXPECT_EQ(resolve(key, 0, 16, kRemoteRead), Verdict::kOk);
    EXPECT_EQ(table.invalidate(key, kPd), may ? Verdict::kOk : Verdict::kNoAccess);
    EXPECT_EQ(resolve(key, 0, 16, kRemoteRead), may ? Verdict::kNoSuchKey : Verdict::kOk);
    EXPECT_EQ(table.invalidate(key, kPd), may ? Verdict::kNoSuchKey : Verdict::kNoAccess);
    EXPECT_TRUE(table.describe(key).has_value());
    EXPECT_TRUE(table.retire(key));
    table.release(key);
  }
}

TEST_F(TableTest, DescribesWhatWasInserted) {
  Region r = region(0x1000, 77, kRemoteAtomic);
  r.kind = Kind::kFast;
  const Region seen = *table.describe(*table.insert(r));
  EXPECT_EQ(seen.pd, r.pd);
  EXPECT_EQ(seen.access, r.access);
  EXPECT_EQ(seen.iova, r.iova);
  EXPECT_EQ(seen.length, r.length);
  EXPECT_EQ(seen.base, r.base);
  EXPECT_EQ(seen.client_address, r.client_address);
  EXPECT_EQ(seen.kind, r.kind);
}

TEST(TableKeys, AreDistinctAndDependOnTheSeed) {
  Table a(100'000, 1), b(100'000, 2);
  std::set<std::uint32_t> keys;
  std::uint32_t neighbours = 0, last = 0, equal = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t key = a.insert({.pd = kPd, .length = 1})->value;
    keys.insert(key);
    neighbours += (key >> 8) - (last >> 8) == 1;
    equal += key == b.insert({.pd = kPd, .length = 1})->value;
    last = key;
  }
  EXPECT_EQ(keys.size(), 100'000u);
  EXPECT_FALSE(a.insert({.pd = kPd, .length = 1}).has_value());
  // Of 2^24 places: consecutive keys are neighbours, or alike in two tables, only by accident.
  EXPECT_LT(neighbours, 50u);
  EXPECT_LT(equal, 5u);
}

TEST(TableKeys, ReuseOfASlotGivesOtherKeys) {
  Table table(1, 3);
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 1000; ++i) {
    const Key key = *table.insert({.pd = kPd, .length = 1});
    keys.insert(key.value);
    ASSERT_TRUE(table.retire(key));
    table.release(key);
  }
  EXPECT_GT(keys.size(), 990u);
}

TEST(TableCapacity, AMillionSlotsCanBeFilled) {
  Table table(1u << 20, 9);
  EXPECT_EQ(table.capacity(), 1u << 20);
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < 1u << 20; ++i) keys.push_back(*table.insert({.pd = kPd, .iova = i, .length = 1}));
  EXPECT_FALSE(table.insert({.pd = kPd, .length = 1}).has_value());
  Span span;
  for (std::uint32_t i = 0; i < 1u << 20; i += 997) {
    EXPECT_EQ(table.resolve(keys[i], kPd, i, 1, 0, span), Verdict::kOk);
  }
}

TEST(SpanTest, IndirectMemoryIsReachedThroughItsFunctions) {
  std::vector<std::byte> client(256);
  auto read = [](void* context, std::uint64_t address, std::byte* to, std::size_t bytes) {
    if (address + bytes > 256) return false;
    std::memcpy(to, static_cast<std::byte*>(context) + address, bytes);
    return true;
  };
  auto write = [](void* context, std::uint64_t address, const std::byte* from, std::size_t bytes) {
    if (address + bytes > 256) return false;
    std::memcpy(static_cast<std::byte*>(context) + address, from, bytes);
    return true;
  };
  const IndirectIo io{+read, +write, client.data()};
  Table table(4, 5);
  const Key key = *table.insert({.pd = kPd, .iova = 0x5000, .length = 512, .client_address = 100, .indirect = &io});
  Span span;
  ASSERT_EQ(table.resolve(key, kPd, 0x5010, 64, 0, span), Verdict::kOk);
  EXPECT_EQ(span.data, nullptr);
  const std::byte out[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  EXPECT_TRUE(span.write(2, out, 4));
  EXPECT_EQ(client[118], std::byte{1});
  EXPECT_EQ(client[121], std::byte{4});
  std::byte in[4]{};
  EXPECT_TRUE(span.read(2, in, 4));
  EXPECT_EQ(std::memcmp(in, out, 4), 0);
  ASSERT_EQ(table.resolve(key, kPd, 0x5000 + 200, 64, 0, span), Verdict::kOk);
  EXPECT_FALSE(span.read(0, in, 4));  // the client has unmapped it
  EXPECT_FALSE(span.write(0, out, 4));
}

TEST(SpanTest, DirectMemoryIsCopiedAtTheOffset) {
  std::vector<std::byte> bytes(16);
  const Span span{.data = bytes.data()};
  const std::byte out[2] = {std::byte{7}, std::byte{8}};
  EXPECT_TRUE(span.write(5, out, 2));
  EXPECT_EQ(bytes[5], std::byte{7});
  std::byte in{};
  EXPECT_TRUE(span.read(6, &in, 1));
  EXPECT_EQ(in, std::byte{8});
  EXPECT_FALSE(Span{}.read(0, &in, 1));  // no memory
}

// The life of the daemon: workers resolve without a lock while the conductor inserts, retires, waits until each
// worker has passed a quiescent point, frees the memory and releases the slot.
TEST(TableConcurrency, AResolvedSpanIsGoodUntilTheQuiescentPoint) {
  constexpr int kWorkers = 3, kRounds = 3000;
  Table table(8, 11);
  std::atomic<std::uint32_t> published{0};
  std::atomic<std::uint64_t> epoch{1};
  std::atomic<std::uint64_t> seen[kWorkers]{};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> hits{0}, wrong{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      while (!stop.load(std::memory_order_acquire)) {
        seen[w].store(epoch.load(std::memory_order_acquire), std::memory_order_release);
        for (int i = 0; i < 16; ++i) {
          const Key key{published.load(std::memory_order_acquire)};
          Span span;
          std::uint32_t value = 0;
          if (table.resolve(key, kPd, 64, 4, kRemoteRead, span) != Verdict::kOk) continue;
          std::memcpy(&value, span.data, 4);
          hits.fetch_add(1, std::memory_order_relaxed);
          // Freed memory is overwritten with ones.
          if (value == ~0u) wrong.fetch_add(1, std::memory_order_relaxed);
        }
        std::this_thread::yield();
      }
      seen[w].store(~0ull, std::memory_order_release);
    });
  }
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    auto memory = std::make_unique<std::uint32_t[]>(32);
    std::fill_n(memory.get(), 32, round);
    const Key key = *table.insert({.pd = kPd,
                                   .access = kRemoteRead,
                                   .length = 128,
                                   .base = reinterpret_cast<std::byte*>(memory.get()),
                                   .kind = Kind::kFast});
    published.store(key.value, std::memory_order_release);
    if (round % 50 == 0) {  // some rounds last until a worker has found the key
      const std::uint64_t before = hits.load(std::memory_order_relaxed);
      while (hits.load(std::memory_order_relaxed) == before) std::this_thread::yield();
    }
    if (round % 2 == 0) {
      EXPECT_EQ(table.invalidate(key, kPd), Verdict::kOk);
    }
    ASSERT_TRUE(table.retire(key));
    const std::uint64_t target = epoch.fetch_add(1, std::memory_order_acq_rel) + 1;
    for (auto& worker : seen) {
      while (worker.load(std::memory_order_acquire) < target) std::this_thread::yield();
    }
    std::fill_n(memory.get(), 32, ~0u);
    table.release(key);
  }
  stop.store(true, std::memory_order_release);
  for (std::thread& worker : workers) worker.join();
  EXPECT_GE(hits.load(), kRounds / 50u);
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace uroce::memory
