// urocectl's requests (UROCE_CMD_ADMIN): JSON in, JSON out. Every answer is an object; an answer with "error"
// (text: the value, what is allowed, what to do) means that nothing was changed.
//
//   {"command": "show", "what": "all"|"devices"|"sessions"|"users"|"qps"|"mrs"|"cqs"|"srqs"|"cm_ids"|"flows"|
//    "errors"|"rejections"|"worker_commands"|"workers"|"latency"|"events"|"gids"|"routes"|"neighbours"|
//    "settings"}
//       -> for each requested kind, under its name, a list of flat objects:
//       devices:  name, port, mac, mtu, active_mtu, state, gids [text], workers, cores, pollers (of all daemons),
//                 pollers_exceed_cores, uptime_s, version
//       sessions: session, program, pid, uid, qps, cqs, srqs, mrs, mws, ahs, pds, shared_bytes, mappings
//       users:    user, resource, used, limit (the caller's; of all users for root and the daemon's user)
//       qps:      qpn, session, program, type, state, dest_qpn, dest, path_mtu, sq_psn, rq_psn, outstanding,
//                 psns_in_flight, window_bytes, rtt_us, rtt_deviation_us (smoothed, in steps of 4 us; 0: unknown),
//                 retries_left, rnr_retries_left, worker, counters {name: number}
//       mrs:      session, program, addr, length, access, indirect; key (for administrators only)
//       cqs:      cq, session, program, entries, produced, polled, armed, channel, error
//       srqs:     srq, session, program, type, entries, posted, limit, qps
//       cm_ids:   cm_id, session, program, pid, state, ps, source, destination ("*": any address)
//       flows:    flow, session, program, to, type, priority, flags, match; packets, bytes (of one with counters)
//       errors:   text, count, first, last (UTC)
//       worker_commands (not in "all"): worker, command, arguments, started_us (since the daemon's start),
//                 duration_us; the last 64 of each worker
//       rejections (not in "all"): time (UTC), user, pid, program, command, errno, reason (rejections.h), text; the
//                 last 256, oldest first
//       workers (not in "all"): worker, thread (TID), cpu (or "any"), qps, sleeping, busy_us, steps, sleeps,
//                 stalls, longest_step_us, steered_away, steer_dropped (counters since the start)
//       latency (not in "all"): what ("SEND", ..., "wake-up of worker 0", "duty cycle of worker 0"), count,
//                 mean_us, p50_us, p90_us, p99_us, p99_9_us (these at most an eighth too large); of what has
//                 happened since it was switched on
//       events (not in "all"): time (UTC), worker, qpn, session, program ("-": it has ended), event ("went_back",
//                 "probed", "window_cut", "waits", "nak_sent", "failed"), count (of repeats; time and value are
//                 those of the last), psn, cause (text), value and unit (of went_back "packets", of window_cut
//                 "bytes", of waits "us", else "-"); the last 1024 of each worker since they were switched on,
//                 oldest first. Events of programs that have ended are for administrators
//       gids (not in "all"): index, gid, address (with prefix), vlan (number, or "-"), type; without empty entries
//       routes (not in "all"): destination (prefix, or "default"), via (address, or "-"), vlan
//       neighbours (not in "all"): address, mac, vlan, state (INCOMPLETE, REACHABLE, STALE, FAILED: as `ip
//                 neighbour`), confirmed_s, used_s (seconds since)
//       settings (not in "all"): key (of the configuration file), value, default (text, or a list of texts),
//                 changes ("at once" or "with a restart"); with what urocectl has changed since the start
//          A caller that is not an administrator sees the objects and rejections of its own tenant only, and no
//          errors, worker commands, neighbours or settings. "hidden" is the number of rows that were left out.
//          An answer is one page of at most 32 rows or so (page.h). With "next" {kind, at, handle} there are more:
//          the same request with that object as "from" gets the next page, whose lists and "hidden" continue those
//          of this one. What goes away in between is left out. A request without "pages": true or "from" is refused
//          where the answer has more than one page.
//   {"command": "stat"}
//       -> {"transport": {name: number}, "parse": {...}, "worker": {...}, "device": {...}, "rejected": {...},
//          "cm": {...}, "control": {"longest_command": text, "longest_command_us": number},
//          "controls": {name: text}}
//          sums over all workers. Names in "transport" are those of rxe and mlx5 where they have the counter;
//          "rejected" counts requests of clients that were refused, by reason (rejections.h). "control" is the
//          command, or slice of one, that has kept the control thread longest since its start (command_times.h).
//   {"command": "metrics"}
//       -> {"families": [{"name", "type": "counter"|"gauge"|"histogram", "unit": "seconds"|"bytes"|
//          "bytes_per_second"|"", "help", "labels": "type,state", "stat": where stat has it, "samples": [{"labels":
//          {name: text}, "value": number}]; "values": {value of the label: what it means}, if that is fixed}]}
//          A sample of a histogram has "count", "sum" and "buckets" [[upper end, how many up to there]] in place of
//          "value".
//          An answer is one of several pages, as of "show". A family of objects with "sum" (true) has the numbers
//          of one page: samples with the same labels add up. Other families on several pages have more samples.
//          All counters, gauges and histograms, as docs/metrics.md lists them. Objects and users are those that
//          show would list for the caller.
//   {"command": "fault"}                         -> {"settings": {name: text}}
//   {"command": "fault", "settings": "drop=0.01,seed=7"|"off"}  -> the same, afterwards       (*)
//   {"command": "fault", "add": "name=cut,drop=1,peer=192.0.2.7"}|{"remove": "cut"}  -> the same, afterwards  (*)
//   {"command": "fault", "verbs": {}}            -> {"rules": [{number, rule, qps, matched, fired}]}  (*)
//   {"command": "fault", "verbs": {"add": RULE}|{"remove": NUMBER|"all"}}  -> the same, afterwards    (*)
//          Rules of verb_faults.h: how many QPs each selects now, how many of their work requests (or control
//          commands) it matched, and how often it fired.
//   {"command": "trace", "filter": TEXT}         -> {}; "stop": true -> {}                    (*)
//          A descriptor comes with the answer: the reading end of a pipe with the frames that pass, as
//          drivers/packet/pcap/record.h has them. TEXT is that of net::DeviceControls::start_capture(). The trace
//          ends with "stop", from any administrator, or when the pipe has no reader left.
//   {"command": "latency"}                       -> {"measured": "on"|"off", "latency": [as of show]}
//   {"command": "latency", "set": "on"|"off"}    -> the same, afterwards                      (*)
//          "on" begins with empty histograms, "off" keeps what was measured.
//   {"command": "events"}                        -> {"recorded": "on"|"off"}
//   {"command": "events", "set": "on"|"off"}     -> the same, afterwards                      (*)
//          "on" begins with an empty list, which "off" keeps.
//   {"command": "reload"}                        -> {"changed": [key], "restart_for": [key]}  (*)
//          Reads the configuration file and the flags of the daemon again, as SIGHUP does: keys whose settings are
//          in force now, and keys whose new values wait for a restart.
//
// (*) only for administrators: may_administer() in control/session/privilege.h.
#pragma once

#include <string>
#include <string_view>

#include "cm_service/service.h"
#include "control/diagnosis/command_times.h"
#include "control/link/link_control.h"
#include "control/state/state.h"
#include "platform/unique_fd.h"

namespace uroce::admin {

/// The state that requests read and change.
struct AdminContext {
  control::ControlState& state;
  control::LinkControl& link;
  const cm_service::CmService& cm;
  const control::CommandTimes& command_times;
};

/// The answer to one request, as text. `stream`: gets the descriptor that goes with it, if there is one.
std::string handle_query(const AdminContext& context, const control::Session& caller, std::string_view request,
                         UniqueFd* stream = nullptr);

}  // namespace uroce::admin
