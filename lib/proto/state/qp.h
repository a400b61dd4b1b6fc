// The state of one QP, in named parts. Trivially copyable and without pointers to other QPs (they are linked by
// index), so that a QP can be moved. The parts that each packet needs come first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "abi/operations.h"
#include "abi/queue_entries.h"
#include "base/types.h"
#include "proto/state/attributes.h"
#include "proto/state/completion_counters.h"
#include "proto/state/congestion.h"
#include "proto/state/counters.h"
#include "proto/state/faults.h"
#include "proto/state/latency.h"
#include "proto/state/packet_builder.h"
#include "proto/state/rtt_estimator.h"
#include "proto/state/user_share.h"
#include "queue/work_queue.h"
#include "wire/bth.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"

namespace uroce::proto {

inline constexpr std::uint32_t kMaxMessage = 1u << 31;  ///< bytes (IBTA vol. 1, C9-94)
inline constexpr std::uint8_t kReadChunkPackets = 32;   ///< a longer READ is sent as several requests; a power of 2
inline constexpr std::uint32_t kNoQp = ~std::uint32_t{0};

using Kind = abi::OperationKind;

/// The private, checked copy of a send queue entry, in Requester::shadow, followed by its list.
struct Wqe {
  std::uint64_t wr_id;
  std::uint8_t opcode;  ///< uroce_wr_opcode
  std::uint8_t flags;   ///< uroce_send_flag
  std::uint16_t num_sge;
  std::uint32_t length;  ///< of the payload or of the READ, bytes
  std::uint32_t imm_data;
  union {
    std::uint32_t rkey;
    std::uint32_t ah;
  };
  union {
    std::uint64_t remote_addr;
    uroce_wr_ud ud;
  };
  std::uint32_t remote_srqn;
  union {
    std::uint32_t first_psn;
    std::uint32_t mw_handle;  ///< of a local WQE
  };
  std::uint32_t psn_count;
  Kind kind;
  std::uint8_t failure;  ///< uroce_failure with which it fails when it is the oldest; 0: none
  std::uint8_t list_at;  ///< bytes from the start of the header
  std::uint8_t traits;   ///< of its operation: abi::OperationTrait
  union {
    uroce_wr_atomic atomic;
    uroce_wr_bind bind;
    uroce_wr_flush flush;
    uroce_wr_tso tso;
  };

