// urocectl link: what clients and the wire see of a disabled port, and of addresses that are added and removed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "admin/query.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

constexpr std::uint32_t kPortActive = 9, kPortError = 10, kGidChange = 18;

class LinkTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  LinkTest() { client.hello(); }
  std::string link(const std::string& change, const std::string& address = {}) {
    const nlohmann::json request = {{"command", "link"}, {"change", change}, {"address", address}};
    const auto answer =
        nlohmann::json::parse(admin::handle_query(conductor.admin(), client.session(), request.dump()));
    return answer.contains("error") ? answer["error"].get<std::string>() : std::string();
  }
  std::string mtu(std::uint32_t bytes) {
    const nlohmann::json request = {{"command", "link"}, {"change", "mtu"}, {"mtu", bytes}};
    const auto answer =
        nlohmann::json::parse(admin::handle_query(conductor.admin(), client.session(), request.dump()));
    return answer.contains("error") ? answer["error"].get<std::string>() : std::string();
  }
  /// 0: there is none.
  std::uint32_t next_event() {
    uroce_async_event event{};
    const int fd = client.hello_fd(GetParam());
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    return ::read(fd, &event, sizeof(event)) == sizeof(event) ? event.type : 0;
  }
  uroce_port_response port() {
    return TestClient::value<uroce_port_response>(client.send(UROCE_CMD_QUERY_PORT, std::span<const std::byte>{}));
  }
  std::string gid(std::uint32_t index) {
    const control::Reply reply = client.send(UROCE_CMD_QUERY_GID, uroce_gid_request{index, 0});
    return reply.status == 0 ? control::gid_text(TestClient::value<uroce_gid_response>(reply).gid) : "none";
  }

  TestDaemon daemon{test_config(), GetParam()};
  Conductor& conductor = *daemon.conductor;
  TestClient client{conductor};
};

TEST_P(LinkTest, ClientsAreToldWhenThePortGoesAndComes) {
  EXPECT_EQ(link("down"), "");
  EXPECT_EQ(next_event(), kPortError);
  EXPECT_EQ(port().state, 1u);
  EXPECT_EQ(link("down"), "");
  EXPECT_EQ(next_event(), 0u);
  EXPECT_EQ(link("up"), "");
  EXPECT_EQ(next_event(), kPortActive);
  EXPECT_EQ(port().state, 4u);
}

TEST_P(LinkTest, TheStateFollowsTheDevice) {
  constexpr std::uint32_t kPolling = 2, kDisabled = 3, kLinkUp = 5;
  const auto now = [&](net::LinkState state) {
    daemon.devices[0].set_link(state);
    conductor.link().refresh();
    return std::pair(port().state, port().phys_state);
  };
  using State = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(now(net::LinkState::kNoCarrier), (State{1, kPolling}));
  EXPECT_EQ(next_event(), kPortError);
  EXPECT_EQ(now(net::LinkState::kDisabled), (State{1, kDisabled}));
  EXPECT_EQ(next_event(), 0u) << "it was down before";
  EXPECT_EQ(now(net::LinkState::kUp), (State{4, kLinkUp}));
  EXPECT_EQ(next_event(), kPortActive);
  EXPECT_EQ(link("down"), "");
  EXPECT_EQ(next_event(), kPortError);
  EXPECT_EQ(now(net::LinkState::kNoCarrier), (State{1, kDisabled}));
  EXPECT_EQ(link("up"), "");
  EXPECT_EQ(next_event(), 0u) << "there is no carrier";
  EXPECT_EQ(now(net::LinkState::kUp), (State{4, kLinkUp}));
  EXPECT_EQ(next_event(), kPortActive);
  EXPECT_EQ(now(net::LinkState::kGone), (State{1, kDisabled}));
  EXPECT_EQ(next_event(), kPortError);
}

