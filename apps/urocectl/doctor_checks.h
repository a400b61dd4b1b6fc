// What `urocectl doctor` knows of: each check looks at the facts, and reports what is wrong with its numbers and
// with what to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor_facts.h"

namespace uroce::ctl {

enum class Severity : std::uint8_t {
  kProblem,  ///< something fails, or is lost
  kAdvice,   ///< it works, and could be better
  kNote,     ///< as an administrator wanted it, and easily forgotten
};
std::string_view name_of(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::string device;  ///< empty: the machine
  std::string check;   ///< its name
  std::string found;   ///< what there is, with numbers
  std::string remedy;  ///< what to do
};

/// Collects the findings of one check about one device.
class Report {
 public:
  Report(std::vector<Finding>& findings, std::string device, std::string_view check)
      : findings_(findings), device_(std::move(device)), check_(check) {}
  void add(Severity severity, std::string found, std::string remedy) {
    findings_.push_back({severity, device_, check_, std::move(found), std::move(remedy)});
  }

 private:
  std::vector<Finding>& findings_;
  std::string device_, check_;
};

struct Check {
  std::string_view name;
  void (*look)(const DeviceFacts&, const Facts&, Report&);
};

/// Of a device whose daemon answers.
std::span<const Check> device_checks();

/// One comparison of counters that only count up.
struct CounterCheck {
  std::string_view name;
  std::string_view counters;  ///< of `stat`, separated by commas: their sum counts
  std::string_view whole;     ///< of which it is a share; empty: every one counts
  std::uint64_t least;        ///< how many are reported
  double least_percent;       ///< of the whole, too
  Severity severity;
  std::string_view meaning;  ///< the numbers follow
  std::string_view remedy;
};
std::span<const CounterCheck> counter_checks();

/// "12 of 4000 sent_pkts (0.3 %), 3 in the last 1.0 s"
std::string counts(const CounterCheck& check, const DeviceFacts& device, double seconds);

/// Whether there are so many that it is worth a report.
bool exceeds(const CounterCheck& check, const DeviceFacts& device);

/// Problems first, then advice, then notes; otherwise in the order of devices and checks.
std::vector<Finding> examine(const Facts& facts);

/// The name of each check, in the order in which they are made.
std::vector<std::string> check_names();

}  // namespace uroce::ctl
