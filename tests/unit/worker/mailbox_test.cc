#include "worker/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <thread>

#include "worker/worker.h"

namespace uroce::worker {
namespace {

struct Add {
  static constexpr std::string_view kName = "add";
  int& sum;
  int what = 0;
  int before = -1;
  void describe(ArgumentText& text) const { text.add("what", what); }
  void run(WorkerCore&) {
    before = sum;
    sum += what;
  }
};

class MailboxTest : public ::testing::Test {
 protected:
  WorkerShared shared;
  memory::Table memory{16, 1};
  WorkerCore worker{
      {.transport = {.max_qps = 4, .max_cqs = 4, .max_srqs = 4, .max_ahs = 4}}, shared, memory, nullptr};
  Nanos (*clock)() = [] { return Nanos{7}; };
  Mailbox mailbox{clock};
};

TEST_F(MailboxTest, RunsPostedCommandsInOrder) {
  int sum = 0;
  Add one{sum, 1}, two{sum, 10}, quiet{sum, 100};
  Mailbox::Entry first{WorkerCommandRef(one)}, second{WorkerCommandRef(two)}, third{WorkerCommandRef(quiet)};
  third.traced = false;
  EXPECT_FALSE(mailbox.serve(worker));
  mailbox.post(first);
  mailbox.post(second);
  mailbox.post(third);
  EXPECT_TRUE(mailbox.waiting());
  EXPECT_FALSE(first.done);
  EXPECT_TRUE(mailbox.serve(worker));
  EXPECT_TRUE(first.done && second.done && third.done);
  EXPECT_FALSE(mailbox.waiting());
  EXPECT_EQ(one.before, 0);
  EXPECT_EQ(two.before, 1);
  EXPECT_EQ(sum, 111);
  ASSERT_EQ(mailbox.trace().last().size(), 2u) << "the third is not traced";
  EXPECT_EQ(mailbox.trace().last()[1].arguments.view(), "what=10");
  EXPECT_EQ(mailbox.trace().last()[1].started, 7u);
}

// The caller's entry and command are on its stack, and gone right after call() has returned.
TEST_F(MailboxTest, ACallReturnsWhenItsCommandHasRun) {
  constexpr int kCalls = 50'000;
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (!mailbox.serve(worker)) std::this_thread::yield();
    }
  });
  int sum = 0, woken = 0;
  for (int i = 0; i < kCalls; ++i) {
    const auto add = std::make_unique<Add>(Add{sum, 1});
    mailbox.call(WorkerCommandRef(*add), [&] { ++woken; });
    ASSERT_EQ(add->before, i);
    ASSERT_EQ(sum, i + 1);
  }
  stop.store(true, std::memory_order_relaxed);
  thread.join();
  EXPECT_EQ(woken, kCalls);
}

}  // namespace
}  // namespace uroce::worker
