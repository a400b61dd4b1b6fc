#include "doctor_facts.h"

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "counters_page.h"
#include "stop_signal.h"

namespace uroce::ctl {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The number after "NAME:" in a file of such lines, such as /proc/meminfo; -1: there is none.
std::int64_t number_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return -1;
}

std::uint64_t at_least_zero(std::int64_t value) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
}

/// HugetlbPages of /proc/PID/status, bytes; -1: the process has another PID namespace, or the kernel no hugepages.
std::int64_t huge_bytes_of(pid_t pid) {
  if (pid <= 0) return -1;
  const std::int64_t kib = number_in("/proc/" + std::to_string(pid) + "/status", "HugetlbPages");
  return kib < 0 ? -1 : kib * 1024;
}

class Interview {
 public:
  Interview(const std::string& run_dir, DeviceFacts& facts) : run_dir_(run_dir), facts_(facts) {}

  /// Whether the daemon answers.
  bool begin() {
    Answer answer = ask(run_dir_, facts_.name, {{"command", "stat"}});
    facts_.problem = answer.problem;
    if (!answer.problem.empty()) return false;
    facts_.huge_bytes = huge_bytes_of(answer.daemon);
    facts_.before = std::move(answer.json);
    facts_.workers_before = list("workers");
    return true;
  }

  void end() {
    Answer answer = ask(run_dir_, facts_.name, {{"command", "stat"}});
    facts_.problem = answer.problem;
    if (!answer.problem.empty()) return;
    facts_.now = std::move(answer.json);
    if (const Json devices = list("devices"); !devices.empty()) facts_.device = devices[0];
    facts_.workers = list("workers");
    facts_.users = list("users");
    facts_.qps = list("qps");
    facts_.mrs = list("mrs");
    facts_.errors = list("errors");
    facts_.rejections = list("rejections");
    facts_.neighbours = list("neighbours");
  }

 private:
  Json list(const char* what) {
    const Answer answer = ask(run_dir_, facts_.name, {{"command", "show"}, {"what", what}});
    if (!answer.json.is_object()) return Json::array();
    facts_.hidden += number_at(answer.json, "hidden");
    return answer.json.value(what, Json::array());
  }

  const std::string& run_dir_;
  DeviceFacts& facts_;
};

}  // namespace

std::uint64_t number_at(const Json& answer, const std::string& path) {
  const Json* at = &answer;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    if (!at->is_object()) return 0;
    const auto found = at->find(name);
    if (found == at->end()) return 0;
    at = &*found;
  }
  return at->is_number_integer() ? at_least_zero(at->get<std::int64_t>()) : 0;
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> all;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) all.push_back(name);
  }
  return all;
}

MachineFacts read_machine(const std::string& root) {
  MachineFacts machine;
  const std::string memory = root + "/proc/meminfo";
  machine.huge_pages = at_least_zero(number_in(memory, "HugePages_Total"));
  machine.huge_pages_free = at_least_zero(number_in(memory, "HugePages_Free"));
  machine.huge_page_bytes = at_least_zero(number_in(memory, "Hugepagesize")) * 1024;
  machine.receive_buffer_bytes =
      std::strtoull(first_line(root + "/proc/sys/net/core/rmem_max").c_str(), nullptr, 10);
  std::set<std::string> governors;
  std::error_code error;
  for (const auto& cpu : std::filesystem::directory_iterator(root + "/sys/devices/system/cpu", error)) {
    const std::string governor = first_line(cpu.path() / "cpufreq/scaling_governor");
    if (!governor.empty()) governors.insert(governor);
  }
  machine.governors.assign(governors.begin(), governors.end());
  return machine;
}

Facts collect_facts(const std::string& run_dir, const std::vector<std::string>& devices, double seconds) {
  Facts facts;
  for (const std::string& name : devices) facts.devices.emplace_back().name = name;
  const auto begun = std::chrono::steady_clock::now();
  for (DeviceFacts& device : facts.devices) Interview(run_dir, device).begin();
  wait_for(seconds);
  facts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  for (DeviceFacts& device : facts.devices) {
    if (device.problem.empty()) Interview(run_dir, device).end();
    if (!device.problem.empty() && is_served(run_dir, device.name)) {
      device.hangs = hanging_thread(read_counters(run_dir, device.name), kSecond);
    }
  }
  facts.machine = read_machine("/");
  if (const char* const wanted = std::getenv("UROCE_DEVICES"); wanted != nullptr) {
    const std::vector<std::string> running = running_daemons(run_dir);
    for (const std::string& name : split(wanted)) {
      if (std::ranges::find(running, name) == running.end()) facts.missing.push_back(name);
    }
  }
  return facts;
}

}  // namespace uroce::ctl
