// `urocectl doctor`: each check reports what is wrong, and nothing else does.
#include "apps/urocectl/doctor_checks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/version.h"

namespace uroce::ctl {
namespace {

/// A device and a machine with nothing to report, except what is normal: some retransmissions, some RNR NAKs.
Facts healthy() {
  Facts facts;
  facts.seconds = 1;
  facts.machine.huge_pages = 512;
  facts.machine.huge_page_bytes = 2 << 20;
  facts.machine.governors = {"performance"};
  facts.machine.receive_buffer_bytes = 4 << 20;
  DeviceFacts& device = facts.devices.emplace_back();
  device.name = "uroce0";
  device.device =
      Json::parse(R"({"name": "uroce0", "port": "net_af_xdp0,iface=eth0", "mtu": 9000, "active_mtu": 4096,
    "state": "ACTIVE", "gids": ["192.0.2.1", "fe80::1"], "workers": 1, "cores": 4, "pollers": 2,
    "pollers_exceed_cores": false, "uptime_s": 90, "version": ")" UROCE_VERSION R"("})");
  device.now = Json::parse(R"({
    "transport": {"sent_pkts": 100000, "rcvd_pkts": 100000, "rdma_recvs": 10000, "retransmitted_pkts": 50,
      "rnr_nak_sent": 50, "drop_no_qp": 4, "np_ecn_marked_roce_packets": 3, "drop_no_receive": 7},
    "parse": {"ok": 100000, "not_roce": 600, "icrc_pending": 5, "bad_icrc": 0},
    "worker": {"steps": 500000, "stalls": 3, "longest_step_us": 4321, "last_stall_ms_ago": 70000,
      "wrong_address": 20, "steered_away": 70},
    "device": {"rx_packets": 100600, "tx_packets": 100600},
    "rejected": {"bad_value": 0},
    "cm": {"events_lost": 0},
    "control": {"longest_command": "reg_mr", "longest_command_us": 900},
    "controls": {"fault": "off", "capture": "off", "fault_verb_rules": "0"}})");
  device.before = device.now;
  device.workers = device.workers_before = Json::parse(R"([{"worker": 0, "qps": 4, "busy_us": 5000000}])");
  device.users = Json::parse(R"([{"user": 0, "resource": "qps", "used": 4, "limit": 16384},
    {"user": 0, "resource": "weight", "used": 1, "limit": "-"},
    {"user": 0, "resource": "refusals", "used": 0, "limit": "-"}])");
  device.qps = Json::parse(R"([{"qpn": "0x12", "state": "RTS", "program": "rping"}])");
  device.mrs = Json::parse(R"([{"program": "rping", "length": 4096, "indirect": false}])");
  device.neighbours = Json::parse(R"([{"address": "192.0.2.2", "state": "STALE"},
    {"address": "192.0.2.3", "state": "INCOMPLETE", "used_s": 0}])");
  device.huge_bytes = 2 << 20;
  return facts;
}

std::string said(const Facts& facts) {
  std::string text;
  for (const Finding& each : examine(facts)) text += each.check + ": " + each.found + "\n";
  return text;
}

/// What makes a check report, and part of its words.
struct Ill {
  const char* check;
  Severity severity;
  std::function<void(Facts&, DeviceFacts&)> cause;
  const char* says;
};

void set(Json& object, const char* path, const Json& value) { object[Json::json_pointer(path)] = value; }

constexpr Severity kProblem = Severity::kProblem, kAdvice = Severity::kAdvice, kNote = Severity::kNote;

Ill counter(const char* check, Severity severity, const char* path, int value, const char* says) {
  return {check, severity, [=](Facts&, DeviceFacts& d) { set(d.now, path, value); }, says};
}

