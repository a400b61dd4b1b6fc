// The rate limit of a QP's sends (IBV_QP_RATE_LIMIT): a token bucket, stored as the time at which everything that
// was sent would have left at that rate. A turn of a limited QP may send as many packets as the bucket holds; if it
// holds none, a timer is set. A QP without a limit only checks `paced`.
//
// The rate limit of a user (UserRateLimit) is such a bucket for all that its QPs send, responses included, on all
// workers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto::rate_limit {

/// The duration of that many bytes, rounded up, ns. `kbps` is not 0.
constexpr Nanos time_of(std::uint64_t bytes, std::uint32_t kbps) { return (bytes * 8'000'000 + kbps - 1) / kbps; }

inline constexpr Nanos kBurst = kMillisecond;  ///< a worker that wakes up late by less does not lower the rate

/// Bytes of a full packet with its headers.
inline std::uint32_t full_packet(const Context& context, const Qp& qp) {
  return qp.common.type == QpType::kRawPacket ? context.max_frame : qp.common.mtu() + wire::kMaxOverhead;
}
inline Nanos packet_time(const Context& context, const Qp& qp) {
  return time_of(full_packet(context, qp), qp.rate_limit.kbps);
}
inline std::uint64_t bytes_of(std::span<const base::Frame> frames) {
  std::uint64_t bytes = 0;
  for (const base::Frame& frame : frames) bytes += frame.length;
  return bytes;
}

/// `kbps` 0: no limit. `burst`: bytes that may leave back to back; 0: kBurst's worth. The bucket starts with one
/// packet.
inline void set_rate(Context& context, Qp& qp, std::uint32_t kbps, std::uint32_t burst) {
  qp.requester.paced = kbps != 0;
  qp.rate_limit = {.kbps = kbps};
  qp.deadline(Deadline::kPace) = kNever;
  if (!qp.requester.paced) return;
  const Nanos packet = packet_time(context, qp);
  qp.rate_limit.depth = std::max(burst != 0 ? time_of(burst, kbps) : std::max(kBurst, 2 * packet), packet);
  qp.rate_limit.clear_at = context.now + qp.rate_limit.depth - packet;
}

/// Limits the turn's budget to what the bucket holds. False: less than a packet, and the timer is set.
[[gnu::noinline]] inline bool admit(Context& context, Qp& qp, std::uint32_t& budget) {
  RateLimit& pace = qp.rate_limit;
  const Nanos packet = packet_time(context, qp);
  const Nanos owed = pace.clear_at > context.now ? pace.clear_at - context.now : 0;
  if (owed + packet <= pace.depth) {
    budget = static_cast<std::uint32_t>(std::min<Nanos>(budget, (pace.depth - owed) / packet));
    return true;
  }
  context.set_deadline(qp, Deadline::kPace, context.now + owed + packet - pace.depth);
  qp.common.send_state = SendState::kBlocked;
  return false;
}

/// After a turn: charges the frames that were sent.
[[gnu::noinline]] inline void charge(const Context& context, Qp& qp, std::span<const base::Frame> frames) {
  qp.rate_limit.clear_at =
      std::max(qp.rate_limit.clear_at, context.now) + time_of(bytes_of(frames), qp.rate_limit.kbps);
}

/// When a QP may try again: one after the other, since thousands that try at once would take the worker's time.
/// Those that would wait for longer than kLongestWait try at its end.
inline Nanos next_turn(UserRateLimit& limit, Nanos earliest, Nanos packet, Nanos now) {
  constexpr Nanos kLongestWait = 100 * kMillisecond;
  const Nanos queued = std::min(limit.next_turn.load(std::memory_order_relaxed), now + kLongestWait);
  const Nanos turn = std::max(earliest, queued);
  limit.next_turn.store(turn + packet, std::memory_order_relaxed);
  return turn;
}

/// Limits the turn's budget to what the user's bucket holds. False: less than a packet, and the timer is set if the
/// QP has data to send.
[[gnu::noinline]] inline bool admit(Context& context, Qp& qp, UserRateLimit& limit, std::uint32_t& budget) {
  const Nanos packet = time_of(full_packet(context, qp), limit.kbps);
  const Nanos depth = std::max(kBurst, 2 * packet);
  const Nanos clear_at = limit.clear_at.load(std::memory_order_relaxed);
  const Nanos owed = clear_at > context.now ? clear_at - context.now : 0;
  if (owed + packet <= depth) {
    budget = static_cast<std::uint32_t>(std::min<Nanos>(budget, (depth - owed) / packet));
    return true;
  }
  if (qp.common.send_state == SendState::kReady || qp.responder.answers_pending != 0) {
    context.set_deadline(qp, Deadline::kPace,
                         next_turn(limit, context.now + owed + packet - depth, packet, context.now));
  }
  return false;
}

/// After a turn: charges the user for the frames that were sent.
[[gnu::noinline]] inline void charge(const Context& context, UserRateLimit& limit,
                                     std::span<const base::Frame> frames) {
  const Nanos span = time_of(bytes_of(frames), limit.kbps);
  Nanos clear_at = limit.clear_at.load(std::memory_order_relaxed);
  while (!limit.clear_at.compare_exchange_weak(clear_at, std::max(clear_at, context.now) + span,
                                               std::memory_order_relaxed)) {
  }
}

}  // namespace uroce::proto::rate_limit
