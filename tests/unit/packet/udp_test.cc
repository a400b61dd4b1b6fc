// The port of sockets, over the loopback interface of a network namespace of the test's own where the kernel allows
// one. Needs no privileges.
#include "drivers/packet/udp/port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "drivers/packet/udp/virtual_link.h"
#include "net/link_stack.h"
#include "tests/unit/packet/conformance.h"
#include "tests/unit/packet/roce_frames.h"

namespace uroce::packet_test {
namespace {

using udp::IcrcDelta;
using udp::Port;

constexpr wire::Address kOne = v4_address(127, 0, 0, 1), kTwo = v4_address(127, 0, 0, 2);
constexpr wire::Address kNobody = v4_address(127, 0, 0, 3), kAbsent = v4_address(192, 0, 2, 99);

/// One daemon's port.
struct Site {
  explicit Site(const wire::Address& address, std::uint32_t queues = 1, udp::PortOptions options = {})
      : own(address) {
    options.mtu = 9000;
    options.mac = {0x02, 0xff, 0, 0, 0, address.bytes[15]};
    error = udp::open_sockets({address}, queues, sockets);
    if (!error.empty()) return;
    options.interface = sockets.interface;
    for (const auto& endpoints : sockets.queues) ports.push_back(std::make_unique<Port>(options, endpoints));
  }

  wire::Address own;
  std::string error;
  udp::Sockets sockets;
  std::vector<std::unique_ptr<Port>> ports;
  Port& port() { return *ports.front(); }
};

wire::PathAddress path(const wire::Address& from, const wire::Address& to) {
  wire::PathAddress path;
  path.source = from;
  path.dest = to;
  path.source_port = 0xd123;
  return path;
}

template <std::uint8_t kFrom, std::uint8_t kTo>
struct RoceFrames {
  static constexpr std::uint32_t kLeast = kFrom == 0 ? 80 : 60;
  static wire::Address address(std::uint8_t last) { return kFrom == 0 ? kLoopback6 : v4_address(127, 0, 0, last); }
  static void fill(base::Frame& frame, const wire::Mac&, std::uint32_t length, std::uint32_t number) {
    fill_roce(frame, path(address(kFrom), address(kTo)), length, number);
  }
  static bool is_one(const base::Frame&) { return true; }
  static std::uint32_t number_of(const base::Frame& frame) { return roce_number(frame); }
  static bool intact(const base::Frame& frame, std::uint32_t length) { return roce_intact(frame, length); }
};

struct UdpRig {
  bool ready() { return why().empty(); }
  std::string why() { return a.error + b.error; }
  void settle() {}
  wire::Mac to() const { return {}; }
  auto& sender() { return a.port(); }
  auto& receiver() { return b.port(); }

  explicit UdpRig(const udp::PortOptions& options = {}) : a(kOne, 1, options), b(kTwo, 1, options) {}
  using Frames = RoceFrames<1, 2>;
  Site a, b;
};
struct WithoutGsoRig : UdpRig {
  WithoutGsoRig() : UdpRig({.gso = false}) {}
};
/// One socket, which sends to itself.
struct Ipv6Rig {
  bool ready() { return site.error.empty(); }
  std::string why() { return site.error; }
  void settle() {}
  wire::Mac to() const { return {}; }
  auto& sender() { return site.port(); }
  auto& receiver() { return site.port(); }
  using Frames = RoceFrames<0, 0>;
  Site site{kLoopback6};
};

static_assert(net::PacketDevice<Port>);
using UdpRigs = ::testing::Types<UdpRig, WithoutGsoRig, Ipv6Rig>;
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, Conformance, UdpRigs);

/// Receives until `count` frames have come or nothing more does. The caller releases them.
std::vector<base::Frame> receive(Port& port, std::size_t count) {
  std::vector<base::Frame> all;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (all.size() < count && std::chrono::steady_clock::now() < give_up) {
    base::Frame some[16];
    const std::size_t got = port.receive(some);
    all.insert(all.end(), some, some + got);
  }
  return all;
}

bool send_one(Port& port, const wire::PathAddress& path, std::uint32_t qpn = 0x17, std::uint32_t number = 1) {
  base::Frame frame;
  if (port.allocate(std::span(&frame, 1)) != 1) return false;
  fill_roce(frame, path, 200, number, qpn);
  return port.transmit(std::span(&frame, 1)) == 1;
}

/// A socket of another program, which sends to the port from 127.0.0.1.
struct Stranger {
  udp::Socket socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  bool send(const void* data, std::size_t bytes, const wire::Address& to) const {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = {}, .sin_zero = {}};
    std::memcpy(&address.sin_addr, to.bytes.data() + 12, 4);
    return ::sendto(socket.get(), data, bytes, 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
           static_cast<ssize_t>(bytes);
  }
  std::uint16_t port() const {
    sockaddr_in own{};
    socklen_t bytes = sizeof(own);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes);
    return ntohs(own.sin_port);
  }
};

