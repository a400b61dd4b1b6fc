// urocectl show.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "control/state.h"

namespace uroce::daemon {

/// The page of query.h, "show", that the request asks for.
nlohmann::ordered_json show(const ControlState& state, const Session& caller, const std::string& what,
                            const nlohmann::ordered_json& request);

nlohmann::ordered_json show_devices(const ControlState& state);

}  // namespace uroce::daemon
