#include "doctor.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <sstream>

#include "doctor_checks.h"
#include "doctor_facts.h"
#include "stop_signal.h"

namespace uroce::ctl {
namespace {

std::uint64_t hidden_rows(const Facts& facts) {
  std::uint64_t sum = 0;
  for (const DeviceFacts& device : facts.devices) sum += device.hidden;
  return sum;
}

std::size_t count(const std::vector<Finding>& findings, Severity severity) {
  return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(),
                                                [&](const Finding& each) { return each.severity == severity; }));
}

Json to_json(const Facts& facts, const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& each : findings) {
    list.push_back({{"severity", name_of(each.severity)},
                    {"device", each.device},
                    {"check", each.check},
                    {"found", each.found},
                    {"remedy", each.remedy}});
  }
  return {{"findings", list}, {"checks", check_names()}, {"hidden", hidden_rows(facts)}};
}

/// Lines of at most 100 columns; all but the first are indented.
std::string wrapped(const std::string& text, const char* first) {
  constexpr std::size_t kColumns = 100;
  std::string out = first;
  std::size_t column = out.size();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool starts = column == 0 || out.back() == ' ';
    if (!starts && column + 1 + word.size() > kColumns) {
      out += "\n    " + word;
      column = 4 + word.size();
      continue;
    }
    out += (starts ? "" : " ") + word;
    column += word.size() + (starts ? 0 : 1);
  }
  return out;
}

void print(const Facts& facts, const std::vector<Finding>& findings) {
  for (const Finding& each : findings) {
    const std::string device = each.device.empty() ? "machine" : each.device;
    const std::string found =
        device + ": " + std::string(name_of(each.severity)) + ": " + each.check + ": " + each.found;
    std::printf("%s\n%s\n", wrapped(found, "").c_str(), wrapped("-> " + each.remedy, "    ").c_str());
  }
  std::printf("%zu checks of %zu devices: problems %zu, advice %zu, notes %zu\n", check_names().size(),
              facts.devices.size(), count(findings, Severity::kProblem), count(findings, Severity::kAdvice),
              count(findings, Severity::kNote));
  if (const std::uint64_t hidden = hidden_rows(facts); hidden != 0) {
    std::printf("root sees more: %llu rows that belong to others, or to the daemon, were not looked at\n",
                static_cast<unsigned long long>(hidden));
  }
}

}  // namespace

int doctor(const Options& options, const std::vector<std::string>& devices) {
  stop_on_signal();
  const Facts facts = collect_facts(options.run_dir, devices, options.interval_s);
  const std::vector<Finding> findings = examine(facts);
  if (options.json) {
    std::printf("%s\n", to_json(facts, findings).dump(2).c_str());
  } else {
    print(facts, findings);
  }
  return count(findings, Severity::kProblem) == 0 ? 0 : 4;
}

}  // namespace uroce::ctl
