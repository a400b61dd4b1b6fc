// One suite over every implementation of the ICRC, against one bit at a time.
#include "wire/icrc.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "packets.h"

namespace uroce::wire {
namespace {

std::uint32_t bitwise(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    state ^= static_cast<std::uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xedb88320 : 0);
  }
  return state;
}

std::vector<std::byte> random_bytes(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(bytes);
  std::generate(out.begin(), out.end(), [&] { return static_cast<std::byte>(random()); });
  return out;
}

class Icrc : public ::testing::TestWithParam<const CrcEngine*> {
 protected:
  void SetUp() override {
    if (!engine().supported()) GTEST_SKIP() << "this CPU has no " << engine().name;
  }
  const CrcEngine& engine() const { return *GetParam(); }

  void check(const std::byte* from, std::size_t bytes, std::uint32_t state) {
    const std::uint32_t right = bitwise(state, from, bytes);
    ASSERT_EQ(engine().update(state, from, bytes), right) << bytes << " bytes";
    constexpr std::size_t kMargin = 80;
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{22}, std::size_t{63}}) {
      std::vector<std::byte> to(kMargin + offset + bytes + kMargin, std::byte{0xa5});
      ASSERT_EQ(engine().copy(state, &to[kMargin + offset], from, bytes), right) << bytes << " bytes";
      const auto begin = to.begin() + static_cast<std::ptrdiff_t>(kMargin + offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
      ASSERT_TRUE(std::equal(begin, end, from)) << bytes << " bytes";
      const auto untouched = [](std::byte b) { return b == std::byte{0xa5}; };
      ASSERT_TRUE(std::all_of(to.begin(), begin, untouched)) << bytes << " bytes";
      ASSERT_TRUE(std::all_of(end, to.end(), untouched)) << bytes << " bytes";
    }
  }
};

TEST_P(Icrc, IsRightForEveryShortLengthAtEveryOffset) {
  const auto data = random_bytes(512, 1);
  std::mt19937 random(2);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
    for (std::size_t offset = 0; offset < 64; offset += 1 + bytes % 7) {
      check(&data[offset], bytes, static_cast<std::uint32_t>(random()));
    }
  }
}

TEST_P(Icrc, IsRightForLongLengths) {
  const auto data = random_bytes(70'000, 3);
  for (std::size_t bytes = 300; bytes < 2'200; bytes += 3) check(&data[bytes % 61], bytes, 0xdebb20e3);
  for (std::size_t bytes = 4'030; bytes < 4'230; ++bytes) check(&data[bytes % 61], bytes, ~0u);
  for (const std::size_t bytes : {8'192u, 9'000u, 65'535u, 65'536u}) check(data.data(), bytes, 0);
}

TEST_P(Icrc, GoesOnWhereItStopped) {
  const auto data = random_bytes(5'000, 4);
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::uint32_t state = 0xdebb20e3;
    std::size_t at = 0;
    while (at < data.size()) {
      const std::size_t next = std::min<std::size_t>(data.size() - at, random() % (round % 2 == 0 ? 40 : 1'500));
      state = engine().update(state, &data[at], next);
      at += next;
    }
    ASSERT_EQ(state, bitwise(0xdebb20e3, data.data(), data.size()));
  }
}

TEST_P(Icrc, SetsTheMaskedBitsOnTheWay) {
  const auto data = random_bytes(2'100, 6);
  auto ones = random_bytes(CrcEngine::kOnesBytes, 7);
  std::fill(ones.begin() + 64, ones.end(), std::byte{0});
  for (std::size_t bytes = 0; bytes < 2'000; bytes += bytes < 300 ? 1 : 13) {
    auto masked = data;
    for (std::size_t i = 0; i < 64; ++i) masked[i] |= ones[i];
    ASSERT_EQ(engine().update_masked(0xdebb20e3, data.data(), bytes, ones.data()),
              bitwise(0xdebb20e3, masked.data(), bytes))
        << bytes << " bytes";
  }
}

TEST_P(Icrc, CopiesAfterAWord) {
  const auto data = random_bytes(5'000, 14);
  for (std::size_t bytes = 0; bytes <= 4'160; bytes += bytes < 300 ? 1 : 52) {
    std::vector<std::byte> both(4);
    store_raw(both.data(), 0x89abcdefu);
    both.insert(both.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes));
    std::vector<std::byte> to(bytes + 1, std::byte{0x55});
    ASSERT_EQ(engine().copy_after(7, 0x89abcdefu, to.data(), data.data(), bytes),
              bitwise(7, both.data(), both.size()))
        << bytes << " bytes";
    ASSERT_TRUE(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes), to.begin()));
    ASSERT_EQ(to.back(), std::byte{0x55});
  }
}

// Not one byte before or after the buffers is touched: they end, or begin, where memory does.
TEST_P(Icrc, StaysInsideItsBuffers) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto map = [&] {
    auto* base = static_cast<std::byte*>(mmap(nullptr, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base + page, 2 * page, PROT_READ | PROT_WRITE), 0);
    return base;
  };
  std::byte* const from = map();
  std::byte* const to = map();
  const auto data = random_bytes(2 * page, 8);
  std::copy(data.begin(), data.end(), from + page);
  for (std::size_t bytes = 0; bytes <= 1'200; bytes += bytes < 300 ? 1 : 7) {
    for (const std::size_t start : {page, 3 * page - bytes}) {
      const std::uint32_t right = bitwise(1, from + start, bytes);
      ASSERT_EQ(engine().update(1, from + start, bytes), right);
      ASSERT_EQ(engine().copy(1, to + start, from + start, bytes), right);
      ASSERT_TRUE(std::equal(to + start, to + start + bytes, from + start));
    }
  }
  munmap(from, 4 * page);
  munmap(to, 4 * page);
}

// Accesses that would begin before the page are made otherwise: with either buffer, or the ones to set, at its
// start.
TEST_P(Icrc, IsRightAtTheStartOfAPage) {
  constexpr std::size_t kPage = 4096;
  struct alignas(kPage) Page {
    std::array<std::byte, kPage> bytes;
  };
  const auto from = std::make_unique<std::array<Page, 2>>();
  const auto to = std::make_unique<std::array<Page, 2>>();
  const auto ones = std::make_unique<std::array<Page, 2>>();
  const auto data = random_bytes(kPage, 10);
  for (std::size_t bytes = 0; bytes <= 260; ++bytes) {
    for (const std::size_t start : {0, 1, 17, 59, 60, 64}) {
      for (const std::size_t other : {0, 30, 64}) {
        std::byte* const source = (*from)[1].bytes.data() + start;
        std::byte* const target = (*to)[1].bytes.data() + other;
        std::byte* const mask = (*ones)[1].bytes.data() + other;
        std::copy_n(data.begin(), bytes, source);
        (*ones)[1].bytes.fill(std::byte{0});
        std::copy_n(data.begin() + 1'000, std::min<std::size_t>(bytes, 64), mask);
        std::vector<std::byte> masked(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes));
        for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 64); ++i) masked[i] |= mask[i];
        const std::byte before = target[-1], behind = target[bytes];
        ASSERT_EQ(engine().copy(1, target, source, bytes), bitwise(1, source, bytes)) << bytes << " bytes";
        ASSERT_TRUE(std::equal(source, source + bytes, target)) << bytes << " bytes";
        ASSERT_TRUE(target[-1] == before && target[bytes] == behind) << bytes << " bytes";
        ASSERT_EQ(engine().update_masked(1, source, bytes, mask), bitwise(1, masked.data(), bytes)) << bytes;
      }
    }
  }
}

