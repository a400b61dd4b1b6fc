// Whose session is closed because a thread waited for its memory. The test's own thread waits, as in a page fault:
// the parent of a vfork(2) is in state D until the child ends.
#include "control/diagnosis/stall_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "control/session/session.h"

namespace uroce::daemon::testing {
namespace {

constexpr std::uint64_t kMark = 4711, kId = 7;

void wait_in_kernel(useconds_t us) {
  const pid_t child = ::vfork();
  if (child == 0) {
    ::usleep(us);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

class StallWatchTest : public ::testing::Test {
 protected:
  StallWatchTest() { watch_.start(); }
  ~StallWatchTest() override { watch_.stop(); }

  void serve(bool privileged) {
    session_.privileged = privileged;
    watch_.add(kMark, session_);
    watch_.note_control(kMark);
  }

  worker::WorkerShared workers_;
  control::StallWatch watch_{workers_};
  control::Session session_{
      kId, platform::Peer{}, UniqueFd(), control::Charge(), false, std::make_shared<mapping::StallBudget>()};
};

#ifndef __SANITIZE_THREAD__  // it makes a vfork(2) a fork(2), whose parent does not wait
TEST_F(StallWatchTest, ManyShortWaitsCostAUserTheSession) {
  serve(false);
  for (int i = 0; i < 40; ++i) wait_in_kernel(10'000);
  EXPECT_EQ(watch_.take_offender(), kId);
}

TEST_F(StallWatchTest, ManyShortWaitsCostAPrivilegedUserNothing) {
  serve(true);
  for (int i = 0; i < 15; ++i) wait_in_kernel(150'000);
  EXPECT_EQ(watch_.take_offender(), 0u);
}

TEST_F(StallWatchTest, AWaitOfOverASecondCostsAPrivilegedUserTheSession) {
  serve(true);
  for (int i = 0; i < 3 && !::testing::Test::HasFailure(); ++i) {
    wait_in_kernel(2'500'000);  // its checks may be late
    if (watch_.take_offender() == kId) return;
  }
  FAIL() << "the session is left alone";
}
#endif

TEST_F(StallWatchTest, WaitsForNobodysMemoryCostNothing) {
  session_.privileged = false;
  watch_.add(kMark, session_);
  for (int i = 0; i < 10; ++i) wait_in_kernel(10'000);
  EXPECT_EQ(watch_.take_offender(), 0u);
}

}  // namespace
}  // namespace uroce::daemon::testing
