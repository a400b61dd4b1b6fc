#include "drivers/packet/fault/lane.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "drivers/packet/pcap/headers.h"
#include "wire/bytes.h"
#include "wire/ethernet_frame.h"
#include "wire/extended_headers.h"
#include "wire/icrc.h"

namespace uroce::fault {

void Direction::start(const Plan& plan, std::uint64_t stream) {
  std::vector<Drawn> before = std::exchange(rules_, {});
  const auto stays = [&](const Drawn& each) {
    return std::any_of(plan.rules.begin(), plan.rules.end(),
                       [&](const Rule& rule) { return rule.matched == each.rule.matched; });
  };
  // Of a rule that is gone: nothing may be held for it.
  if (!std::all_of(before.begin(), before.end(), stays)) {
    for (Held& held : held_) held.until = 0;
  }
  for (const Rule& rule : plan.rules) {
    if (!rule.active() || !(direction_ == pcap::Direction::kInbound ? rule.receive : rule.transmit)) continue;
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const Drawn& each) { return each.rule.matched == rule.matched; });
    rules_.push_back(known != before.end() ? *known : Drawn{rule, rule.seed + stream * 0x9e3779b97f4a7c15u});
  }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
std::uint64_t Direction::Drawn::random() {
  std::uint64_t x = state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// From 0 to 1, without 1.
double Direction::Drawn::chance() { return static_cast<double>(random() >> 11) * 0x1p-53; }

/// A burst goes on with a chance that gives it its mean length (E. N. Gilbert: Capacity of a burst-noise channel).
bool Direction::Drawn::loses() {
  const bool lost = chance() < (losing ? 1 - 1.0 / rule.burst : rule.drop);
  losing = lost && rule.burst > 1;
  return lost;
}

Verdict Direction::judge(const base::Frame& frame, Nanos now, SharedPlan& counts) {
  Verdict verdict;
  for (Drawn& drawn : rules_) {
    if (!drawn.rule.frames.matches(frame, direction_)) continue;
    drawn.rule.matched->fetch_add(1, std::memory_order_relaxed);
    apply(drawn, frame, now, verdict, counts);
    if (verdict.drop) break;
  }
  return verdict;
}

void Direction::apply(Drawn& drawn, const base::Frame& frame, Nanos now, Verdict& verdict, SharedPlan& counts) {
  const Rule& rule = drawn.rule;
  // Every draw but that of `nak` is always made, so that changing one setting does not shift the sequence of the
  // others.
  const bool drop = drawn.loses(), duplicate = drawn.chance() < rule.duplicate;
  const bool corrupt = drawn.chance() < rule.corrupt, delay = drawn.chance() < rule.delay;
  const bool reorder = drawn.chance() < rule.reorder;
  const std::uint64_t amount = drawn.random();
  const bool nak = rule.nak > 0 && drawn.chance() < rule.nak;
  const bool full = ready_.size() + held_.size() >= kMaxWaiting;
  if (drop || (full && rule.rate != 0)) {
    verdict.drop = true;
    counts.count(SharedPlan::kDropped);
    return;
  }
  if (duplicate) {
    verdict.duplicate = true;
    counts.count(SharedPlan::kDuplicated);
  }
  if (corrupt) {
    verdict.corrupt = true;
    verdict.corrupt_at = drawn.random();
    counts.count(SharedPlan::kCorrupted);
  }
  if (nak) verdict.nak_syndrome = rule.nak_syndrome;
  if (rule.rate != 0) {
    drawn.free_at = std::max(drawn.free_at, now) + Nanos{frame.length} * 8 * kSecond / rule.rate;
    verdict.hold_until = std::max(verdict.hold_until, drawn.free_at);
    verdict.overtaken_by = Verdict::kNoOthers;
    verdict.queued = true;
  }
  if (full) return;
  if (delay) {
    const Nanos more = rule.jitter == 0 ? 0 : (amount >> 8) % (rule.jitter + 1);
    verdict.hold_until = std::max(verdict.hold_until, now) + rule.delay_by + more;
    verdict.overtaken_by = Verdict::kNoOthers;
    counts.count(SharedPlan::kDelayed);
  } else if (reorder && verdict.hold_until == 0) {
    verdict.hold_until = now + kMaxOvertake;
    verdict.overtaken_by = static_cast<std::uint32_t>(1 + amount % 8);
    counts.count(SharedPlan::kReordered);
  }
}

void Direction::corrupt(base::Frame& frame, const Verdict& verdict) {
  if (frame.length == 0) return;
  const std::uint64_t bit = verdict.corrupt_at % (std::uint64_t{frame.length} * 8);
  frame.data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  frame.flags &= ~std::uint32_t{base::kIpChecksumGood | base::kIcrcGood};
}

bool Direction::refuse(base::Frame& frame, const Verdict& verdict) {
  const std::span<std::byte> bytes(frame.data, frame.length);
  const std::optional<pcap::Headers> headers = pcap::headers_of(bytes);
  if (!headers || !headers->bth || headers->info().operation != wire::Operation::kAcknowledge) return false;
  const wire::FrameLayout layout = wire::layout_of(bytes);
  const std::size_t udp_bytes = wire::load16(frame.data + layout.transport + 4);
  const std::size_t icrc = layout.transport + udp_bytes - wire::kIcrcBytes;
  const std::size_t aeth = layout.payload + wire::kBthBytes;
  if (udp_bytes > frame.length - layout.transport || icrc < aeth + wire::Aeth::kBytes) return false;
  std::byte* const syndrome = frame.data + aeth;
  if (std::to_integer<std::uint8_t>(*syndrome) >= wire::kRnrNak) return false;
  const auto right_icrc = [&] {
    return wire::icrc_of(frame.data + layout.network, layout.transport - layout.network, icrc - layout.payload);
  };
  // A damaged frame must not become a valid one.
  const bool known = (frame.flags & base::kIcrcGood) != 0;
  if (!known && wire::load_raw<std::uint32_t>(frame.data + icrc) != right_icrc()) return false;
  *syndrome = std::byte{verdict.nak_syndrome};
  wire::store_raw(frame.data + icrc, right_icrc());
  return true;
}

void Direction::pass(const base::Frame& frame) {
  ready_.push_back(frame);
  for (Held& held : held_) {
    if (held.overtaken_by != Verdict::kNoOthers && held.overtaken_by != 0) --held.overtaken_by;
  }
}

void Direction::hold(const base::Frame& frame, const Verdict& verdict) {
  held_.push_back({frame, verdict.hold_until, verdict.overtaken_by});
}

void Direction::release_due(Nanos now) {
  std::size_t kept = 0;
  for (Held& held : held_) {
    if (!active() || held.until <= now || held.overtaken_by == 0) {
      ready_.push_back(held.frame);
    } else {
      held_[kept++] = held;
    }
  }
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept), held_.end());
}

}  // namespace uroce::fault
