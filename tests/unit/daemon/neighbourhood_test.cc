// What the port sends on its link for its clients: membership reports of their groups, requests for the gateway.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "control/commands/command.h"
#include "test_client.h"
#include "test_daemon.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::daemon::testing {

using control::kPending;

namespace {

using Bytes = std::vector<std::byte>;

constexpr wire::Mac kRouterMac{2, 0, 0, 0, 0, 0xfe};

wire::Address ipv6(std::uint8_t net, std::uint8_t last) {
  wire::Address a;
  a.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return a;
}

control::DaemonConfig config() {
  control::DaemonConfig config = test_config();
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
  /// Takes all frames that the port sends now.
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

  static uroce_av address_vector(const wire::Address& to, std::uint8_t gid_index) {
    uroce_av av{};
    av.is_global = av.port_num = av.hop_limit = 1;
    av.sgid_index = gid_index;
    std::memcpy(av.dgid, to.bytes.data(), 16);
    return av;
  }
  /// Has the gateway answer the next neighbour solicitation for it.
  void answer_solicitation(const wire::Address& gateway) {
    const Bytes solicitation = sent([](std::span<const std::byte> bytes) {
      return bytes.size() >= 86 && wire::load16(&bytes[12]) == wire::kEtherTypeIpv6 &&
             wire::load8(&bytes[54]) == 135;
    });
    ASSERT_FALSE(solicitation.empty()) << "no solicitation was sent";
    ASSERT_EQ(wire::load_ipv6(&solicitation[62]), gateway);
    // Its advertisement: solicited, with its address.
    Bytes answer = solicitation;
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
    wire::store16(&answer[56], wire::internet_checksum({&answer[54], 32},
                                                       wire::ones_complement_sum({&answer[22], 32}, 32 + 58)));
    daemon.devices[0].inject(answer);
  }
  std::uint32_t create_ah(const wire::Address& to, std::uint8_t gid_index, int& status) {
    const uroce_create_ah_request request{.pd = pd, .reserved = 0, .av = address_vector(to, gid_index)};
    const control::Reply reply = client.send(UROCE_CMD_CREATE_AH, request);
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
    ASSERT_GE(joined.size(), 12 + bytes) << "no report";
    EXPECT_EQ(std::to_integer<int>(joined[8]), kToExclude);
    EXPECT_EQ(std::memcmp(&joined[12], group.bytes.data() + 16 - bytes, bytes), 0);
    ASSERT_EQ(membership(UROCE_CMD_ATTACH_MCAST, second, group), 0);
    ASSERT_EQ(membership(UROCE_CMD_DETACH_MCAST, first, group), 0);
    const std::uint64_t reported = daemon.link->counters().group_reports;
    daemon.settle();
    EXPECT_LE(daemon.link->counters().group_reports, reported + 1) << "only the first report is repeated";
    forget_what_was_sent();
    ASSERT_EQ(membership(UROCE_CMD_DETACH_MCAST, second, group), 0);
    const Bytes left = report(v6);
    ASSERT_GE(left.size(), 12 + bytes) << "no report that the last member has left";
    EXPECT_EQ(std::to_integer<int>(left[8]), kToInclude);
    EXPECT_EQ(std::memcmp(&left[12], group.bytes.data() + 16 - bytes, bytes), 0);
  }
}

/// A client whose requests the daemon answers on a socket when they have waited.
struct WaitingClient {
  explicit WaitingClient(TestDaemon& with) : daemon(with) {
    client.hello();
    pd = client.alloc_pd();
  }
  UniqueFd connect() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    own_end.reset(ends[0]);
    return UniqueFd(ends[1]);
  }
  /// Sends a request that has to wait.
  template <class Body>
  void begin(std::uint32_t command, const Body& body) {
    control::Reply reply = client.send(command, body);
    ASSERT_EQ(reply.status, kPending);
    daemon.conductor->answer_later(client.session(), {command, 77}, std::move(*reply.wait));
  }
  /// The answer on the socket; status kPending: none within a second.
  uroce_response finish(std::span<std::byte> body) {
    uroce_response response{};
    response.status = kPending;
    iovec parts[2] = {{&response, sizeof(response)}, {body.data(), body.size()}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    daemon.run_until([&] {
      daemon.conductor->link().check_neighbours(monotonic_now());
      return ::recvmsg(own_end.get(), &header, MSG_DONTWAIT) > 0;
    });
    return response;
  }

  TestDaemon& daemon;
  UniqueFd own_end;
  TestClient client{*daemon.conductor, TestClient::myself(), connect()};
  std::uint32_t pd = 0;
};

std::size_t count_of(const worker::WorkerCore& worker, std::string_view command) {
  const auto commands = worker.command_trace().last();
  return static_cast<std::size_t>(
      std::ranges::count_if(commands, [&](const worker::TracedCommand& traced) { return traced.name == command; }));
}

TEST_P(NeighbourhoodTest, ARequestThatWaitedForANeighbourGoesOnFromThere) {
  WaitingClient waiting(daemon);
  const uroce_create_ah_request request{.pd = waiting.pd, .reserved = 0, .av = address_vector(ipv6(1, 9), 1)};
  waiting.begin(UROCE_CMD_CREATE_AH, request);
  const std::size_t resolved = count_of(*daemon.cores[0], "resolve_neighbour");
  EXPECT_EQ(waiting.client.session().ahs.size(), 0u);
  answer_solicitation(ipv6(0, 0xfe));
  uroce_handle made{};
  const uroce_response response = waiting.finish(std::as_writable_bytes(std::span(&made, 1)));
  EXPECT_EQ(response.status, 0);
  EXPECT_EQ(response.command, UROCE_CMD_CREATE_AH);
  EXPECT_EQ(response.sequence, 77u);
  ASSERT_NE(waiting.client.session().ahs.find(made.handle), nullptr);
  EXPECT_EQ(waiting.client.session().ahs.find(made.handle)->path.dest_mac, kRouterMac);
  EXPECT_FALSE(waiting.client.session().pending);
  EXPECT_EQ(count_of(*daemon.cores[0], "resolve_neighbour"), resolved) << "the command was executed again";
}

TEST_P(NeighbourhoodTest, ARequestThatWaitsIsCheckedAgainstWhatHasChanged) {
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv6(0, 2), 64}));  // the gateway stays reachable
  WaitingClient waiting(daemon);
  waiting.begin(UROCE_CMD_RESOLVE_NEIGHBOUR, uroce_resolve_request{address_vector(ipv6(1, 9), 1)});
  answer_solicitation(ipv6(0, 0xfe));
  daemon.settle();
  ASSERT_TRUE(daemon.conductor->link().remove_address(ipv6(0, 1)));
  EXPECT_EQ(waiting.finish({}).status, EINVAL);
}