// A program may write to its memory while a packet of it is built: the CRC is of the bytes that were written to the
// packet, because no byte is loaded twice.
TEST_P(Icrc, IsOfTheBytesThatWereWrittenWhileTheSourceChanges) {
  constexpr std::size_t kBytes = 4'096;
  std::vector<std::byte> from(kBytes), to(kBytes);
  const auto fill = [&](std::size_t bytes, unsigned value) {
    for (std::size_t i = 0; i < bytes; ++i) {
      __atomic_store_n(reinterpret_cast<unsigned char*>(&from[i]), static_cast<unsigned char>(value),
                       __ATOMIC_RELAXED);
    }
  };
  std::atomic<std::size_t> length{0};
  std::jthread program([&](const std::stop_token& stop) {
    for (unsigned value = 0; !stop.stop_requested(); value += 0x5b) fill(length.load(), value);
  });
  std::mt19937 random(16);
  for (int round = 0; round < 6'000; ++round) {
    const std::size_t bytes = round % 8 != 0 ? random() % 33 : random() % (kBytes + 1);
    length.store(std::max<std::size_t>(bytes, 1));
    const std::uint32_t state = engine().copy(7, to.data(), from.data(), bytes);
    ASSERT_EQ(state, bitwise(7, to.data(), bytes)) << bytes << " bytes";
    const std::uint32_t word = 0x89abcdefu;
    const std::uint32_t after = engine().copy_after(7, word, to.data(), from.data(), bytes);
    ASSERT_EQ(after, bitwise(bitwise(7, reinterpret_cast<const std::byte*>(&word), 4), to.data(), bytes))
        << bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryEngine, Icrc, ::testing::ValuesIn(crc_engines().begin(), crc_engines().end()),
                         [](const auto& info) { return std::string(info.param->name); });

// icrc_begin and icrc_of against the annex's own words: a pseudo LRH of ones, then the packet with the variant
// fields all ones. IPv4 options move the fields after the header.
TEST(IcrcOfPacket, MasksWhatRoutersMayChange) {
  for (const std::size_t ip_bytes : {std::size_t{20}, std::size_t{24}, std::size_t{60}, std::size_t{40}}) {
    const bool v6 = ip_bytes == 40;
    auto packet = random_bytes(ip_bytes + 8 + 12 + 200, 9);
    packet[0] = static_cast<std::byte>(v6 ? 0x65 : 0x40 | ip_bytes / 4);
    std::vector<std::byte> masked(8, std::byte{0xff});
    masked.insert(masked.end(), packet.begin(), packet.end());
    std::byte* const ip = &masked[8];
    if (v6) {
      ip[0] |= std::byte{0x0f};
      for (const int at : {1, 2, 3, 7}) ip[at] = std::byte{0xff};
    } else {
      for (const int at : {1, 8, 10, 11}) ip[at] = std::byte{0xff};
    }
    for (const std::size_t at : {ip_bytes + 6, ip_bytes + 7, ip_bytes + 12}) ip[at] = std::byte{0xff};
    const auto before = packet;
    EXPECT_EQ(icrc_begin(packet.data(), ip_bytes), bitwise(~0u, masked.data(), 8 + ip_bytes + 20)) << ip_bytes;
    EXPECT_EQ(icrc_begin(packet.data(), ip_bytes, 52), bitwise(~0u, masked.data(), 8 + ip_bytes + 60)) << ip_bytes;
    EXPECT_EQ(icrc_of(packet.data(), ip_bytes, 212), ~bitwise(~0u, masked.data(), masked.size())) << ip_bytes;
    EXPECT_EQ(packet, before) << "changed";
  }
}

}  // namespace
}  // namespace uroce::wire
