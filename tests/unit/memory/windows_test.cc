// Memory windows and fast registration: rights to bind, invalidation, and readers that never see a mixture.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "memory/table.h"

namespace uroce::memory {
namespace {

constexpr PdId kPd{7};
constexpr Qpn kQp{0x21}, kOtherQp{0x22};
constexpr std::uint32_t kMrAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kMwBind;

Key tagged(Key key, std::uint8_t tag) { return Key{(key.value & ~0xffu) | ((key.value + tag) & 0xff)}; }

struct WindowsTest : ::testing::Test {
  Key insert(std::uint32_t access = kMrAccess) {
    return *table.insert({.pd = kPd,
                          .access = access,
                          .iova = 0x1000,
                          .length = 4096,
                          .base = bytes.data(),
                          .client_address = 0x50000});
  }
  Binding binding(Key window, Key mr, std::uint64_t length = 256) const {
    return {.window = window,
            .new_key = tagged(window, 1),
            .mr = mr,
            .pd = kPd,
            .qpn = kQp,
            .address = 0x1100,
            .length = length,
            .access = kRemoteWrite};
  }
  Verdict resolve(Key key, std::uint64_t at, std::uint64_t length, std::uint32_t need = kRemoteWrite,
                  Qpn qpn = kQp) {
    return table.resolve(key, kPd, at, length, need, span, qpn);
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(4096);
  Table table{64, 5};
  Key mr = insert();
  Span span;
};

TEST_F(WindowsTest, ResolveTheirRangeForPeersOnly) {
  for (Kind kind : {Kind::kWindow1, Kind::kWindow2}) {
    const Key window = *table.allocate_window(kPd, kind);
    const Key bound = tagged(window, 1);
    EXPECT_EQ(resolve(window, 0x1100, 1), Verdict::kNoSuchKey);
    ASSERT_EQ(table.bind(binding(window, mr)), Verdict::kOk);
    EXPECT_EQ(resolve(window, 0x1100, 1), Verdict::kNoSuchKey) << "the old key";
    EXPECT_EQ(resolve(bound, 0x1100, 256), Verdict::kOk);
    EXPECT_EQ(span.data, bytes.data() + 0x100);
    EXPECT_EQ(span.client_address, 0x50100u);
    EXPECT_EQ(resolve(bound, 0x1100, 257), Verdict::kOutOfRange);
    EXPECT_EQ(resolve(bound, 0x10ff, 1), Verdict::kOutOfRange);
    EXPECT_EQ(resolve(bound, 0x1100, 1, kRemoteRead), Verdict::kNoAccess);
    EXPECT_EQ(resolve(bound, 0x1100, 1, 0), Verdict::kNoSuchKey) << "no L_Key";
    EXPECT_EQ(resolve(bound, 0x1100, 1, kRemoteWrite, kOtherQp),
              kind == Kind::kWindow1 ? Verdict::kOk : Verdict::kNoSuchKey);
    EXPECT_TRUE(table.retire(window)) << "any key it ever had names it";
    table.release(window);
  }
}

TEST_F(WindowsTest, HoldTheirRegionUntilTheyAreGone) {
  const Key one = *table.allocate_window(kPd, Kind::kWindow1), two = *table.allocate_window(kPd, Kind::kWindow2);
  ASSERT_EQ(table.bind(binding(one, mr)), Verdict::kOk);
  ASSERT_EQ(table.bind(binding(two, mr)), Verdict::kOk);
  EXPECT_EQ(table.windows(mr), 2u);
  EXPECT_FALSE(table.retire(mr));
  EXPECT_EQ(table.invalidate(tagged(one, 1), kPd, kQp), Verdict::kNoAccess) << "type 1";
  EXPECT_EQ(table.invalidate(tagged(two, 1), kPd, kOtherQp), Verdict::kNoAccess) << "of another QP";
  EXPECT_EQ(table.invalidate(tagged(two, 1), kPd, kQp), Verdict::kOk);
  EXPECT_EQ(resolve(tagged(two, 1), 0x1100, 1), Verdict::kNoSuchKey);
  Binding unbind = binding(tagged(one, 1), mr, 0);
  unbind.mr = {};
  ASSERT_EQ(table.bind(unbind), Verdict::kOk);
  EXPECT_EQ(table.windows(mr), 0u);
  EXPECT_TRUE(table.retire(mr));
}

TEST_F(WindowsTest, RetiredWindowLetsItsRegionGo) {
  const Key window = *table.allocate_window(kPd, Kind::kWindow2);
  ASSERT_EQ(table.bind(binding(window, mr)), Verdict::kOk);
  ASSERT_TRUE(table.retire(window));
  EXPECT_EQ(table.bind(binding(tagged(window, 1), mr)), Verdict::kNoSuchKey);
  EXPECT_TRUE(table.retire(mr));
}

TEST_F(WindowsTest, TypeOneMovesAndTypeTwoMustBeInvalidatedFirst) {
  const Key other = insert();
  const Key one = *table.allocate_window(kPd, Kind::kWindow1), two = *table.allocate_window(kPd, Kind::kWindow2);
  for (const Key window : {one, two}) ASSERT_EQ(table.bind(binding(window, mr)), Verdict::kOk);
  EXPECT_EQ(table.bind(binding(tagged(one, 1), other)), Verdict::kOk);
  EXPECT_EQ(table.bind(binding(tagged(two, 1), other)), Verdict::kNoAccess);
  EXPECT_EQ(table.windows(mr), 1u);
  EXPECT_EQ(table.windows(other), 1u);
}

TEST_F(WindowsTest, TakeTheLowByteOfTheNewKeyAndRemoteRightsOnly) {
  for (Kind kind : {Kind::kWindow1, Kind::kWindow2}) {
    const Key window = *table.allocate_window(kPd, kind);
    Binding request = binding(window, mr);
    request.new_key = Key{(mr.value & ~0xffu) | (tagged(window, 1).value & 0xff)};
    request.access = kRemoteWrite | kLocalWrite | kMwBind | kOnDemand;
    ASSERT_EQ(table.bind(request), Verdict::kOk);
    EXPECT_EQ(resolve(tagged(window, 1), 0x1100, 1), Verdict::kOk);
    EXPECT_EQ(table.describe(window)->access, kRemoteWrite);
  }
}

TEST_F(WindowsTest, ABindOfLengthZeroLeavesATypeTwoWindowAsItIs) {
  const Key window = *table.allocate_window(kPd, Kind::kWindow2);
  EXPECT_EQ(table.bind(binding(window, mr, 0)), Verdict::kOutOfRange);
  EXPECT_EQ(table.bind(binding(window, Key{}, 0)), Verdict::kOutOfRange);
  ASSERT_EQ(table.bind(binding(window, mr)), Verdict::kOk);
  Binding free = binding(tagged(window, 1), mr, 0);
  free.new_key = tagged(window, 2);
  EXPECT_EQ(table.bind(free), Verdict::kOutOfRange);
  free.qpn = kOtherQp;
  EXPECT_EQ(table.bind(free), Verdict::kOutOfRange);
  EXPECT_EQ(resolve(tagged(window, 1), 0x1100, 1), Verdict::kOk);
  EXPECT_EQ(resolve(tagged(window, 2), 0x1100, 1), Verdict::kNoSuchKey);
  EXPECT_EQ(table.windows(mr), 1u);
}

TEST_F(WindowsTest, RefuseWhatTheSpecificationForbids) {
  const Key window = *table.allocate_window(kPd, Kind::kWindow2);
  const Key first = *table.allocate_window(kPd, Kind::kWindow1);
  const auto with = [&](auto change) {
    Binding request = binding(window, mr);
    change(request);
    return table.bind(request);
  };
  EXPECT_EQ(with([](Binding& b) { b.pd = PdId{8}; }), Verdict::kNoSuchKey);
  EXPECT_EQ(with([&](Binding& b) { b.mr = tagged(mr, 1); }), Verdict::kNoSuchKey);
  EXPECT_EQ(with([&](Binding& b) { b.mr = first; }), Verdict::kNoSuchKey) << "a window of a window";
  EXPECT_EQ(with([&](Binding& b) { b.window = mr; }), Verdict::kNoSuchKey);
  EXPECT_EQ(with([](Binding& b) { b.length = 4096; }), Verdict::kOutOfRange);
  EXPECT_EQ(with([](Binding& b) { b.address = ~0ull; }), Verdict::kOutOfRange);
  EXPECT_EQ(with([](Binding& b) { b.access = kFlushGlobal; }), Verdict::kNoAccess);
  EXPECT_EQ(with([&](Binding& b) { b.mr = insert(kLocalWrite | kRemoteWrite); }), Verdict::kNoAccess);
  EXPECT_EQ(with([&](Binding& b) { b.mr = insert(kMwBind | kRemoteRead); }), Verdict::kNoAccess);
  EXPECT_EQ(with([&](Binding& b) { b.mr = insert(kMrAccess | kZeroBased); }), Verdict::kNoAccess);
  Binding same = binding(first, mr);
  same.new_key = first;
  EXPECT_EQ(table.bind(same), Verdict::kNoSuchKey) << "a type 1 window changes its key";
  EXPECT_EQ(with([](Binding&) {}), Verdict::kOk) << "the request itself is good";
}

TEST_F(WindowsTest, ZeroBasedTypeTwoWindowBeginsAtZero) {
  const Key window = *table.allocate_window(kPd, Kind::kWindow2);
  Binding request = binding(window, mr);
  request.access |= kZeroBased;
  ASSERT_EQ(table.bind(request), Verdict::kOk);
  EXPECT_EQ(resolve(tagged(window, 1), 0, 256), Verdict::kOk);
  EXPECT_EQ(span.data, bytes.data() + 0x100);
}

TEST_F(WindowsTest, FastRegistrationNamesAnyPartOfItsMemory) {
  const Key key = *table.allocate_fast(
      {.pd = kPd, .access = kMrAccess, .length = 4096, .base = bytes.data(), .client_address = 0x50000});
  FastRegistration request{.key = key,
                           .new_key = tagged(key, 3),
                           .pd = kPd,
                           .address = 0x50200,
                           .length = 512,
                           .access = kLocalWrite | kRemoteWrite};
  EXPECT_EQ(resolve(key, 0x50200, 1, 0), Verdict::kNoSuchKey);
  ASSERT_EQ(table.register_fast(request), Verdict::kOk);
  EXPECT_EQ(table.register_fast(request), Verdict::kNoAccess) << "it is valid already";
  EXPECT_EQ(resolve(tagged(key, 3), 0x50200, 512, kRemoteWrite), Verdict::kOk);
  EXPECT_EQ(span.data, bytes.data() + 0x200);
  EXPECT_EQ(resolve(tagged(key, 3), 0x50200, 512, kLocalWrite), Verdict::kOk) << "an L_Key too";
  ASSERT_EQ(table.invalidate(tagged(key, 3), kPd, kQp), Verdict::kOk);
  EXPECT_EQ(resolve(tagged(key, 3), 0x50200, 1, 0), Verdict::kNoSuchKey);
  request.length = 4096;
  EXPECT_EQ(table.register_fast(request), Verdict::kOutOfRange);
  request.length = 8;
  request.access = kRemoteWrite;
  EXPECT_EQ(table.register_fast(request), Verdict::kNoAccess) << "a peer may write and the owner not";
  request.new_key = mr;
  EXPECT_EQ(table.register_fast(request), Verdict::kNoSuchKey);
}

TEST_F(WindowsTest, FastRegistrationGivesNoMoreThanItsMemoryAllows) {
  const Key key = *table.allocate_fast({.pd = kPd, .access = 0, .length = 4096, .base = bytes.data()});
  FastRegistration request{.key = key, .new_key = key, .pd = kPd, .length = 8, .access = kLocalWrite};
  EXPECT_EQ(table.register_fast(request), Verdict::kNoAccess);
  request.access = kRemoteRead | kFlushPersistent;
  EXPECT_EQ(table.register_fast(request), Verdict::kNoAccess) << "nothing here is persistent";
  request.access = kRemoteRead;
  EXPECT_EQ(table.register_fast(request), Verdict::kOk);
}

// One worker moves a window between two ranges of different lengths; others resolve meanwhile, each time one or the
// other.
TEST(WindowsConcurrency, ReadersNeverSeeHalfABinding) {
  Table table(64, 9);
  std::vector<std::byte> memory(16384);
  const Key mr =
      *table.insert({.pd = kPd, .access = kMrAccess, .iova = 0, .length = memory.size(), .base = memory.data()});
  const Key window = *table.allocate_window(kPd, Kind::kWindow1);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, hits{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        for (std::uint32_t tag = 0; tag < 256; ++tag) {
          Span span;
          const Key key = tagged(window, static_cast<std::uint8_t>(tag));
          // Odd bindings: 64 bytes at 0. Even ones: 128 bytes at 8192.
          if (table.resolve(key, kPd, 8192, 128, kRemoteWrite, span, kQp) == Verdict::kOk) {
            hits.fetch_add(1, std::memory_order_relaxed);
            if (span.data != memory.data() + 8192) wrong.fetch_add(1);
          } else if (table.resolve(key, kPd, 0, 64, kRemoteWrite, span, kQp) == Verdict::kOk) {
            hits.fetch_add(1, std::memory_order_relaxed);
            if (span.data != memory.data()) wrong.fetch_add(1);
          }
          if (table.resolve(key, kPd, 0, 65, kRemoteWrite, span, kQp) == Verdict::kOk) wrong.fetch_add(1);
        }
      }
    });
  }
  Key current = window;
  for (int round = 0; round < 20'000 || (hits.load() < 100 && round < 2'000'000); ++round) {
    const Key next = tagged(current, 1);
    const bool odd = round % 2 != 0;
    ASSERT_EQ(table.bind({.window = current,
                          .new_key = next,
                          .mr = mr,
                          .pd = kPd,
                          .qpn = kQp,
                          .address = odd ? 0u : 8192u,
                          .length = odd ? 64u : 128u,
                          .access = kRemoteWrite}),
              Verdict::kOk);
    current = next;
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GE(hits.load(), 100u);
}

}  // namespace
}  // namespace uroce::memory
