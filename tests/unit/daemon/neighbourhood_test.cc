// What the port says on its link for its clients: that it is in their groups, and who the gateway is.
#include <gtest/gtest.h>

#include <cstring>

#include "test_client.h"
#include "test_daemon.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::daemon::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kUd = 4;
constexpr wire::Mac kRouterMac{2, 0, 0, 0, 0, 0xfe};

wire::Address ipv6(std::uint8_t net, std::uint8_t last) {
  wire::Address a;
  a.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return a;
}

DaemonConfig config() {
  DaemonConfig config = test_config();
  config.addresses.push_back({ipv6(0, 1), 64});
  config.gateway6 = ipv6(0, 0xfe);
  return config;
}

class NeighbourhoodTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  NeighbourhoodTest() {
    for (MemoryDevice& device : daemon.devices) device.connect(wire);
    client.hello();
    pd = client.alloc_pd();
    cq = client.create_cq(16);
  }
  /// The next frame on the wire that `wanted` takes; empty: none within a second.
  template <class RxFilter>
  Bytes sent(RxFilter&& wanted) {
    Bytes found;
    daemon.run_until([&] {
      base::Frame frame;
      while (found.empty() && wire.receive(std::span(&frame, 1)) == 1) {
        const auto bytes = frame.bytes();
        if (wanted(bytes)) found.assign(bytes.begin(), bytes.end());
        wire.release(std::span(&frame, 1));
      }
      return !found.empty();
    });
    return found;
  }
  /// A membership report, from its type on: IGMPv3 to 224.0.0.22 or MLDv2 to ff02::16, router alert before it.
  Bytes report(bool v6) {
    const std::size_t at = v6 ? 14 + 40 + 8 : 14 + 24;
    const std::uint8_t type = v6 ? 143 : 0x22;
    const Bytes frame = sent([&](std::span<const std::byte> bytes) {
      return bytes.size() > at && wire::load16(&bytes[12]) == (v6 ? wire::kEtherTypeIpv6 : wire::kEtherTypeIpv4) &&
             std::to_integer<int>(bytes[v6 ? 54 : 14 + 9]) == (v6 ? 58 : 2) &&
             std::to_integer<std::uint8_t>(bytes[at]) == type;
    });
    return frame.empty() ? frame : Bytes(frame.begin() + static_cast<std::ptrdiff_t>(at), frame.end());
  }
  /// Sees to it that all that is said now has been seen.
  void forget_what_was_sent() {
    daemon.settle();
    base::Frame frame;
    while (wire.receive(std::span(&frame, 1)) == 1) wire.release(std::span(&frame, 1));
  }
  int membership(std::uint32_t command, const ClientQp& qp, const wire::Address& group) {
    uroce_mcast_request request{};
    request.qp = qp.made.handle;
    std::memcpy(request.gid, group.bytes.data(), 16);
    return client.send(command, request).status;
  }

  std::uint32_t create_ah(const wire::Address& to, std::uint8_t gid_index, int& status) {
    uroce_create_ah_request request{};
    request.pd = pd;
    request.av.is_global = request.av.port_num = request.av.hop_limit = 1;
    request.av.sgid_index = gid_index;
    std::memcpy(request.av.dgid, to.bytes.data(), 16);
    const Reply reply = client.send(UROCE_CMD_CREATE_AH, request);
    status = reply.status;
    return status == 0 ? TestClient::value<uroce_handle>(reply).handle : 0;
  }
  ClientQp ud_qp() {
    auto request = TestClient::qp_request(pd, cq.made.handle);
    request.type = kUd;
    ClientQp qp = client.create_qp(request);
    uroce_modify_qp_request modify{};
    modify.handle = qp.made.handle;
    modify.attr.port = 1;
    const std::uint32_t more[] = {proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrQkey, 0,
                                  proto::kAttrSqPsn};
    for (std::uint32_t state = 1; state <= 3; ++state) {
      modify.attr.state = state;
      modify.mask = proto::kAttrState | more[state - 1];
      EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, modify).status, 0);
    }
    return qp;
  }

  TestDaemon daemon{config(), GetParam()};
  MemoryDevice wire;
  TestClient client{*daemon.conductor};
  std::uint32_t pd = 0;
  ClientCq cq;
};

/// Of the reports' only record: RFC 3376, 4.2.12.
constexpr int kToExclude = 4, kToInclude = 3;

