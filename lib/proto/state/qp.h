// The state of one QP. Trivially copyable and free of pointers to other QPs (indices link them), so that a worker
// can be written down and a QP can move. Fields are grouped by who works on them; the groups that every packet
// touches come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "abi/queue_entries.h"
#include "base/types.h"
#include "proto/state/attributes.h"
#include "proto/state/congestion_window.h"
#include "proto/state/counters.h"
#include "proto/state/packet_builder.h"
#include "proto/state/rtt_estimator.h"
#include "queue/work_queue.h"
#include "wire/packet.h"

namespace uroce::proto {

inline constexpr std::uint32_t kMaxSge = 32;            ///< of a receive WQE
inline constexpr std::uint32_t kMaxMessage = 1u << 31;  ///< bytes
inline constexpr std::uint32_t kReadChunkPackets =
    32;  ///< a longer READ goes out as several requests, a power of 2
inline constexpr std::uint32_t kNoQp = ~std::uint32_t{0};

/// What a send WQE does.
enum class Kind : std::uint8_t {
  kSend,
  kWrite,
  kRead,
  // Of one PSN, or none.
  kAtomic,
  kAtomicWrite,
  kFlush,
  kLocalInvalidate,
  kBind,
  kRegister,
  kInvalid,
  kSegments,  ///< TCP segmentation
};
/// Executed here, nothing is sent.
constexpr bool is_local(Kind kind) { return kind >= Kind::kLocalInvalidate && kind <= Kind::kInvalid; }

/// The private, checked copy of a send queue entry, in sq_shadow, with its list in the same place.
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
    std::uint32_t mw_handle;  ///< of a WQE that is local
  };
  std::uint32_t psn_count;
  Kind kind;
  std::uint8_t status;   ///< uroce_wc_status it is to fail with when its turn to complete comes
  std::uint8_t list_at;  ///< bytes from the header's beginning
  std::uint8_t reserved;
  union {
    uroce_wr_atomic atomic;
    uroce_wr_bind bind;
    uroce_wr_flush flush;
    uroce_wr_tso tso;
  };

  const std::byte* inline_data() const { return reinterpret_cast<const std::byte*>(this) + list_at; }
  const uroce_sge* sges() const { return reinterpret_cast<const uroce_sge*>(inline_data()); }
  /// Of a TSO: behind the list.
  const std::byte* tso_header() const {
    return inline_data() + (is_inline() ? length : num_sge * std::uint32_t{sizeof(uroce_sge)});
  }
  bool is_inline() const { return (flags & UROCE_SEND_INLINE) != 0; }
  Psn first() const { return Psn(first_psn); }
  Psn end() const { return Psn(first_psn + psn_count); }
};
static_assert(sizeof(Wqe) == sizeof(uroce_sq_entry));

/// A place in a scatter list.
struct SgeCursor {
  std::uint32_t index = 0;
  std::uint32_t offset = 0;  ///< within that element
};

/// The receive WQE that a message fills: private copy.
struct ReceiveWqe {
  std::uint64_t wr_id = 0;
  std::uint32_t num_sge = 0;
  std::uint32_t status = 0;  ///< uroce_wc_status of a bad entry
  PdId pd;                   ///< of the memory that it names
  uroce_sge sge[kMaxSge];
};

/// With what the responder answers: READ responses, the latter empty after a FLUSH or ATOMIC WRITE, or an atomic
/// acknowledge.
enum class ResponseKind : std::uint8_t { kData, kConfirmation, kAtomic };

/// A request that the responder can answer, again if need be.
struct Resource {
  std::uint64_t address;
  std::uint64_t result;  ///< of an atomic: the original value
  std::uint32_t rkey;
  std::uint32_t length;
  std::uint32_t first_psn, psn_count;
  std::uint32_t next_psn;    ///< of the answer now going out
  std::uint32_t start_psn;   ///< first of that answer
  std::uint32_t end_psn;     ///< one past its last
  std::uint32_t end_offset;  ///< bytes of the original where that answer ends
  std::uint32_t msn;
  std::uint32_t pd;
  ResponseKind answer;
  std::uint8_t pending;  ///< an answer is to be sent, or is going out
  std::uint8_t replay;
};
static_assert(sizeof(Resource) <= 64);

/// What the requester knows of itself: it may have something to send, has nothing, or waits for an acknowledge, a
/// timer or another's READs.
enum class SendState : std::uint8_t { kReady, kIdle, kBlocked };

/// The message that the responder is in the middle of.
enum class MessageInProgress : std::uint8_t { kNone, kSend, kWrite };

/// What acknowledgement the responder owes.
enum class PendingAck : std::uint8_t { kNothing, kAck, kNak };

/// The rate limit of a QP that is `paced`: pacing.h.
struct RateLimit {
  std::uint32_t kbps = 0;
  Nanos depth = 0;     ///< of the bucket: how far clear_at may run ahead of the time
  Nanos clear_at = 0;  ///< when all that was sent has left, at this rate
  Nanos deadline = kNever;
};

