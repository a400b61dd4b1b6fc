#include "base/chacha20.h"

#include <gtest/gtest.h>

#include <set>

namespace uroce::base {
namespace {

TEST(ChaCha20Test, ComputesTheBlockOfTheSpecification) {
  ChaCha20::Key key{};
  for (std::uint32_t i = 0; i < 32; ++i) key[i / 4] |= i << 8 * (i % 4);
  // RFC 8439, 2.3.2.
  const ChaCha20::Block expected{0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                                 0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                 0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  EXPECT_EQ(ChaCha20::block(key, 1, {0x09000000, 0x4a000000, 0}), expected);
}

TEST(ChaCha20Test, ASeedRepeatsTheNumbersAndAnotherGivesOthers) {
  ChaCha20 one(7), same(7), other(8);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t number = one();
    EXPECT_EQ(number, same());
    EXPECT_TRUE(seen.insert(number).second);
    EXPECT_TRUE(seen.insert(other()).second);
  }
}

}  // namespace
}  // namespace uroce::base
