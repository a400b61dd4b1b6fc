// `urocectl latency`, and the same histograms in `urocectl metrics`.
#include "admin/latency.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "admin/query.h"
#include "apps/urocectl/open_metrics.h"
#include "control/session/privilege.h"
#include "tests/unit/daemon/test_client.h"
#include "tests/unit/daemon/test_daemon.h"

namespace uroce::admin::testing {

using daemon::testing::TestClient;

namespace {

using Json = nlohmann::ordered_json;

class LatencyQueryTest : public ::testing::Test {
 protected:
  void SetUp() override { client.hello(); }
  Json ask(TestClient& by, const Json& request) {
    return Json::parse(handle_query(daemon.conductor->admin(), by.session(), request.dump()));
  }
  Json ask(const Json& request) { return ask(client, request); }
  Json rows() { return ask({{"command", "show"}, {"what", "latency"}})["latency"]; }
  std::map<std::string, Json> by_name() {
    const Json list = rows();
    std::map<std::string, Json> all;
    for (const Json& row : list) all[row["what"]] = row;
    return all;
  }
  std::string text() {
    const Json answer = ask({{"command", "metrics"}, {"pages", true}});
    return ctl::open_metrics({{"u", answer}});
  }
  /// WRITEs between two QPs, one after the other.
  void write(int times) {
    const std::uint32_t pd = client.alloc_pd();
    daemon::testing::ClientCq cq = client.create_cq(64);
    std::byte* data = nullptr;
    const control::Reply mr = client.reg_mr(pd, 0x7000000, 65536, 0xf, data);
    ASSERT_EQ(mr.status, 0);
    const auto key = TestClient::value<uroce_reg_mr_response>(mr).lkey;
    daemon::testing::ClientQp a = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    daemon::testing::ClientQp b = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    ASSERT_EQ(client.connect(a, b.made.qpn, daemon::testing::ipv4(1).bytes), 0);
    ASSERT_EQ(client.connect(b, a.made.qpn, daemon::testing::ipv4(1).bytes), 0);
    const uroce_sge from{0x7000000, 64, key};
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.remote_addr = 0x7000000 + 4096;
    entry.rkey = key;
    for (int i = 0; i < times; ++i) {
      a.post_send(entry, std::span(&from, 1));
      ASSERT_TRUE(daemon.run_until([&] { return cq.ring.peek() != nullptr; }));
      cq.ring.pop();
      cq.ring.publish();
    }
  }

