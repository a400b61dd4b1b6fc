// `urocectl metrics`: the daemon's answer, the text made from it, and docs/metrics.md.
#include "admin/metrics.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "apps/urocectl/open_metrics.h"
#include "apps/urocectl/pages.h"
#include "control/diagnosis/command_times.h"
#include "tests/unit/daemon/test_client.h"
#include "tests/unit/daemon/test_daemon.h"

namespace uroce::admin::testing {

using daemon::testing::TestClient;
using daemon::testing::TestDaemon;

namespace {

using Json = nlohmann::ordered_json;

Json read_page(TestDaemon& daemon, TestClient& by, const Json& request) {
  return Json::parse(handle_query(daemon.conductor->admin(), by.session(), request.dump()));
}

/// All pages of the answer. `after_page(page)` runs after each.
template <class Between>
Json query(TestDaemon& daemon, TestClient& by, const char* command, Between&& after_page) {
  Json request = {{"command", command}, {"pages", true}}, all = Json::object();
  do {
    const Json page = read_page(daemon, by, request);
    request["from"] = ctl::add_page(all, page);
    after_page(page);
  } while (!request["from"].is_null());
  return all;
}
Json query(TestDaemon& daemon, TestClient& by, const char* command) {
  return query(daemon, by, command, [](const Json&) {});
}

void add_time(control::CommandTimes& times, std::string_view name, Nanos duration) {
  times.begin(name, 0, 0);
  times.end(name, duration);
}

const Json& family(const Json& answer, const std::string& name) {
  static const Json none = Json::object();
  for (const Json& each : answer.at("families")) {
    if (each.at("name") == name) return each;
  }
  ADD_FAILURE() << "no family " << name;
  return none;
}

/// Of the samples whose labels include these.
double sum(const Json& answer, const std::string& name, const Json& labels = Json::object()) {
  double total = 0;
  const Json found = family(answer, name);
  for (const Json& sample : found.value("samples", Json::array())) {
    bool all = true;
    for (const auto& [label, value] : labels.items()) all &= sample["labels"].value(label, "") == value;
    if (all) total += sample["value"].get<double>();
  }
  return total;
}

std::size_t samples_of(const Json& answer) {
  std::size_t count = 0;
  for (const Json& each : answer.at("families")) count += each.at("samples").size();
  return count;
}

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { client.hello(); }
  Json answer() { return query(daemon, client, "metrics"); }
  /// A duration in each histogram that has one for each worker.
  void measure_latency() {
    for (const auto& worker : daemon.cores) {
      worker->latency().wake_up.record(3 * kMicrosecond);
      worker->latency().duty_cycle.record(kMillisecond);
    }
  }
  void make_qps(TestClient& by, std::size_t count) {
    const std::uint32_t pd = by.alloc_pd(), cq = by.create_cq(8).made.handle;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NE(by.create_qp(TestClient::qp_request(pd, cq)).made.handle, 0u);
    }
  }

  TestDaemon daemon{daemon::testing::test_config(), 2};
  TestClient client{*daemon.conductor, 4241};
};

// ---------------------------------------------------------------- the answer

TEST_F(MetricsTest, EachFamilyIsDescribedOnce) {
  const Json now = answer();
  std::set<std::string> names;
  for (const Json& each : now.at("families")) {
    const std::string name = each["name"], help = each["help"], type = each["type"], unit = each["unit"];
    SCOPED_TRACE(name);
    EXPECT_TRUE(std::regex_match(name, std::regex("uroce_[a-z][a-z0-9_]*[a-z0-9]")));
    EXPECT_TRUE(names.insert(name).second) << "twice";
    EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram");
    EXPECT_EQ(help.back(), '.');
    EXPECT_FALSE(name.ends_with("_total")) << "the text adds that to counters";
    EXPECT_FALSE(std::regex_search(name, std::regex("_(ns|us|ms|kb|mb|kbps|mbps)(_|$)"))) << "a base unit";
    if (!unit.empty()) {
      EXPECT_TRUE(name.ends_with("_" + unit));
    }
  }
}

TEST_F(MetricsTest, SamplesHaveTheLabelsOfTheirFamily) {
  make_qps(client, 1);
  measure_latency();
  const Json now = answer();
  std::set<std::string> seen;
  for (const Json& each : now.at("families")) {
    for (const Json& sample : each["samples"]) {
      std::string labels;
      for (const auto& [name, value] : sample["labels"].items()) labels += (labels.empty() ? "" : ",") + name;
      EXPECT_EQ(labels, each["labels"]) << each["name"];
      EXPECT_TRUE(sample[each["type"] == "histogram" ? "count" : "value"].is_number()) << each["name"];
      EXPECT_TRUE(seen.insert(each["name"].get<std::string>() + sample["labels"].dump()).second) << sample.dump();
    }
  }
}

