#include "memory/key_cipher.h"

#include <gtest/gtest.h>

#include <random>

#include <bit>
#include <vector>

namespace uroce::memory {
namespace {

TEST(KeyCipherTest, IsAPermutationOfTwentyFourBits) {
  std::mt19937_64 random(1);
  const KeyCipher cipher(random);
  std::vector<bool> hit(1u << 24);
  for (std::uint32_t i = 0; i < 1u << 24; ++i) {
    const std::uint32_t image = cipher.encrypt(i);
    ASSERT_LT(image, 1u << 24);
    ASSERT_FALSE(hit[image]);
    hit[image] = true;
    ASSERT_EQ(cipher.decrypt(image), i);
  }
}

TEST(KeyCipherTest, NeighboursLandFarApart) {
  std::mt19937_64 random(2);
  const KeyCipher cipher(random);
  std::uint64_t flipped = 0;
  constexpr std::uint32_t kPairs = 100'000;
  for (std::uint32_t i = 0; i < kPairs; ++i) flipped += std::popcount(cipher.encrypt(i) ^ cipher.encrypt(i + 1));
  const double mean = static_cast<double>(flipped) / kPairs;
  EXPECT_GT(mean, 10.0);
  EXPECT_LT(mean, 14.0);
}

}  // namespace
}  // namespace uroce::memory
