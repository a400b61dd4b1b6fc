#include "control/link/port_counters.h"

#include <iterator>

#include "net/device_counter_help.h"
#include "proto/state/counter_help.h"
#include "worker/counter_help.h"

namespace uroce::control {
namespace {

// Ethernet, IPv4, UDP, BTH, ICRC: rcvd_bytes counts payload, sent_bytes whole frames.
constexpr std::uint64_t kHeaders = 14 + 20 + 8 + 12 + 4;
constexpr std::uint64_t kWord = 4;  // IBTA vol. 1, 16.1.3.5: PortXmitData and PortRcvData count words

}  // namespace

void worker_commands::SumCounters::run(worker::WorkerCore& core) {
  add_up(proto::kCounterHelp, transport, core.transport().counters());
  add_up(worker::kWorkerHelp, worker, core.counters());
  for (std::size_t i = 0; i < std::size(worker.parse); ++i) worker.parse[i] += core.counters().parse[i];
  if (const worker::PortControl* port = core.port(); port != nullptr) {
    add_up(net::kDeviceHelp, device, port->counters());
  }
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