/// A counter that is added to stat gets a family here, and with it a sentence in the reference.
TEST_F(MetricsTest, EachNumberOfStatHasAFamily) {
  const Json now = answer();
  std::map<std::string, std::size_t> used;
  for (const Json& each : now.at("families")) {
    if (each["stat"] != "") used[each["stat"]] = 0;
  }
  const Json stat = query(daemon, client, "stat");
  for (const auto& [group, values] : stat.items()) {
    for (const auto& [name, value] : values.items()) {
      if (!value.is_number()) continue;
      const std::string path = group + "." + name;
      std::size_t matches = 0;
      for (auto& [pattern, count] : used) {
        const std::size_t star = pattern.find('*');
        const bool exact = pattern == path;
        const bool like = star != std::string::npos && path.starts_with(pattern.substr(0, star)) &&
                          path.ends_with(pattern.substr(star + 1)) && !used.contains(path);
        if (exact || like) ++matches, ++count;
      }
      EXPECT_EQ(matches, 1u) << path;
    }
  }
  for (const auto& [pattern, count] : used) EXPECT_GT(count, 0u) << pattern << " is not in stat";
}

TEST_F(MetricsTest, CountersHaveTheValuesOfStat) {
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, 77), ENOENT);
  const Json now = answer();
  EXPECT_EQ(sum(now, "uroce_rejected_requests", {{"reason", "unknown_handle"}}), 1);
  daemon.settle();
  const double steps = sum(answer(), "uroce_worker_steps");
  EXPECT_GT(steps, 0);
  EXPECT_EQ(steps, query(daemon, client, "stat")["worker"]["steps"].get<double>());
  EXPECT_EQ(family(now, "uroce_worker_steps")["samples"].size(), 2u);
}

TEST(CommandTimes, KeepTheLongestOfEachName) {
  control::CommandTimes times;
  EXPECT_EQ(times.longest().first, "");
  add_time(times, "B", 3);
  add_time(times, "A", 2);
  add_time(times, "B", 1);
  EXPECT_EQ(times.longest(), std::pair(std::string_view("B"), Nanos{3}));
  EXPECT_EQ(times.all().at("B"), 3u);
  add_time(times, "A", 4);
  EXPECT_EQ(times.longest(), std::pair(std::string_view("A"), Nanos{4}));
}

