// `urocectl events` and `urocectl show events`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "admin/query.h"
#include "control/session/privilege.h"
#include "proto/state/qp_events.h"
#include "tests/unit/daemon/test_client.h"
#include "tests/unit/daemon/test_daemon.h"

namespace uroce::admin::testing {

using daemon::testing::TestClient;

namespace {

using Json = nlohmann::ordered_json;

/// The others come from a machine that has stopped the test for a moment.
bool is_of_failure(const Json& row) { return row["event"] == "failed" || row["event"] == "nak_sent"; }

class EventsQueryTest : public ::testing::Test {
 protected:
  void SetUp() override { client.hello(); }
  Json ask(TestClient& by, const Json& request) {
    return Json::parse(handle_query(daemon.conductor->admin(), by.session(), request.dump()));
  }
  /// All pages. `between`: called after each.
  Json show(
      TestClient& by, const std::function<void()>& between = [] {}) {
    Json all = {{"events", Json::array()}, {"hidden", 0}};
    Json request = {{"command", "show"}, {"what", "events"}, {"pages", true}};
    for (int page = 0; page < 100; ++page) {
      const Json answer = ask(by, request);
      between();
      for (const Json& row : answer["events"]) all["events"].push_back(row);
      all["hidden"] = all["hidden"].get<int>() + answer.value("hidden", 0);
      if (!answer.contains("next")) return all;
      request["from"] = answer["next"];
    }
    ADD_FAILURE() << "pages without end";
    return all;
  }
  void record() { daemon.conductor->state().record_events(true); }
  void add(std::uint32_t worker, TestClient& of, std::uint32_t psn) {
    daemon.cores[worker]->transport().qp_events().add(
        {.owner = of.session().id, .psn = psn, .value = psn, .type = proto::QpEventType::kWindowCut});
  }
  /// A WRITE with a key that nobody has, between two QPs of the client; returns their QPNs.
  std::set<std::string> fail() {
    const std::uint32_t pd = client.alloc_pd();
    daemon::testing::ClientCq cq = client.create_cq(64);
    std::byte* data = nullptr;
    const control::Reply mr = client.reg_mr(pd, 0x7000000, 65536, 0xf, data);
    EXPECT_EQ(mr.status, 0);
    const auto key = TestClient::value<uroce_reg_mr_response>(mr).lkey;
    daemon::testing::ClientQp a = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    daemon::testing::ClientQp b = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    EXPECT_EQ(client.connect(a, b.made.qpn, daemon::testing::ipv4(1).bytes), 0);
    EXPECT_EQ(client.connect(b, a.made.qpn, daemon::testing::ipv4(1).bytes), 0);
    const uroce_sge from{0x7000000, 64, key};
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.rkey = ~key;
    a.post_send(entry, std::span(&from, 1));
    EXPECT_TRUE(daemon.run_until([&] { return cq.ring.peek() != nullptr; }));
    char qpns[2][16];
    std::snprintf(qpns[0], sizeof qpns[0], "0x%x", a.made.qpn);
    std::snprintf(qpns[1], sizeof qpns[1], "0x%x", b.made.qpn);
    return {qpns[0], qpns[1]};
  }

  daemon::testing::TestDaemon daemon{daemon::testing::test_config(), 2};
  TestClient client{*daemon.conductor};
};

TEST_F(EventsQueryTest, AreOffAndEmptyAtFirst) {
  fail();
  EXPECT_EQ(ask(client, {{"command", "events"}}), Json({{"recorded", "off"}}));
  EXPECT_EQ(show(client)["events"], Json::array());
}

TEST_F(EventsQueryTest, OfAFailureNameBothEndsAndTheReason) {
  record();
  EXPECT_EQ(ask(client, {{"command", "events"}}), Json({{"recorded", "on"}}));
  const std::set<std::string> qpns = fail();
  const Json rows = show(client)["events"];
  std::set<std::string> seen;
  std::multiset<std::string> events;
  for (const Json& row : rows) {
    if (!is_of_failure(row)) continue;
    seen.insert(row["qpn"].get<std::string>());
    events.insert(row["event"].get<std::string>() + ": " + row["cause"].get<std::string>());
    EXPECT_EQ(row["session"], client.session().id);
    EXPECT_EQ(row["value"], "-");
    EXPECT_EQ(row["time"].get<std::string>().size(), std::string("2026-01-31T12:00:00.125Z").size());
  }
  EXPECT_EQ(seen, qpns);
  EXPECT_EQ(events, (std::multiset<std::string>{"failed: QP_ACCESS_ERR", "failed: REM_ACCESS_ERR, vendor_err 0xa1",
                                                "nak_sent: remote access error"}))
      << rows;
  std::vector<std::string> keys;
  for (const auto& [key, value] : rows[0].items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"time", "worker", "qpn", "session", "program", "event", "count", "psn",
                                            "cause", "value", "unit"}));
}

