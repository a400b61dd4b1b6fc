#include "drivers/packet/fault/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace uroce::fault {
namespace {

bool parse_number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse_chance(std::string_view text, double& value) {
  double chance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chance);
  if (error != std::errc{} || end != text.data() + text.size() || !(chance >= 0 && chance <= 1)) return false;
  value = chance;
  return true;
}

/// "200us", "5ms", "1s", "300ns"; at most 10 s.
bool parse_time(std::string_view text, Nanos& value) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  const Nanos scale = unit == "ns"   ? 1
                      : unit == "us" ? kMicrosecond
                      : unit == "ms" ? kMillisecond
                      : unit == "s"  ? kSecond
                                     : 0;
  std::uint64_t number = 0;
  if (scale == 0 || !parse_number(text.substr(0, digits), number) || number > 10 * kSecond / scale) return false;
  value = number * scale;
  return true;
}

/// Empty: done. Else what is allowed.
std::string set_one(Plan& plan, std::string_view key, std::string_view value) {
  const std::string chance = "a chance from 0 to 1";
  if (key == "drop") return parse_chance(value, plan.drop) ? "" : chance;
  if (key == "dup") return parse_chance(value, plan.duplicate) ? "" : chance;
  if (key == "reorder") return parse_chance(value, plan.reorder) ? "" : chance;
  if (key == "corrupt") return parse_chance(value, plan.corrupt) ? "" : chance;
  if (key == "seed") return parse_number(value, plan.seed) ? "" : "a whole number";
  if (key == "delay") {
    const std::size_t colon = value.find(':');
    const bool good = parse_chance(value.substr(0, colon), plan.delay) &&
                      (colon == std::string_view::npos || parse_time(value.substr(colon + 1), plan.delay_by));
    return good ? "" : "a chance and a time of at most 10s, such as 0.01:200us";
  }
  if (key == "direction") {
    plan.receive = value != "tx";
    plan.transmit = value != "rx";
    return value == "rx" || value == "tx" || value == "both" ? "" : "rx, tx or both";
  }
  return "one of drop, dup, reorder, delay, corrupt, seed, direction";
}

std::string show(double chance) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", chance);
  return text;
}

}  // namespace

std::string Plan::parse(std::string_view text, Plan& out) {
  Plan plan;
  if (text.empty()) return "no fault settings: give drop=0.01 or the like, or off";
  if (text == "off") text = {};
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string allowed = set_one(plan, key, part.substr(std::min(equals + 1, part.size())));
    if (!allowed.empty()) {
      return "fault setting \"" + std::string(part) + "\": it must be " + allowed +
             "; for example drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=both, "
             "or off";
    }
  }
  out = plan;
  return {};
}

std::string Plan::text() const {
  if (!active()) return "off";
  std::string text;
  const auto add = [&text](const char* key, double chance, const std::string& more = {}) {
    if (chance > 0) text += (text.empty() ? "" : ",") + std::string(key) + "=" + show(chance) + more;
  };
  add("drop", drop);
  add("dup", duplicate);
  add("reorder", reorder);
  add("delay", delay, ":" + std::to_string(delay_by) + "ns");
  add("corrupt", corrupt);
  return text + ",seed=" + std::to_string(seed) + ",direction=" +
         (receive && transmit ? "both"
          : receive           ? "rx"
                              : "tx");
}

void SharedPlan::set(const Plan& plan) {
  std::lock_guard lock(mutex_);
  plan_ = plan;
  version_.fetch_add(1, std::memory_order_release);
}

Plan SharedPlan::plan() const {
  std::lock_guard lock(mutex_);
  return plan_;
}

std::vector<std::pair<std::string, std::string>> SharedPlan::describe() const {
  std::vector<std::pair<std::string, std::string>> all{{"fault", plan().text()}};
  const char* const names[kCounts] = {"fault_dropped", "fault_duplicated", "fault_reordered", "fault_delayed",
                                      "fault_corrupted"};
  for (std::size_t i = 0; i < kCounts; ++i) {
    all.emplace_back(names[i], std::to_string(counts_[i].load(std::memory_order_relaxed)));
  }
  return all;
}

}  // namespace uroce::fault
