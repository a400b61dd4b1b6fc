// What the page of `urocectl web` gets of the daemons' answers.
#include "apps/uroce-web/web_snapshot.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace uroce::ctl {
namespace {

using std::chrono::seconds;

Json qp(const std::string& qpn, std::uint64_t sent) {
  return {{"qpn", qpn},
          {"session", 1},
          {"program", "<b>"},
          {"state", "RTS"},
          {"counters", {{"sent_pkts", sent}, {"rcvd_pkts", 0}}}};
}

/// Answers as a daemon does whose counters grow by 100 with each snapshot.
class FakeDaemon {
 public:
  Answer operator()(const std::string& device, const Json& request) {
    if (device == "gone") return {"no daemon serves gone", {}, {}, 0};
    if (device == "strange") return {{}, Json::array({1}), {}, 0};
    const std::string command = request["command"], what = request.value("what", std::string());
    if (command == "stat") {
      sent_ += 100;
      return whole({{"device", {{"tx_packets", sent_}, {"rx_dropped", 0}}}, {"controls", {{"fault", "off"}}}});
    }
    if (what == "devices") return whole({{"devices", {{{"name", device}, {"state", "ACTIVE"}}}}});
    if (what == "sessions")
      return whole({{"sessions", {{{"session", 1}, {"pid", 4711}, {"uid", 0}, {"program", "<b>"}}}}});
    if (what == "qps") {
      Json rows = Json::array({qp("0x1", 5), qp("0x2", sent_)});
      for (std::size_t i = 2; i < qps; ++i) rows.push_back(qp("0x100" + std::to_string(i), 5));
      return whole({{"qps", rows}});
    }
    if (command == "fault") return {"only root may do this", {{"error", "only root may do this"}}, {}, 0};
    if (command == "latency") {
      Json rows = Json::array();
      if (measured) rows.push_back({{"what", "READ"}, {"count", 7}});
      return whole({{"measured", "on"}, {"latency", rows}});
    }
    EXPECT_EQ(command, "metrics");
    const Json buckets = {{1e-6, 0}, {2e-6, 3}, {4e-6, 3}, {8e-6, 7}, {16e-6, 7}};
    const Json samples = {{{"labels", {{"operation", "READ"}}}, {"buckets", buckets}}};
    return whole({{"families", {{{"name", "uroce_work_request_seconds"}, {"samples", samples}}}}});
  }

  std::size_t qps = 2;
  bool measured = false;

 private:
  static Answer whole(Json json) { return {{}, std::move(json), {}, 0}; }
  std::uint64_t sent_ = 0;
};

class WebSnapshot : public ::testing::Test {
 protected:
  Json take(const std::vector<std::string>& devices = {"uroce0"}) {
    now_ += seconds(2);
    return snapshots_.take(devices, now_);
  }
  FakeDaemon daemon_;