  const std::byte* inline_data() const { return reinterpret_cast<const std::byte*>(this) + list_at; }
  const uroce_sge* sges() const { return reinterpret_cast<const uroce_sge*>(inline_data()); }
  /// The header of a TSO, after the list.
  const std::byte* tso_header() const {
    return inline_data() + (is_inline() ? length : num_sge * std::uint32_t{sizeof(uroce_sge)});
  }
  bool is_inline() const { return (flags & UROCE_SEND_INLINE) != 0; }
  bool has(std::uint8_t trait) const { return (traits & trait) != 0; }
  /// A SEND or WRITE: a PSN for each packet of payload, and acknowledges complete it.
  bool is_message() const { return (traits & (abi::kPayload | abi::kSinglePsn)) == abi::kPayload; }
  /// Bytes that the congestion window counts: payload of a message, of other requests that of their answer.
  std::uint32_t window_bytes() const {
    constexpr std::uint8_t kConfirmed = abi::kPayload | abi::kAnswered;  // ATOMIC WRITE; a FLUSH has no length
    return (traits & kConfirmed) == kConfirmed ? 0 : length;
  }
  Psn first() const { return Psn(first_psn); }
  Psn end() const { return Psn(first_psn + psn_count); }
};
static_assert(sizeof(Wqe) == sizeof(uroce_sq_entry));

/// A place in a scatter list.
struct SgeCursor {
  std::uint32_t index = 0;
  std::uint32_t offset = 0;  ///< within that element
};

/// Private copy of the receive WQE that a message fills.
struct ReceiveWqe {
  std::uint64_t wr_id = 0;
  std::uint32_t num_sge = 0;
  std::uint8_t failure = 0;  ///< uroce_failure of a bad entry
  PdId pd;                   ///< of the memory in its list
  uroce_sge sge[kMaxSge];
};

/// How the responder answers: with READ responses (an empty one after a FLUSH or ATOMIC WRITE), or with an atomic
/// acknowledge.
enum class ResponseKind : std::uint8_t { kData, kConfirmation, kAtomic };

/// A request that the responder can answer, more than once if it is repeated (IBTA vol. 1, 9.7.5: duplicate
/// requests).
struct Resource {
  std::uint64_t address;
  std::uint64_t result;  ///< of an atomic: the original value
  std::uint32_t rkey;
  std::uint32_t length;
  std::uint32_t first_psn, psn_count;
  std::uint32_t next_psn;    ///< of the response that is being sent
  std::uint32_t start_psn;   ///< its first
  std::uint32_t end_psn;     ///< one past its last
  std::uint32_t end_offset;  ///< bytes of the original request at which the response ends
  std::uint32_t msn;
  std::uint32_t pd;
  ResponseKind answer;
  std::uint8_t pending;  ///< a response is to be sent or is being sent
  std::uint8_t replay;
  std::uint8_t counted;  ///< in the completion counter
};
static_assert(sizeof(Resource) <= 64);

/// Whether the requester may have something to send, has nothing, or waits for an acknowledge, a timer or READ
/// budget.
enum class SendState : std::uint8_t { kReady, kIdle, kBlocked };

/// The kind of message that the responder has received in part.
enum class MessageInProgress : std::uint8_t { kNone, kSend, kWrite };

/// Whether the responder takes requests. kHeld: not before the answers that are pending have left, for a SEND that
/// invalidates a key of one of them (Qp::held). kDead: what is owed is the last that the QP sends.
enum class Intake : std::uint8_t { kOpen, kHeld, kDead };

/// The acknowledge that the responder has to send. kEnd: none, and the QP enters ERR after the answers.
enum class PendingAck : std::uint8_t { kNothing, kAck, kNak, kEnd };

/// The deadlines of a QP, in the order in which on_timer() serves them.
enum class Deadline : std::uint8_t {
  kRnr,             ///< end of the wait that an RNR NAK requested
  kAck,             ///< Local ACK Timeout
  kPace,            ///< the rate limit permits the next packet
  kFlush,           ///< next check for WQEs posted to a QP in ERR
  kLateCompletion,  ///< the oldest completion that a rule keeps back is due
};
inline constexpr Deadline kDeadlines[] = {Deadline::kRnr, Deadline::kAck, Deadline::kPace, Deadline::kFlush,
                                          Deadline::kLateCompletion};

/// Identity, state and peer: needed for every packet sent or received.
struct Common {
  QpState state = QpState::kReset;
  QpType type = QpType::kRc;
  std::uint8_t mtu_shift = 10;
  bool active = false;  ///< in the active list
  SendState send_state = SendState::kIdle;
  wire::Service service = wire::Service::kRc;  ///< follows from the type
  std::uint16_t pkey = wire::kDefaultPkey;
  std::uint32_t self = kNoQp;  ///< slot in the table of QPs
  Qpn qpn, dest_qpn;
  PdId pd;
  std::uint32_t path_v4[2] = {};  ///< source and destination that packets must have, as in the IPv4 header
  /// base::Frame::sender that packets must have: of the peer if it is a QP of this process (LocalDevices), else 0.
  std::uint32_t peer_sender = 0;

