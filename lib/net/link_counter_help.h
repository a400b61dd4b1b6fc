// The meaning of the link stack's counters.
#pragma once

#include "base/counter_info.h"
#include "net/link_stack.h"

namespace uroce::net {

inline constexpr CounterInfo<LinkCounters> kLinkHelp[] = {
    {"received", &LinkCounters::received, "Frames that are not RoCE, passed to the link stack."},
    {"malformed", &LinkCounters::malformed, "Frames that were too short or had a wrong checksum or field."},
    {"ignored", &LinkCounters::ignored, "Frames for other stations, or of protocols that the port does not speak."},
    {"arp_requests", &LinkCounters::arp_requests, "ARP requests received."},
    {"arp_replies", &LinkCounters::arp_replies, "ARP replies received."},
    {"solicitations", &LinkCounters::solicitations, "Neighbour solicitations received (IPv6)."},
    {"advertisements", &LinkCounters::advertisements, "Neighbour advertisements received (IPv6)."},
    {"echo_requests", &LinkCounters::echo_requests, "Pings answered."},
    {"address_conflicts", &LinkCounters::address_conflicts,
     "Claims by other stations of addresses that the port has."},
    {"solicited", &LinkCounters::solicited, "ARP requests and neighbour solicitations sent."},
    {"unreachable", &LinkCounters::unreachable, "Neighbours that never answered."},
    {"group_reports", &LinkCounters::group_reports, "Reports of multicast groups sent (IGMP, MLD)."},
    {"dropped", &LinkCounters::dropped, "Answers lost because too many waited to be sent."},
};
static_assert(describes_all(kLinkHelp), "each counter needs a row, and a sentence that ends in a full stop");

}  // namespace uroce::net
