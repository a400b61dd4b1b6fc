// `urocectl show` workers, gids, routes and neighbours.
#include "admin/show_port.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "admin/page.h"
#include "apps/urocectl/pages.h"
#include "control/session/privilege.h"
#include "tests/unit/daemon/test_client.h"
#include "tests/unit/daemon/test_daemon.h"

namespace uroce::admin::testing {

using daemon::testing::ipv4;
using daemon::testing::TestClient;

namespace {

using Json = nlohmann::ordered_json;

constexpr uid_t kSomeUser = 4243;

control::DaemonConfig with_networks() {
  control::DaemonConfig config = daemon::testing::test_config();
  config.addresses = {{ipv4(1), 24}, {ipv4(130), 25, 5}};
  wire::Address& v6 = config.addresses.emplace_back().address;
  v6.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 9};
  config.addresses.back().prefix_bits = 52;
  config.gateway4 = ipv4(254);
  return config;
}

class ShowPort : public ::testing::Test {
 protected:
  explicit ShowPort(bool sockets = false) : daemon(with_networks(), 2, sockets) {}

  Json show(TestClient& by, const char* what) {
    Json request = {{"command", "show"}, {"what", what}, {"pages", true}}, all = Json::object();
    for (Json next; pages == 0 || !next.is_null(); ++pages) {
      if (pages != 0) request["from"] = next;
      next = ctl::add_page(all, Json::parse(handle_query(daemon.conductor->admin(), by.session(), request.dump())));
    }
    return all;
  }
  Json rows(const char* what) {
    TestClient client(*daemon.conductor);
    pages = 0;
    return show(client, what)[what];
  }

  daemon::testing::TestDaemon daemon;
  std::size_t pages = 0;
};
struct ShowPortOfSockets : ShowPort {
  ShowPortOfSockets() : ShowPort(true) {}
};

TEST_F(ShowPort, WorkersHaveTheirCounters) {
  daemon.cores[1]->counters().busy = 7 * kMicrosecond;
  daemon.cores[1]->counters().steps = 12;
  const Json list = rows("workers");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["worker"], 0);
  EXPECT_EQ(list[0]["cpu"], "any");
  EXPECT_EQ(list[1]["busy_us"], 7);
  EXPECT_EQ(list[1]["steps"], 12);
}

TEST_F(ShowPort, GidsAndRoutesAreThoseOfTheAddresses) {
  const Json gids = rows("gids");
  ASSERT_EQ(gids.size(), 3u);
  EXPECT_EQ(gids[1]["address"], "192.0.2.130/25");
  EXPECT_EQ(gids[1]["vlan"], 5);
  EXPECT_EQ(gids[2]["gid"], "2001:0db8:0000:ffff:0000:0000:0000:0009");
  std::set<std::string> routes;
  for (const Json& row : rows("routes")) {
    routes.insert(row["destination"].get<std::string>() + " " + row["via"].get<std::string>() + " " +
                  row["vlan"].dump());
  }
  EXPECT_EQ(routes,
            (std::set<std::string>{"192.0.2.0/24 - \"-\"", "192.0.2.128/25 - 5", "2001:db8:0:f000::/52 - \"-\"",
                                   "default 192.0.2.254 \"-\"", "default 192.0.2.254 5"}));
}

TEST_F(ShowPort, NeighboursComeInPagesForAdministratorsOnly) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  wire::Mac mac;
  for (std::uint8_t last = 10; last < 110; ++last) daemon.link->resolve(ipv4(last), kSecond, mac);
  const Json list = rows("neighbours");
  EXPECT_EQ(pages, 100 / Page::kRows + 1);
  std::set<std::string> addresses;
  for (const Json& row : list) addresses.insert(row["address"]);
  EXPECT_EQ(list.size(), 100u);
  EXPECT_EQ(addresses.size(), 100u);
  EXPECT_EQ(list[0]["address"], "192.0.2.10");
  EXPECT_EQ(list[0]["state"], "INCOMPLETE");
  EXPECT_EQ(list[0]["mac"], "-");
  TestClient other(*daemon.conductor, kSomeUser);
  pages = 0;
  const Json hidden = show(other, "neighbours");
  EXPECT_EQ(hidden["neighbours"].size(), 0u);
  EXPECT_EQ(hidden["hidden"], 100);
}

TEST_F(ShowPortOfSockets, NeighboursAndRoutesAreTheKernels) {
  wire::Mac mac;
  daemon.link->resolve(ipv4(10), kSecond, mac);
  EXPECT_EQ(rows("neighbours").size(), 0u);
  EXPECT_EQ(rows("routes").size(), 0u);
  EXPECT_EQ(rows("gids").size(), 3u);
}

}  // namespace
}  // namespace uroce::admin::testing
