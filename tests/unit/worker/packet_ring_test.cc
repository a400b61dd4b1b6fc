#include "worker/packet_ring.h"

#include <gtest/gtest.h>

namespace uroce::worker {
namespace {

TEST(PacketRing, KeepsOrderAndDropsWhatDoesNotFit) {
  PacketRing ring(64);
  EXPECT_TRUE(ring.front().empty());
  std::byte frame[65] = {};
  EXPECT_FALSE(ring.push(frame));
  for (std::uint32_t i = 0; i < PacketRing::kSlots; ++i) {
    frame[0] = static_cast<std::byte>(i);
    ASSERT_TRUE(ring.push({frame, 60}));
  }
  EXPECT_FALSE(ring.push({frame, 60}));
  for (std::uint32_t i = 0; i < PacketRing::kSlots; ++i) {
    ASSERT_EQ(ring.front().size(), 60u);
    EXPECT_EQ(ring.front()[0], static_cast<std::byte>(i));
    ring.pop();
  }
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace uroce::worker