TEST(IcrcDelta, is_the_difference_of_the_icrcs_of_packets_that_differ_in_a_field) {
  std::mt19937 random(7);
  IcrcDelta delta;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(128 + random() % 5000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    base::Frame frame{.data = bytes.data()};
    wire::PathAddress some = path(kOne, kTwo);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    fill_roce(frame, some, length, 5);
    const Parts parts(frame);
    const std::uint32_t before = parts.right_icrc();
    std::byte* const field = round % 2 == 0 ? parts.ip + 4 : parts.ip + 20;  // identification, source port
    const std::uint16_t was = wire::load16(field), is = static_cast<std::uint16_t>(random());
    wire::store16(field, is);
    const std::size_t trailing = static_cast<std::size_t>(parts.bth + parts.covered - field) - 2;
    ASSERT_EQ(before ^ parts.right_icrc(), delta.of(was ^ is, trailing)) << length << " bytes";
  }
}

/// Lengths of RoCE packets: ACK, 64 bytes, path MTU 1024, 4096, the largest.
constexpr std::array<std::uint32_t, 5> kLengths{62, 122, 1082, 4154, 9000};

TEST(IcrcDelta, finds_each_identification_from_the_icrc_of_a_packet_that_has_it) {
  IcrcDelta delta;
  for (const std::uint32_t length : kLengths) {
    std::vector<std::byte> bytes(length);
    base::Frame frame{.data = bytes.data()};
    fill_roce(frame, path(kOne, kTwo), length, 5);
    const Parts parts(frame);
    const std::uint32_t zero = parts.icrc();
    for (std::uint32_t value = 0; value < 65536; ++value) {
      const auto identification = static_cast<std::uint16_t>(value);
      wire::store16(parts.ip + 4, identification);
      ASSERT_EQ(delta.solve(zero ^ parts.right_icrc(), parts.covered + 22), identification) << length << " bytes";
    }
    EXPECT_EQ(delta.solve(delta.of(3, parts.covered + 22), parts.covered + 22), 3) << "also out of turn";
  }
}

TEST(IcrcDelta, finds_one_for_a_damaged_packet_with_the_probability_of_16_bits) {
  // A uniform difference: what damage of more than 32 bits in a row leaves.
  IcrcDelta delta;
  std::mt19937 random(11);
  for (const std::uint32_t length : kLengths) {
    int found = 0;
    for (int round = 0; round < 1 << 22; ++round) found += delta.solve(random(), length - 24) ? 1 : 0;
    EXPECT_GT(found, 64 - 40) << length << " bytes";  // five standard deviations
    EXPECT_LT(found, 64 + 40) << length << " bytes";
  }
}

/// What a sender's packets have told so far.
struct Numbers {
  bool accept(std::uint32_t source, std::uint32_t identification, Nanos now) {
    return all.accepts(source, static_cast<std::uint16_t>(identification), now, settled);
  }
  /// Of the packets of one sender, from `first` on, 1 us apart, how many are refused.
  int refused(std::uint32_t first, std::uint32_t count, std::uint32_t step, Nanos start) {
    int sum = 0;
    for (std::uint32_t i = 0; i < count; ++i)
      sum += accept(kSender, first + i * step, start + i * kMicrosecond) ? 0 : 1;
    return sum;
  }
  static constexpr std::uint32_t kSender = 0xc0000202;
  udp::Identifications all;
  bool settled = false;
};

