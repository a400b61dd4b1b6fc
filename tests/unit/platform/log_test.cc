#include "platform/log.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(ErrorLog, KeepsRoomForOtherUsers) {
  ErrorLog errors;
  for (int i = 0; i < 1000; ++i) errors.record("of one " + std::to_string(i), 1, 1000);
  EXPECT_EQ(errors.entries().size(), ErrorLog::kMaxOfUser);
  EXPECT_EQ(errors.entries().back().text, "others of user 1000");
  EXPECT_TRUE(errors.record("of another", 2, 1001));
}

std::size_t lines_of(std::uint32_t user, int count) {
  ::testing::internal::CaptureStderr();
  {
    const LogUser caused_by(user);
    for (int i = 0; i < count; ++i) log(LogLevel::kInfo, "line");
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(Log, LimitsTheLinesThatAUserCauses) {
  const std::size_t many = lines_of(1000, 2000);
  EXPECT_GE(many, 50u);
  EXPECT_LT(many, 1000u);
  EXPECT_EQ(lines_of(1001, 10), 10u);
}

}  // namespace
}  // namespace uroce::daemon
