// A wait for a helper thread ends after a number of looks, however much time passes between them.
#include "mapping/wait_limit.h"

#include <gtest/gtest.h>

namespace uroce::mapping::testing {
namespace {

constexpr int kLooks = 100;

class WaitLimitTest : public ::testing::Test {
 protected:
  /// Looks, each `span` after the one before, until the wait is given up.
  int looks(bool blocked, Nanos span, int most = 100'000) {
    int count = 0;
    do {
      now += span;
    } while (++count < most && limit.goes_on(blocked, span, now));
    return count;
  }

  Nanos now = kSecond;
  StallBudget budget;
  WaitLimit limit{budget, kLooks};
};

TEST_F(WaitLimitTest, AHelperWithoutAProcessorIsGivenUpAfterItsLooks) {
  EXPECT_EQ(looks(false, WaitLimit::kLook), kLooks + 1);
  EXPECT_TRUE(budget.is_full(now)) << "its user pays nothing";
}

TEST_F(WaitLimitTest, AMachineThatStandsStillForASecondCostsOneLook) {
  now += kSecond;
  EXPECT_TRUE(limit.goes_on(false, kSecond, now));
  EXPECT_EQ(looks(false, WaitLimit::kLook), kLooks);
}

TEST_F(WaitLimitTest, ABlockedHelperIsPaidForByItsUser) {
  // One more, and some that are refilled in the meantime.
  EXPECT_NEAR(looks(true, WaitLimit::kLook), StallBudget::kBurst / WaitLimit::kLook + 1, 1);
}

TEST_F(WaitLimitTest, ACallerWithoutAProcessorDoesNotUseUpTheBudget) {
  // 20 ms without a processor were the whole budget once.
  for (int i = 0; i < 10; ++i) {
    now += StallBudget::kBurst;
    EXPECT_TRUE(limit.goes_on(true, StallBudget::kBurst, now));
  }
}

TEST_F(WaitLimitTest, AShortFirstLookCostsItsTime) {
  EXPECT_TRUE(limit.goes_on(true, 100 * kMicrosecond, now));
  EXPECT_TRUE(budget.is_full(now + 100 * kMicrosecond * StallBudget::kRefillDivisor));
}

}  // namespace
}  // namespace uroce::mapping::testing
