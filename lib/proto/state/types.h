// The values that callers of a transport and its parts exchange: configuration, creation of a QP, bursts, events,
// snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>

#include "base/frame.h"
#include "base/types.h"
#include "proto/state/attributes.h"
#include "proto/state/congestion_window.h"
#include "proto/state/counters.h"
#include "proto/state/user_share.h"
#include "queue/work_queue.h"
#include "wire/address.h"

namespace uroce::proto {

/// Index of a QP in its transport's table.
struct QpIndex {
  std::uint32_t value = 0;
  bool operator==(const QpIndex&) const = default;
};

struct TransportConfig {
  std::uint32_t max_qps = 1024;           ///< of this worker
  std::uint32_t max_cqs = 65536;          ///< of the daemon
  std::uint32_t max_srqs = 4096;          ///< of the daemon
  std::uint32_t max_ahs = 65536;          ///< of the daemon
  std::uint32_t max_attachments = 65536;  ///< of this worker's QPs to multicast groups
  std::uint32_t port_mtu = 4096;          ///< bytes: the largest UD message
  std::uint32_t max_frame = 4114;         ///< bytes of a raw packet, with a VLAN tag
  std::uint32_t receive_ring_bytes =
      4u << 20;                        ///< bytes of READ responses that may be in flight to us, all QPs together
  std::uint32_t quantum_packets = 16;  ///< a QP's turn in transmit(), where users do not compete
  std::uint32_t start_window = CongestionWindow::kStart;  ///< bytes: the congestion window of a new connection
  bool offload_ip_checksum = false;
  bool ecn = true;  ///< the data of connected QPs is ECN-capable
  /// A missing acknowledge is not acted on earlier: peers are threads, and a scheduler may preempt them this long.
  /// A probe, a single packet, is sent after an eighth of it.
  Nanos min_early_retry_delay = 4 * kMillisecond;
  wire::Mac mac{};         ///< of the port: multicast packets from it are our own
  std::uint64_t seed = 1;  ///< for values that must not be predictable
  /// For the tables with a row for each QP. Huge pages keep thousands of active QPs cheap.
  std::pmr::memory_resource* resource = std::pmr::get_default_resource();
};

struct QpFaults;

/// Parameters of a new QP. The caller checked that the rings are large enough for their shapes.
struct QpCreate {
  QpType type = QpType::kRc;
  Qpn qpn;
  PdId pd;
  CqId send_cq, recv_cq;
  bool has_srq = false;
  SrqId srq;
  bool signal_all = false;           ///< sq_sig_all
  bool block_own_multicast = false;  ///< UD, raw packets: it gets no copy of what it sends to groups
  bool strip_vlan = false;           ///< raw packets: the tag is moved from the frame to the CQE
  queue::WorkConsumer sq, rq;        ///< rq unused with an SRQ
  std::uint32_t max_send_sge = 1, max_recv_sge = 1, max_inline = 0, max_tso_header = 0;
  std::span<std::byte> sq_shadow;  ///< sq.count() * sq.stride() bytes, private, aligned to 64, live until destroy()
  std::span<std::byte> responder_resources;  ///< kResponderResourceBytes for each of max_dest_rd_atomic; private
                                             ///< and live like sq_shadow
  std::uint64_t owner = 0;                   ///< session, for address handles, events and turns; 0: none
  std::uint64_t user = 0;                    ///< of the session, for turns
  UserShare share;                           ///< of the user
  std::uint32_t xrcd = 0;
  QpFaults* faults = nullptr;  ///< its rules; lives until destroy() or set_faults()
};

/// A frame for a raw packet QP, starting at the Ethernet header, without FCS.
struct ReceivedFrame {
  std::span<const std::byte> bytes;
  std::uint32_t sender = 0;  ///< base::Frame::sender; 0 for sniffers
  std::uint32_t flow_tag = 0;
  bool vlan = false;  ///< it has a tag, `vlan_tci`
  std::uint16_t vlan_tci = 0;
  bool checksums_good = false;  ///< they were verified
};

/// Frames to fill, from the device.
struct TxBurst {
  std::span<base::Frame> frames;
  std::size_t count = 0;         ///< filled so far
  std::int32_t cost = kAnyCost;  ///< budget for turns while users compete (SendScheduler); after it no turn begins
  static constexpr std::int32_t kAnyCost = 1 << 30;
  bool full() const { return count == frames.size(); }
  /// A frame stands for that many packets more: the burst ends as if they were there.
  void use_up(std::size_t packets) {
    const std::size_t empty = frames.size() - count;
    frames = frames.first(count + (empty > packets ? empty - packets : 0));
  }
};

/// ibv_event_type numbers, and one for the daemon alone. Rules (proto/work/faults.h) raise all; those of the port
/// and the device have a QP as their object, and go to its session.
enum class AsyncEvent : std::uint8_t {
  kCqError = 0,
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommEstablished = 4,
  kSqDrained = 5,
  kPathMigrated = 6,
  kPathMigrationError = 7,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortError = 10,
  kLidChange = 11,
  kPkeyChange = 12,
  kSmChange = 13,
  kSrqError = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kClientReregister = 17,
  kGidChange = 18,
  kWqFatal = 19,
  kDatagramsSent = 255,  ///< Transport::report_sent(); never sent to a client
};
struct Event {
  AsyncEvent type{};
  std::uint32_t object = 0;  ///< QPN, CqId or SrqId
  std::uint64_t owner = 0;
};

/// A QP that has entered ERR or SQE by itself.
struct QpFailure {
  Qpn qpn, peer_qpn;
  wire::Address peer;  ///< of a connected QP
  std::uint64_t owner = 0;
  std::uint8_t cause = 0;  ///< uroce_failure of the work request that failed; 0: `event` has the cause
  AsyncEvent event{};
};

/// What ibv_query_qp and urocectl show of a QP.
struct QpSnapshot {
  QpType type{};
  QpState state{};
  QpAttr attr;                       ///< as set, with the current PSNs
  std::uint32_t sq_outstanding = 0;  ///< WQEs posted and not completed
  std::uint32_t recv_posted = 0;     ///< receives that no message has taken; 0 with an SRQ
  std::uint32_t psns_in_flight = 0;
  std::uint32_t window_bytes = 0;
  std::uint8_t retries_left = 0, rnr_retries_left = 0;
  bool sq_draining = false;
  Nanos rtt = 0, rtt_deviation = 0;  ///< RttEstimator, in steps of 4 us; 0: unknown
  QpCounters counters;
};

/// Send queue indices: of the next entry to send, and of the next to be posted.
struct SendProgress {
  std::uint32_t next = 0, posted = 0;
  bool all_sent() const { return next == posted; }
};

/// What Transport::busy_with() returns for memory of a PD, and for the rings of a session. 0: none.
constexpr std::uint64_t mark_of(PdId pd) { return pd.value; }
constexpr std::uint64_t mark_of_session(std::uint64_t session) { return session | std::uint64_t{1} << 63; }

/// What packets cost in the congestion window, in bytes.
constexpr std::uint32_t cost_of(std::uint32_t bytes, std::uint32_t packets) {
  return bytes + packets * kPacketCost;
}

/// The number of PSNs from `from` up to, not including, `to` (24-bit serial arithmetic: IBTA vol. 1, 9.7.1).
constexpr std::uint32_t psns_between(Psn from, Psn to) { return (to.value() - from.value()) & Psn::kMask; }

}  // namespace uroce::proto
