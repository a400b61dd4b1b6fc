#include "base/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace uroce::base {
namespace {

TEST(LatencyHistogram, IsEmptyAtFirst) {
  const LatencyHistogram none;
  EXPECT_EQ(none.count(), 0u);
  EXPECT_EQ(none.sum(), 0u);
  EXPECT_EQ(none.mean(), 0u);
  EXPECT_EQ(none.quantile(0.5), 0u);
  EXPECT_EQ(none.quantile(1), 0u);
  EXPECT_EQ(none.shorter_than_power(36), 0u);
}

/// Each duration by itself: its quantiles are the end of its bucket.
TEST(LatencyHistogram, ADurationIsAtMostAnEighthTooLong) {
  std::vector<Nanos> durations;
  for (Nanos each = 0; each < 5000; ++each) durations.push_back(each);
  for (unsigned power = 3; power < 36; ++power) {
    for (const Nanos step : {Nanos{0}, Nanos{1}, (Nanos{1} << power) / 8, (Nanos{1} << power) - 1}) {
      durations.push_back((Nanos{1} << power) + step);
    }
  }
  for (const Nanos each : durations) {
    LatencyHistogram histogram;
    histogram.record(each);
    const Nanos found = histogram.quantile(0.5);
    ASSERT_GE(found, each);
    ASSERT_LE(found, each + each / 8);
    ASSERT_EQ(histogram.quantile(0.001), found);
    ASSERT_EQ(histogram.quantile(1), found);
    ASSERT_EQ(histogram.mean(), each);
  }
}

TEST(LatencyHistogram, QuantilesAreThoseOfTheSortedDurations) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Nanos> all(1 + random() % 3000);
    LatencyHistogram histogram, half;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = random() >> (28 + random() % 36);
      (i % 2 == 0 ? histogram : half).record(all[i]);
    }
    histogram.add(half);
    std::sort(all.begin(), all.end());
    ASSERT_EQ(histogram.count(), all.size());
    for (const double which : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(which * static_cast<double>(all.size())));
      const Nanos exact = all[rank - 1], found = histogram.quantile(which);
      ASSERT_GE(found, exact) << which;
      ASSERT_LE(found, exact + exact / 8) << which;
    }
    for (unsigned power = 3; power <= 36; ++power) {
      const auto shorter = std::lower_bound(all.begin(), all.end(), Nanos{1} << power) - all.begin();
      ASSERT_EQ(histogram.shorter_than_power(power), static_cast<std::uint64_t>(shorter)) << power;
    }
  }
}

TEST(LatencyHistogram, CountsWhatIsTooLongAsTheLongest) {
  LatencyHistogram histogram;
  histogram.record(kNever);
  histogram.record(LatencyHistogram::kMost);
  EXPECT_EQ(histogram.quantile(1), LatencyHistogram::kMost);
  EXPECT_EQ(histogram.sum(), 2 * LatencyHistogram::kMost);
  EXPECT_EQ(histogram.shorter_than_power(35), 0u);
  EXPECT_EQ(histogram.shorter_than_power(36), 2u);
}

}  // namespace
}  // namespace uroce::base
