// The meaning of the workers' counters and of those of QP 1.
#pragma once

#include <iterator>

#include "base/counter_info.h"
#include "worker/counters.h"
#include "worker/gsi_channel.h"

namespace uroce::worker {

// clang-format off
inline constexpr CounterInfo<WorkerCounters> kWorkerHelp[] = {
    {"steps", &WorkerCounters::steps, "Duty cycles."},
    {"sleeps", &WorkerCounters::sleeps, "Times that the worker went to sleep."},
    {"busy", &WorkerCounters::busy, "Time in duty cycles that found work, of all workers of the thread.",
     CounterKind::kDuration},
    {"longest_step", &WorkerCounters::longest_step,
     "Longest duty cycle since the worker started.", CounterKind::kLongest},
    {"stalls", &WorkerCounters::stalls, "Duty cycles of more than 1 ms."},
    {"last_stall", &WorkerCounters::last_stall,
     "Time since the last duty cycle of more than 1 ms.", CounterKind::kLast},
    {"bad_doorbells", &WorkerCounters::bad_doorbells, "Doorbell bits that belong to no QP of their session."},
    {"steered_away", &WorkerCounters::steered_away, "Frames passed to the worker that owns their QP."},
    {"steer_dropped", &WorkerCounters::steer_dropped,
     "Frames for another worker that were lost because its ring was full."},
    {"completion_events", &WorkerCounters::events_sent, "Completion events sent to programs."},
    {"completion_events_delayed", &WorkerCounters::events_delayed,
     "Completion events delayed because the program's channel was full."},
    {"async_events_lost", &WorkerCounters::async_events_lost,
     "Asynchronous events lost because the control thread's queue was full."},
    {"wrong_address", &WorkerCounters::wrong_address, "RoCE packets for an address that the port does not have."},
    {"netdev_received", &WorkerCounters::netdev_received,
     "Frames given to the kernel's interface of the device (netdev)."},
    {"netdev_sent", &WorkerCounters::netdev_sent, "Frames that the kernel sent through that interface."},
    {"netdev_dropped", &WorkerCounters::netdev_dropped,
     "Frames from or to that interface that were lost: no room, too long, not taken, or RoCE of a program."},
    {"wrong_vlan", &WorkerCounters::wrong_vlan,
     "RoCE packets for an address of the port, in another VLAN or untagged."},
};
// clang-format on
static_assert(describes_all(kWorkerHelp, std::size(WorkerCounters().parse)),
              "each counter needs a row, and a sentence that ends in a full stop");

inline constexpr std::string_view kParseHelp[] = {
    "a RoCE packet without a fault",
    "another protocol: ARP, ICMP, ...",
    "shorter than its headers say",
    "IP version, header length, checksum, fragment or IPv4 options",
    "length of the UDP header",
    "opcode of the BTH",
    "transport version of the BTH",
    "more headers and pad than packet, or payload where none is allowed",
    "pad count",
    "checksum of the packet (ICRC)",
};
static_assert(std::size(kParseHelp) == std::size(WorkerCounters().parse), "one for each wire::ParseVerdict");

inline constexpr CounterInfo<GsiCounters> kGsiHelp[] = {
    {"mads_received", &GsiCounters::received, "MADs that QP 1 received."},
    {"mads_sent", &GsiCounters::sent, "MADs that QP 1 sent."},
    {"bad_packets", &GsiCounters::bad_packet, "Packets for QP 1 that are not valid datagrams with a MAD."},
    {"bad_mads", &GsiCounters::bad_mad, "MADs of an unknown class, version, method or attribute."},
    {"overflows", &GsiCounters::overflow,
     "MADs lost because a queue of the control thread or of its worker was full."},
    {"unresolved", &GsiCounters::unresolved, "MADs that were not sent because the neighbour did not answer."},
};
static_assert(describes_all(kGsiHelp), "each counter needs a row, and a sentence that ends in a full stop");

}  // namespace uroce::worker