TEST_F(MetricsTest, TheTimesOfCommandsHaveTheirNames) {
  const char* const kName = "uroce_control_longest_command_seconds";
  make_qps(client, 1);
  client.send(~0u, std::span<const std::byte>{});
  const std::string text = R"({"command":"stat"})";
  ASSERT_EQ(client.send(UROCE_CMD_ADMIN, std::as_bytes(std::span(text))).status, 0);
  TestClient(*daemon.conductor).close();
  const Json now = answer();
  std::set<std::string> names;
  for (const Json& each : family(now, kName)["samples"]) {
    names.insert(each["labels"]["command"]);
    EXPECT_GT(each["value"].get<double>(), 0) << each;
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"?", "ADMIN", "ALLOC_PD", "CREATE_CQ", "CREATE_QP", "HELLO", "close_session"}));
  const Json control = query(daemon, client, "stat")["control"];
  EXPECT_TRUE(names.contains(control["longest_command"].get<std::string>())) << control;
  // A longer one replaces it.
  add_time(daemon.conductor->command_times(), "MODIFY_QP", kSecond * 1000);
  EXPECT_EQ(query(daemon, client, "stat")["control"],
            (Json{{"longest_command_us", 1'000'000'000}, {"longest_command", "MODIFY_QP"}}));
}

TEST_F(MetricsTest, QpsAreCountedByTypeAndState) {
  make_qps(client, 600);  // more than one command of a worker counts
  const Json now = answer();
  EXPECT_EQ(sum(now, "uroce_qps", {{"type", "RC"}, {"state", "RESET"}}), 600);
  EXPECT_EQ(sum(now, "uroce_qps"), 600);
  EXPECT_EQ(sum(now, "uroce_objects", {{"kind", "cqs"}}), 1);
  EXPECT_EQ(sum(now, "uroce_sessions"), 1);
}

TEST_F(MetricsTest, APageCountsFewQps) {
  make_qps(client, 600);
  TestClient second(*daemon.conductor, 4241), other(*daemon.conductor, 4242);
  second.hello();
  make_qps(second, 300);
  const auto check = [&](const Json& page) {
    EXPECT_LT(samples_of(page), 400u);
    double qps = 0;
    for (const Json& each : page.at("families")) {
      if (each["name"] == "uroce_qps") qps = sum(page, "uroce_qps");
    }
    EXPECT_LE(qps, 256);
    // Others come and go in between.
    TestClient(*daemon.conductor, 4242).hello();
  };
  const Json now = query(daemon, client, "metrics", check);
  EXPECT_EQ(sum(now, "uroce_qps"), 900);
  EXPECT_EQ(sum(now, "uroce_sessions"), 2);
  EXPECT_EQ(sum(now, "uroce_objects", {{"kind", "cqs"}}), 2);
}

TEST_F(MetricsTest, ASessionThatClosesBetweenPagesIsLeftOut) {
  make_qps(client, 300);
  auto second = std::make_unique<TestClient>(*daemon.conductor, 4241);
  second->hello();
  make_qps(*second, 300);
  const Json now = query(daemon, client, "metrics", [&](const Json& page) {
    for (const Json& each : page.at("families")) {
      if (each["name"] == "uroce_qps") second.reset();
    }
  });
  EXPECT_EQ(sum(now, "uroce_qps"), 300);
  EXPECT_EQ(sum(now, "uroce_sessions"), 1);
}

TEST_F(MetricsTest, UsersComeInPages) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  TestClient administrator(*daemon.conductor);
  std::vector<std::unique_ptr<TestClient>> others;
  for (uid_t user = 10'000; user < 10'030; ++user) {
    others.push_back(std::make_unique<TestClient>(*daemon.conductor, user));
  }
  const Json now =
      query(daemon, administrator, "metrics", [](const Json& page) { EXPECT_LT(samples_of(page), 400u); });
  EXPECT_EQ(family(now, "uroce_user_refusals")["samples"].size(), 32u);
  EXPECT_EQ(sum(now, "uroce_user_objects", {{"resource", "sessions"}}), 32);
}

TEST_F(MetricsTest, WhoTakesNoPagesIsTold) {
  const Json refused = read_page(daemon, client, {{"command", "metrics"}});
  EXPECT_NE(refused.value("error", "").find("same build"), std::string::npos) << refused;
}

TEST_F(MetricsTest, ACursorOfAnotherFormIsRefused) {
  for (const char* const wrong : {"7", "null", R"({"kind":"users"})", R"({"kind":"qps","at":0,"handle":0})"}) {
    const Json request = {{"command", "metrics"}, {"from", Json::parse(wrong)}};
    EXPECT_TRUE(read_page(daemon, client, request).contains("error")) << wrong;
  }
}

TEST_F(MetricsTest, TheNumberOfSamplesDoesNotGrowWithQps) {
  make_qps(client, 1);
  const std::size_t before = samples_of(answer());
  make_qps(client, 100);
  EXPECT_EQ(samples_of(answer()), before);
}

TEST_F(MetricsTest, ATenantSeesItsOwnObjectsAndLimits) {
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  make_qps(client, 3);
  make_qps(other, 5);
  const Json theirs = query(daemon, other, "metrics");
  EXPECT_EQ(sum(theirs, "uroce_qps"), 5);
  EXPECT_EQ(sum(theirs, "uroce_sessions"), 1);
  EXPECT_EQ(sum(theirs, "uroce_user_objects", {{"user", "4242"}, {"resource", "qps"}}), 5);
  EXPECT_GT(sum(theirs, "uroce_user_memory_limit_bytes", {{"user", "4242"}, {"resource", "queue_bytes"}}), 0);
  EXPECT_EQ(theirs.dump().find("4241"), std::string::npos) << "another user";
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  TestClient administrator(*daemon.conductor);
  const Json all = query(daemon, administrator, "metrics");
  EXPECT_EQ(sum(all, "uroce_qps"), 8);
  EXPECT_EQ(sum(all, "uroce_user_objects", {{"resource", "qps"}}), 8);
  EXPECT_EQ(sum(all, "uroce_user_objects", {{"user", "4241"}, {"resource", "qps"}}), 3);
}

// ---------------------------------------------------------------- the text

/// OpenMetrics 1.0, "ABNF" and "MetricFamily": the descriptors of a family come before its samples, which follow
/// without others between; the last line is # EOF.
void check_text(const std::string& text) {
  const std::regex descriptor(R"(# (TYPE|UNIT|HELP) ([a-zA-Z_]\w*) (.+))");
  const std::string label = R"re([a-zA-Z_]\w*="([^"\\]|\\["\\n])*")re";
  const std::regex sample(R"(([a-zA-Z_]\w*)\{)" + label + "(," + label + R"()*\} -?[0-9.]+(e[-+][0-9]+)?)");
  const std::map<std::string, std::regex> endings{{"counter", std::regex("_total")},
                                                  {"gauge", std::regex("")},
                                                  {"histogram", std::regex("_(bucket|count|sum)")}};
  std::set<std::string> families, samples;
  std::string now, type, line;
  ASSERT_TRUE(text.ends_with("\n# EOF\n"));
  std::istringstream lines(text.substr(0, text.size() - 6));
  while (std::getline(lines, line)) {
    SCOPED_TRACE(line);
    std::smatch parts;
    if (std::regex_match(line, parts, descriptor)) {
      if (parts[1] == "TYPE") {
        now = parts[2], type = parts[3];
        EXPECT_TRUE(families.insert(now).second) << "a second block";
      }
      EXPECT_EQ(parts[2], now);
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, parts, sample));
    ASSERT_TRUE(parts[1].str().starts_with(now));
    EXPECT_TRUE(std::regex_match(parts[1].str().substr(now.size()), endings.at(type)));
    EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << "twice";
  }
  EXPECT_FALSE(samples.empty());
}

TEST_F(MetricsTest, TheTextFollowsTheGrammar) {
  make_qps(client, 2);
  measure_latency();
  daemon.settle();
  check_text(ctl::open_metrics({{"uroce0", answer()}, {"uroce1", answer()}, {"uroce2", nullptr}}));
}

TEST_F(MetricsTest, ThePythonClientOfPrometheusReadsTheText) {
  if (std::system("/usr/bin/python3 -c 'import prometheus_client.openmetrics.parser' 2>/dev/null") != 0) {
    GTEST_SKIP() << "takes python3-prometheus-client";
  }
  FILE* const parser = ::popen(
      "/usr/bin/python3 -c 'import sys\n"
      "from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n"
      "families = list(read(sys.stdin.read()))\n"
      "assert len(families) > 90 and all(each.documentation and each.samples for each in families)'",
      "w");
  ASSERT_NE(parser, nullptr);
  measure_latency();
  const std::string text = ctl::open_metrics({{"uroce0", answer()}, {"a\\b\"c\nd", answer()}});
  EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), parser), text.size());
  EXPECT_EQ(::pclose(parser), 0);
}

