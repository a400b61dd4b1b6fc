#include "drivers/packet/fault/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

#include "base/parse_time.h"
#include "wire/extended_headers.h"

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

/// "10M": bits a second, in powers of 1000.
bool parse_rate(std::string_view text, std::uint64_t& value) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  const std::uint64_t scale = unit.empty()  ? 1
                              : unit == "k" ? 1'000
                              : unit == "M" ? 1'000'000
                              : unit == "G" ? 1'000'000'000
                                            : 0;
  std::uint64_t number = 0;
  constexpr std::uint64_t kLeast = 1'000, kMost = 1'000'000'000'000;
  if (scale == 0 || !parse_number(text.substr(0, digits), number) || number > kMost / scale) return false;
  value = number * scale;
  return value >= kLeast;
}

/// "0.01", "0.01:200us", "0.01:200us-1ms".
bool parse_delay(std::string_view text, Rule& rule) {
  const std::size_t colon = text.find(':');
  rule.jitter = 0;
  if (!parse_chance(text.substr(0, colon), rule.delay)) return false;
  if (colon == std::string_view::npos) return true;
  const std::string_view times = text.substr(colon + 1);
  const std::size_t dash = times.find('-');
  Nanos most = 0;
  if (!base::parse_time(times.substr(0, dash), rule.delay_by)) return false;
  if (dash == std::string_view::npos) return true;
  if (!base::parse_time(times.substr(dash + 1), most) || most < rule.delay_by) return false;
  rule.jitter = most - rule.delay_by;
  return true;
}

struct NakName {
  std::string_view name;
  std::uint8_t syndrome;
};
constexpr std::uint8_t kShortWait = 1;  // 10 us (IBTA vol. 1, table 45)
constexpr NakName kNaks[] = {
    {"RNR", wire::kRnrNak | kShortWait},
    {"SEQUENCE", static_cast<std::uint8_t>(wire::Nak::kSequence)},
    {"INVALID_REQUEST", static_cast<std::uint8_t>(wire::Nak::kInvalidRequest)},
    {"REMOTE_ACCESS", static_cast<std::uint8_t>(wire::Nak::kRemoteAccess)},
    {"REMOTE_OPERATIONAL", static_cast<std::uint8_t>(wire::Nak::kRemoteOperational)},
};

/// "0.01:RNR".
bool parse_nak(std::string_view text, Rule& rule) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto* const found = std::find_if(std::begin(kNaks), std::end(kNaks), [&](const NakName& each) {
    return each.name == text.substr(std::min(colon + 1, text.size()));
  });
  if (found == std::end(kNaks) || !parse_chance(text.substr(0, colon), rule.nak)) return false;
  rule.nak_syndrome = found->syndrome;
  return true;
}

bool parse_name(std::string_view text, std::string& name) {
  name = text;
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  };
  // Rules without a name have numbers.
  const bool number = text.find_first_not_of("0123456789") == std::string_view::npos;
  return !number && text.size() < 32 && std::all_of(text.begin(), text.end(), allowed);
}

/// Empty: done. Else what is allowed.
std::string set_one(Rule& rule, std::string_view key, std::string_view value) {
  const std::string chance = "a chance from 0 to 1";
  if (key == "drop") return parse_chance(value, rule.drop) ? "" : chance;
  if (key == "dup") return parse_chance(value, rule.duplicate) ? "" : chance;
  if (key == "reorder") return parse_chance(value, rule.reorder) ? "" : chance;
  if (key == "corrupt") return parse_chance(value, rule.corrupt) ? "" : chance;
  if (key == "seed") return parse_number(value, rule.seed) ? "" : "a whole number";
  if (key == "rate") return parse_rate(value, rule.rate) ? "" : "bits a second from 1k to 1000G, such as 100M";
  if (key == "name")
    return parse_name(value, rule.name) ? "" : "1 to 31 letters, digits, '_' or '-', and no number";
  if (key == "delay") {
    return parse_delay(value, rule) ? ""
                                    : "a chance and a time, or two, of at most 10s, such as 0.01:200us or "
                                      "1:200us-300us";
  }
  if (key == "nak") {
    return parse_nak(value, rule) ? ""
                                  : "a chance and one of RNR, SEQUENCE, INVALID_REQUEST, REMOTE_ACCESS, "
                                    "REMOTE_OPERATIONAL, such as 0.01:RNR";
  }
  if (key == "burst") {
    std::uint64_t number = 0;
    const bool good = parse_number(value, number) && number >= 1 && number <= 1'000'000;
    rule.burst = static_cast<std::uint32_t>(number);
    return good ? "" : "a number of frames from 1 to 1000000";
  }
  if (key == "direction") {
    rule.receive = value != "tx";
    rule.transmit = value != "rx";
    return value == "rx" || value == "tx" || value == "both" ? "" : "rx, tx or both";
  }
  return "one of drop, dup, reorder, delay, corrupt, burst, rate, nak, seed, direction, qp, peer, op, name";
}

bool selects(std::string_view key) { return key == "qp" || key == "peer" || key == "op"; }