const std::vector<Ill> kIlls = {
    {"daemon", kProblem, [](Facts&, DeviceFacts& d) { d.problem = "uroce0.sock: Permission denied"; }, "denied"},
    {"environment", kProblem, [](Facts& f, DeviceFacts&) { f.missing = {"nic7"}; }, "nic7"},
    {"governor", kAdvice,
     [](Facts& f, DeviceFacts&) {
       f.machine.governors = {"performance", "powersave"};
     },
     "powersave"},
    {"version", kProblem, [](Facts&, DeviceFacts& d) { set(d.device, "/version", "0.1.9"); }, "0.1.9"},
    {"port-down", kProblem, [](Facts&, DeviceFacts& d) { set(d.device, "/state", "DOWN"); }, "iface=eth0"},
    {"addresses", kAdvice,
     [](Facts&, DeviceFacts& d) {
       set(d.device, "/gids", {"", "fe80::1"});
     },
     "link-local"},
    {"neighbours", kProblem, [](Facts&, DeviceFacts& d) { set(d.neighbours, "/0/state", "FAILED"); }, "192.0.2.2"},
    {"neighbours", kProblem,
     [](Facts&, DeviceFacts& d) {
       set(d.neighbours, "/0", {{"address", "192.0.2.7"}, {"state", "INCOMPLETE"}, {"used_s", 2}});
     },
     "192.0.2.7"},
    {"mtu", kAdvice,
     [](Facts&, DeviceFacts& d) { set(d.device, "/active_mtu", 1024), set(d.device, "/mtu", 1500); }, "1024"},
    {"cores", kAdvice, [](Facts&, DeviceFacts& d) { set(d.device, "/pollers_exceed_cores", true); },
     "2 threads poll"},
    {"busy-workers", kAdvice, [](Facts&, DeviceFacts& d) { set(d.workers, "/0/busy_us", 5950000); }, "95 %"},
    {"stalls", kAdvice, [](Facts&, DeviceFacts& d) { set(d.now, "/worker/last_stall_ms_ago", 2000); }, "4.3 ms"},
    {"slow-commands", kAdvice, [](Facts&, DeviceFacts& d) { set(d.now, "/control/longest_command_us", 120000); },
     "reg_mr"},
    {"hugepages", kAdvice, [](Facts&, DeviceFacts& d) { d.huge_bytes = 0; }, "512"},
    {"indirect-memory", kAdvice, [](Facts&, DeviceFacts& d) { set(d.mrs, "/0/indirect", true); }, "rping 1"},
    {"udp-buffers", kAdvice,
     [](Facts& f, DeviceFacts& d) { set(d.device, "/port", "udp"), f.machine.receive_buffer_bytes = 212992; },
     "208 KiB"},
    {"failed-qps", kProblem, [](Facts&, DeviceFacts& d) { set(d.qps, "/0/state", "ERR"); }, "rping 1"},
    {"user-limits", kProblem, [](Facts&, DeviceFacts& d) { set(d.users, "/2/used", 5); }, "refused 5 times"},
    {"user-limits", kAdvice, [](Facts&, DeviceFacts& d) { set(d.users, "/0/used", 15000); }, "15000 of 16384 qps"},
    {"refused-requests", kAdvice,
     [](Facts&, DeviceFacts& d) {
       set(d.now, "/rejected/bad_value", 2);
       d.rejections =
           Json::parse(R"([{"program": "pp", "command": "create_cq", "errno": "EINVAL", "text": "no"}])");
     },
     "pp, create_cq: EINVAL: no"},
    {"log", kAdvice,
     [](Facts&, DeviceFacts& d) {
       d.errors = Json::parse(
           R"([{"text": "old", "last": "2026-01-31T12:00:00.004Z"}, {"text": "new",
             "last": "2026-01-31T12:00:00.009Z"}, {"text": "", "last": "2026-01-31T12:00:00.005Z"}])");
     },
     "3 different errors and warnings; the last: new"},
    {"faults", kNote, [](Facts&, DeviceFacts& d) { set(d.now, "/controls/fault", "drop=0.1"); }, "drop=0.1"},
    {"faults", kNote, [](Facts&, DeviceFacts& d) { set(d.now, "/controls/fault_verb_rules", "2"); }, "2"},
    {"faults", kNote, [](Facts&, DeviceFacts& d) { set(d.now, "/controls/capture", "/tmp/x"); }, "/tmp/x"},
    counter("retransmissions", kProblem, "/transport/retransmitted_pkts", 150,
            "150 of 100000 sent_pkts (0.15 %), 100 of them in the last 1.0 s"),
    counter("timeouts", kProblem, "/transport/retry_exceeded_err", 1, "retry_exceeded_err 1"),
    counter("rnr-exceeded", kProblem, "/transport/rnr_nak_retry_err", 1, "rnr_nak_retry_err 1"),
    counter("late-receives", kAdvice, "/transport/rnr_nak_sent", 200, "200 of 10000 rdma_recvs (2 %)"),
    counter("remote-access", kProblem, "/transport/resp_remote_access_errors", 1, "resp_remote_access_errors 1"),
    counter("invalid-requests", kProblem, "/transport/resp_local_length_error", 1, "resp_local_length_error 1"),
    counter("bad-work-requests", kProblem, "/transport/bad_wqe_key", 3, "bad_wqe_key 3"),
    counter("unknown-qps", kAdvice, "/transport/drop_no_qp", 400, "400 of 100000"),
    counter("wrong-source", kProblem, "/transport/drop_wrong_source", 1, "drop_wrong_source 1"),
    counter("wrong-address", kAdvice, "/worker/wrong_vlan", 2000, "wrong_address 20, wrong_vlan 2000"),
    counter("unreachable", kAdvice, "/link/unreachable", 2, "unreachable 2"),
    counter("lost-datagrams", kAdvice, "/transport/drop_too_long", 100, "drop_too_long 100"),
    counter("too-large", kProblem, "/transport/drop_too_large", 1, "drop_too_large 1"),
    counter("bad-frames", kProblem, "/parse/bad_icrc", 1, "bad_icrc 1"),
    counter("rx-drops", kProblem, "/device/rx_dropped", 1, "rx_dropped 1"),
    counter("tx-drops", kProblem, "/device/tx_dropped", 200, "200 of 100600 tx_packets (0.2 %)"),
    counter("steering", kAdvice, "/worker/steered_away", 60000, "60 %"),
    counter("steering-drops", kProblem, "/worker/steer_dropped", 1, "steer_dropped 1"),
    counter("lost-events", kProblem, "/cm/events_lost", 1, "events_lost 1"),
    counter("bad-doorbells", kProblem, "/worker/bad_doorbells", 1, "bad_doorbells 1"),
    counter("congestion", kNote, "/transport/np_ecn_marked_roce_packets", 4000, "4 %"),
    {"duplicate-address", kProblem,
     [](Facts&, DeviceFacts& d) {
       d.errors = Json::parse(R"([{"last": "2026-01-31T12:00:00.004Z", "text":
           "uroce0: 192.0.2.1 is also an address of the station 02:00:00:00:00:07; its packets go to either."}])");
     },
     "02:00:00:00:00:07"},
};

