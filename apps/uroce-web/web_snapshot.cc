#include "web_snapshot.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "urocectl/row_filter.h"
#include "urocectl/table.h"

namespace uroce::ctl {
namespace {

/// Names of histograms in the answer to `metrics`, and how a row of `latency` calls what they count.
struct Family {
  const char *name, *label, *what;
};
constexpr Family kFamilies[] = {{"uroce_work_request_seconds", "operation", ""},
                                {"uroce_worker_wake_up_seconds", "worker", "wake-up of worker "},
                                {"uroce_worker_duty_cycle_seconds", "worker", "duty cycle of worker "}};

/// How many durations each class has, by the name of the row of `latency`: [upper end in us, count], without empty
/// classes at both ends.
Json histograms_of(const Json& metrics) {
  Json out = Json::object();
  for (const Json& family : metrics.value("families", Json::array())) {
    const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& each) {
      return family.value("name", std::string()) == each.name;
    });
    if (found == std::end(kFamilies)) continue;
    for (const Json& sample : family.value("samples", Json::array())) {
      const std::string label = sample.value("labels", Json::object()).value(found->label, std::string());
      Json classes = Json::array();
      double before = 0;
      for (const Json& bucket : sample.value("buckets", Json::array())) {
        if (!bucket.is_array() || bucket.size() != 2 || !bucket[0].is_number() || !bucket[1].is_number()) continue;
        const double count = bucket[1].get<double>() - std::exchange(before, bucket[1].get<double>());
        if (count > 0 || !classes.empty()) classes.push_back({bucket[0].get<double>() * 1e6, count});
      }
      while (!classes.empty() && classes.back()[1] == 0) classes.erase(classes.size() - 1);
      out[found->what + label] = std::move(classes);
    }
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::string name_in(const std::string& rule) {
  const std::size_t at = rule.starts_with("name=") ? 0 : rule.find(",name=");
  if (at == std::string::npos) return {};
  const std::size_t begin = rule.find('=', at) + 1;
  return rule.substr(begin, rule.find(',', begin) - begin);
}

double traffic(const Json& qp) { return number_at(qp, "tx_packets_s") + number_at(qp, "rx_packets_s"); }

/// The first QPs with the most traffic; of those without traffic the ones that sent most before.
void keep_busiest(Json& qps) {
  std::stable_sort(qps.begin(), qps.end(), [](const Json& a, const Json& b) { return traffic(a) > traffic(b); });
  if (qps.size() > Snapshots::kMostQps) qps.erase(qps.begin() + Snapshots::kMostQps, qps.end());
}

}  // namespace

Json fault_rules(const Json& settings) {
  Json rules = Json::array();
  const std::string text = settings.value("fault", std::string());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::string rule = trimmed(text.substr(at, end - at));
    at = end + 1;
    if (rule.empty() || rule == "off") continue;
    std::string name = name_in(rule);
    if (name.empty()) name = std::to_string(rules.size() + 1);
    const std::string matched = settings.value("fault_matched_by_" + name, std::string("0"));
    rules.push_back({{"name", name}, {"rule", rule}, {"matched", std::strtoull(matched.c_str(), nullptr, 10)}});
  }
  return rules;
}

Json Snapshots::take(const std::vector<std::string>& devices, std::chrono::steady_clock::time_point now) {
  rates_.begin_round(now);
  Json rows = Json::array(), qps = Json::array();
  for (const std::string& name : devices) {
    try {
      rows.push_back(device(name, qps));
    } catch (const Json::exception&) {
      constexpr const char* kProblem =
          "the answer has another format: daemon and urocectl must be of the same build";
      rows.push_back({{"device", name}, {"problem", kProblem}});
    }
  }
  const std::size_t total = qps.size();
  keep_busiest(qps);
  return {{"time", static_cast<std::uint64_t>(std::time(nullptr))},
          {"devices", std::move(rows)},
          {"qps", std::move(qps)},
          {"qps_total", total}};
}

Json Snapshots::answer(const std::string& name, const Json& request) {
  Answer given = ask_(name, request);
  return given.json.is_object() ? std::move(given.json) : Json::object();
}

Json Snapshots::device(const std::string& name, Json& qps) {
  Answer counters, shown, rows, sessions;
  const std::pair<Answer*, Json> questions[] = {{&counters, {{"command", "stat"}}},
                                                {&shown, {{"command", "show"}, {"what", "devices"}}},
                                                {&rows, {{"command", "show"}, {"what", "qps"}}},
                                                {&sessions, {{"command", "show"}, {"what", "sessions"}}}};
  // A daemon that hangs is asked once: each question takes some seconds then.
  for (const auto& [answer, question] : questions) {
    *answer = ask_(name, question);
    if (!answer->problem.empty()) return {{"device", name}, {"problem", answer->problem}};
  }
  Json row = rates_.device(name, counters.json);
  const Json ports = shown.json.value("devices", Json::array());
  if (!ports.empty()) row["port"] = ports.front();
  row["counters"] = Json::object();
  for (const auto& [path, value] : numbers(counters.json)) {
    if (value != 0) row["counters"][path] = value;
  }
  row["faults"] = fault_rules(counters.json.value("controls", Json::object()));
  // Only administrators may list these.
  row["verb_faults"] =
      answer(name, {{"command", "fault"}, {"verbs", Json::object()}}).value("rules", Json::array());
  const Json measured = answer(name, {{"command", "latency"}});
  row["measured"] = measured.value("measured", std::string("off"));
  row["latency"] = measured.value("latency", Json::array());
  row["histograms"] = Json::object();
  if (!row["latency"].empty()) row["histograms"] = histograms_of(answer(name, {{"command", "metrics"}}));
  row["sessions"] = sessions.json.value("sessions", Json::array());
  row["hidden"] = rows.json.value("hidden", std::uint64_t{0});
  add_session_columns(rows.json, sessions.json);
  for (const Json& qp : rows.json.value("qps", Json::array())) {
    Json one = rates_.qp(name, qp);
    for (const auto& [column, value] : qp.items()) {
      if (!one.contains(column)) one[column] = value;
    }
    qps.push_back(std::move(one));
  }
  return row;
}

void Feed::publish(std::string text) {
  auto made = std::make_shared<const std::string>(std::move(text));
  const std::lock_guard lock(mutex_);
  newest_ = std::move(made);
  ++number_;
  changed_.notify_all();
}

Feed::Text Feed::next(std::uint64_t& seen, std::chrono::milliseconds within) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, within, [&] { return newest_ && number_ != seen; })) return nullptr;
  seen = number_;
  return newest_;
}

bool Feed::enter(unsigned most) {
  const std::lock_guard lock(mutex_);
  if (readers_ >= most) return false;
  if (readers_++ == 0) newest_.reset();  // it may be old
  changed_.notify_all();
  return true;
}

void Feed::leave() {
  const std::lock_guard lock(mutex_);
  --readers_;
}

bool Feed::wait_for_reader(std::chrono::milliseconds within) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, within, [&] { return readers_ != 0; });
}

}  // namespace uroce::ctl
