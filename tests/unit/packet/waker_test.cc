// What wakes a sleeping worker: interrupts, as eventfds that no driver fills.
#include "drivers/packet/dpdk/waker.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <rte_ethdev.h>
#include <sys/eventfd.h>

#include "platform/unique_fd.h"

namespace uroce::packet_test {
namespace {

constexpr int kLong = 5000, kShort = 50;  // ms; the longest nap of a timer has 1

bool wakes(const dpdk::Waker& waker, int limit_ms) {
  pollfd readable{.fd = waker.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, limit_ms) == 1;
}

class InterruptWakerTest : public ::testing::Test {
 protected:
  void sleep_with_an_interrupt() {
    waker.arm(true);
    ASSERT_EQ(::eventfd_write(interrupt.get(), 1), 0);
    ASSERT_TRUE(wakes(waker, kLong));
    waker.disarm();
  }

  UniqueFd interrupt{::eventfd(0, EFD_CLOEXEC)};
  dpdk::InterruptWaker waker{RTE_MAX_ETHPORTS - 1, 0,
                             interrupt.get()};  // no such port: nothing enables or disables
};

TEST_F(InterruptWakerTest, a_timer_wakes_if_no_interrupt_ever_comes) {
  for (int i = 0; i < 3 * dpdk::InterruptWaker::kTrusted; ++i) {
    waker.arm(true);
    EXPECT_TRUE(wakes(waker, kLong));
    waker.disarm();
  }
}

TEST_F(InterruptWakerTest, interrupts_that_come_replace_the_timer) {
  for (int i = 0; i < dpdk::InterruptWaker::kTrusted; ++i) sleep_with_an_interrupt();
  waker.arm(true);
  EXPECT_FALSE(wakes(waker, kShort));
  ASSERT_EQ(::eventfd_write(interrupt.get(), 1), 0);
  EXPECT_TRUE(wakes(waker, kLong));
}

TEST_F(InterruptWakerTest, an_interrupt_wakes_once) {
  for (int i = 0; i < 2 * dpdk::InterruptWaker::kTrusted; ++i) sleep_with_an_interrupt();
  EXPECT_FALSE(wakes(waker, 0));
}

}  // namespace
}  // namespace uroce::packet_test
