// Every implementation of the ICRC against zlib and ISA-L, which share no code with it: lengths, alignments, splits
// and initial values by seed.
#include <gtest/gtest.h>
#include <isa-l/crc.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::wire {
namespace {

// The libraries invert the state before and after.
std::uint32_t by_zlib(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return state;
  return ~static_cast<std::uint32_t>(crc32_z(~state, reinterpret_cast<const Bytef*>(data), bytes));
}
std::uint32_t by_isal(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  return ~crc32_gzip_refl(~state, reinterpret_cast<const unsigned char*>(data), bytes);
}

class IcrcOfLibraries : public ::testing::TestWithParam<const CrcEngine*> {
 protected:
  IcrcOfLibraries() : data_(kLongest + 64), to_(kLongest + 64) {
    for (std::byte& b : data_) b = static_cast<std::byte>(random_());
  }
  void SetUp() override {
    if (!engine().supported()) GTEST_SKIP() << "this CPU has no " << engine().name;
  }
  const CrcEngine& engine() const { return *GetParam(); }
  std::size_t below(std::size_t limit) { return random_() % limit; }
  /// Half of the lengths are short, a quarter near a packet's payload.
  std::size_t length() {
    const std::size_t kind = below(4);
    if (kind < 2) return below(600);
    return kind == 2 ? 4'096 - 64 + below(128) : below(kLongest);
  }
  std::uint32_t right(std::uint32_t state, const std::byte* data, std::size_t bytes) {
    const std::uint32_t answer = by_zlib(state, data, bytes);
    EXPECT_EQ(by_isal(state, data, bytes), answer) << "zlib and ISA-L differ";
    return answer;
  }

  static constexpr std::size_t kLongest = 66'000;
  std::mt19937 random_{20};
  std::vector<std::byte> data_, to_;
};

TEST_P(IcrcOfLibraries, UpdatesAndCopiesAlike) {
  for (int round = 0; round < 6'000; ++round) {
    const std::size_t bytes = length();
    const auto state = static_cast<std::uint32_t>(random_());
    const std::byte* const from = &data_[below(64)];
    std::byte* const to = &to_[below(64)];
    const std::uint32_t answer = right(state, from, bytes);
    ASSERT_EQ(engine().update(state, from, bytes), answer) << bytes << " bytes";
    ASSERT_EQ(engine().copy(state, to, from, bytes), answer) << bytes << " bytes";
    ASSERT_EQ(std::memcmp(to, from, bytes), 0) << bytes << " bytes";
    std::byte word[4];
    store_raw(word, state ^ 0x01234567u);
    ASSERT_EQ(engine().copy_after(state, state ^ 0x01234567u, to, from, bytes),
              right(right(state, word, sizeof word), from, bytes))
        << bytes << " bytes";
  }
}

TEST_P(IcrcOfLibraries, MaskAlike) {
  std::vector<std::byte> ones(CrcEngine::kOnesBytes), masked;
  for (int round = 0; round < 6'000; ++round) {
    const std::size_t bytes = length();
    const std::byte* const from = &data_[below(64)];
    for (std::size_t i = 0; i < 64; ++i) ones[i] = static_cast<std::byte>(random_() & random_());
    masked.assign(from, from + bytes);
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 64); ++i) masked[i] |= ones[i];
    const auto state = static_cast<std::uint32_t>(random_());
    ASSERT_EQ(engine().update_masked(state, from, bytes, ones.data()), right(state, masked.data(), bytes))
        << bytes << " bytes";
  }
}

// A message in pieces, each by another function; a fast engine and the portable one take turns.
TEST_P(IcrcOfLibraries, GoOnWhereTheOtherStopped) {
  for (int round = 0; round < 600; ++round) {
    const auto seed = static_cast<std::uint32_t>(random_());
    const std::size_t bytes = length();
    const std::size_t longest = 1 + below(round % 2 == 0 ? 70 : 5'000);
    std::uint32_t state = seed;
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t piece = std::min(bytes - at, 1 + below(longest));
      const CrcEngine& by = below(5) == 0 ? *crc_engines().front() : engine();
      state = below(2) == 0 ? by.update(state, &data_[at], piece) : by.copy(state, &to_[at], &data_[at], piece);
      at += piece;
    }
    ASSERT_EQ(state, right(seed, data_.data(), bytes)) << bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryEngine, IcrcOfLibraries,
                         ::testing::ValuesIn(crc_engines().begin(), crc_engines().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace uroce::wire
