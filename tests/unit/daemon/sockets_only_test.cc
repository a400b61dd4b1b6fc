// A port that is sockets (net::DeviceInfo::sockets_only): what it can't do is refused, and not offered.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/query.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

constexpr std::uint32_t kUd = 4, kRaw = 8;

class PortOfSockets : public ::testing::Test {
 protected:
  PortOfSockets() : daemon_(config(), 1, true), client_(*daemon_.conductor) {
    client_.hello();
    pd_ = client_.alloc_pd();
    cq_ = client_.create_cq(16);
  }
  static control::DaemonConfig config() {
    control::DaemonConfig config = test_config();
    config.port = "udp";
    return config;
  }
  int create(std::uint32_t type) {
    uroce_create_qp_request request = TestClient::qp_request(pd_, cq_.made.handle);
    request.type = type;
    if (type == UROCE_QPT_WQ) request.send_cq = request.max_send_wr = request.max_send_sge = 0;
    return client_.send(UROCE_CMD_CREATE_QP, request).status;
  }

  TestDaemon daemon_;
  TestClient client_;
  std::uint32_t pd_ = 0;
  ClientCq cq_;
};

TEST_F(PortOfSockets, refuses_raw_packets) {
  EXPECT_EQ(create(kRaw), EOPNOTSUPP);
  EXPECT_EQ(create(UROCE_QPT_WQ), EOPNOTSUPP);
  EXPECT_EQ(create(kUd), 0);
  EXPECT_EQ(client_.send(UROCE_CMD_CREATE_FLOW, uroce_create_flow_request{}).status, EOPNOTSUPP);
}

TEST_F(PortOfSockets, refuses_groups) {
  uroce_create_qp_request request = TestClient::qp_request(pd_, cq_.made.handle);
  request.type = kUd;
  wire::Address group = ipv4(1);
  group.bytes[12] = 239;
  uroce_mcast_request attach{};
  attach.qp = client_.create_qp(request).made.handle;
  std::memcpy(attach.gid, group.bytes.data(), 16);
  EXPECT_EQ(client_.send(UROCE_CMD_ATTACH_MCAST, attach).status, EOPNOTSUPP);
}

TEST_F(PortOfSockets, says_so_in_its_attributes) {
  const auto device =
      TestClient::value<uroce_device_response>(client_.send(UROCE_CMD_QUERY_DEVICE, std::span<const std::byte>{}));
  EXPECT_EQ(device.max_raw_qp, 0u);
  EXPECT_EQ(device.max_mcast_grp, 0u);
  EXPECT_EQ(device.max_mcast_qp_attach, 0u);
  EXPECT_EQ(device.max_total_mcast_qp_attach, 0u);
}

TEST_F(PortOfSockets, gets_no_more_addresses_while_it_runs) {
  const auto change = [&](const char* what, const char* address) {
    const nlohmann::json request = {{"command", "link"}, {"change", what}, {"address", address}};
    const auto answer =
        nlohmann::json::parse(admin::handle_query(daemon_.conductor->admin(), client_.session(), request.dump()));
    return answer.value("error", std::string());
  };
  const auto& gids = daemon_.conductor->state().port().gids();
  const std::size_t before = gids.addresses().size();
  EXPECT_NE(change("add", "192.0.2.77/24").find("--ip 192.0.2.77/24"), std::string::npos);
  EXPECT_EQ(gids.addresses().size(), before);
  EXPECT_EQ(change("remove", "192.0.2.1"), "");
  EXPECT_EQ(gids.addresses().size(), before - 1);
}

}  // namespace
}  // namespace uroce::daemon::testing
