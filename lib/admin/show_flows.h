// urocectl show flows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "daemon/conductor.h"

namespace uroce::daemon {

/// One object a flow, as admin.h says.
nlohmann::ordered_json show_flows(const Conductor& conductor);

}  // namespace uroce::daemon
