// The rows of `urocectl show neighbours`: their states and their order.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "net/link_stack.h"

namespace uroce::net {
namespace {

wire::Address v4(std::uint8_t third, std::uint8_t last) {
  wire::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, third, last};
  return address;
}

/// Answers each ARP request of the stack from a station whose MAC address ends in that of its IP address.
void answer_all(LinkStack& stack, Nanos now) {
  std::vector<std::byte> frame(256);
  stack.advance(now);
  while (const std::size_t bytes = stack.next_frame(frame)) {
    const std::size_t arp = frame[12] == std::byte{0x81} ? 18 : 14;
    std::vector<std::byte> answer(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
    const std::byte last = frame[arp + 27];
    if (frame[arp + 17] == last) continue;  // an announcement
    for (std::size_t i = 0; i < 6; ++i) {
      const std::byte own = frame[6 + i], theirs = i == 5 ? last : std::byte{0x02};
      answer[i] = own, answer[6 + i] = theirs;
      answer[arp + 8 + i] = theirs, answer[arp + 18 + i] = own;
    }
    answer[arp + 7] = std::byte{2};
    for (std::size_t i = 0; i < 4; ++i) {
      answer[arp + 14 + i] = frame[arp + 24 + i];
      answer[arp + 24 + i] = frame[arp + 14 + i];
    }
    stack.receive(answer, now);
  }
}

class Neighbours : public ::testing::Test {
 protected:
  Neighbours() : stack(config()) { answer_all(stack, 0); }
  static LinkConfig config() {
    LinkConfig config;
    config.mac = {0x02, 0, 0, 0, 0, 1};
    config.addresses = {{v4(2, 1), 24}, {v4(2, 2), 24, 5}};
    return config;
  }
  Resolution resolve(std::uint8_t last, Nanos now, std::uint16_t vlan = 0) {
    wire::Mac mac;
    return stack.resolve(v4(2, last), now, mac, vlan);
  }
  using State = NeighbourEntry::State;

  LinkStack stack;
};

TEST_F(Neighbours, have_the_state_of_what_they_answered) {
  resolve(9, kSecond);
  EXPECT_EQ(stack.list_neighbours({}, 8, kSecond).at(0).state, State::kIncomplete);
  EXPECT_EQ(stack.list_neighbours({}, 8, kSecond).at(0).confirmed_ago, kNever);
  answer_all(stack, 2 * kSecond);
  NeighbourEntry entry = stack.list_neighbours({}, 8, 5 * kSecond).at(0);
  EXPECT_EQ(entry.state, State::kReachable);
  EXPECT_EQ(entry.confirmed_ago, 3 * kSecond);
  EXPECT_EQ(entry.used_ago, 4 * kSecond);
  EXPECT_EQ(entry.mac, (wire::Mac{2, 2, 2, 2, 2, 9}));
  EXPECT_EQ(stack.list_neighbours({}, 8, 32 * kSecond).at(0).state, State::kStale);
  resolve(10, 40 * kSecond);
  std::vector<std::byte> frame(256);
  for (Nanos now = 40 * kSecond; now < 44 * kSecond; now += kSecond) {
    stack.advance(now);
    while (stack.next_frame(frame) != 0) {
    }
  }
  EXPECT_EQ(stack.list_neighbours(v4(2, 10), 8, 43 * kSecond).at(0).state, State::kFailed);
}

TEST_F(Neighbours, come_in_order_from_the_first_on_and_an_address_is_not_divided) {
  for (const std::uint8_t last : {40, 7, 90, 13}) resolve(last, kSecond);
  resolve(13, kSecond, 5);
  answer_all(stack, kSecond);
  const auto list = [&](std::uint8_t first, std::size_t most) {
    std::vector<unsigned> found;
    for (const NeighbourEntry& each : stack.list_neighbours(v4(2, first), most, kSecond)) {
      EXPECT_EQ(each.state, State::kReachable);
      found.push_back(each.address.bytes[15] * 10u + each.vlan);
    }
    return found;
  };
  EXPECT_EQ(list(0, 100), (std::vector<unsigned>{70, 130, 135, 400, 900}));
  EXPECT_EQ(list(0, 1), (std::vector<unsigned>{70}));
  EXPECT_EQ(list(0, 2), (std::vector<unsigned>{70, 130, 135}));
  EXPECT_EQ(list(8, 1), (std::vector<unsigned>{130, 135}));
  EXPECT_EQ(list(40, 2), (std::vector<unsigned>{400, 900}));
  EXPECT_EQ(list(91, 2), (std::vector<unsigned>{}));
  EXPECT_EQ(list(0, 0), (std::vector<unsigned>{}));
}

TEST_F(Neighbours, are_the_gateways_that_change_while_it_runs) {
  const auto far = [&] {
    wire::Address address = v4(0, 7);
    address.bytes[12] = 198;
    wire::Mac mac;
    return stack.resolve(address, kSecond, mac);
  };
  EXPECT_EQ(far(), Resolution::kNoRoute);
  stack.take_resolved();
  stack.set_gateways(v4(2, 253), std::nullopt);
  EXPECT_TRUE(stack.take_resolved()) << "waiting clients ask again";
  EXPECT_EQ(far(), Resolution::kPending);
  EXPECT_EQ(stack.list_neighbours({}, 8, kSecond).at(0).address, v4(2, 253));
  stack.set_gateways(std::nullopt, std::nullopt);
  EXPECT_EQ(far(), Resolution::kNoRoute);
}

}  // namespace
}  // namespace uroce::net