TEST_P(LinkTest, TheSpeedIsThatOfTheLink) {
  constexpr std::uint32_t kEdr = 32, kQdr = 4, kOneLane = 1, kFourLanes = 2;
  const auto now = [&](net::LinkState state, std::uint64_t mbps) {
    daemon.devices[0].set_link(state, mbps);
    conductor.link().refresh();
    return std::pair(std::uint32_t{port().active_speed}, std::uint32_t{port().active_width});
  };
  using Speed = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(now(net::LinkState::kUp, 0), (Speed{kEdr, kOneLane})) << "unknown";
  EXPECT_EQ(now(net::LinkState::kNoCarrier, 0), (Speed{kEdr, kOneLane}));
  EXPECT_EQ(now(net::LinkState::kUp, 10'000), (Speed{kQdr, kOneLane}));
  EXPECT_EQ(now(net::LinkState::kNoCarrier, 0), (Speed{kQdr, kOneLane})) << "the last one";
  EXPECT_EQ(now(net::LinkState::kUp, 100'000), (Speed{kEdr, kFourLanes}));
  EXPECT_EQ(now(net::LinkState::kUp, 40'000), (Speed{kQdr, kFourLanes})) << "without a change of state";
}

TEST_P(LinkTest, FramesAreLostWhileItIsDown) {
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, 0xf, data));
  ClientQp a = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  ClientQp b = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  ASSERT_EQ(client.connect(a, b.made.qpn, ipv4(1).bytes), 0);
  ASSERT_EQ(client.connect(b, a.made.qpn, ipv4(1).bytes), 0);
  data[0] = std::byte{7};
  uroce_sq_entry write{};
  write.opcode = UROCE_WR_RDMA_WRITE;
  write.flags = UROCE_SEND_SIGNALED;
  write.num_sge = 1;
  write.remote_addr = 0x10800;
  write.rkey = mr.rkey;
  const uroce_sge from{0x10000, 1, mr.lkey};
  link("down");
  a.post_send(write, std::span(&from, 1));
  daemon.settle();
  EXPECT_EQ(data[0x800], std::byte{0});
  EXPECT_EQ(daemon.devices[0].counters().tx_packets, 0u);
  for (auto& device : daemon.devices) EXPECT_LE(device.outstanding(), worker::WorkerLoop<MemoryDevice>::kBurst);
  link("up");
  // The acknowledge timer retransmits it.
  EXPECT_TRUE(daemon.run_until([&] { return cq.ring.peek() != nullptr; }));
  EXPECT_EQ(data[0x800], std::byte{7});
}

TEST_P(LinkTest, AddressesComeAndGoUnderTheirIndices) {
  EXPECT_EQ(link("add", "192.0.2.9/24"), "");
  EXPECT_EQ(next_event(), kGidChange);
  EXPECT_EQ(link("add", "2001:db8::9/64"), "");
  EXPECT_EQ(port().gid_tbl_len, 3u);
  EXPECT_EQ(gid(1), "0000:0000:0000:0000:0000:ffff:c000:0209");
  EXPECT_EQ(gid(2), "2001:0db8:0000:0000:0000:0000:0000:0009");
  EXPECT_TRUE(daemon.link->is_local(ipv4(9)));
  EXPECT_EQ(link("remove", "192.0.2.9"), "");
  EXPECT_FALSE(daemon.link->is_local(ipv4(9)));
  EXPECT_EQ(port().gid_tbl_len, 3u);
  EXPECT_EQ(gid(1), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(gid(2), "2001:0db8:0000:0000:0000:0000:0000:0009");
  EXPECT_EQ(link("add", "192.0.2.10"), "");
  EXPECT_EQ(gid(1), "0000:0000:0000:0000:0000:ffff:c000:020a");
  EXPECT_EQ(link("remove", "2001:db8::9"), "");
  EXPECT_EQ(port().gid_tbl_len, 2u);
  EXPECT_EQ(gid(2), "none");
}

TEST_P(LinkTest, PathMtuFollowsThePortsMtu) {
  EXPECT_EQ(port().active_mtu, 5u);
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  const ClientQp before = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  ASSERT_EQ(client.connect(before, before.made.qpn, ipv4(1).bytes), 0);
  const std::uint32_t& datagram = client.session().header->packet_bytes;
  EXPECT_EQ(datagram, 4096u);
  EXPECT_EQ(mtu(1000), "");
  EXPECT_EQ(port().active_mtu, 2u);
  EXPECT_EQ(datagram, 512u) << "programs refuse larger ones when they are posted";
  const ClientQp after = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  EXPECT_EQ(client.connect(after, before.made.qpn, ipv4(1).bytes), EINVAL) << "1024 is too large now";
  EXPECT_NE(mtu(9001).find("576 to 9000"), std::string::npos);
  EXPECT_NE(mtu(575).find("576 to 9000"), std::string::npos);
  EXPECT_NE(link("mtu").find("576 to 9000"), std::string::npos);
  EXPECT_EQ(port().active_mtu, 2u);
  EXPECT_EQ(mtu(9000), "");
  EXPECT_EQ(port().active_mtu, 5u);
  EXPECT_EQ(datagram, 4096u);
}

TEST_P(LinkTest, WhatIsNoAddressOrNoRightIsRefused) {
  EXPECT_NE(link("add", "192.0.2.300").find("is not an address"), std::string::npos);
  EXPECT_NE(link("add", "192.0.2.9/33").find("is not an address"), std::string::npos);
  EXPECT_NE(link("add", "224.0.0.5").find("is not an address"), std::string::npos);
  EXPECT_NE(link("add", "192.0.2.1/24").find("already"), std::string::npos);
  EXPECT_NE(link("remove", "192.0.2.77").find("is not an address of the port"), std::string::npos);
  EXPECT_NE(link("sideways").find("it has up, down"), std::string::npos);
  TestClient stranger(conductor, 4242);
  stranger.hello();
  const auto answer = nlohmann::json::parse(
      admin::handle_query(conductor.admin(), stranger.session(), R"({"command":"link","change":"down"})"));
  EXPECT_TRUE(answer.contains("error"));
  EXPECT_EQ(port().state, 4u);
}

INSTANTIATE_TEST_SUITE_P(Workers, LinkTest, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace uroce::daemon::testing
