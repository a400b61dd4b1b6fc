// The meaning of the connection manager's counters.
#pragma once

#include <iterator>
#include <string_view>

#include "base/counter_info.h"
#include "cm/manager.h"

namespace uroce::cm {

/// Of the messages that ManagerCounters::received and sent count.
inline constexpr std::string_view kMessageNames[] = {"req",  "mra",  "rej",      "rep",     "rtu",
                                                     "dreq", "drep", "sidr_req", "sidr_rep"};
static_assert(std::size(kMessageNames) == std::size(ManagerCounters().received));

// clang-format off
inline constexpr CounterInfo<ManagerCounters> kManagerHelp[] = {
    {"duplicates", &ManagerCounters::duplicates, "Messages that had been received before."},
    {"retries", &ManagerCounters::retries, "Messages that were sent again because no answer came in time."},
    {"stale", &ManagerCounters::stale, "Requests and responses for a QP that an older connection still had."},
    {"unmatched", &ManagerCounters::unmatched, "Messages that belong to no connection."},
    {"out_of_state", &ManagerCounters::out_of_state, "Messages that the state of their connection does not allow."},
    {"backlog_full", &ManagerCounters::backlog_full,
     "Requests dropped because the backlog of the listener was full."},
    {"table_full", &ManagerCounters::table_full, "Connections refused because the table of connections was full."},
    {"bad_version", &ManagerCounters::bad_version, "Messages of another version of the protocol."},
};
// clang-format on
static_assert(describes_all(kManagerHelp,
                            std::size(ManagerCounters().received) + std::size(ManagerCounters().sent)),
              "each counter needs a row, and a sentence that ends in a full stop");

}  // namespace uroce::cm
