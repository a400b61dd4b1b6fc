// Queries of a device and its port.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "abi/control.h"

namespace uroce::verbs {

/// ibv_query_port(3). Writes at most `bytes`: older programs pass a shorter struct.
int query_port_ex(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes);
/// ibv_query_device_ex(3). Writes at most `bytes`.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t bytes);
/// ibv_query_rt_values_ex(3).
int query_rt_values(ibv_context* context, ibv_values_ex* values);
/// QUERY_DEVICE: the daemon's reply as it came. errno: see Session::call.
int ask_device(ibv_context* context, uroce_device_response& reply);
/// The supported ibv_rx_hash_fields: IPv4 and IPv6 addresses, TCP and UDP ports.
constexpr std::uint64_t kHashFields = 0xff;

}  // namespace uroce::verbs