TEST_P(NeighbourhoodTest, AnIndexWithoutAGidIsNoDataAndOnePastTheTableIsInvalid) {
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv6(0, 2), 64}));
  ASSERT_TRUE(daemon.conductor->link().remove_address(ipv6(0, 1)));
  int status = 0;
  create_ah(ipv6(0, 2), 1, status);
  EXPECT_EQ(status, ENODATA);
  create_ah(ipv6(0, 2), 3, status);
  EXPECT_EQ(status, EINVAL);
}

TEST_P(NeighbourhoodTest, ASessionThatEndsWaitsNoLonger) {
  WaitingClient waiting(daemon);
  waiting.begin(UROCE_CMD_RESOLVE_NEIGHBOUR, uroce_resolve_request{address_vector(ipv6(1, 9), 1)});
  Conductor& conductor = *daemon.conductor;
  // From the first slice on.
  control::commands::release_some(conductor.state(), conductor.events(), conductor.link(), waiting.client.session(),
                                  0);
  EXPECT_EQ(conductor.link().next_neighbour_deadline(), kNever);
  waiting.client.close();
  EXPECT_EQ(daemon.conductor->link().next_neighbour_deadline(), kNever);
  answer_solicitation(ipv6(0, 0xfe));
  daemon.settle();
  daemon.conductor->link().check_neighbours(monotonic_now());
}

TEST_P(NeighbourhoodTest, AFarIpv6DestinationIsReachedThroughTheGateway) {
  const wire::Address far = ipv6(1, 9), gateway = ipv6(0, 0xfe);
  ClientQp qp = ud_qp();
  int status = 0;
  create_ah(far, 1, status);
  ASSERT_EQ(status, kPending) << "the gateway isn't known yet";
  answer_solicitation(gateway);
  std::uint32_t ah = 0;
  EXPECT_TRUE(daemon.run_until([&] {
    ah = create_ah(far, 1, status);
    return status != kPending;
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
