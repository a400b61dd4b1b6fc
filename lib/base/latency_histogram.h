// A histogram of durations: eight buckets for each power of two, so that a quantile is at most an eighth too large
// whatever its order of magnitude. Fixed size, no allocation; one thread writes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace uroce::base {

class LatencyHistogram {
 public:
  static constexpr unsigned kPowers = 36;
  static constexpr Nanos kMost = (Nanos{1} << kPowers) - 1;  ///< longer durations, over 68 s, count as this

  void record(Nanos duration) {
    const Nanos counted = std::min(duration, kMost);
    ++counts_[bucket_of(counted)];
    sum_ += counted;
  }
  void add(const LatencyHistogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
  }

  std::uint64_t count() const { return below(kBuckets); }
  Nanos sum() const { return sum_; }
  Nanos mean() const {
    const std::uint64_t all = count();
    return all == 0 ? 0 : sum_ / all;
  }
  /// The end of the bucket that holds this quantile, in (0, 1]; 0: nothing was recorded.
  Nanos quantile(double which) const {
    const auto all = static_cast<double>(count());
    const auto rank = static_cast<std::uint64_t>(std::ceil(which * all));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen != 0 && seen >= rank) return end_of(i) - 1;
    }
    return 0;
  }
  /// How many are shorter than 2^n ns; n from 3 to 36.
  std::uint64_t shorter_than_power(unsigned n) const { return below(bucket_of(Nanos{1} << n)); }

 private:
  static constexpr unsigned kSteps = 3;  // 2^n buckets for each power of two
  static constexpr std::size_t kBuckets = (kPowers - kSteps + 1) << kSteps;

  static constexpr std::size_t bucket_of(Nanos duration) {
    if (duration < 1u << kSteps) return duration;
    const auto power = static_cast<unsigned>(std::bit_width(duration)) - 1;
    const Nanos step = duration >> (power - kSteps);  // from 2^n to twice that
    return ((power - kSteps) << kSteps) + step;
  }
  static constexpr Nanos end_of(std::size_t bucket) {
    if (bucket < 2u << kSteps) return bucket + 1;
    const std::size_t power = (bucket >> kSteps) - 1, step = (bucket & ((1u << kSteps) - 1)) + (1u << kSteps);
    return Nanos{step + 1} << power;
  }
  std::uint64_t below(std::size_t bucket) const {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < std::min(bucket, kBuckets); ++i) all += counts_[i];
    return all;
  }

  std::array<std::uint64_t, kBuckets> counts_{};
  Nanos sum_ = 0;
};

}  // namespace uroce::base
