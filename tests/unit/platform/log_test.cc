#include "platform/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace uroce::platform {
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

std::size_t lines_of(std::uint32_t user, int count, LogLevel level = LogLevel::kInfo) {
  ::testing::internal::CaptureStderr();
  {
    const LogUser caused_by(user);
    for (int i = 0; i < count; ++i) log(level, "line %d of user %u", i, static_cast<unsigned>(user));
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

TEST(Log, KeepsRoomForTheWarningsOfAUser) {
  EXPECT_LT(lines_of(1002, 200), 200u);
  EXPECT_GE(lines_of(1002, 10, LogLevel::kWarning), 10u);
}

TEST(Log, KnowsTheJournal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  struct stat file {};
  ASSERT_EQ(::fstat(ends[1], &file), 0);
  const std::string stream = std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
  EXPECT_TRUE(is_journal(ends[1], stream.c_str()));
  EXPECT_FALSE(is_journal(ends[1], nullptr));
  EXPECT_FALSE(is_journal(ends[1], (stream + "1").c_str()));
  EXPECT_FALSE(is_journal(ends[1], "8"));
  EXPECT_FALSE(is_journal(-1, stream.c_str()));
  ::close(ends[0]), ::close(ends[1]);
}

}  // namespace
}  // namespace uroce::platform
