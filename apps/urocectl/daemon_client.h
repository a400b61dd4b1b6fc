// Queries of a daemon over its socket (UROCE_CMD_ADMIN, abi/control.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "platform/unique_fd.h"

namespace uroce::ctl {

using Json = nlohmann::ordered_json;

struct Answer {
  std::string problem;  ///< empty on success
  Json json;
  UniqueFd stream;   ///< of a trace
  pid_t daemon = 0;  ///< 0: it has another PID namespace
};

/// Names of the daemons that accept connections in `run_dir`, sorted.
std::vector<std::string> running_daemons(const std::string& run_dir);

/// Names of the devices that is_served() finds in `run_dir`, sorted.
std::vector<std::string> served_devices(const std::string& run_dir);

/// Whether a daemon listens for this device. It need not run to be found.
bool is_served(const std::string& run_dir, const std::string& name);

inline constexpr int kAnswerLimit = 5;  ///< s

/// Sends one request on a connection of its own and collects the pages of the answer; waits at most `limit_s`
/// seconds for each.
Answer ask(const std::string& run_dir, const std::string& name, const Json& request, int limit_s = kAnswerLimit);

}  // namespace uroce::ctl