TEST(Identifications, of_0_of_one_number_and_counted_ones_are_accepted_from_the_first_packet_on) {
  for (const std::uint32_t step : {0u, 1u, 3u, 256u}) {
    for (const std::uint32_t first : {0u, 77u, 30000u, 65535u}) {
      Numbers numbers;
      // One that counts from 0 on looks at first like one whose rows are cut.
      EXPECT_LE(numbers.refused(first, 200'000, step, kSecond), first == 0 && step != 0 ? 1 : 0)
          << first << ", " << step;
    }
  }
}

TEST(Identifications, may_be_out_of_order_or_missing_by_a_few) {
  Numbers numbers;
  EXPECT_TRUE(numbers.accept(1, 1000, kSecond));
  EXPECT_TRUE(numbers.accept(1, 1100, kSecond));
  EXPECT_TRUE(numbers.accept(1, 844, kSecond)) << "256 late";
  EXPECT_TRUE(numbers.accept(1, 1356, kSecond)) << "256 more; the late one moved nothing";
  EXPECT_FALSE(numbers.accept(1, 1613, kSecond)) << "257 more";
  EXPECT_FALSE(numbers.accept(1, 1099, kSecond)) << "257 late";
  EXPECT_TRUE(numbers.accept(1, 1357, kSecond));
}

TEST(Identifications, may_skip_one_for_each_microsecond_of_a_pause) {
  Numbers numbers;
  EXPECT_TRUE(numbers.accept(1, 1000, kSecond));
  EXPECT_FALSE(numbers.accept(1, 11'257, kSecond + 10 * kMillisecond));
  EXPECT_TRUE(numbers.accept(1, 11'256, kSecond + 10 * kMillisecond));
  EXPECT_TRUE(numbers.accept(1, 500, 2 * kSecond)) << "any after 65 ms";
}

TEST(Identifications, that_go_on_elsewhere_cost_one_packet) {
  Numbers numbers;
  EXPECT_EQ(numbers.refused(1000, 100, 1, kSecond), 0);
  EXPECT_EQ(numbers.refused(30000, 100, 1, kSecond + 100 * kMicrosecond), 1);
}

TEST(Identifications, of_damaged_packets_are_refused_next_to_good_ones) {
  std::mt19937 random(3);
  for (const std::uint32_t step : {0u, 1u}) {  // rows and 0, or counted
    Numbers numbers;
    int accepted = 0, refused = 0;
    const std::uint32_t first = step == 0 ? 0 : 1000;
    for (std::uint32_t i = 0; i < 1'600'000; ++i) {
      const Nanos now = kSecond + i * kMicrosecond;
      refused += numbers.accept(1, first + i * step, now) ? 0 : 1;
      if (i % 16 == 0) accepted += numbers.accept(1, random(), now) ? 1 : 0;
    }
    // 64 of a row, or these and 513 near the last one, of 65,536.
    EXPECT_LT(accepted, 100'000 * (step == 0 ? 64 : 577) / 65536 * 5 / 4) << step;
    EXPECT_GT(accepted, 0) << step;
    EXPECT_LE(refused, step == 0 ? 0 : 5)
        << step << "; a damaged one moves the last number by what is accepted late";
  }
}

TEST(Identifications, of_a_sender_of_rows_are_not_free_after_a_pause) {
  Numbers numbers;
  EXPECT_TRUE(numbers.accept(1, 0, kSecond));
  EXPECT_TRUE(numbers.settled);
  EXPECT_FALSE(numbers.accept(1, 30000, 10 * kSecond));
  EXPECT_FALSE(numbers.settled) << "a packet with 0 ends the doubt";
  EXPECT_TRUE(numbers.accept(1, 5, 11 * kSecond));
  EXPECT_TRUE(numbers.settled);
  EXPECT_FALSE(numbers.accept(1, 30001, 11 * kSecond));
}

TEST(Identifications, of_a_sender_whose_stack_was_replaced_cost_one_packet) {
  Numbers numbers;
  EXPECT_TRUE(numbers.accept(1, 0, kSecond));
  EXPECT_FALSE(numbers.accept(1, 30000, 10 * kSecond));
  EXPECT_TRUE(numbers.accept(1, 32000, 11 * kSecond));
  EXPECT_TRUE(numbers.accept(1, 32001, 11 * kSecond));
  EXPECT_TRUE(numbers.accept(1, 0, 11 * kSecond));
  EXPECT_FALSE(numbers.settled) << "a damaged one, perhaps";
  EXPECT_TRUE(numbers.accept(1, 1, 11 * kSecond));
  EXPECT_TRUE(numbers.settled);
}

TEST(Identifications, at_random_are_refused) {
  Numbers numbers;
  std::mt19937 random(9);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) accepted += numbers.accept(1, random(), kSecond + i * kMicrosecond) ? 1 : 0;
  EXPECT_LT(accepted, 1000);
}

TEST(Identifications, are_remembered_for_each_sender) {
  Numbers numbers;
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (std::uint32_t source = 0xc0000201; source < 0xc0000211; ++source) {
      EXPECT_TRUE(numbers.accept(source, source * 5000 + i, kSecond)) << source << ", " << i;
    }
  }
}

TEST(UdpPort, keeps_traffic_class_hop_limit_addresses_and_source_port) {
  for (const wire::Address& address : {kOne, kLoopback6}) {
    Site site(address);
    ASSERT_EQ(site.error, "");
    wire::PathAddress to_self = path(address, address);
    to_self.traffic_class = 0x68;
    to_self.ecn = wire::kEct0;
    to_self.hop_limit = 7;
    ASSERT_TRUE(send_one(site.port(), to_self));
    const auto got = receive(site.port(), 1);
    ASSERT_EQ(got.size(), 1u);
    const Parts parts(got[0]);
    EXPECT_TRUE(roce_intact(got[0], 200));
    EXPECT_EQ(parts.v4 ? wire::load8(parts.ip + 1) : wire::load16(parts.ip) >> 4 & 0xff, 0x6au);
    EXPECT_EQ(wire::load8(parts.ip + (parts.v4 ? 8 : 7)), 7);
    EXPECT_EQ(parts.v4 ? wire::load_ipv4(parts.ip + 12) : wire::load_ipv6(parts.ip + 8), address);
    EXPECT_EQ(parts.v4 ? wire::load_ipv4(parts.ip + 16) : wire::load_ipv6(parts.ip + 24), address);
    EXPECT_EQ(wire::load16(parts.ip + parts.ip_bytes), 4791);
    if (parts.v4) {
      EXPECT_EQ(wire::ipv4_header_sum(parts.ip), 0xffffu);
    }
  }
}

/// Sends a packet from 127.0.0.1 whose ICRC is for this identification; the socket does not show that it had
/// another. Returns whether the port hands it up with a right ICRC.
bool takes(Site& site, const Stranger& stranger, std::uint16_t identification, std::uint32_t damage = 0) {
  std::vector<std::byte> bytes(200);
  base::Frame frame{.data = bytes.data()};
  wire::PathAddress from_stranger = path(kOne, kTwo);
  from_stranger.source_port = stranger.port();
  fill_roce(frame, from_stranger, 200, 1);
  const Parts sent(frame);
  wire::store16(sent.ip + 4, identification);
  wire::store_raw(sent.bth + sent.covered, sent.right_icrc() ^ damage);
  EXPECT_TRUE(stranger.send(sent.bth, sent.covered + 4, kTwo));
  auto got = receive(site.port(), 1);
  EXPECT_EQ(got.size(), 1u);
  if (got.size() != 1) return false;
  const bool intact = roce_intact(got[0], 200);
  EXPECT_EQ(wire::load16(Parts(got[0]).ip + 4), 0);
  site.port().release(got);
  return intact;
}

using Taken = std::vector<bool>;
Taken taken(udp::IdCheck ids, const std::vector<std::uint16_t>& identifications) {
  Site site(kTwo, 1, {.ids = ids});
  EXPECT_EQ(site.error, "");
  const Stranger stranger;
  EXPECT_TRUE(stranger.send("", 0, kNobody));  // binds it
  Taken all;
  for (const std::uint16_t each : identifications) all.push_back(takes(site, stranger, each));
  EXPECT_FALSE(takes(site, stranger, identifications.back(), 0x12345678));
  return all;
}

TEST(UdpPort, takes_identifications_as_configured_and_leaves_other_icrcs_wrong) {
  using udp::IdCheck;
  EXPECT_EQ(taken(IdCheck::kZero, {0, 5, 63, 64, 40000}), (Taken{true, true, true, false, false}));
  EXPECT_EQ(taken(IdCheck::kAny, {0, 5, 63, 64, 40000, 7}), Taken(6, true));
  EXPECT_EQ(taken(IdCheck::kCount, {0, 0, 40000, 63, 50000}), (Taken{true, true, false, true, false})) << "rows";
  EXPECT_EQ(taken(IdCheck::kCount, {40000, 40001, 40005, 40004, 40100}), Taken(5, true)) << "counted";
  EXPECT_EQ(taken(IdCheck::kCount, {777, 777, 777}), Taken(3, true)) << "constant";
  EXPECT_EQ(taken(IdCheck::kCount, {0, 30000, 30001, 30002}), (Taken{true, false, true, true})) << "another stack";
}

TEST(UdpPort, survives_garbage) {
  Site site(kTwo), peer(kOne);
  ASSERT_EQ(site.error + peer.error, "");
  const Stranger stranger;
  std::mt19937 random(3);
  std::vector<std::byte> garbage(65507);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
  std::uint32_t dropped = 0;
  for (const std::size_t bytes : {0u, 1u, 15u, 16u, 17u, 1000u, 8900u, 9100u, 65507u}) {
    ASSERT_TRUE(stranger.send(garbage.data(), bytes, kTwo)) << bytes;
    const bool fits = bytes >= 16 && bytes <= 9000;
    auto got = receive(site.port(), fits ? 1 : 0);
    if (!fits) {
      base::Frame none;
      EXPECT_EQ(site.port().receive(std::span(&none, 1)), 0u) << bytes;
      ++dropped;
    }
    EXPECT_EQ(got.size(), fits ? 1u : 0u) << bytes;
    EXPECT_EQ(site.port().counters().rx_dropped, dropped) << bytes;
    site.port().release(got);
  }
  ASSERT_TRUE(send_one(peer.port(), path(kOne, kTwo)));
  auto got = receive(site.port(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(roce_intact(got[0], 200));
}

TEST(UdpPort, drops_and_counts_what_it_cannot_send_and_goes_on) {
  Site site(kOne);
  ASSERT_EQ(site.error, "");
  EXPECT_TRUE(send_one(site.port(), path(kOne, kNobody))) << "an ICMP error is the answer";
  EXPECT_TRUE(send_one(site.port(), path(kOne, kNobody)));
  EXPECT_EQ(site.port().counters().tx_dropped, 0u);
  EXPECT_TRUE(send_one(site.port(), path(kTwo, kOne))) << "not our address";
  EXPECT_TRUE(send_one(site.port(), path(kOne, v4_address(224, 0, 0, 1)))) << "a group";
  EXPECT_EQ(site.port().counters().tx_dropped, 2u);
  EXPECT_TRUE(send_one(site.port(), path(kOne, kOne)));
  EXPECT_EQ(receive(site.port(), 1).size(), 1u);
}

TEST(UdpPort, counts_what_the_kernel_drops_for_want_of_room) {
  Site site(kTwo), peer(kOne, 1, {.gso = false});
  ASSERT_EQ(site.error + peer.error, "");
  const std::uint32_t sent = 100'000;
  for (std::uint32_t i = 0; i < sent; ++i) ASSERT_TRUE(send_one(peer.port(), path(kOne, kTwo)));
  EXPECT_EQ(peer.port().counters().tx_packets, sent);
  std::uint64_t arrived = 0;
  base::Frame some[64];
  while (const std::size_t got = site.port().receive(some)) {
    arrived += got;
    site.port().release(std::span(some).first(got));
  }
  EXPECT_LT(arrived, sent);
  EXPECT_EQ(arrived + site.port().counters().rx_dropped, sent);
}

TEST(UdpPort, the_kernel_gives_a_packet_to_the_queue_of_its_qpn) {
  for (const wire::Address& address : {kTwo, kLoopback6}) {
    Site site(address, 3);
    ASSERT_EQ(site.error, "");
    for (std::uint32_t queue = 0; queue < 3; ++queue) {
      for (std::uint32_t i = 0; i < 20; ++i) {
        ASSERT_TRUE(send_one(site.port(), path(address, address), queue << 20 | (0x17 + i), i));
      }
      auto got = receive(*site.ports[queue], 20);
      EXPECT_EQ(got.size(), 20u) << queue;
      site.ports[queue]->release(got);
    }
    ASSERT_TRUE(send_one(site.port(), path(address, address), 9u << 20));
    std::size_t anywhere = 0;
    base::Frame some[4];
    for (const auto& port : site.ports) anywhere += port->receive(some);
    EXPECT_EQ(anywhere, 1u) << "no worker has this QPN";
  }
}

TEST(UdpPort, answers_the_link_stack_for_all_neighbours) {
  for (const wire::Address& address : {kOne, kLoopback6}) {
    Site site(address);
    ASSERT_EQ(site.error, "");
    net::LinkConfig config;
    config.mac = site.port().info().mac;
    config.addresses = {{address, static_cast<std::uint8_t>(address.is_v4() ? 8 : 64), 0}};
    net::LinkStack link(config);
    wire::Address peer = address;
    peer.bytes[15] = 9;
    wire::Mac mac{};
    ASSERT_EQ(link.resolve(peer, kSecond, mac), net::Resolution::kPending);
    EXPECT_TRUE(site.port().arm_wake());
    for (;;) {  // also the announcement of the own address, which has no answer
      base::Frame frame;
      ASSERT_EQ(site.port().allocate(std::span(&frame, 1)), 1u);
      frame.length = static_cast<std::uint32_t>(link.next_frame({frame.data, frame.capacity}));
      if (frame.length == 0) break;
      ASSERT_EQ(site.port().transmit(std::span(&frame, 1)), 1u);
    }
    EXPECT_FALSE(site.port().arm_wake()) << "the answer waits";
    auto got = receive(site.port(), 1);
    ASSERT_EQ(got.size(), 1u);
    link.receive(got[0].bytes(), kSecond);
    EXPECT_EQ(link.resolve(peer, kSecond, mac), net::Resolution::kResolved);
    EXPECT_EQ(mac, udp::mac_of(peer, config.mac));
    EXPECT_EQ(link.counters().malformed, 0u);
  }
}

TEST(UdpPort, is_up_and_names_its_interface) {
  Site site(kOne);
  ASSERT_EQ(site.error, "");
  const net::DeviceInfo info = site.port().info();
  EXPECT_EQ(info.link, net::LinkState::kUp);
  EXPECT_TRUE(info.sockets_only);
  EXPECT_EQ(info.netdev, ::if_nametoindex("lo"));
  EXPECT_EQ(info.kernel_interface, 0u);
}

TEST(UdpSockets, an_absent_address_is_named_and_what_to_do) {
  const Site site(kAbsent);
  EXPECT_NE(site.error.find("192.0.2.99"), std::string::npos) << site.error;
  EXPECT_NE(site.error.find("ip address add"), std::string::npos) << site.error;
}

TEST(UdpSockets, a_port_that_is_taken_is_named_also_by_another_daemon_with_several_queues) {
  for (const std::uint32_t queues : {1u, 2u}) {
    const Site first(kOne, queues);
    ASSERT_EQ(first.error, "");
    for (const std::uint32_t more : {1u, 2u}) {
      const Site second(kOne, more);
      EXPECT_NE(second.error.find("4791 of 127.0.0.1"), std::string::npos) << second.error;
      EXPECT_NE(second.error.find("another program"), std::string::npos) << second.error;
    }
  }
}

TEST(UdpSpec, has_two_options) {
  udp::PortSpec spec;
  EXPECT_EQ(udp::parse_spec("udp", spec), "");
  EXPECT_TRUE(spec.gso);
  EXPECT_EQ(spec.ids, udp::IdCheck::kCount);
  EXPECT_EQ(udp::parse_spec("udp,gso=off", spec), "");
  EXPECT_FALSE(spec.gso);
  EXPECT_EQ(udp::parse_spec("udp,id=zero,gso=on", spec), "");
  EXPECT_TRUE(spec.gso);
  EXPECT_EQ(spec.ids, udp::IdCheck::kZero);
  EXPECT_EQ(udp::parse_spec("udp,id=any", spec), "");
  EXPECT_EQ(spec.ids, udp::IdCheck::kAny);
  EXPECT_EQ(udp::parse_spec("udp,id=any,id=count", spec), "");
  EXPECT_EQ(spec.ids, udp::IdCheck::kCount);
  for (const char* bad : {"udp,", "udp,gso", "udp,gso=maybe", "udp,ttl=5", "udp,gso=on,", "udp,id=7", "udp,id="}) {
    const std::string told = udp::parse_spec(bad, spec);
    EXPECT_NE(told.find("gso=on and gso=off"), std::string::npos) << bad;
    EXPECT_NE(told.find("id=count, id=zero and id=any"), std::string::npos) << bad;
  }
  EXPECT_TRUE(udp::is_udp("udp,gso=on"));
  EXPECT_FALSE(udp::is_udp("udp0"));
  EXPECT_FALSE(udp::is_udp("loopback"));
}

/// A namespace of our own, whose loopback interface is up. Without one the host's serves as well, unless another
/// program has UDP port 4791 there.
void enter_namespace() {
  const bool alone = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  if (!alone) return static_cast<void>(std::puts("no network namespace of its own: in that of the host"));
  const udp::Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "lo");
  request.ifr_flags = IFF_UP;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) std::perror("lo does not come up");
}

}  // namespace
}  // namespace uroce::packet_test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  uroce::packet_test::enter_namespace();
  return RUN_ALL_TESTS();
}
