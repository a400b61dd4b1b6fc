#include "platform/log.h"

#include <gtest/gtest.h>

#include <string>

namespace uroce::daemon {
namespace {

TEST(ErrorLog, CountsRepetitionsInsteadOfKeepingThem) {
  ErrorLog errors;
  EXPECT_TRUE(errors.record("a", 1));
  EXPECT_FALSE(errors.record("a", 5));
  EXPECT_TRUE(errors.record("b", 6));
  ASSERT_EQ(errors.entries().size(), 2u);
  EXPECT_EQ(errors.entries()[0].count, 2u);
  EXPECT_EQ(errors.entries()[0].first_ns, 1u);
  EXPECT_EQ(errors.entries()[0].last_ns, 5u);
  for (int i = 0; i < 1000; ++i) errors.record("text " + std::to_string(i), 7);
  EXPECT_EQ(errors.entries().size(), ErrorLog::kMaxDistinct);
}

}  // namespace
}  // namespace uroce::daemon
