// The meaning of a device's counters.
#pragma once

#include "base/counter_info.h"
#include "net/device.h"

namespace uroce::net {

inline constexpr CounterInfo<DeviceCounters> kDeviceHelp[] = {
    {"rx_packets", &DeviceCounters::rx_packets, "Frames that the port received."},
    {"rx_bytes", &DeviceCounters::rx_bytes, "Bytes of the frames that the port received."},
    {"rx_dropped", &DeviceCounters::rx_dropped,
     "Received frames that the port dropped: full ring, no buffer or an error."},
    {"tx_packets", &DeviceCounters::tx_packets, "Frames that the port sent."},
    {"tx_bytes", &DeviceCounters::tx_bytes, "Bytes of the frames that the port sent."},
    {"tx_dropped", &DeviceCounters::tx_dropped, "Frames that the port did not send."},
};
static_assert(describes_all(kDeviceHelp), "each counter needs a row, and a sentence that ends in a full stop");

}  // namespace uroce::net
