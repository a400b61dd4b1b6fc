// The sections of `urocectl show` on the port and the threads of a device.
#pragma once

#include <nlohmann/json.hpp>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

nlohmann::ordered_json list_workers(const control::ControlState& state, Page& page);
nlohmann::ordered_json list_gids(const control::ControlState& state, Page& page);
/// Where packets go, as `ip route` has it: prefixes of the port's addresses, and its gateways. None of
/// sockets: the kernel routes their packets.
nlohmann::ordered_json list_routes(const control::ControlState& state, Page& page);
/// As `ip neighbour` has them, none of sockets. Only administrators see the peers of others.
nlohmann::ordered_json list_neighbours(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
