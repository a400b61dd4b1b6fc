#include "doctor_checks.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "base/version.h"
#include "table.h"

namespace uroce::ctl {
namespace {

// A daemon of another build may have other fields.
Json value_at(const Json& object, const char* name) {
  return object.is_object() ? object.value(name, Json()) : Json();
}
std::string text_at(const Json& object, const char* name) { return cell(value_at(object, name)); }

bool is_true(const Json& object, const char* name) { return value_at(object, name) == Json(true); }

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string mib(std::uint64_t bytes) { return number((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

std::string milliseconds(std::uint64_t us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(us) / 1000);
  return text;
}

bool is_loopback(const DeviceFacts& device) { return text_at(device.device, "port") == "loopback"; }
bool is_udp(const DeviceFacts& device) { return text_at(device.device, "port").starts_with("udp"); }

/// "ib_write_bw 3, rping 1", the most frequent first; five at most.
std::string most_frequent(const std::map<std::string, std::uint64_t>& counts) {
  std::vector<std::pair<std::string, std::uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 5); ++i) {
    text += (text.empty() ? "" : ", ") + sorted[i].first + " " + number(sorted[i].second);
  }
  return text + (sorted.size() > 5 ? ", ..." : "");
}

// ---------------------------------------------------------------- the daemon and its port

void version(const DeviceFacts& device, const Facts&, Report& report) {
  const std::string other = text_at(device.device, "version");
  if (other == UROCE_VERSION) return;
  report.add(Severity::kProblem, "the daemon has version " + other + ", urocectl " UROCE_VERSION,
             "install both, and the libraries, from one build, and start the daemon again");
}

void port_down(const DeviceFacts& device, const Facts&, Report& report) {
  if (text_at(device.device, "state") != "DOWN") return;
  report.add(Severity::kProblem, "the port " + text_at(device.device, "port") + " is DOWN: no packet passes",
             "the log of the daemon says why: no carrier, no peer of a memif, `ip link`, or `urocectl link "
             "down`, which `urocectl link up` ends");
}

void addresses(const DeviceFacts& device, const Facts&, Report& report) {
  const Json gids = value_at(device.device, "gids");
  const bool any = std::any_of(gids.begin(), gids.end(), [](const Json& gid) {
    const std::string text = cell(gid);
    return !text.empty() && !text.starts_with("fe80:");
  });
  if (any) return;
  report.add(Severity::kAdvice, "the port has no address but a link-local one",
             "start the daemon with --ip, or add one: `urocectl link add 192.0.2.1/24`");
}

void duplicate_address(const DeviceFacts& device, const Facts&, Report& report) {
  for (const Json& error : device.errors) {
    const std::string text = text_at(error, "text");
    if (text.find("is also an address of the station") == std::string::npos) continue;
    report.add(Severity::kProblem, text, "stop one of the two, or change its address; packets go to either");
  }
}

void mtu(const DeviceFacts& device, const Facts&, Report& report) {
  constexpr std::uint64_t kLargest = 4096;
  const std::uint64_t active = number_at(device.device, "active_mtu");
  if (active == 0 || active >= kLargest || is_loopback(device)) return;
  report.add(Severity::kAdvice,
             "a packet carries at most " + number(active) + " bytes, as the MTU of the link is " +
                 number(number_at(device.device, "mtu")),
             "where the network carries more, give the interface, both ends and --mtu 4176 or more: a path MTU "
             "of 4096 has a quarter of the packets of 1024");
}

void neighbours(const DeviceFacts& device, const Facts&, Report& report) {
  std::string silent;
  for (const Json& row : device.neighbours) {
    const std::string state = text_at(row, "state");
    const bool asked_again = state == "INCOMPLETE" && number_at(row, "used_s") >= 1;
    if (state == "FAILED" || asked_again) silent += (silent.empty() ? "" : ", ") + text_at(row, "address");
  }
  if (silent.empty()) return;
  report.add(Severity::kProblem, "no answer to ARP or neighbour discovery: " + silent,
             "the address is wrong, in another network or VLAN, or its host is down: compare with `urocectl show "
             "routes`");
}

// ---------------------------------------------------------------- time

void cores(const DeviceFacts& device, const Facts&, Report& report) {
  if (!is_true(device.device, "pollers_exceed_cores")) return;
  report.add(Severity::kAdvice,
             number(number_at(device.device, "pollers")) +
                 " threads poll (workers and programs of all daemons), on " +
                 number(number_at(device.device, "cores")) + " cores",
             "use fewer workers, or programs that wait for completion events; give the machine more cores "
             "(docs/tuning.md)");
}

void busy_workers(const DeviceFacts& device, const Facts& facts, Report& report) {
  constexpr double kBusy = 0.9;
  for (std::size_t i = 0; i < std::min(device.workers.size(), device.workers_before.size()); ++i) {
    const std::uint64_t before = number_at(device.workers_before[i], "busy_us");
    const std::uint64_t now = number_at(device.workers[i], "busy_us");
    const double share = facts.seconds <= 0 ? 0 : static_cast<double>(now - before) / 1e6 / facts.seconds;
    if (now < before || share < kBusy) continue;
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.0f %%", std::min(share, 1.0) * 100);
    report.add(
        Severity::kAdvice,
        "worker " + text_at(device.workers[i], "worker") + ", with " + text_at(device.workers[i], "qps") +
            " queue pairs, had work " + percent + " of the time",
        "it limits the throughput: spread the queue pairs over more workers (workers.count) if cores are idle");
  }
}

void stalls(const DeviceFacts& device, const Facts&, Report& report) {
  constexpr std::uint64_t kLately = 60'000;
  const std::uint64_t count = number_at(device.now, "worker.stalls");
  const std::uint64_t age = number_at(device.now, "worker.last_stall_ms_ago");
  if (count == 0 || age > kLately) return;
  report.add(
      Severity::kAdvice,
      "workers were away " + number(count) + " times for more than 1 ms, " +
          milliseconds(number_at(device.now, "worker.longest_step_us")) + " at most, last " + number(age / 1000) +
          " s ago",
      "other threads or virtual machines use their cores: pin the workers (workers.cpus) and keep others off, or "
      "see the checks cores and indirect-memory");
}

void slow_commands(const DeviceFacts& device, const Facts&, Report& report) {
  constexpr std::uint64_t kSlow = 100'000;
  const std::uint64_t longest = number_at(device.now, "control.longest_command_us");
  if (longest < kSlow) return;
  report.add(Severity::kAdvice,
             "the control thread was busy for " + milliseconds(longest) + " with " +
                 text_at(value_at(device.now, "control"), "longest_command"),
             "requests of all programs wait as long: see the checks cores and stalls; `urocectl metrics` has "
             "each command");
}

// ---------------------------------------------------------------- memory

void huge_pages(const DeviceFacts& device, const Facts& facts, Report& report) {
  const MachineFacts& machine = facts.machine;
  if (device.huge_bytes != 0 || machine.huge_page_bytes == 0) return;
  report.add(
      Severity::kAdvice,
      "the daemon has no hugepages; the machine has " + number(machine.huge_pages) + ", of which " +
          number(machine.huge_pages_free) + " are free",
      "`echo 512 > /proc/sys/vm/nr_hugepages`, then start the daemon again; they keep thousands of queue pairs "
      "fast");
}

void indirect_memory(const DeviceFacts& device, const Facts&, Report& report) {
  std::map<std::string, std::uint64_t> programs;
  std::uint64_t count = 0, bytes = 0;
  for (const Json& row : device.mrs) {
    if (!is_true(row, "indirect")) continue;
    ++count, ++programs[text_at(row, "program")];
    bytes += number_at(row, "length");
  }
  if (count == 0) return;
  report.add(Severity::kAdvice,
             number(count) + " memory regions, " + mib(bytes) +
                 ", are reached through /proc/PID/mem: " + most_frequent(programs),
             "register memory from malloc or mmap instead of the stack, .data or a private file mapping "
             "(docs/memory-sharing.md)");
}

void udp_buffers(const DeviceFacts& device, const Facts& facts, Report& report) {
  constexpr std::uint64_t kEnough = 4 << 20;
  const std::uint64_t bytes = facts.machine.receive_buffer_bytes;
  if (!is_udp(device) || bytes == 0 || bytes >= kEnough) return;
  report.add(Severity::kAdvice, "a socket holds at most " + number(bytes >> 10) + " KiB (net.core.rmem_max)",
             "`sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304`, then start the daemon again; what "
             "does not fit is lost and sent again");
}

// ---------------------------------------------------------------- programs

void failed_qps(const DeviceFacts& device, const Facts&, Report& report) {
  std::map<std::string, std::uint64_t> programs;
  std::uint64_t count = 0;
  for (const Json& row : device.qps) {
    const std::string state = text_at(row, "state");
    if (state != "ERR" && state != "SQE") continue;
    ++count, ++programs[text_at(row, "program")];
  }
  if (count == 0) return;
  report.add(
      Severity::kProblem, number(count) + " queue pairs are in state ERR or SQE: " + most_frequent(programs),
      "the first completion of each that is not IBV_WC_WR_FLUSH_ERR has the reason; after it, move the queue "
      "pair to RESET");
}

void user_limits(const DeviceFacts& device, const Facts&, Report& report) {
  for (const Json& row : device.users) {
    const std::string user = "user " + text_at(row, "user");
    const std::uint64_t used = number_at(row, "used"), limit = number_at(row, "limit");
    const std::string resource = text_at(row, "resource");
    if (resource == "refusals" && used != 0) {
      report.add(Severity::kProblem, user + " was refused " + number(used) + " times because of its limits",
                 "close programs, or raise limits.user_... in the configuration (`urocectl show users`)");
    } else if (limit != 0 && resource != "weight" && used >= limit - limit / 10) {
      report.add(Severity::kAdvice, user + " has " + number(used) + " of " + number(limit) + " " + resource,
                 "close programs, or raise limits.user_" + resource + " in the configuration");
    }
  }
}

void refused_requests(const DeviceFacts& device, const Facts&, Report& report) {
  std::map<std::string, std::uint64_t> reasons;
  std::uint64_t count = 0;
  const Json rejected = value_at(device.now, "rejected");
  for (const auto& [reason, value] : rejected.items()) {
    if (const std::uint64_t times = number_at(rejected, reason); times != 0) count += reasons[reason] = times;
  }
  if (count == 0) return;
  std::string last;
  if (!device.rejections.empty()) {
    const Json& row = device.rejections.back();
    last = "; the last: " + text_at(row, "program") + ", " + text_at(row, "command") + ": " +
           text_at(row, "errno") + ": " + text_at(row, "text");
  }
  report.add(Severity::kAdvice,
             number(count) + " requests of programs were refused: " + most_frequent(reasons) + last,
             "`urocectl show rejections` has the last 256 with their reasons");
}

void log_of(const DeviceFacts& device, const Facts&, Report& report) {
  if (device.errors.empty()) return;
  const auto newest =
      std::max_element(device.errors.begin(), device.errors.end(),
                       [](const Json& a, const Json& b) { return text_at(a, "last") < text_at(b, "last"); });
  report.add(Severity::kAdvice,
             "the daemon has logged " + number(device.errors.size()) +
                 " different errors and warnings; the last: " + text_at(*newest, "text"),
             "`urocectl show errors` has all, docs/troubleshooting.md what they mean");
}

void faults(const DeviceFacts& device, const Facts&, Report& report) {
  const Json controls = value_at(device.now, "controls");
  const std::string settings = text_at(controls, "fault"), rules = text_at(controls, "fault_verb_rules");
  if (settings != "off" && settings != "-") {
    report.add(Severity::kNote, "faults are injected into the port: " + settings, "`urocectl fault off` ends that");
  }
  if (rules != "0" && rules != "-") {
    report.add(Severity::kNote, "rules that let verbs fail are in force: " + rules,
               "`urocectl fault verbs` lists them, `urocectl fault verbs off` removes them");
  }
  if (const std::string capture = text_at(controls, "capture"); !capture.starts_with("off") && capture != "-") {
    report.add(Severity::kNote, "the frames of the port are captured, to " + capture,
               "`urocectl trace stop` ends that; meanwhile payload between devices of one process goes in frames");
  }
}

constexpr Check kDeviceChecks[] = {
    {"version", version},
    {"port-down", port_down},
    {"addresses", addresses},
    {"duplicate-address", duplicate_address},
    {"neighbours", neighbours},
    {"mtu", mtu},
    {"cores", cores},
    {"busy-workers", busy_workers},
    {"stalls", stalls},
    {"slow-commands", slow_commands},
    {"hugepages", huge_pages},
    {"indirect-memory", indirect_memory},
    {"udp-buffers", udp_buffers},
    {"failed-qps", failed_qps},
    {"user-limits", user_limits},
    {"refused-requests", refused_requests},
    {"log", log_of},
    {"faults", faults},
};

// ---------------------------------------------------------------- the machine

void governors(const Facts& facts, std::vector<Finding>& findings) {
  std::string others;
  for (const std::string& governor : facts.machine.governors) {
    if (governor != "performance") others += (others.empty() ? "" : ", ") + governor;
  }
  if (others.empty()) return;
  Report(findings, "", "governor")
      .add(Severity::kAdvice, "CPUs change their frequency: " + others,
           "`cpupower frequency-set -g performance` for steady latency");
}

void environment(const Facts& facts, std::vector<Finding>& findings) {
  for (const std::string& name : facts.missing) {
    Report(findings, "", "environment")
        .add(Severity::kProblem, "UROCE_DEVICES names " + name + ", which no daemon serves here",
             "programs do not see that device: start its daemon, or change the variable");
  }
}

void silent_daemon(const DeviceFacts& device, std::vector<Finding>& findings) {
  if (device.problem.empty()) return;
  const bool denied = device.problem.find("Permission denied") != std::string::npos;
  Report(findings, device.name, "daemon")
      .add(Severity::kProblem, device.hangs.empty() ? device.problem : device.problem + "; " + device.hangs,
           denied
               ? "join the group of its socket (`usermod -aG rdma USER`, then log in again), or start the daemon "
                 "with --socket-mode 0666"
               : "look at its log, whether its process is stopped or waits (`ps`), and what its threads do "
                 "(`urocectl stat --page`)");
}

}  // namespace

std::span<const Check> device_checks() { return kDeviceChecks; }

std::string_view name_of(Severity severity) {
  return severity == Severity::kProblem ? "problem" : severity == Severity::kAdvice ? "advice" : "note";
}

std::vector<Finding> examine(const Facts& facts) {
  std::vector<Finding> findings;
  environment(facts, findings);
  governors(facts, findings);
  for (const DeviceFacts& device : facts.devices) {
    silent_daemon(device, findings);
    if (!device.problem.empty()) continue;
    for (const Check& check : kDeviceChecks) {
      Report report(findings, device.name, check.name);
      check.look(device, facts, report);
    }
    for (const CounterCheck& check : counter_checks()) {
      if (!exceeds(check, device)) continue;
      Report(findings, device.name, check.name)
          .add(check.severity, std::string(check.meaning) + ": " + counts(check, device, facts.seconds),
               std::string(check.remedy));
    }
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

std::vector<std::string> check_names() {
  std::vector<std::string> names = {"daemon", "environment", "governor"};
  for (const Check& check : kDeviceChecks) names.emplace_back(check.name);
  for (const CounterCheck& check : counter_checks()) names.emplace_back(check.name);
  return names;
}

}  // namespace uroce::ctl
