// The rate limit of a QP's sends (IBV_QP_RATE_LIMIT): a token bucket, stored as the time at which everything that
// was sent would have left at that rate. A turn of a limited QP may send as many packets as the bucket holds; if it
// holds none, a timer is set. A QP without a limit only checks `paced`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto::rate_limit {

/// The duration of that many bytes, rounded up, ns. `kbps` is not 0.
constexpr Nanos time_of(std::uint64_t bytes, std::uint32_t kbps) { return (bytes * 8'000'000 + kbps - 1) / kbps; }

/// The duration of a full packet with its headers.
inline Nanos packet_time(const Context& context, const Qp& qp) {
  return time_of(qp.common.type == QpType::kRawPacket ? context.max_frame : qp.common.mtu() + wire::kMaxOverhead,
                 qp.rate_limit.kbps);
}

/// `kbps` 0: no limit. `burst`: bytes that may leave back to back; 0: kBurst's worth. The bucket starts with one
/// packet.
inline void set_rate(Context& context, Qp& qp, std::uint32_t kbps, std::uint32_t burst) {
  constexpr Nanos kBurst = kMillisecond;  // a worker that wakes up late by less does not lower the rate
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
  std::uint64_t bytes = 0;
  for (const base::Frame& frame : frames) bytes += frame.length;
  qp.rate_limit.clear_at = std::max(qp.rate_limit.clear_at, context.now) + time_of(bytes, qp.rate_limit.kbps);
}

}  // namespace uroce::proto::rate_limit
