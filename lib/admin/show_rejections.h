// urocectl show rejections.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

/// "2026-01-31T12:00:00.125Z" of a time in ns since 1970.
std::string utc_text(std::uint64_t time_ns);

/// One object for each kept refusal of the viewer's tenant, or of all for an administrator (query.h, "rejections").
nlohmann::ordered_json list_rejections(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