std::string parse_rule(const std::string_view whole, Rule& rule) {
  bool does_something = false;
  for (std::string_view text = whole; !text.empty();) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    if (selects(key)) {
      rule.of += (rule.of.empty() ? "" : ",") + std::string(part);
      if (std::string error = pcap::Filter::parse(rule.of, rule.frames); !error.empty()) return "fault " + error;
      continue;
    }
    const std::string allowed = set_one(rule, key, part.substr(std::min(equals + 1, part.size())));
    if (!allowed.empty()) {
      return "fault setting \"" + std::string(part) + "\": it must be " + allowed +
             "; for example drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=both, "
             "or off";
    }
    constexpr std::string_view kEffects[] = {"drop", "dup", "reorder", "delay", "corrupt", "rate", "nak"};
    does_something |= std::find(std::begin(kEffects), std::end(kEffects), key) != std::end(kEffects);
  }
  if (rule.nak > 0 && (rule.frames.classes & pcap::Filter::kAck) == 0) {
    return "fault rule \"" + std::string(whole) +
           "\": nak= is for acknowledges, so op= must have ACK, if it is given";
  }
  if (does_something) return {};
  return "fault rule \"" + std::string(whole) +
         "\": it must have one of drop, dup, reorder, delay, corrupt, rate or nak";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string show(double chance) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", chance);
  return text;
}

}  // namespace

bool Plan::active() const {
  return std::any_of(rules.begin(), rules.end(), [](const Rule& each) { return each.active(); });
}

std::string Plan::parse(std::string_view text, Plan& out) {
  Plan plan;
  if (trimmed(text).empty()) return "no fault settings: give drop=0.01 or the like, or off";
  for (std::string_view left = text == "off" ? std::string_view() : text; !left.empty();) {
    const std::size_t end = std::min(left.find(';'), left.size());
    Plan one;
    if (std::string error = parse_rule(trimmed(left.substr(0, end)), one.rules.emplace_back()); !error.empty()) {
      return error;
    }
    if (std::string error = plan.add(one); !error.empty()) return error;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  out = std::move(plan);
  return {};
}

std::string Plan::add(const Plan& more) {
  for (const Rule& rule : more.rules) {
    const auto same = [&](const Rule& each) { return !rule.name.empty() && each.name == rule.name; };
    if (std::any_of(rules.begin(), rules.end(), same)) {
      return "there is a rule \"" + rule.name + "\": give another name, or remove it first with off " + rule.name;
    }
    if (rules.size() == kMost)
      return "there are " + std::to_string(kMost) + " rules, which are all that there may be";
    rules.push_back(rule);
  }
  return {};
}

std::string Rule::text() const {
  std::string text = name.empty() ? "" : "name=" + name;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ",") + part; };
  const auto add_chance = [&](const char* key, double chance, const std::string& more = {}) {
    if (chance > 0) add(std::string(key) + "=" + show(chance) + more);
  };
  if (!of.empty()) add(of);
  add_chance("drop", drop, burst > 1 ? ",burst=" + std::to_string(burst) : "");
  add_chance("dup", duplicate);
  add_chance("reorder", reorder);
  const std::string most = jitter != 0 ? "-" + std::to_string(delay_by + jitter) + "ns" : "";
  add_chance("delay", delay, ":" + std::to_string(delay_by) + "ns" + most);
  add_chance("corrupt", corrupt);
  const auto* const how = std::find_if(std::begin(kNaks), std::end(kNaks),
                                       [&](const NakName& each) { return each.syndrome == nak_syndrome; });
  if (how != std::end(kNaks)) add_chance("nak", nak, ":" + std::string(how->name));
  if (rate != 0) add("rate=" + std::to_string(rate));
  add("seed=" + std::to_string(seed));
  add(std::string("direction=") + (receive && transmit ? "both" : receive ? "rx" : "tx"));
  return text;
}

std::string Plan::text() const {
  std::string text;
  for (const Rule& each : rules) {
    if (each.active()) text += (text.empty() ? "" : "; ") + each.text();
  }
  return text.empty() ? "off" : text;
}

void SharedPlan::set(Plan plan) {
  for (Rule& rule : plan.rules) {
    if (rule.matched == nullptr) rule.matched = std::make_shared<std::atomic<std::uint64_t>>(0);
  }
  std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
  version_.fetch_add(1, std::memory_order_release);
}

Plan SharedPlan::plan() const {
  std::lock_guard lock(mutex_);
  return plan_;
}

std::vector<std::pair<std::string, std::string>> SharedPlan::describe() const {
  const Plan now = plan();
  std::vector<std::pair<std::string, std::string>> all{{"fault", now.text()}};
  const char* const names[kCounts] = {"fault_dropped", "fault_duplicated", "fault_reordered",
                                      "fault_delayed", "fault_corrupted",  "fault_refused"};
  for (std::size_t i = 0; i < kCounts; ++i) {
    all.emplace_back(names[i], std::to_string(counts_[i].load(std::memory_order_relaxed)));
  }
  for (std::size_t i = 0; i < now.rules.size(); ++i) {
    const std::string& name = now.rules[i].name;
    all.emplace_back("fault_matched_by_" + (name.empty() ? std::to_string(i + 1) : name),
                     std::to_string(now.rules[i].matched->load(std::memory_order_relaxed)));
  }
  return all;
}

}  // namespace uroce::fault
