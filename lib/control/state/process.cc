#include "control/state/process.h"

namespace uroce::control {

absl::Status Process::open_census(const std::string& path) {
  absl::Status status = census_.open(path);
  has_census_ = status.ok();
  return status;
}

Pollers Process::count_pollers(std::uint32_t before, std::uint32_t now) {
  polling_ += now - before;
  if (!has_census_) return {.daemons = 1, .workers = workers_, .sessions = polling_};
  census_.publish(workers_, polling_);
  return census_.total();
}

}  // namespace uroce::control
