// The checks of counters. docs/troubleshooting.md lists what each counter means.
#include <cstdint>
#include <cstdio>
#include <string>

#include "doctor_checks.h"

namespace uroce::ctl {
namespace {

constexpr Severity kProblem = Severity::kProblem, kAdvice = Severity::kAdvice, kNote = Severity::kNote;

constexpr CounterCheck kCounterChecks[] = {
    {"retransmissions", "transport.retransmitted_pkts", "transport.sent_pkts", 10, 0.1, kProblem,
     "packets were sent again, because they or their acknowledges were lost or late",
     "look for rx-drops and stalls here and at the peers, then at the network: MTU on the way, full queues of "
     "switches, frame filters; `urocectl trace` marks these packets"},
    {"timeouts", "transport.retry_exceeded_err", "", 1, 0, kProblem,
     "work requests ended with IBV_WC_RETRY_EXC_ERR: their peer did not answer",
     "see on both sides with `urocectl show qps`: the peer or its daemon has ended, a filter or an MTU on the "
     "way drops the packets, or two daemons have one address"},
    {"rnr-exceeded", "transport.rnr_nak_retry_err", "", 1, 0, kProblem,
     "work requests ended with IBV_WC_RNR_RETRY_EXC_ERR: their peer had no receive posted",
     "let the peer post more receives, or set rnr_retry to 7, which waits without end"},
    {"late-receives", "transport.rnr_nak_sent", "transport.rdma_recvs", 10, 1, kAdvice,
     "messages came before a receive was posted, and their sender had to wait",
     "let the programs here post more receives, and earlier"},
    {"remote-access", "transport.resp_remote_access_errors", "", 1, 0, kProblem,
     "requests of peers named memory that they may not use",
     "compare R_Key, address, length and rights with `ibv_reg_mr` of the program here, and its PD with that of "
     "the QP"},
    {"invalid-requests", "transport.resp_invalid_requests,transport.resp_local_length_error", "", 1, 0, kProblem,
     "requests of peers were refused as invalid, or were longer than the receive",
     "compare max_dest_rd_atomic, the access flags of the QP and the sizes of the receives with what the peers "
     "send"},
    {"bad-work-requests",
     "transport.bad_wqe_opcode,transport.bad_wqe_sge_count,transport.bad_wqe_inline,transport.bad_wqe_length,"
     "transport.bad_wqe_flags,transport.bad_wqe_ah,transport.bad_wqe_key,transport.bad_wqe_bind",
     "", 1, 0, kProblem, "work requests of programs here were refused",
     "the vendor_err of their completion says why (docs/verbs.md); start the program with UROCE_LOG=debug"},
    {"unknown-qps", "transport.drop_no_qp", "transport.rcvd_pkts", 10, 0.1, kAdvice,
     "packets came for queue pairs that do not exist",
     "a peer has a wrong QP number, or its QP here was destroyed, or another host has the same address"},
    {"wrong-source", "transport.drop_wrong_source", "", 1, 0, kProblem,
     "packets for connected queue pairs came from an address that is not their peer's",
     "two hosts have one address, the peer has several and uses another GID, or packets are forged"},
    {"wrong-address", "worker.wrong_address,worker.wrong_vlan", "transport.rcvd_pkts", 10, 1, kAdvice,
     "RoCE packets came for an address that this port does not have, or in another VLAN",
     "compare `urocectl show gids` with the address that the peers use"},
    {"unreachable", "link.unreachable", "", 1, 0, kAdvice,
     "neighbours did not answer ARP requests or neighbour solicitations",
     "see which with `urocectl show neighbours`: the host is down or not on this link, or the address is wrong"},
    {"lost-datagrams",
     "transport.drop_no_receive,transport.drop_too_long,transport.drop_bad_qkey,transport.drop_bad_pkey",
     "transport.rcvd_pkts", 10, 0.1, kAdvice,
     "datagrams were lost: no receive, one too short, or a wrong Q_Key or P_Key",
     "let the program post more and longer receives, and compare the keys"},
    {"too-large", "transport.drop_too_large", "", 1, 0, kProblem,
     "responses are too long for the port, whose MTU was lowered",
     "raise it again (`urocectl link mtu`), or connect the queue pairs anew"},
    {"bad-frames",
     "parse.truncated,parse.bad_ip_header,parse.bad_udp_length,parse.unknown_opcode,parse.bad_transport_version,"
     "parse.bad_length,parse.bad_pad,parse.bad_icrc",
     "", 1, 0, kProblem, "frames were damaged or malformed",
     "look at cables and at what changes packets on the way (NAT, `fault` of a peer); `urocectl trace` shows them"},
    {"rx-drops", "device.rx_dropped", "", 1, 0, kProblem,
     "received frames were lost, because no buffer or place was free",
     "give the worker more time (checks cores and busy-workers), raise memory.buffers, or lower "
     "memory.receive_ring_bytes"},
    {"tx-drops", "device.tx_dropped", "device.tx_packets", 100, 0.1, kProblem,
     "frames to send were lost in the port",
     "look at the interface (`ip -s link`) and at the queue of the other end"},
    {"steering", "worker.steered_away", "device.rx_packets", 10, 10, kAdvice,
     "frames came to another worker than that of their queue pair",
     "let the NIC spread by address and not by UDP source port, or use one worker"},
    {"steering-drops", "worker.steer_dropped", "", 1, 0, kProblem,
     "frames for another worker were lost, because its ring was full", "see check steering"},
    {"lost-events", "worker.async_events_lost,cm.events_lost", "", 1, 0, kProblem,
     "asynchronous or connection events were lost, because queues were full",
     "let programs read their event channels; for an overloaded daemon see check slow-commands"},
    {"bad-doorbells", "worker.bad_doorbells", "", 1, 0, kProblem,
     "a program rang for queue pairs that it does not have",
     "it has overwritten its queues, or is hostile: end it (`urocectl show sessions`)"},
    {"congestion", "transport.np_ecn_marked_roce_packets", "transport.rcvd_pkts", 10, 0.1, kNote,
     "packets came with the mark of a congested switch, and their senders slow down",
     "nothing, if several senders share a port; else look for a slow link"},
};

std::uint64_t sum_of(const CounterCheck& check, const Json& stat) {
  std::uint64_t sum = 0;
  for (const std::string& counter : split(std::string(check.counters))) sum += number_at(stat, counter);
  return sum;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::span<const CounterCheck> counter_checks() { return kCounterChecks; }

bool exceeds(const CounterCheck& check, const DeviceFacts& device) {
  const std::uint64_t sum = sum_of(check, device.now);
  if (sum < check.least || check.whole.empty()) return sum >= check.least;
  const auto whole = static_cast<double>(number_at(device.now, std::string(check.whole)));
  return static_cast<double>(sum) * 100 >= check.least_percent * whole;
}

std::string counts(const CounterCheck& check, const DeviceFacts& device, double seconds) {
  std::string text;
  for (const std::string& counter : split(std::string(check.counters))) {
    if (const std::uint64_t value = number_at(device.now, counter); value != 0) {
      text += (text.empty() ? "" : ", ") + last_part(counter) + " " + std::to_string(value);
    }
  }
  char more[96];
  const std::uint64_t sum = sum_of(check, device.now);
  if (!check.whole.empty()) {
    const std::string whole(check.whole);
    const std::uint64_t all = number_at(device.now, whole);
    std::snprintf(more, sizeof more, " of %llu", static_cast<unsigned long long>(all));
    text += more + (" " + last_part(whole));
    if (all != 0) {
      std::snprintf(more, sizeof more, " (%.2g %%)", static_cast<double>(sum) * 100 / static_cast<double>(all));
      text += more;
    }
  }
  const std::uint64_t before = sum_of(check, device.before);
  if (sum > before) {
    std::snprintf(more, sizeof more, ", %llu of them in the last %.1f s",
                  static_cast<unsigned long long>(sum - before), seconds);
    text += more;
  }
  return text;
}

}  // namespace uroce::ctl
