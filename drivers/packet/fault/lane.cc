#include "drivers/packet/fault/lane.h"

namespace uroce::fault {

void Direction::start(const Plan& plan, bool active, std::uint64_t stream) {
  plan_ = plan;
  active_ = active && plan.active();
  state_ = plan.seed + stream * 0x9e3779b97f4a7c15u;
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
std::uint64_t Direction::random() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

bool Direction::chance(double p) { return static_cast<double>(random() >> 11) * 0x1p-53 < p; }

Verdict Direction::judge(Nanos now, SharedPlan& counts) {
  // Every draw is always made, so that changing one setting does not shift the sequence of the others.
  const bool drop = chance(plan_.drop), duplicate = chance(plan_.duplicate), corrupt = chance(plan_.corrupt);
  const bool delay = chance(plan_.delay), reorder = chance(plan_.reorder);
  const auto overtaken_by = static_cast<std::uint32_t>(1 + random() % 8);
  Verdict verdict;
  if (drop) {
    verdict.drop = true;
    counts.count(SharedPlan::kDropped);
    return verdict;
  }
  if (duplicate) {
    verdict.duplicate = true;
    counts.count(SharedPlan::kDuplicated);
  }
  if (corrupt) {
    verdict.corrupt = true;
    counts.count(SharedPlan::kCorrupted);
  }
  if (ready_.size() + held_.size() >= kMaxWaiting) return verdict;
  if (delay) {
    verdict.hold_until = now + plan_.delay_by;
    verdict.overtaken_by = ~0u;
    counts.count(SharedPlan::kDelayed);
  } else if (reorder) {
    verdict.hold_until = now + kMaxOvertake;
    verdict.overtaken_by = overtaken_by;
    counts.count(SharedPlan::kReordered);
  }
  return verdict;
}

void Direction::corrupt(base::Frame& frame) {
  if (frame.length == 0) return;
  const std::uint64_t bit = random() % (std::uint64_t{frame.length} * 8);
  frame.data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  frame.flags &= ~std::uint32_t{base::kIpChecksumGood | base::kIcrcGood};
}

void Direction::pass(const base::Frame& frame) {
  ready_.push_back(frame);
  for (Held& held : held_) {
    if (held.overtaken_by != ~0u && held.overtaken_by != 0) --held.overtaken_by;
  }
}

void Direction::hold(const base::Frame& frame, const Verdict& verdict) {
  held_.push_back({frame, verdict.hold_until, verdict.overtaken_by});
}

void Direction::release_due(Nanos now) {
  std::size_t kept = 0;
  for (Held& held : held_) {
    if (!active_ || held.until <= now || held.overtaken_by == 0) {
      ready_.push_back(held.frame);
    } else {
      held_[kept++] = held;
    }
  }
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept), held_.end());
}

}  // namespace uroce::fault