TEST(OpenMetrics, EscapesLabelsAndHelp) {
  const Json sample = {{"labels", {{"port", "a\"b\\c\nd"}}}, {"value", 7}};
  const Json one = {{"name", "x_bytes"},
                    {"type", "counter"},
                    {"unit", "bytes"},
                    {"help", "a \"b\"\n"},
                    {"samples", Json::array({sample})}};
  const std::string text = ctl::open_metrics({{"u", {{"families", Json::array({one})}}}});
  EXPECT_NE(text.find("# TYPE x_bytes counter\n# UNIT x_bytes bytes\n# HELP x_bytes a \\\"b\\\"\\n\n"
                      "x_bytes_total{device=\"u\",port=\"a\\\"b\\\\c\\nd\"} 7\n# EOF\n"),
            std::string::npos)
      << text;
}

TEST(OpenMetrics, LeavesOutWhatIsNotAFamily) {
  const std::string empty =
      "# TYPE uroce_up gauge\n# HELP uroce_up 1 if the daemon of the device answers, 0 if not.\n"
      "uroce_up{device=\"u\"} 1\n# EOF\n";
  for (const char* const answer :
       {"7", "[]", "{}", R"({"families":7})", R"({"families":[7,{},{"name":"a b","type":"gauge"}]})",
        R"({"families":[{"name":"uroce_up","type":"gauge","samples":[{"value":1}]}]})",
        R"({"families":[{"name":"a","type":"info","samples":[{"value":1}]}]})",
        R"({"families":[{"name":"a","type":"gauge","samples":[7,{},{"value":"1"}]}]})",
        R"({"families":[{"name":"a","type":"gauge","samples":[{"value":1,"labels":{"a b":"c"}}]}]})",
        R"({"families":[{"name":"a","type":"gauge","samples":[{"value":1,"labels":{"device":"c"}}]}]})"}) {
    EXPECT_EQ(ctl::open_metrics({{"u", Json::parse(answer)}}), empty) << answer;
  }
}

