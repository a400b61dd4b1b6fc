// The bytes that rsockets exchange are those of rdma-core.
#include <gtest/gtest.h>

#include "rsocket/wire.h"

namespace uroce::rdmacm {
namespace {

TEST(ConnectPrivateData, HasTheBytesOfTheProtocol) {
  ConnectPrivateData g;
  g.flags = ConnectPrivateData::kHasIomap;
  g.credits = 384;
  g.iomap_scale = 3;
  g.list = {0x0102030405060708, 0x11121314, kTargets};
  g.buffer = {0x2122232425262728, 0x31323334, 65536};
  std::uint8_t bytes[ConnectPrivateData::kBytes];
  g.encode(bytes);
  const std::uint8_t expected[ConnectPrivateData::kBytes] = {
      1,    2,    0x01, 0x80, 0,    0,    0,    3,                                         //
      0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2,  //
      0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof(bytes)), 0);
  const auto back = ConnectPrivateData::decode(bytes, 56);  // the length of a REQ's private data
  ASSERT_TRUE(back);
  EXPECT_EQ(back->credits, 384);
  EXPECT_EQ(back->list.addr, 0x0102030405060708u);
  EXPECT_EQ(back->buffer.length, 65536u);
}

TEST(ConnectPrivateData, RefusesShortDataAndOtherVersions) {
  std::uint8_t bytes[ConnectPrivateData::kBytes];
  ConnectPrivateData().encode(bytes);
  EXPECT_FALSE(ConnectPrivateData::decode(bytes, ConnectPrivateData::kBytes - 1));
  EXPECT_FALSE(ConnectPrivateData::decode(nullptr, 0));
  bytes[0] = 2;
  EXPECT_FALSE(ConnectPrivateData::decode(bytes, sizeof(bytes)));
}

TEST(Message, HasItsOperationInTheThreeHighBits) {
  EXPECT_EQ(message(MessageOp::kData, 5), 5u);
  EXPECT_EQ(message(MessageOp::kCredits, 400), 0x80000190u);
  EXPECT_EQ(message(MessageOp::kIomap, 2), 0xc0000002u);
  EXPECT_EQ(message(ControlMessage::kDisconnect), 0xe0000000u);
  EXPECT_EQ(message(ControlMessage::kShutdown), 0xe0000002u);
  EXPECT_EQ(op_of(0x80000190u), MessageOp::kCredits);
  EXPECT_EQ(value_of(0x80000190u), 400u);
}

TEST(IomapScale, IsExactUpTo128AndInStepsOf256Above) {
  for (std::uint32_t n = 0; n <= 128; ++n) EXPECT_EQ(iomap_count(iomap_scale(n)), n);
  EXPECT_EQ(iomap_count(iomap_scale(1024)), 1024u);
  EXPECT_EQ(iomap_count(iomap_scale(1030)), 1024u);
  EXPECT_EQ(iomap_count(iomap_scale(1u << 20)), 127u << 8);
}

TEST(Swapped, SwapsEachField) {
  const Target t = swapped(Target{0x0102030405060708, 0x11121314, 0x21222324});
  EXPECT_EQ(t.addr, 0x0807060504030201u);
  EXPECT_EQ(t.key, 0x14131211u);
  EXPECT_EQ(t.length, 0x24232221u);
}

}  // namespace
}  // namespace uroce::rdmacm