TEST_P(NeighbourhoodTest, TheLinkHearsOfTheFirstMemberOfAGroupAndOfTheLast) {
  wire::Address group4 = ipv4(7), group6 = ipv6(0, 7);
  group4.bytes[12] = 239;
  group6.bytes[0] = 0xff, group6.bytes[1] = 0x0e;
  const ClientQp first = ud_qp(), second = ud_qp();
  for (const bool v6 : {false, true}) {
    const wire::Address& group = v6 ? group6 : group4;
    const std::size_t bytes = v6 ? 16 : 4;
    forget_what_was_sent();
    ASSERT_EQ(membership(UROCE_CMD_ATTACH_MCAST, first, group), 0);
    const Bytes joined = report(v6);
    ASSERT_GE(joined.size(), 12 + bytes) << "nothing was said";
    EXPECT_EQ(std::to_integer<int>(joined[8]), kToExclude);
    EXPECT_EQ(std::memcmp(&joined[12], group.bytes.data() + 16 - bytes, bytes), 0);
    ASSERT_EQ(membership(UROCE_CMD_ATTACH_MCAST, second, group), 0);
    ASSERT_EQ(membership(UROCE_CMD_DETACH_MCAST, first, group), 0);
    const std::uint64_t told = daemon.link->counters().group_reports;
    daemon.settle();
    EXPECT_LE(daemon.link->counters().group_reports, told + 1) << "the first is repeated, and no more said";
    forget_what_was_sent();
    ASSERT_EQ(membership(UROCE_CMD_DETACH_MCAST, second, group), 0);
    const Bytes left = report(v6);
    ASSERT_GE(left.size(), 12 + bytes) << "no report that the last member has left";
    EXPECT_EQ(std::to_integer<int>(left[8]), kToInclude);
    EXPECT_EQ(std::memcmp(&left[12], group.bytes.data() + 16 - bytes, bytes), 0);
  }
}

TEST_P(NeighbourhoodTest, AFarIpv6DestinationIsReachedThroughTheGateway) {
  const wire::Address far = ipv6(1, 9), gateway = ipv6(0, 0xfe);
  ClientQp qp = ud_qp();
  int status = 0;
  create_ah(far, 1, status);
  ASSERT_EQ(status, kParked) << "the gateway isn't known yet";
  const Bytes asked = sent([](std::span<const std::byte> bytes) {
    return bytes.size() >= 86 && wire::load16(&bytes[12]) == wire::kEtherTypeIpv6 && wire::load8(&bytes[54]) == 135;
  });
  ASSERT_FALSE(asked.empty()) << "nobody asked";
  ASSERT_EQ(wire::load_ipv6(&asked[62]), gateway);
  // Its advertisement: solicited, with its address.
  Bytes answer = asked;
  answer.resize(86);
  wire::store_mac(answer.data(), daemon.devices[0].info().mac);
  wire::store_mac(&answer[6], kRouterMac);
  wire::store_ipv6(&answer[22], gateway);
  wire::store_ipv6(&answer[38], ipv6(0, 1));
  wire::store8(&answer[54], 136);
  wire::store16(&answer[56], 0);
  wire::store8(&answer[58], 0x60);
  wire::store8(&answer[78], 2);
  wire::store_mac(&answer[80], kRouterMac);
  wire::store16(&answer[56],
                wire::internet_checksum({&answer[54], 32}, wire::ones_complement_sum({&answer[22], 32}, 32 + 58)));
  daemon.devices[0].inject(answer);
  std::uint32_t ah = 0;
  EXPECT_TRUE(daemon.run_until([&] {
    ah = create_ah(far, 1, status);
    return status != kParked;
  }));
  ASSERT_EQ(status, 0);
  uroce_sq_entry entry{};
  entry.opcode = UROCE_WR_SEND;
  entry.ah = ah;
  entry.ud = {0x77, 0x1234};
  qp.post_send(entry, {});
  const Bytes frame = sent([](std::span<const std::byte> bytes) {
    return bytes.size() > 62 && wire::load16(&bytes[12]) == wire::kEtherTypeIpv6 && wire::load8(&bytes[20]) == 17;
  });
  ASSERT_FALSE(frame.empty()) << "the datagram was not sent";
  EXPECT_EQ(wire::load_mac(frame.data()), kRouterMac);
  EXPECT_EQ(wire::load_ipv6(&frame[38]), far);
  EXPECT_EQ(wire::load_ipv6(&frame[22]), ipv6(0, 1));
}

INSTANTIATE_TEST_SUITE_P(Workers, NeighbourhoodTest, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace uroce::daemon::testing