  daemon::testing::TestDaemon daemon{daemon::testing::test_config(), 2};
  TestClient client{*daemon.conductor};
};

TEST_F(LatencyQueryTest, IsOffAndEmptyAtFirst) {
  write(3);
  EXPECT_EQ(ask({{"command", "latency"}}), Json({{"measured", "off"}, {"latency", Json::array()}}));
  EXPECT_EQ(rows(), Json::array());
  EXPECT_EQ(text().find("uroce_work_request_seconds"), std::string::npos);
}

TEST_F(LatencyQueryTest, AStartWithLatencyMeasuresFromTheStart) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  const Json on = ask({{"command", "latency"}, {"set", "on"}});
  EXPECT_EQ(on, Json({{"measured", "on"}, {"latency", Json::array()}}));
  write(5);
  const auto all = by_name();
  ASSERT_TRUE(all.contains("WRITE"));
  const Json write_row = all.at("WRITE");
  EXPECT_EQ(write_row["count"], 5);
  double before = 0;
  for (const char* const column : {"p50_us", "p90_us", "p99_us", "p99_9_us"}) {
    EXPECT_GE(write_row[column].get<double>(), before) << column;
    before = write_row[column].get<double>();
  }
  EXPECT_LE(write_row["mean_us"].get<double>(), before);
  EXPECT_EQ(ask({{"command", "latency"}, {"set", "off"}})["measured"], "off");
  write(2);
  EXPECT_EQ(by_name().at("WRITE")["count"], 5) << "kept";
  EXPECT_EQ(ask({{"command", "latency"}, {"set", "on"}})["latency"], Json::array()) << "from none";
}

TEST_F(LatencyQueryTest, WorkersHaveRowsOfTheirOwn) {
  worker::WorkerLatency& first = daemon.cores[0]->latency();
  first.wake_up.record(50'000);
  for (int i = 0; i < 999; ++i) daemon.cores[1]->latency().duty_cycle.record(1'000);
  for (int i = 0; i < 2; ++i) daemon.cores[1]->latency().duty_cycle.record(1'000'000);
  const auto all = by_name();
  ASSERT_EQ(all.size(), 2u);
  const Json wake_up = all.at("wake-up of worker 0"), cycle = all.at("duty cycle of worker 1");
  EXPECT_EQ(wake_up["count"], 1);
  EXPECT_EQ(wake_up["mean_us"], 50.0);
  EXPECT_EQ(cycle["count"], 1001);
  EXPECT_LT(cycle["p99_us"].get<double>(), 1.2);
  EXPECT_GE(cycle["p99_9_us"].get<double>(), 1000.0);
}

TEST_F(LatencyQueryTest, TheTextHasThemAsHistograms) {
  daemon.cores[1]->latency().wake_up.record(1'000);
  daemon.cores[1]->latency().wake_up.record(2'000'000);
  const std::string metrics = text();
  const std::string name = "uroce_worker_wake_up_seconds", labels = R"({device="u",worker="1")";
  for (const std::string& line :
       {"# TYPE " + name + " histogram", "# UNIT " + name + " seconds",
        name + "_bucket" + labels + R"(,le="5.12e-07"} 0)", name + "_bucket" + labels + R"(,le="1.024e-06"} 1)",
        name + "_bucket" + labels + R"(,le="0.001048576"} 1)",
        name + "_bucket" + labels + R"(,le="0.002097152"} 2)", name + "_bucket" + labels + R"(,le="+Inf"} 2)",
        name + "_count" + labels + "} 2", name + "_sum" + labels + "} 0.002001"}) {
    EXPECT_NE(metrics.find(line + "\n"), std::string::npos) << line;
  }
}

TEST_F(LatencyQueryTest, OthersReadButDoNotSwitch) {
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  EXPECT_EQ(ask(other, {{"command", "latency"}})["measured"], "off");
  EXPECT_NE(ask(other, {{"command", "latency"}, {"set", "on"}}).value("error", "").find("root"), std::string::npos);
  EXPECT_FALSE(daemon.conductor->state().measures_latency());
}

TEST_F(LatencyQueryTest, AnotherValueIsRefused) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  for (const Json& wrong : {Json("yes"), Json(1), Json(), Json(true), Json::array()}) {
    const std::string error = ask({{"command", "latency"}, {"set", wrong}}).value("error", "");
    EXPECT_NE(error.find("give on, off or nothing"), std::string::npos) << wrong << error;
  }
  EXPECT_FALSE(daemon.conductor->state().measures_latency());
}

TEST(Latency, OperationsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < std::tuple_size_v<proto::OperationLatencies>; ++i) {
    EXPECT_TRUE(names.insert(operation_name(i)).second) << i;
  }
  EXPECT_EQ(operation_name(static_cast<std::size_t>(abi::OperationKind::kSegments)), "TSO");
  EXPECT_EQ(operation_name(static_cast<std::size_t>(abi::OperationKind::kRead)), "READ");
}

TEST(OpenMetricsHistogram, LeavesOutWhatIsNone) {
  for (const char* const sample :
       {"7", "{}", R"({"count":1})", R"({"count":1,"sum":"1"})", R"({"count":1,"sum":1,"buckets":[7]})",
        R"({"count":1,"sum":1,"buckets":[[1]]})", R"({"count":1,"sum":1,"buckets":[[1,"x"]]})",
        R"({"count":1,"sum":1,"labels":{"le":"1"}})"}) {
    const Json family = {{"name", "a"}, {"type", "histogram"}, {"samples", Json::array({Json::parse(sample)})}};
    const std::string text = ctl::open_metrics({{"u", {{"families", Json::array({family})}}}});
    EXPECT_EQ(text.find("# TYPE a"), std::string::npos) << sample << "\n" << text;
  }
}

}  // namespace
}  // namespace uroce::admin::testing