 private:
  Snapshots snapshots_{[this](const std::string& device, const Json& request) { return daemon_(device, request); }};
  std::chrono::steady_clock::time_point now_{};
};

TEST_F(WebSnapshot, HasRatesFromTheSecondOneOn) {
  EXPECT_EQ(take()["devices"][0]["tx_packets_s"], 0);
  const Json second = take();
  EXPECT_EQ(second["devices"][0]["tx_packets_s"], 50);
  EXPECT_EQ(second["devices"][0]["counters"].dump(), R"({"device.tx_packets":200})") << "those that are not zero";
  EXPECT_EQ(second["devices"][0]["port"]["state"], "ACTIVE");
  EXPECT_EQ(second["qps_total"], 2);
  EXPECT_EQ(second["qps"][0]["qpn"], "0x2") << "the one that sends comes first";
  EXPECT_EQ(second["qps"][0]["tx_packets_s"], 50);
  EXPECT_EQ(second["qps"][0]["pid"], 4711);
  EXPECT_EQ(second["qps"][0]["counters"]["sent_pkts"], 200);
  EXPECT_EQ(second["qps"][0]["program"], "<b>");
}

TEST_F(WebSnapshot, OneThatDoesNotAnswerHidesNoOther) {
  const Json taken = take({"gone", "strange", "uroce0"});
  EXPECT_EQ(taken["devices"][0].dump(), R"({"device":"gone","problem":"no daemon serves gone"})");
  EXPECT_NE(taken["devices"][1].value("problem", std::string()).find("same build"), std::string::npos);
  EXPECT_EQ(taken["devices"][2]["port"]["name"], "uroce0");
  EXPECT_EQ(taken["devices"][2]["verb_faults"], Json::array()) << "which only administrators may list";
}

TEST_F(WebSnapshot, HasABoundedNumberOfQps) {
  daemon_.qps = 2 * Snapshots::kMostQps;
  take();
  const Json taken = take();
  EXPECT_EQ(taken["qps"].size(), Snapshots::kMostQps);
  EXPECT_EQ(taken["qps_total"], 2 * Snapshots::kMostQps);
  EXPECT_EQ(taken["qps"][0]["qpn"], "0x2");
}

TEST_F(WebSnapshot, HasClassesOfDurationsOnceSomeWereMeasured) {
  EXPECT_EQ(take()["devices"][0]["histograms"], Json::object());
  daemon_.measured = true;
  const Json classes = take()["devices"][0]["histograms"]["READ"];
  ASSERT_EQ(classes.size(), 3u) << "without empty ones at the ends: " << classes;
  EXPECT_NEAR(classes[0][0].get<double>(), 2, 1e-9);
  EXPECT_EQ(classes[0][1], 3);
  EXPECT_EQ(classes[1][1], 0);
  EXPECT_EQ(classes[2][1], 4);
}

TEST(WebFaultRules, HaveTheNameThatRemovesThem) {
  const Json rules = fault_rules({{"fault", "drop=0.01,seed=1; name=cut,drop=1,peer=192.0.2.7; dup=1,name=last"},
                                  {"fault_matched_by_1", "12"},
                                  {"fault_matched_by_cut", "7"},
                                  {"fault_matched_by_last", "0"}});
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].dump(), R"({"name":"1","rule":"drop=0.01,seed=1","matched":12})");
  EXPECT_EQ(rules[1].dump(), R"({"name":"cut","rule":"name=cut,drop=1,peer=192.0.2.7","matched":7})");
  EXPECT_EQ(rules[2]["name"], "last");
  EXPECT_EQ(fault_rules({{"fault", "off"}}), Json::array());
  EXPECT_EQ(fault_rules(Json::object()), Json::array());
}

TEST(WebFeed, GivesEachReaderTheNewestOnce) {
  Feed feed;
  std::uint64_t seen = 0;
  EXPECT_EQ(feed.next(seen, std::chrono::milliseconds(1)), nullptr);
  feed.publish("a");
  feed.publish("b");
  EXPECT_EQ(*feed.next(seen, seconds(5)), "b");
  EXPECT_EQ(feed.next(seen, std::chrono::milliseconds(1)), nullptr);
  std::thread writer([&] { feed.publish("c"); });
  EXPECT_EQ(*feed.next(seen, seconds(5)), "c");
  writer.join();
}

TEST(WebFeed, CountsItsReaders) {
  Feed feed;
  EXPECT_FALSE(feed.wait_for_reader(std::chrono::milliseconds(1)));
  EXPECT_TRUE(feed.enter(2));
  EXPECT_TRUE(feed.enter(2));
  EXPECT_FALSE(feed.enter(2));
  EXPECT_TRUE(feed.wait_for_reader(std::chrono::milliseconds(1)));
  feed.leave();
  EXPECT_TRUE(feed.enter(2));
}

TEST(WebFeed, AReaderAfterAPauseGetsNoOldSnapshot) {
  Feed feed;
  EXPECT_TRUE(feed.enter(2));
  feed.publish("old");
  feed.leave();
  EXPECT_TRUE(feed.enter(2));
  std::uint64_t seen = 0;
  EXPECT_EQ(feed.next(seen, std::chrono::milliseconds(1)), nullptr);
  feed.publish("new");
  EXPECT_EQ(*feed.next(seen, seconds(5)), "new");
}

}  // namespace
}  // namespace uroce::ctl
