#include "net/gid_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace uroce::net {
namespace {

InterfaceAddress v4(std::uint8_t last, std::uint16_t vlan = 0) {
  InterfaceAddress own;
  own.address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
  own.vlan = vlan;
  return own;
}
InterfaceAddress link_local(std::uint8_t last, std::uint16_t vlan = 0) {
  InterfaceAddress own;
  own.address.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  own.vlan = vlan;
  return own;
}

/// The last byte of each entry; -1: empty.
std::vector<int> entries(const GidTable& table) {
  std::vector<int> all;
  for (std::size_t i = 0; i < table.size(); ++i) all.push_back(table.at(i) ? table.at(i)->bytes[15] : -1);
  return all;
}
const std::vector<InterfaceAddress> kThree{v4(1), v4(2), link_local(99)};

TEST(GidTable, EntriesAreInTheOrderOfTheAddresses) {
  GidTable table(kThree);
  EXPECT_EQ(entries(table), (std::vector<int>{1, 2, 99}));
  EXPECT_FALSE(table.add(v4(2)));
  EXPECT_TRUE(table.remove(v4(1).address));
  EXPECT_FALSE(table.remove(v4(1).address));
  EXPECT_EQ(entries(table), (std::vector<int>{-1, 2, 99})) << "an entry keeps its index";
  EXPECT_TRUE(table.add(v4(3)));
  EXPECT_EQ(entries(table), (std::vector<int>{3, 2, 99}));
  EXPECT_TRUE(table.remove(link_local(99).address));
  EXPECT_EQ(entries(table), (std::vector<int>{3, 2}));
}

TEST(GidTable, RxeHasTheLinkLocalAddressFirst) {
  GidTable table(kThree, GidLayout::kRxe);
  EXPECT_EQ(entries(table), (std::vector<int>{99, 1, 2}));
  EXPECT_TRUE(table.remove(link_local(99).address));
  EXPECT_TRUE(table.add(v4(4)));
  EXPECT_EQ(entries(table), (std::vector<int>{-1, 1, 2, 4})) << "entry 0 is for a link-local address";
  EXPECT_TRUE(table.add(link_local(5, 7)));
  EXPECT_EQ(table.find(link_local(5).address), 4u) << "one in a VLAN is like the others";
  EXPECT_TRUE(table.add(link_local(6)));
  EXPECT_EQ(table.find(link_local(6).address), 0u);
  EXPECT_TRUE(table.add(link_local(7)));
  EXPECT_EQ(table.find(link_local(7).address), 5u);
}

TEST(GidTable, Mlx5HasRoceV2AtOddEntries) {
  GidTable table(kThree, GidLayout::kMlx5);
  EXPECT_EQ(entries(table), (std::vector<int>{-1, 99, -1, 1, -1, 2}));
  EXPECT_EQ(table.addresses().size(), 3u);
  EXPECT_TRUE(table.remove(v4(1).address));
  EXPECT_TRUE(table.add(v4(8, 5)));
  EXPECT_EQ(entries(table), (std::vector<int>{-1, 99, -1, 8, -1, 2}));
  EXPECT_EQ(table.vlan(3), 5);
  EXPECT_EQ(entries(GidTable(std::vector{v4(1)}, GidLayout::kMlx5)), (std::vector<int>{-1, -1, -1, 1}));
}

TEST(GidTable, IsFullAtItsLimitInEachLayout) {
  for (const auto& [layout, room] :
       {std::pair(GidLayout::kAddresses, 256), std::pair(GidLayout::kRxe, 255), std::pair(GidLayout::kMlx5, 127)}) {
    GidTable table({}, layout);
    int added = 0;
    for (int i = 0; i < 300; ++i) {
      InterfaceAddress own = v4(static_cast<std::uint8_t>(i));
      own.address.bytes[14] = static_cast<std::uint8_t>(i >> 8);
      added += table.add(own);
    }
    EXPECT_EQ(added, room);
    EXPECT_LE(table.size(), GidTable::kMost);
  }
}

}  // namespace
}  // namespace uroce::net
