// The transport of one worker: all its QPs as state machines, sans-IO.
//
// Contract. The owner, always on one thread, in any order:
//   receive(packet, now)   packets in: parsed and ICRC-checked by wire::parse, steered here by destination QPN
//   doorbell(qp)           a client published send queue entries
//   advance(now, ...)      time in: fires the timers that are due; next_timeout() says when that is worth while
//   transmit(burst, now)   packets out: fills frames, QPs in round-robin order, each within its budget; call it
//                          again while it fills the burst
//   create / modify / query / destroy, set_cq, set_srq, set_address_handle ...: the conductor's commands
// receive() and advance() only change state: acknowledges, READ responses and requests all leave in transmit().
// Completions go into the CQs as they come about; touched_cqs() lists those that may owe an event. Asynchronous
// events come out of take_events(). Nothing here reads a clock, makes a system call (but through a Region's
// IndirectIo), allocates after construction and create(), logs or throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "base/frame.h"
#include "base/types.h"
#include "memory/table.h"
#include "proto/state/attributes.h"
#include "proto/state/counters.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"
#include "wire/packet.h"

namespace uroce::proto {

class Srq;

/// Index of a QP in its transport's table.
struct QpIndex {
  std::uint32_t value = 0;
  bool operator==(const QpIndex&) const = default;
};

struct TransportConfig {
  std::uint32_t max_qps = 1024;                 ///< of this worker
  std::uint32_t max_cqs = 65536;                ///< of the daemon
  std::uint32_t max_srqs = 4096;                ///< of the daemon
  std::uint32_t max_ahs = 65536;                ///< of the daemon
  std::uint32_t max_attachments = 65536;        ///< of this worker's QPs to multicast groups
  std::uint32_t port_mtu = 4096;                ///< bytes: the largest UD message
  std::uint32_t max_frame = 4114;               ///< bytes of a raw packet, with a VLAN tag
  std::uint32_t receive_ring_bytes = 4u << 20;  ///< what READs may have on the way to us, all QPs together
  std::uint32_t quantum_packets = 16;           ///< a QP's turn in transmit()
  bool offload_ip_checksum = false;
  /// No acknowledge is missed earlier: peers are threads, and a scheduler may take their CPU for so long.
  Nanos min_early_retry_delay = 4 * kMillisecond;
  wire::Mac mac{};         ///< of the port: what comes from there is our own multicast
  std::uint64_t seed = 1;  ///< of whatever must not be guessed
  /// Of the tables with a row a QP. One that yields huge pages keeps thousands of active QPs cheap.
  std::pmr::memory_resource* resource = std::pmr::get_default_resource();
};

/// What a QP is made with. The rings' entries were checked to be as large as their shapes say.
struct QpCreate {
  QpType type = QpType::kRc;
  Qpn qpn;
  PdId pd;
  CqId send_cq, recv_cq;
  bool has_srq = false;
  SrqId srq;
  bool signal_all = false;           ///< sq_sig_all
  bool block_own_multicast = false;  ///< UD: it gets no copy of what it sends to its groups
  bool strip_vlan = false;           ///< raw packets: a tag leaves the frame for the CQE
  queue::WorkConsumer sq, rq;        ///< rq unused with an SRQ
  std::uint32_t max_send_sge = 1, max_recv_sge = 1, max_inline = 0, max_tso_header = 0;
  std::span<std::byte> sq_shadow;  ///< sq.count() * sq.stride() bytes, private, aligned to 64, live until destroy()
  std::span<std::byte> responder_resources;  ///< kResponderResourceBytes * max_dest_rd_atomic limit, likewise
  std::uint64_t owner = 0;                   ///< session, for address handles and events
  std::uint32_t xrcd = 0;
};

/// A frame for a raw packet QP, from the Ethernet header on, without FCS.
struct ReceivedFrame {
  std::span<const std::byte> bytes;
  std::uint32_t flow_tag = 0;
  bool vlan = false;  ///< there is a tag, `vlan_tci`
  std::uint16_t vlan_tci = 0;
  bool checksums_good = false;  ///< they were looked at
};

/// Frames to fill, from the device.
struct TxBurst {
  std::span<base::Frame> frames;
  std::size_t count = 0;  ///< filled so far
  bool full() const { return count == frames.size(); }
};

/// ibv_event_type numbers.
enum class AsyncEvent : std::uint8_t {
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommEstablished = 4,
  kSqDrained = 5,
  kCqError = 0,
  kSrqError = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
};
struct Event {
  AsyncEvent type{};
  std::uint32_t object = 0;  ///< QPN, CqId or SrqId
  std::uint64_t owner = 0;
};

/// What ibv_query_qp and urocectl show of a QP.
struct QpSnapshot {
  QpType type{};
  QpState state{};
  QpAttr attr;                       ///< as set, with the current PSNs
  std::uint32_t sq_outstanding = 0;  ///< WQEs posted and not completed
  std::uint32_t psns_in_flight = 0;
  std::uint32_t window_bytes = 0;
  std::uint8_t retries_left = 0, rnr_retries_left = 0;
  bool sq_draining = false;
  QpCounters counters;
};

/// Indices of send queue entries: of the next to be sent, and of the next to be posted.
struct SendProgress {
  std::uint32_t next = 0, posted = 0;
  bool all_sent() const { return next == posted; }
};

class Transport {
 public:
  static constexpr std::size_t kResponderResourceBytes = 64;  ///< each
  static constexpr std::uint8_t kMaxRdAtomic = 128;

