// Asks a daemon over its socket (UROCE_CMD_ADMIN, abi/control.h).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace uroce::ctl {

using Json = nlohmann::ordered_json;

struct Answer {
  std::string problem;  ///< empty: the daemon did it
  Json json;
};

/// Names of the daemons that listen in `run_dir`, sorted.
std::vector<std::string> running_daemons(const std::string& run_dir);

/// One question, one answer, on a connection of its own; at most five seconds.
Answer ask(const std::string& run_dir, const std::string& name, const Json& request);

}  // namespace uroce::ctl
