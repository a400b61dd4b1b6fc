#include "control/state/qpn.h"

#include "base/qpn_layout.h"

namespace uroce::control {
namespace {

constexpr std::uint32_t kCount = 1u << kQpnLocalBits;
constexpr std::uint32_t kHalfBits = kQpnLocalBits / 2;
constexpr std::uint32_t kHalfMask = (1u << kHalfBits) - 1;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

QpnAllocator::QpnAllocator(std::uint32_t worker, std::uint64_t seed)
    : worker_(worker), next_(static_cast<std::uint32_t>(mix(seed)) % kCount), seed_(seed), used_(kCount) {
  // QPN 0 and 1 are the management QPs, and 0xffffff means a multicast group.
  const bool first = worker == 0;
  if (first) used_[0] = used_[1] = true;
  const bool last = worker == kMaxWorkers - 1;
  if (last) used_[kCount - 1] = true;
  in_use_ = (first ? 2 : 0) + (last ? 1 : 0);
}

// A Feistel network: a permutation of the 20-bit numbers for each seed.
std::uint32_t QpnAllocator::scramble(std::uint32_t value) const {
  std::uint32_t left = value >> kHalfBits, right = value & kHalfMask;
  for (std::uint32_t round = 0; round < 4; ++round) {
    const std::uint32_t f =
        static_cast<std::uint32_t>(mix(seed_ ^ (std::uint64_t{round} << 56) ^ right)) & kHalfMask;
    const std::uint32_t swapped = left ^ f;
    left = right;
    right = swapped;
  }
  return (left << kHalfBits) | right;
}

std::optional<Qpn> QpnAllocator::allocate() {
  if (in_use_ == kCount) return std::nullopt;
  for (;;) {
    const std::uint32_t local = scramble(next_);
    next_ = (next_ + 1) % kCount;
    if (used_[local]) continue;
    used_[local] = true;
    ++in_use_;
    return Qpn{(worker_ << kQpnLocalBits) | local};
  }
}

void QpnAllocator::release(Qpn qpn) {
  const std::uint32_t local = qpn.value & (kCount - 1);
  if (!used_[local]) return;
  used_[local] = false;
  --in_use_;
}

}  // namespace uroce::control
