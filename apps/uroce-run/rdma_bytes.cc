#include "rdma_bytes.h"

#include <utility>

#include "urocectl/daemon_client.h"

namespace uroce::run {

RdmaBytes::RdmaBytes(std::string run_dir, std::vector<std::string> devices)
    : run_dir_(std::move(run_dir)), devices_(std::move(devices)) {
  if (devices_.empty()) devices_ = ctl::running_daemons(run_dir_);
  before_ = sent(first_problem_);
}

std::uint64_t RdmaBytes::sent(std::string& problem) const {
  std::uint64_t all = 0;
  for (const std::string& name : devices_) {
    const ctl::Answer answer = ctl::ask(run_dir_, name, {{"command", "stat"}});
    const auto counters = answer.json.find("transport");
    if (answer.problem.empty() && counters != answer.json.end()) {
      all += counters->value("sent_bytes", std::uint64_t{0});
    } else {
      problem = name + ": " + (answer.problem.empty() ? "no counters" : answer.problem);
    }
  }
  return all;
}

std::uint64_t RdmaBytes::since(std::string& problem) const {
  problem = first_problem_;
  const std::uint64_t now = sent(problem);
  return problem.empty() && now > before_ ? now - before_ : 0;
}

std::string RdmaBytes::names() const {
  std::string list;
  for (const std::string& name : devices_) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace uroce::run