/// tools/grafana/uroce.json: an expression with a metric or label that does not exist shows nothing, and no error.
TEST_F(MetricsTest, TheBoardOfGrafanaNamesMetricsAndLabelsThatExist) {
  std::map<std::string, std::set<std::string>> labels;  // by name in the text
  const Json now = answer();
  for (const Json& each : now.at("families")) {
    std::set<std::string> own{"device"};
    std::istringstream names(each["labels"].get<std::string>());
    for (std::string label; std::getline(names, label, ',');) own.insert(label);
    const std::string name = each["name"];
    if (each["type"] == "counter") labels[name + "_total"] = own;
    if (each["type"] == "gauge") labels[name] = own;
    if (each["type"] != "histogram") continue;
    labels[name + "_count"] = labels[name + "_sum"] = own;
    own.insert("le");
    labels[name + "_bucket"] = own;
  }
  labels["uroce_up"] = {"device"};
  const Json board = Json::parse(std::ifstream(UROCE_DOCS_DIR "/../tools/grafana/uroce.json"));
  std::size_t checked = 0;
  for (const Json& panel : board.at("panels")) {
    for (const Json& target : panel.value("targets", Json::array())) {
      const std::string text = target.at("expr"), legend = target.at("legendFormat");
      std::set<std::string> own;
      const std::regex metric("uroce_\\w+"), by(R"(by \(([\w, ]+)\))"), shown(R"(\{\{(\w+)\}\})");
      for (std::sregex_iterator at(text.begin(), text.end(), metric), end; at != end; ++at, ++checked) {
        ASSERT_TRUE(labels.contains(at->str())) << at->str() << " in " << text;
        own = labels.at(at->str());
      }
      const auto known = [&](const std::string& label) {
        EXPECT_TRUE(own.contains(label)) << label << ": " << text;
      };
      std::smatch groups;
      if (std::regex_search(text, groups, by)) {
        std::istringstream names(groups[1].str());
        for (std::string label; std::getline(names >> std::ws, label, ',');) known(label);
      }
      for (std::sregex_iterator at(legend.begin(), legend.end(), shown), end; at != end; ++at) known((*at)[1]);
    }
  }
  EXPECT_GT(checked, 30u);
}

// ---------------------------------------------------------------- the reference

std::string cell(const std::string& text) { return text.empty() ? " " : " `" + text + "` "; }

std::string reference(const Json& answer) {
  std::ostringstream out;
  out << "# Metrics\n\n"
         "`urocectl metrics` prints these counters, gauges and histograms of all running daemons in the text "
         "format of\n"
         "OpenMetrics 1.0, which Prometheus reads; `urocectl --json metrics` prints them as JSON. Each sample also "
         "has\n"
         "the label `device`. The counters of transport, device and connection management are sums over all "
         "workers.\n"
         "Objects are those that `urocectl show` lists for the same user; the families of users hold the caller's\n"
         "values, and for root those of all users. `uroce_up` is 0 for a device whose daemon does not answer.\n\n"
         "This file is made from the tables in the code: `UROCE_WRITE_REFERENCE=1\n"
         "build/tests/unit/admin/admin-test` writes it.\n\n"
         "| metric | labels | `urocectl stat` | meaning |\n|---|---|---|---|\n";
  for (const Json& each : answer.at("families")) {
    const std::string suffix = each["type"] == "counter" ? "_total" : "";
    out << "| `" << each["name"].get<std::string>() << suffix << "` |" << cell(each["labels"]) << "|"
        << cell(each["stat"]) << "| " << each["help"].get<std::string>() << " |\n";
  }
  for (const Json& each : answer.at("families")) {
    if (!each.contains("values")) continue;
    const std::string label = each["labels"];
    out << "\n| `" << label << "` of `" << each["name"].get<std::string>() << "_total` | meaning |\n|---|---|\n";
    for (const auto& [value, meaning] : each["values"].items()) {
      out << "| `" << value << "` | " << meaning.get<std::string>() << " |\n";
    }
  }
  return out.str();
}

TEST_F(MetricsTest, TheReferenceIsThatOfTheCode) {
  const std::string path = UROCE_DOCS_DIR "/metrics.md", now = reference(answer());
  if (std::getenv("UROCE_WRITE_REFERENCE") != nullptr) std::ofstream(path) << now;
  std::ostringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(kept.str(), now) << "UROCE_WRITE_REFERENCE=1 writes docs/metrics.md anew";
}

}  // namespace
}  // namespace uroce::admin::testing