  Transport(const TransportConfig& config, memory::Table& memory);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Objects that QPs refer to. nullptr removes. The pointed-to queue outlives its registration.
  void set_cq(CqId id, queue::CqProducer* cq, std::uint64_t owner);
  void set_srq(SrqId id, Srq* srq);
  /// A QP of another PD may not use it.
  void set_address_handle(AhId id, PdId pd, const wire::PathAddress* path);
  /// Bytes: 256, 512, 1024, 2048 or 4096.
  void set_port_mtu(std::uint32_t bytes);
  /// As TransportConfig::max_frame.
  void set_max_frame(std::uint32_t bytes);

  /// errno: 0, EINVAL (no UD QP, no group, or for detach not attached), ENOMEM. Attaching twice counts once.
  int attach_multicast(QpIndex qp, const wire::Address& group);
  int detach_multicast(QpIndex qp, const wire::Address& group);
  /// Whether a QP of this worker is attached to the group.
  bool wants_multicast(const wire::Address& group) const;

  /// errno: 0, ENOMEM (table full), EEXIST (QPN in use).
  int create(const QpCreate& create, QpIndex& out);
  /// Checks with check_modify() and applies. Entering ERR flushes, entering RESET empties both queues.
  ModifyVerdict modify(QpIndex qp, const QpAttr& attr, std::uint32_t mask, Nanos now);
  bool query(QpIndex qp, QpSnapshot& out) const;
  /// How far a UD QP's send queue has been sent. All of it where there is no such QP, or it doesn't send now.
  SendProgress datagrams(QpIndex qp) const;
  /// What it had executed is acknowledged for a while yet (proto/rc/destroyed_qps.h).
  void destroy(QpIndex qp, Nanos now);

  /// False: the ICRC, which wire::parse() had left open, is bad, and nothing was done.
  bool receive(wire::RxPacket& packet, Nanos now);
  /// A frame that a flow sends to a raw packet QP or a WQ. Dropped and counted like a datagram.
  void receive_frame(QpIndex qp, const ReceivedFrame& frame, Nanos now);
  /// A packet for this QPN will come in soon: starts to bring what says where the QP is into the cache, and the
  /// state of the QP that the call before named. Worth while a few packets ahead.
  void prefetch(Qpn qpn);
  void doorbell(QpIndex qp);
  /// `behind`: more may have arrived than was received, so nobody is said to be late.
  void advance(Nanos now, bool behind = false);
  /// kNever: no timer runs.
  Nanos next_timeout() const;
  /// Fills frames until the burst is full or no QP may send now. True: some QP still wants to send.
  bool transmit(TxBurst& burst, Nanos now);
  bool wants_transmit() const;

  /// CQs that got an entry since the last call; valid until the next call of anything here.
  std::span<queue::CqProducer* const> touched_cqs();
  /// Copies out up to out.size() events; the rest stay.
  std::size_t take_events(std::span<Event> out);

  const Counters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::proto
