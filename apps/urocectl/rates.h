// Rates: what the counters of devices, workers and QPs gained since the round before, a second.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "daemon_client.h"

namespace uroce::ctl {

/// For one thread. A round begins with begin_round(); then each device, worker and QP is described once at most.
/// Rates are 0 in the first round, and for what was not there in the round before.
class Rates {
 public:
  void begin_round(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

  /// From the answer to `stat`.
  Json device(const std::string& device, const Json& counters);
  /// From a row of `show workers`.
  Json worker(const std::string& device, const Json& worker);
  /// From a row of `show qps`, to which add_session_columns() was applied.
  Json qp(const std::string& device, const Json& qp);

 private:
  double of(const std::string& name, double value);

  std::chrono::steady_clock::time_point last_{};
  double seconds_ = 0;
  std::map<std::string, double> before_, now_;
};

/// 0: there is no such number.
double number_at(const Json& object, const char* name);

}  // namespace uroce::ctl