TEST(Doctor, FindsNothingWhereNothingIsWrong) { EXPECT_EQ(said(healthy()), ""); }

TEST(Doctor, EachCheckReportsWhatItIsFor) {
  for (const Ill& ill : kIlls) {
    Facts facts = healthy();
    ill.cause(facts, facts.devices[0]);
    // The log has the line about a duplicate address, too.
    std::vector<Finding> found = examine(facts);
    if (std::string(ill.check) == "duplicate-address") {
      std::erase_if(found, [](const Finding& each) { return each.check == "log"; });
    }
    ASSERT_EQ(found.size(), 1u) << ill.check << "\n" << said(facts);
    EXPECT_EQ(found[0].check, ill.check);
    EXPECT_EQ(found[0].severity, ill.severity) << ill.check;
    EXPECT_NE(found[0].found.find(ill.says), std::string::npos) << found[0].found;
    EXPECT_FALSE(found[0].remedy.empty());
  }
}

TEST(Doctor, EachCheckIsTestedAndDocumented) {
  std::ifstream file(UROCE_DOCS_DIR "/troubleshooting.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string section = text.str();
  section.erase(0, section.find("\n## urocectl doctor\n"));
  section.resize(section.find("\n## ", 1));
  std::set<std::string> documented, tested;
  const std::regex row("\n\\| `([a-z-]+)` \\|");
  for (std::sregex_iterator it(section.begin(), section.end(), row), end; it != end; ++it)
    documented.insert((*it)[1]);
  for (const Ill& ill : kIlls) tested.insert(ill.check);
  const std::vector<std::string> names = check_names();
  const std::set<std::string> known(names.begin(), names.end());
  EXPECT_EQ(known.size(), names.size()) << "two checks have one name";
  EXPECT_EQ(documented, known);
  EXPECT_EQ(tested, known);
}

TEST(Doctor, ProblemsComeFirst) {
  Facts facts = healthy();
  for (const Ill& ill : kIlls) {
    if (std::string(ill.check) != "daemon") ill.cause(facts, facts.devices[0]);
  }
  facts.devices.push_back(healthy().devices[0]);
  facts.devices.back().problem = "no answer within five seconds; is the daemon stopped?";
  const std::vector<Finding> found = examine(facts);
  EXPECT_GT(found.size(), kIlls.size() - 3);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i - 1].severity, found[i].severity);
}

TEST(Doctor, SurvivesAnswersOfAnotherBuild) {
  Facts facts = healthy();
  DeviceFacts& device = facts.devices[0];
  device.device = Json::object();
  device.now =
      Json::parse(R"({"transport": 7, "worker": {"stalls": -1}, "rejected": {"bad_value": "x"}, "cm": null})");
  device.before = Json::object();
  device.workers = Json::parse(R"([{}, 3])");
  device.workers_before = Json::parse(R"([null, {}])");
  device.users = device.qps = device.mrs = device.neighbours = device.errors = Json::parse(R"([{}, {"state": 4}])");
  examine(facts);
}

TEST(Doctor, ReadsTheMachine) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("uroce-doctor-" + std::to_string(getpid()));
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  write("proc/meminfo",
        "MemTotal:  9 kB\nHugePages_Total:     12\nHugePages_Free:  3\nHugepagesize:       2048 kB\n");
  write("proc/sys/net/core/rmem_max", "212992\n");
  for (const char* cpu : {"cpu0", "cpu1"}) {
    write(std::string("sys/devices/system/cpu/") + cpu + "/cpufreq/scaling_governor", "schedutil\n");
  }
  write("sys/devices/system/cpu/online", "0-1\n");
  const MachineFacts machine = read_machine(root);
  std::filesystem::remove_all(root);
  EXPECT_EQ(machine.huge_pages, 12u);
  EXPECT_EQ(machine.huge_pages_free, 3u);
  EXPECT_EQ(machine.huge_page_bytes, 2u << 20);
  EXPECT_EQ(machine.receive_buffer_bytes, 212992u);
  EXPECT_EQ(machine.governors, std::vector<std::string>{"schedutil"});
  EXPECT_TRUE(read_machine(root).governors.empty());
}

}  // namespace
}  // namespace uroce::ctl