struct alignas(64) Qp {
  // --- line 0: every packet, either way; what the responder needs for a packet in sequence ---
  QpState state = QpState::kReset;
  QpType type = QpType::kRc;
  std::uint8_t mtu_shift = 10;
  bool active = false;  ///< in the active list
  SendState send_state = SendState::kIdle;
  MessageInProgress message = MessageInProgress::kNone;
  PendingAck owed = PendingAck::kNothing;
  bool owed_newest = false;     ///< the ACK is for the newest PSN received when it leaves, else for owed_psn
  bool nak_sent = false;        ///< sequence or RNR NAK given, and not back in sequence since
  bool responder_dead = false;  ///< a fatal NAK is owed or given
  bool have_receive = false;    ///< `receive` is taken out of the queue
  bool cnp_owed = false;        ///< the peer is to be told of congestion
  std::uint8_t resource_pending = 0;
  wire::Service service = wire::Service::kRc;  ///< follows from the type
  std::uint16_t pkey = wire::kDefaultPkey;
  std::uint32_t self = kNoQp;
  Qpn qpn, dest_qpn;
  PdId pd;
  std::uint32_t mtu = 1024;
  std::uint32_t peer_v4 = 0;  ///< address that packets must come from, as in the IP header; 0: it is `peer`
  Psn epsn;
  Msn msn;
  Psn owed_psn;
  std::uint32_t access = 0;
  std::uint32_t receive_offset = 0;  ///< bytes of the message so far
  std::uint32_t qkey = 0;

  // --- line 1: messages of many packets; counters ---
  QpCounters counters;
  std::uint64_t write_address = 0;
  std::uint32_t write_left = 0;
  Key write_rkey;

  // --- lines 2 and 3: requester and completer ---
  std::uint32_t sq_head = 0;                    ///< oldest WQE that isn't complete
  std::uint32_t sq_cursor = 0;                  ///< WQE that is sent next
  std::uint32_t sq_started = 0;                 ///< first WQE that never was begun
  std::uint32_t sq_fetched = 0;                 ///< first WQE not copied out of the ring yet
  std::uint32_t sq_known = 0;                   ///< entries known to be in the ring and not copied out
  Psn psn;                                      ///< of the packet that is sent next
  Psn una;                                      ///< oldest PSN that isn't acknowledged
  Psn max_psn;                                  ///< one past the newest PSN ever sent
  Psn ack_asked;                                ///< one past the newest PSN that an acknowledge was asked for
  std::uint32_t cost_sent = 0, cost_acked = 0;  ///< running sums; the difference is in flight
  std::uint32_t cost_since_ack_req = 0;
  CongestionWindow window;
  Nanos ack_deadline = kNever;
  Nanos wheel_deadline = kNever;  ///< what the timer wheel has for this QP
  SgeCursor send_at, read_at;
  RttEstimator rtt;
  std::uint8_t ack_timeout = 0;    ///< 4.096 us * 2^n; 0: none
  std::uint8_t early_retries = 0;  ///< since the last progress
  bool watched = false;
  bool signal_all = false;
  bool retrying = false;  ///< went back to una, and no progress since
  bool rnr_waiting = false;
  bool paced = false;                ///< there is a rate limit: `pace`
  bool sqd_pending = false;          ///< SQ drain was asked for and isn't complete
  std::uint8_t reads_in_flight = 0;  ///< READ requests and atomics
  std::uint8_t max_reads = 0;
  std::uint8_t retries_left = 0, rnr_retries_left = 0;

  // --- lines 4 to 6: send queue and path ---
  queue::WorkConsumer sq;
  std::byte* shadow = nullptr;
  CqId send_cq, recv_cq;
  wire::FrameTemplate path;
  HeaderCrc header_crc;  ///< of `path`
  std::uint32_t read_budget_used = 0;
  std::uint32_t read_chunk = kReadChunkPackets;  ///< packets of answer that one READ request may ask for; 2^n
  std::uint8_t retry_cnt = 0, rnr_retry = 0;
  bool sqd_notify = false;
  bool waits_for_read_budget = false;
  Nanos rnr_deadline = kNever;

  // --- receives, READs and atomics of the peer ---
  queue::WorkConsumer rq;
  SgeCursor receive_at;
  Resource* resources = nullptr;
  std::uint8_t resource_count = 0, resource_limit = 0;
  std::uint8_t resource_next = 0, resource_used = 0, resource_at = 0;
  std::uint8_t min_rnr_timer = 0;
  std::uint8_t nak_syndrome = 0;
  std::uint8_t fatal_event = 0;  ///< AsyncEvent to raise with the fatal NAK
  bool has_srq = false;
  bool established = false;  ///< COMM_EST was reported
  bool block_own_multicast = false;
  bool strip_vlan = false;
  std::uint32_t max_recv_sge = 1;

  // --- seldom ---
  std::byte peer[16] = {};
  std::uint32_t next_read_waiter = kNoQp;
  std::uint32_t read_round = 0;  ///< in which it last got READ budget
  std::uint32_t max_send_sge = 1, max_inline = 0, max_tso_header = 0;
  SrqId srq;
  std::uint64_t owner = 0;
  Nanos flush_interval = 0;
  Nanos next_cnp = 0;  ///< none is sent before
  RateLimit pace;
  std::uint32_t xrcd = 0;
  ReceiveWqe receive;

  const Wqe& wqe(std::uint32_t index) const {
    return *reinterpret_cast<const Wqe*>(shadow + std::size_t{index & (sq.count() - 1)} * sq.stride());
  }
  Wqe& wqe(std::uint32_t index) {
    return *reinterpret_cast<Wqe*>(shadow + std::size_t{index & (sq.count() - 1)} * sq.stride());
  }
  std::uint32_t in_flight() const { return cost_sent - cost_acked; }
  std::uint32_t full_packet_cost() const { return mtu + kPacketCost; }
};

static_assert(std::is_trivially_copyable_v<Qp>);
// The first four lines are fetched before a packet is looked at, and an acknowledge works on the first pointer of
// the send queue, too: 8 bytes more cost a QP that isn't in the cache 40 % (bench/micro/proto, 10,000 QPs).
static_assert(offsetof(Qp, counters) == 64 && offsetof(Qp, sq_head) == 128 && offsetof(Qp, sq) <= 256 - 8);
static_assert(sizeof(Qp) <= 2048);

/// What only control commands look at.
struct QpCold {
  QpAttr attr;
};

}  // namespace uroce::proto