TEST_F(EventsQueryTest, OfOthersAreHiddenAndThoseThatHaveGoneAreForAdministrators) {
  record();
  fail();
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  const Json hidden = show(other);
  EXPECT_EQ(hidden["events"], Json::array());
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  client.close();
  TestClient administrator(*daemon.conductor);
  administrator.hello();
  const Json rows = show(administrator)["events"];
  EXPECT_EQ(rows.size(), hidden["hidden"]);
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), is_of_failure), 3);
  for (const Json& row : rows) EXPECT_EQ(row["program"], "-");
}

TEST_F(EventsQueryTest, OfSeveralWorkersAndPagesAreAllShownOnce) {
  record();
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    for (std::uint32_t i = 0; i < 100; ++i) {
      add(worker, client, i);
      add(worker, other, i);
    }
  }
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  const Json of_all = show(client)["events"], of_other = show(other);
  ASSERT_EQ(of_all.size(), 400u);
  for (std::size_t i = 0; i < 400; ++i) {
    EXPECT_EQ(of_all[i]["worker"], i / 200);
    EXPECT_EQ(of_all[i]["psn"], i % 200 / 2);
    EXPECT_EQ(of_all[i]["unit"], "bytes");
  }
  ASSERT_EQ(of_other["events"].size(), 200u);
  EXPECT_EQ(of_other["hidden"], 200);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(of_other["events"][i]["psn"], i % 100);
}

TEST_F(EventsQueryTest, TheListEndsThoughOthersAreAdded) {
  record();
  std::uint32_t next = 0;
  const auto add_some = [&] {
    for (std::uint32_t i = 0; i < 100; ++i) add(0, client, next++);
  };
  add_some();
  Json rows = show(client, add_some)["events"];
  ASSERT_EQ(rows.size(), 100u);
  EXPECT_EQ(rows.back()["psn"], 99);
  // The ring overtakes the reader: what it has overwritten is left out.
  rows = show(client, [&] {
    for (int i = 0; i < 10; ++i) add_some();
  })["events"];
  EXPECT_LT(rows.size(), 100u);
  // It begins anew.
  rows = show(client, [&] { record(); })["events"];
  EXPECT_EQ(rows.size(), 32u);
}

TEST_F(EventsQueryTest, BeginFromNoneEachTime) {
  record();
  add(0, client, 1);
  record();
  EXPECT_EQ(show(client)["events"], Json::array());
}

TEST_F(EventsQueryTest, OthersReadButDoNotSwitchAndAnotherValueIsRefused) {
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  EXPECT_NE(ask(other, {{"command", "events"}, {"set", "on"}}).value("error", "").find("root"), std::string::npos);
  EXPECT_FALSE(daemon.conductor->state().records_events());
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  for (const Json& wrong : {Json("yes"), Json(1), Json(), Json(true), Json::array()}) {
    const std::string error = ask(client, {{"command", "events"}, {"set", wrong}}).value("error", "");
    EXPECT_NE(error.find("give on, off or nothing"), std::string::npos) << wrong << error;
  }
  EXPECT_EQ(ask(client, {{"command", "events"}, {"set", "on"}}), Json({{"recorded", "on"}}));
  EXPECT_TRUE(daemon.conductor->state().records_events());
}

}  // namespace
}  // namespace uroce::admin::testing
