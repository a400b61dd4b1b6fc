#include "rates.h"

#include <algorithm>
#include <utility>

#include "table.h"

namespace uroce::ctl {
namespace {

Json part(const Json& object, const char* name) { return object.value(name, Json::object()); }

}  // namespace

double number_at(const Json& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

void Rates::begin_round(std::chrono::steady_clock::time_point now) {
  seconds_ = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  before_ = std::exchange(now_, {});
}

double Rates::of(const std::string& name, double value) {
  now_[name] = value;
  const auto before = before_.find(name);
  return before == before_.end() || seconds_ <= 0 ? 0 : std::max(0.0, value - before->second) / seconds_;
}

Json Rates::device(const std::string& device, const Json& counters) {
  const Json port = part(counters, "device"), transport = part(counters, "transport");
  const auto rate = [&](const Json& object, const char* name) {
    return of(device + "." + name, number_at(object, name));
  };
  return {{"device", device},
          {"tx_gbit_s", rate(port, "tx_bytes") * 8 / 1e9},
          {"rx_gbit_s", rate(port, "rx_bytes") * 8 / 1e9},
          {"tx_packets_s", rate(port, "tx_packets")},
          {"rx_packets_s", rate(port, "rx_packets")},
          {"retransmitted_s", rate(transport, "retransmitted_pkts")},
          {"timeouts_s", rate(transport, "local_ack_timeout_err")},
          {"dropped_s", rate(port, "rx_dropped") + rate(port, "tx_dropped")}};
}

Json Rates::worker(const std::string& device, const Json& worker) {
  const std::string number = cell(worker.value("worker", Json()));
  const auto rate = [&](const char* name) {
    return of(device + ".worker" + number + "." + name, number_at(worker, name));
  };
  return {{"device", device},
          {"worker", worker.value("worker", Json())},
          {"cpu", worker.value("cpu", Json())},
          {"qps", worker.value("qps", Json())},
          {"busy_percent", rate("busy_us") / 1e4},
          {"steps_s", rate("steps")},
          {"sleeps_s", rate("sleeps")},
          {"stalls_s", rate("stalls")},
          {"steered_away_s", rate("steered_away")}};
}

Json Rates::qp(const std::string& device, const Json& qp) {
  const Json counters = part(qp, "counters");
  const std::string name =
      device + "." + cell(qp.value("session", Json())) + "." + cell(qp.value("qpn", Json())) + ".";
  const auto rate = [&](const char* counter) { return of(name + counter, number_at(counters, counter)); };
  Json row = {{"device", device}};
  for (const char* column : {"qpn", "program", "pid", "type", "state", "dest", "dest_qpn"}) {
    row[column] = qp.value(column, Json());
  }
  row["tx_packets_s"] = rate("sent_pkts");
  row["rx_packets_s"] = rate("rcvd_pkts");
  row["retransmitted_s"] = rate("retransmitted_pkts");
  row["outstanding"] = qp.value("outstanding", Json());
  row["rtt_us"] = qp.value("rtt_us", Json());
  return row;
}

}  // namespace uroce::ctl