  std::uint32_t mtu() const { return 1u << mtu_shift; }
};

/// The responder's expected PSN and outstanding acknowledge (IBTA vol. 1, 9.7: Reliable Service, responder side).
struct Responder {
  MessageInProgress message = MessageInProgress::kNone;
  PendingAck owed = PendingAck::kNothing;
  bool owed_newest = false;  ///< the ACK is for the newest PSN received when it leaves, else for owed_psn
  bool nak_sent = false;     ///< a sequence or RNR NAK was sent, and the QP has not been in sequence since
  Intake intake = Intake::kOpen;
  bool have_receive = false;  ///< a receive WQE was taken out of the queue
  bool cnp_owed = false;      ///< the peer is to be notified of congestion
  std::uint8_t answers_pending = 0;
  Psn epsn;  ///< expected PSN
  Msn msn;
  Psn owed_psn;
  std::uint16_t access = 0;         ///< memory::Access bits that the QP allows its peer
  bool counted = false;             ///< there is a completion counter for the peer's READs or WRITEs
  std::uint32_t message_bytes = 0;  ///< of the message so far
};

/// What the requester has done since the last progress: nothing, gone back to una, or gone back to wait as an RNR
/// NAK requests.
enum class Recovering : std::uint8_t { kNo, kRetrying, kWaiting };

/// When to send again, and how often.
struct Retransmission {
  Nanos ack_deadline = kNever;    ///< Deadline::kAck, which each packet needs
  Nanos wheel_deadline = kNever;  ///< what the timer wheel has for this QP
  RttEstimator rtt;
  std::uint32_t cost_since_ack_request = 0;
  std::uint8_t ack_timeout = 0;    ///< 4.096 us * 2^n; 0: none
  std::uint8_t early_retries = 0;  ///< since the last progress
  bool watched = false;            ///< in the AckWatch
  Recovering recovering = Recovering::kNo;
  std::uint8_t retries_left = 0, rnr_retries_left = 0;
};

/// Requester::reports, as a set: which WQEs that end with success are reported, and where.
enum Reports : std::uint8_t {
  kAllReports = 1,      ///< sq_sig_all: all of them in the CQ, not only those that are signaled
  kCountedReports = 2,  ///< there is a completion counter
  kTimedReports = 4,    ///< Qp::latency is being measured
  kRuledReports = 8,    ///< there are rules for them (proto/work/held_completions.h)
};

/// The send queue and the sequence space; the oldest is on the left.
///
///   WQEs              head                 cursor               started              fetched
///        ... complete  | sent,              | begun, packets     | fetched,           | in the
///                      | not acknowledged   | to send (again)    | never begun        | ring ...
///
///   PSNs              una                  psn                  max_psn
///    ... acknowledged  | sent,              | to send again      | never sent ...
///                      | not acknowledged   |                    |
///
///   ack_requested <= psn: packets before ack_requested carried an AckReq, precede one, or are answered with a
///   response. An acknowledge was requested and is outstanding while ack_requested is after una.
///
/// una lies in the WQE at head, psn in the WQE at cursor. psn equals max_psn unless the requester went back
/// (rc/recovery: cursor = head, psn = una), and catches up with it as the packets are sent again.
struct Requester {
  std::uint32_t head = 0;            ///< oldest WQE that is not complete
  std::uint32_t cursor = 0;          ///< WQE that is sent next
  std::uint32_t started = 0;         ///< first WQE that was never begun
  std::uint32_t fetched = 0;         ///< first WQE that is still in the ring
  std::uint32_t known = 0;           ///< entries known to be in the ring and not copied out
  Psn psn;                           ///< of the packet that is sent next
  Psn una;                           ///< oldest PSN that is not acknowledged
  Psn max_psn;                       ///< one past the newest PSN ever sent
  Psn ack_requested;                 ///< one past the newest PSN for which an acknowledge was requested
  SgeCursor send_at, read_at;        ///< in the list of the WQE at cursor; of the READ at head
  std::uint8_t reports = 0;          ///< Reports
  bool draining = false;             ///< a transition to SQD was requested and is not complete
  bool paced = false;                ///< there is a rate limit: Qp::rate_limit
  std::uint8_t reads_in_flight = 0;  ///< READ requests and atomics
  queue::WorkConsumer ring;          ///< shared with the client
  std::byte* shadow = nullptr;       ///< private copies of its entries
  CqId cq;
  std::uint8_t max_reads = 0;  ///< max_rd_atomic
  std::uint8_t retry_cnt = 0, rnr_retry = 0;
  bool drain_notify = false;       ///< raise SQ_DRAINED
  bool limited = false;            ///< the peer advertises credits
  bool report_sent = false;        ///< raise kDatagramsSent at Qp::report_sent_at
  std::uint32_t credit_limit = 0;  ///< one past the WQEs for which it has receives
};

/// The share of the receive ring that this QP's READ responses may fill: Context::take_read_budget. And the length
/// of a READ request in packets of response, at most, 2^n, which follows the congestion window. Where a request
/// ends is a function of the PSN alone, also when it is sent again.
struct ReadPacing {
  std::uint32_t reserved = 0, reserved_before = 0;  ///< bytes, in `period` and in the one before
  std::uint32_t period = 0;
  std::uint8_t largest_chunk = kReadChunkPackets;
  std::uint8_t chunk = 1, chunk_before = 1;  ///< of requests from chunk_since on, and before it
  Psn chunk_since;
  std::uint32_t round = 0;  ///< in which it last got budget
  std::uint32_t next_waiter = kNoQp;
  bool waits = false;
  bool unanswered = false;  ///< a reservation expired, and no answer has come since

