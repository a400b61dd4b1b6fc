#include "proto/state/faults.h"

namespace uroce::proto {
namespace {

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// From 0 to 1, a function of its arguments alone.
double draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t match) {
  constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;
  const std::uint64_t value = mix(mix(mix(seed + kGamma) + stream * kGamma) + match * kGamma);
  return static_cast<double>(value >> 11) * 0x1p-53;
}

}  // namespace

bool FaultPlan::fires(std::uint64_t stream, std::uint64_t match) const {
  if (nth != 0 ? match != nth : match % every != 0) return false;
  return probability >= 1 || draw(seed, stream, match) < probability;
}

bool FaultRule::take(std::uint64_t stream, std::uint64_t match) {
  matched.fetch_add(1, std::memory_order_relaxed);
  if (!fires(stream, match)) return false;
  std::uint64_t so_far = fired.load(std::memory_order_relaxed);
  do {
    if (so_far >= most) return false;
  } while (!fired.compare_exchange_weak(so_far, so_far + 1, std::memory_order_relaxed));
  return true;
}

}  // namespace uroce::proto
