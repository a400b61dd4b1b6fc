#include "control/port_counters.h"

#include <algorithm>
#include <iterator>

namespace uroce::control {
namespace {

void add(proto::Counters& to, const proto::Counters& from) {
  auto* sum = reinterpret_cast<std::uint64_t*>(&to);
  const auto* more = reinterpret_cast<const std::uint64_t*>(&from);
  for (std::size_t i = 0; i < proto::kCounterCount; ++i) sum[i] += more[i];
}

void add(worker::WorkerCounters& to, const worker::WorkerCounters& from) {
  for (std::size_t i = 0; i < std::size(to.parse); ++i) to.parse[i] += from.parse[i];
  to.steps += from.steps, to.sleeps += from.sleeps, to.bad_doorbells += from.bad_doorbells;
  to.busy += from.busy;
  to.longest_step = std::max(to.longest_step, from.longest_step);
  to.stalls += from.stalls;
  to.last_stall = std::max(to.last_stall, from.last_stall);
  to.async_events_lost += from.async_events_lost;
  to.steered_away += from.steered_away, to.steer_dropped += from.steer_dropped;
  to.wrong_address += from.wrong_address, to.wrong_vlan += from.wrong_vlan;
  to.netdev_received += from.netdev_received, to.netdev_sent += from.netdev_sent;
  to.netdev_dropped += from.netdev_dropped;
  to.events_sent += from.events_sent, to.events_delayed += from.events_delayed;
}

void add(net::DeviceCounters& to, const net::DeviceCounters& from) {
  to.rx_packets += from.rx_packets, to.rx_bytes += from.rx_bytes, to.rx_dropped += from.rx_dropped;
  to.tx_packets += from.tx_packets, to.tx_bytes += from.tx_bytes, to.tx_dropped += from.tx_dropped;
}

// Ethernet, IPv4, UDP, BTH, ICRC: rcvd_bytes counts payload, sent_bytes whole frames.
constexpr std::uint64_t kHeaders = 14 + 20 + 8 + 12 + 4;
constexpr std::uint64_t kWord = 4;  // IBTA vol. 1, 16.1.3.5: PortXmitData and PortRcvData count words

}  // namespace

void worker_commands::SumCounters::run(worker::WorkerCore& core) {
  add(transport, core.transport().counters());
  add(worker, core.counters());
  if (const worker::PortControl* port = core.port(); port != nullptr) add(device, port->counters());
  if (core.link() != nullptr) link = core.link()->counters();
}

CounterFiles counter_files(const worker_commands::SumCounters& sums, std::uint64_t times_down) {
  const proto::Counters& t = sums.transport;
  const auto bad_icrc = sums.worker.parse[static_cast<std::size_t>(wire::ParseVerdict::kBadIcrc)];
  return {
      {"counters/VL15_dropped", 0},
      {"counters/excessive_buffer_overrun_errors", sums.device.rx_dropped},
      {"counters/link_downed", times_down},
      {"counters/link_error_recovery", 0},
      {"counters/local_link_integrity_errors", 0},
      {"counters/port_rcv_constraint_errors", 0},
      {"counters/port_rcv_data", (t.rcvd_bytes + kHeaders * t.rcvd_pkts) / kWord},
      {"counters/port_rcv_errors", bad_icrc},
      {"counters/port_rcv_packets", t.rcvd_pkts},
      {"counters/port_rcv_remote_physical_errors", 0},
      {"counters/port_rcv_switch_relay_errors", 0},
      {"counters/port_xmit_constraint_errors", 0},
      {"counters/port_xmit_data", t.sent_bytes / kWord},
      {"counters/port_xmit_discards", sums.device.tx_dropped},
      {"counters/port_xmit_packets", t.sent_pkts},
      {"counters/port_xmit_wait", 0},
      {"counters/symbol_error", 0},
      // rxe_counter_descs, drivers/infiniband/sw/rxe/rxe_hw_counters.c.
      {"hw_counters/ack_deferred", t.ack_deferred},
      {"hw_counters/completer_retry_err", t.local_ack_timeout_err + t.packet_seq_err},
      {"hw_counters/duplicate_request", t.duplicate_request},
      {"hw_counters/link_downed", times_down},
      {"hw_counters/out_of_seq_request", t.out_of_sequence},
      {"hw_counters/rcvd_pkts", t.rcvd_pkts},
      {"hw_counters/rcvd_rnr_err", t.rnr_nak_rcvd},
      {"hw_counters/rcvd_seq_err", t.packet_seq_err},
      {"hw_counters/rdma_recvs", t.rdma_recvs},
      {"hw_counters/rdma_sends", t.rdma_sends},
      {"hw_counters/retry_exceeded_err", t.retry_exceeded_err},
      {"hw_counters/retry_rnr_exceeded_err", t.rnr_nak_retry_err},
      {"hw_counters/send_err", sums.device.tx_dropped},
      {"hw_counters/send_rnr_err", t.rnr_nak_sent},
      {"hw_counters/sent_pkts", t.sent_pkts},
  };
}

}  // namespace uroce::control