  std::uint32_t chunk_at(Psn psn) const { return psn.before(chunk_since) ? chunk_before : chunk; }
};

/// Covers what the READs in flight read: addresses of the peer, the last one included.
struct ReadRange {
  std::uint64_t first = 0, last = 0;
  std::uint32_t newest = 0;  ///< index of the READ that was begun last
};

/// The receive queue, or SRQ, and the place in the current receive WQE.
struct ReceiveQueue {
  queue::WorkConsumer ring;
  SgeCursor at;  ///< in Qp::receive
  CqId cq;
  SrqId srq;
  std::uint32_t max_sge = 1;
  bool shared = false;  ///< `srq` is used, not `ring`
  /// `shared`, or there are rules: `srq` is none, and proto/work/faults.h decides.
  bool diverted = false;
  bool ran_out = false;      ///< a SEND found `ring` empty
  bool special_end = false;  ///< of an XRC target, counted, or there are rules
};

/// A ring of the peer's READs and atomics that can be answered again, and the contents of the pending NAK.
struct Answers {
  Resource* ring = nullptr;
  std::uint8_t count = 0, limit = 0;  ///< max_dest_rd_atomic, and its upper limit
  std::uint8_t next = 0, used = 0, at = 0;
  std::uint8_t min_rnr_timer = 0;
  std::uint8_t nak_syndrome = 0;
  std::uint8_t fatal_event = 0;  ///< AsyncEvent to raise with the fatal NAK; 0: none
};

/// The flight of packets that was sent again last. Until it has been under way for a round trip, NAKs answer
/// packets of the flight before.
struct Recovery {
  Psn end;                    ///< max_psn when it began
  Nanos until = 0;            ///< sequence NAKs for PSNs before `end` are older than it
  Psn rnr_psn;                ///< where it continued after an RNR NAK,
  Nanos rnr_resumed = 0;      ///< and when
  Nanos rnr_round_trip = 0;   ///< shortest time from that packet to its RNR NAK; 0: unknown
  bool rnr_doubtful = false;  ///< the RNR NAK that is waited for may be a duplicate
};

/// The end of a SEND whose invalidation waits for answers with that key.
struct HeldSend {
  Key key;
  bool solicited = false, ack_requested = false;
  bool overtaken = false;  ///< requests after it were dropped
  std::uint16_t psns = 1;
};

/// Attributes from the creation of the QP, which a reset keeps.
struct Settings {
  std::uint32_t max_send_sge = 1, max_inline = 0, max_tso_header = 0;
  /// The bit of the type in Operation::qp_types; 0: none, or rules decide (proto/work/faults.h).
  std::uint16_t operations_of = 0;
  std::uint32_t xrcd = 0;
  std::uint64_t owner = 0;              ///< session, for address handles and events
  UserRateLimit* user_limit = nullptr;  ///< shared with the user's other QPs; nullptr: none
  bool block_own_multicast = false;
  bool strip_vlan = false;
  QpFaults* faults = nullptr;                ///< of the control thread; nullptr: none
  QpCompletionCounters* counters = nullptr;  ///< the same
};

/// A token bucket: work/rate_limit.h.
struct RateLimit {
  std::uint32_t kbps = 0;
  Nanos depth = 0;     ///< of the bucket: how far clear_at may run ahead of the time
  Nanos clear_at = 0;  ///< when all packets so far have left, at this rate
};

struct alignas(64) Qp {
  // Line 0: the packet in sequence. Line 1: counters, and messages of many packets.
  Common common;
  Responder responder;
  QpCounters counters;
  wire::Reth write;  ///< the rest of the WRITE in progress
  // Line 2, and the beginning of line 3: requester and completer.
  Retransmission retransmission;
  Congestion congestion;
  Requester requester;
  // Lines 4 to 6.
  wire::FrameTemplate path;
  HeaderCrc header_crc;  ///< of `path`
  ReadPacing reads;
  // Lines 6 and 7.
  ReceiveQueue receives;
  Answers answers;
  std::uint32_t qkey = 0;
  std::uint32_t life = 0;          ///< Context::lives when it began: at creation, with a reset, with ERR
  std::uint32_t answers_life = 0;  ///< the same of its READ answers, which a failure of the QP does not end
  std::byte path_v6[32] = {};      ///< source and destination that packets must have, as in the IPv6 header
  // Rarely used.
  Settings settings;
  Nanos other_deadlines[4] = {kNever, kNever, kNever, kNever};
  Nanos flush_interval = 0;
  Nanos next_cnp = 0;  ///< earliest time of the next CNP
  Nanos next_nak = 0;  ///< earliest time at which a sequence NAK is repeated
  ReadRange read_range;
  Recovery recovery;
  RateLimit rate_limit;
  std::uint32_t report_sent_at = 0;  ///< UD: index after the last WQE that is to be reported
  bool established = false;          ///< COMM_EST was reported
  HeldSend held;                     ///< if responder.intake is kHeld
  LatencySample latency;             ///< if Requester::reports has kTimedReports
  ReceiveWqe receive;                ///< taken out of the queue if responder.have_receive

