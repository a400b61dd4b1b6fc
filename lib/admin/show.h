// urocectl show.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "control/state/state.h"

namespace uroce::admin {

/// The page of query.h, "show", that the request asks for.
nlohmann::ordered_json show(const control::ControlState& state, const control::Session& caller,
                            const std::string& what, const nlohmann::ordered_json& request);

nlohmann::ordered_json show_devices(const control::ControlState& state);

}  // namespace uroce::admin
