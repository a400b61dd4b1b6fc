#include "net/local_addresses.h"

#include <gtest/gtest.h>

#include <array>

namespace uroce::net {
namespace {

wire::Address v4(std::uint8_t last) { return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last}}; }
wire::Address v6(std::uint8_t last) { return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}}; }

/// The part of a packet that is looked at.
struct Packet : wire::RxPacket {
  Packet(const wire::Address& to, std::uint16_t tci) {
    ip_bytes = to.is_v4() ? 20 : 40;
    if (to.is_v4()) {
      std::memcpy(header.data() + 16, to.bytes.data() + 12, 4);
    } else {
      std::memcpy(header.data() + 24, to.bytes.data(), 16);
    }
    ip = header.data();
    multicast = to.is_multicast();
    vlan = tci;
  }
  Packet(const Packet&) = delete;
  std::array<std::byte, 40> header{};
};

class LocalAddressesTest : public ::testing::Test {
 protected:
  LocalAddressesTest() {
    const InterfaceAddress all[] = {{v4(1), 24}, {v4(5), 24, 5}, {v6(1), 64}, {v6(5), 64, 5}};
    own_.assign(all);
  }
  Addressed check(const wire::Address& to, std::uint16_t tci) { return own_.check(Packet(to, tci)); }

  LocalAddresses own_;
};

TEST_F(LocalAddressesTest, an_address_is_reached_in_its_vlan_only) {
  for (int round = 0; round < 2; ++round) {  // with the address remembered from the packet before, and without
    for (const wire::Address& tagged : {v4(5), v6(5)}) {
      EXPECT_EQ(check(tagged, 5), Addressed::kToUs);
      EXPECT_EQ(check(tagged, 0), Addressed::kWrongVlan);
      EXPECT_EQ(check(tagged, 6), Addressed::kWrongVlan);
    }
    for (const wire::Address& untagged : {v4(1), v6(1)}) {
      EXPECT_EQ(check(untagged, 0), Addressed::kToUs);
      EXPECT_EQ(check(untagged, 5), Addressed::kWrongVlan);
    }
  }
}

TEST_F(LocalAddressesTest, the_priority_does_not_matter) {
  EXPECT_EQ(check(v4(1), 7 << 13), Addressed::kToUs) << "VLAN 0: untagged";
  EXPECT_EQ(check(v4(5), 7 << 13), Addressed::kWrongVlan);
  EXPECT_EQ(check(v4(5), 3 << 13 | 1 << 12 | 5), Addressed::kToUs);
}

TEST_F(LocalAddressesTest, other_addresses_are_not_ours) {
  EXPECT_EQ(check(v4(2), 0), Addressed::kWrongAddress);
  EXPECT_EQ(check(v6(2), 5), Addressed::kWrongAddress);
  own_.assign({});
  EXPECT_EQ(check(v4(1), 0), Addressed::kWrongAddress);
}

TEST_F(LocalAddressesTest, groups_are_reached_where_there_are_addresses) {
  wire::Address group = v4(1);
  group.bytes[12] = 239;
  EXPECT_EQ(check(group, 0), Addressed::kToUs);
  EXPECT_EQ(check(group, 5), Addressed::kToUs);
  EXPECT_EQ(check(group, 6), Addressed::kWrongVlan);
}

}  // namespace
}  // namespace uroce::net