  /// kNever: not set.
  Nanos& deadline(Deadline which) {
    switch (which) {
      case Deadline::kAck: return retransmission.ack_deadline;
      case Deadline::kRnr: return other_deadlines[0];
      case Deadline::kPace: return other_deadlines[1];
      case Deadline::kFlush: return other_deadlines[2];
      case Deadline::kLateCompletion: break;
    }
    return other_deadlines[3];
  }
  /// The earliest.
  Nanos next_deadline() {
    Nanos next = kNever;
    for (const Deadline which : kDeadlines) next = std::min(next, deadline(which));
    return next;
  }
  void clear_deadlines() {
    for (const Deadline which : kDeadlines) deadline(which) = kNever;
  }

  const Wqe& wqe(std::uint32_t index) const {
    return *reinterpret_cast<const Wqe*>(requester.shadow + std::size_t{index & (requester.ring.count() - 1)} *
                                                                requester.ring.stride());
  }
  Wqe& wqe(std::uint32_t index) { return const_cast<Wqe&>(std::as_const(*this).wqe(index)); }
  std::uint32_t full_packet_cost() const { return common.mtu() + kPacketCost; }
};

static_assert(std::is_trivially_copyable_v<Qp>);
// The first four cache lines are prefetched before a packet is parsed, and an acknowledge also needs the first
// pointer of the send queue: 8 bytes more cost 40 % for a QP that is not in the cache (bench/micro/proto, 10,000
// QPs).
static_assert(offsetof(Qp, counters) == 64 && offsetof(Qp, retransmission) == 128 &&
              offsetof(Qp, requester) == 192);
static_assert(offsetof(Qp, requester) + offsetof(Requester, ring) <= 256 - 8);
static_assert(sizeof(Qp) <= 2048);

/// The first lines of a QP that will be needed soon.
template <std::size_t kLines>
void prefetch_state(const Qp& qp) {
  const auto* line = reinterpret_cast<const std::byte*>(&qp);
  for (std::size_t i = 0; i < kLines; ++i) __builtin_prefetch(line + i * 64, 1);
}

/// State that only control commands use.
struct QpCold {
  QpAttr attr;
};

}  // namespace uroce::proto
