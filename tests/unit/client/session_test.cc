// Sessions, queue pairs and completion queues with a daemon that the test plays.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "client/completion_queue.h"
#include "client/queue_pair.h"
#include "client/run_dir.h"
#include "client/session.h"
#include "fake_daemon.h"
#include "platform/clock.h"

namespace uroce::client::test {
namespace {

uroce_cqe completion(std::uint64_t wr_id) {
  uroce_cqe entry{};
  entry.wr_id = wr_id;
  return entry;
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Session::open(daemon.socket_path(), session), 0); }
  void make_queues() {
    ASSERT_EQ(QueuePair::create(*session, {}, qp), 0);
    ASSERT_EQ(CompletionQueue::create(*session, {}, cq), 0);
    cq.attach(&qp, true, true);
  }
  void send(std::uint64_t wr_id) {
    uroce_sq_entry* const entry = qp.reserve_send();
    ASSERT_NE(entry, nullptr);
    entry->wr_id = wr_id;
    qp.commit_send();
  }
  std::vector<uroce_cqe> poll(int most = 16) {
    std::vector<uroce_cqe> out;
    cq.poll(most, [&](const uroce_cqe& entry) { out.push_back(entry); });
    return out;
  }
  void wait_until_lost() {
    for (int i = 0; i < 500 && !session->lost(); ++i) {
      session->check_alive();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  FakeDaemon daemon;
  std::unique_ptr<Session> session;
  QueuePair qp;
  CompletionQueue cq;
};

TEST_F(SessionTest, GreetsAndMapsWhatTheDaemonShares) {
  EXPECT_EQ(session->workers(), 1u);
  EXPECT_FALSE(session->lost());
  EXPECT_NE(session->at({0, 0, 0}, FakeDaemon::kChunkBytes), nullptr);
  EXPECT_EQ(session->at({0, 0, 1}, FakeDaemon::kChunkBytes), nullptr);
  EXPECT_EQ(session->at({0, 0, ~std::uint64_t{0}}, 1), nullptr);
  EXPECT_EQ(session->at({2, 0, 0}, 1), nullptr);
}

TEST_F(SessionTest, AnotherVersionOfTheLayoutIsRefused) {
  daemon.version = UROCE_ABI_VERSION + 1;
  std::unique_ptr<Session> other;
  EXPECT_EQ(Session::open(daemon.socket_path(), other), EPROTO);
  EXPECT_EQ(other, nullptr);
}

TEST_F(SessionTest, WithoutDescriptorsForTheAnswerItIsEmfile) {
  const pid_t child = fork();
  if (child == 0) {
    const auto most = static_cast<rlim_t>(dup(0)) + 2;  // the socket, and one of the four of the answer
    const rlimit limit{most, most};
    std::unique_ptr<Session> other;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(100);
    _exit(Session::open(daemon.socket_path(), other));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), EMFILE);
}

TEST_F(SessionTest, PlacesOutsideTheChunksAreRefused) {
  daemon.misplace = true;
  EXPECT_EQ(QueuePair::create(*session, {}, qp), EPROTO);
  EXPECT_EQ(CompletionQueue::create(*session, {}, cq), EPROTO);
  EXPECT_FALSE(session->lost());
}

TEST_F(SessionTest, TheDaemonsErrnoComesBack) {
  daemon.status = ENOSPC;
  EXPECT_EQ(QueuePair::create(*session, {}, qp), ENOSPC);
  EXPECT_EQ(session->release(UROCE_CMD_DEALLOC_PD, 1), ENOSPC);
}

TEST_F(SessionTest, ManyEntriesArePublishedTogetherAndRingOnce) {
  make_queues();
  queue::WorkConsumer sq = daemon.sq();
  for (std::uint64_t i = 0; i < FakeDaemon::kEntries; ++i) send(100 + i);
  EXPECT_EQ(sq.available(), 0u);
  EXPECT_EQ(qp.reserve_send(), nullptr) << "the ring is full";
  qp.ring_doorbell();
  ASSERT_EQ(sq.available(), FakeDaemon::kEntries);
  uroce_sq_entry copy;
  sq.copy_next(&copy, sizeof(copy));
  EXPECT_EQ(copy.wr_id, 100u);
  EXPECT_EQ(daemon.bells().leaf[70 / 64], std::uint64_t{1} << (70 % 64));
  EXPECT_EQ(daemon.bells().summary[0], std::uint64_t{1} << (70 / 64));
  EXPECT_EQ(daemon.wakes(), 0) << "the worker is awake";
}

TEST_F(SessionTest, ASleepingWorkerIsWokenOnceEachTime) {
  make_queues();
  daemon.header().worker[0].sleeping = 1;
  for (std::uint64_t i = 0; i < 3; ++i) {
    send(i);
    qp.ring_doorbell();
  }
  EXPECT_EQ(daemon.wakes(), 1) << "the same sleep";
  daemon.header().worker[0].sleeping = 2;
  send(3);
  qp.ring_doorbell();
  EXPECT_EQ(daemon.wakes(), 1) << "the next one";
}

TEST_F(SessionTest, AWorkerThatMeasuresGetsTheTimesOfDoorbellsAndWakeUps) {
  make_queues();
  std::uint32_t& line = daemon.header().worker[0].sleeping;
  const auto ring = [&](std::uint32_t published) {
    line = published;
    send(0);
    const Nanos before = monotonic_now();
    qp.ring_doorbell();
    return std::pair(before, monotonic_now());
  };
  ring(1);
  EXPECT_EQ(daemon.bells().rung_ns, 0u) << "it does not measure";
  EXPECT_EQ(daemon.bells().woken_ns, 0u);
  EXPECT_EQ(daemon.wakes(), 1);
  const auto awake = ring(UROCE_STAMP_DOORBELLS);
  EXPECT_GE(daemon.bells().rung_ns, awake.first);
  EXPECT_LE(daemon.bells().rung_ns, awake.second);
  EXPECT_EQ(daemon.bells().woken_ns, 0u);
  EXPECT_EQ(daemon.wakes(), 0);
  const auto asleep = ring(UROCE_STAMP_DOORBELLS | 2);
  EXPECT_GE(daemon.bells().woken_ns, asleep.first);
  EXPECT_LE(daemon.bells().woken_ns, asleep.second);
  EXPECT_EQ(daemon.wakes(), 1);
  const Nanos first = daemon.bells().woken_ns;
  const auto again = ring(UROCE_STAMP_DOORBELLS | 2);
  EXPECT_EQ(daemon.bells().woken_ns, first) << "the same sleep";
  EXPECT_GE(daemon.bells().rung_ns, again.first);
  EXPECT_EQ(daemon.wakes(), 0);
}

TEST_F(SessionTest, CompletionsArePolledInOrderThroughManyLaps) {
  make_queues();
  for (std::uint64_t i = 0; i < 5 * FakeDaemon::kEntries; i += 3) {
    for (std::uint64_t k = 0; k < 3; ++k) ASSERT_TRUE(daemon.cq().push(completion(i + k), false));
    const std::vector<uroce_cqe> got = poll();
    ASSERT_EQ(got.size(), 3u);
    for (std::uint64_t k = 0; k < 3; ++k) EXPECT_EQ(got[k].wr_id, i + k);
  }
  EXPECT_TRUE(poll().empty());
}

TEST_F(SessionTest, AnyRequestOutlastsASolicitedOne) {
  make_queues();
  cq.arm(false);
  cq.arm(true);
  ASSERT_TRUE(daemon.cq().push(completion(1), false));
  EXPECT_TRUE(daemon.cq().take_event());
  cq.arm(true);
  ASSERT_TRUE(daemon.cq().push(completion(2), false));
  EXPECT_FALSE(daemon.cq().take_event()) << "the event for any entry was taken";
}

TEST_F(SessionTest, ADeadDaemonIsNoticedByPollingAndOutstandingWorkIsFlushedOnce) {
  make_queues();
  for (std::uint64_t i = 0; i < 4; ++i) send(i);
  qp.ring_doorbell();
  queue::WorkConsumer sq = daemon.sq();
  sq.publish_consumed(1);
  ASSERT_TRUE(daemon.cq().push(completion(0), false));
  uroce_rq_entry* const receive = qp.reserve_receive();
  receive->wr_id = 50;
  qp.commit_receive();
  qp.publish_receives();
  daemon.die();
  std::vector<uroce_cqe> all;
  for (int i = 0; i < 10'000'000 && all.size() < 5; ++i) {
    for (const uroce_cqe& entry : poll()) all.push_back(entry);
  }
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].status, UROCE_WC_SUCCESS);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(all[i].status, UROCE_WC_WR_FLUSH_ERR);
    EXPECT_EQ(all[i].vendor_err, std::uint32_t{UROCE_FAIL_NO_DAEMON});
    EXPECT_EQ(all[i].qpn, 0x123456u);
    EXPECT_EQ(all[i].wr_id, i < 4 ? i : 50);
  }
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(session->connection_state(), ConnectionState::kDead);
  EXPECT_EQ(qp.destroy(), 0) << "nothing is left to give back";
}

TEST_F(SessionTest, ACallToADyingDaemonEndsWithEio) {
  daemon.die_at_next_command = true;
  EXPECT_EQ(QueuePair::create(*session, {}, qp), EIO);
  EXPECT_TRUE(session->lost());
}

TEST_F(SessionTest, AFreshHeartbeatMakesNoSystemCallAndAStaleOneChecksTheSocket) {
  daemon.header().heartbeat_ns = monotonic_now() + 3600 * kSecond;
  daemon.die();
  session->check_alive();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  daemon.header().heartbeat_ns = monotonic_now();
  session->check_alive();
  EXPECT_FALSE(session->lost());
  wait_until_lost();
  EXPECT_TRUE(session->lost());
}

TEST_F(SessionTest, TheDeadFlagEndsTheSession) {
  daemon.header().dead = 1;
  wait_until_lost();
  EXPECT_TRUE(session->lost());
}

TEST_F(SessionTest, AChildCannotTouchItsParentsQueues) {
  make_queues();
  const pid_t child = fork();
  if (child == 0) {
    bool good = session->connection_state() == ConnectionState::kForked;
    good = good && QueuePair::create(*session, {}, qp) == ENODEV;
    uroce_sq_entry* const entry = qp.reserve_send();  // like a post that began before the fork
    if (entry != nullptr) {
      entry->wr_id = 666;
      qp.commit_send();
      qp.ring_doorbell();
    }
    uroce_cqe dropped;
    good = good && cq.poll(1, [&](const uroce_cqe& e) { dropped = e; }) == -1;
    std::unique_ptr<Session> own;
    good = good && Session::open(daemon.socket_path(), own) == 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(daemon.sq().available(), 0u);
  EXPECT_EQ(daemon.bells().summary[0], 0u);
  EXPECT_FALSE(session->lost());
  EXPECT_EQ(session->release(UROCE_CMD_DEALLOC_PD, 1), 0) << "the parent goes on";
}

int alloc_pd(Session& session, std::uint32_t& handle) {
  uroce_handle reply{};
  const int error = session.call(UROCE_CMD_ALLOC_PD, {}, std::as_writable_bytes(std::span(&reply, 1)));
  handle = reply.handle;
  return error;
}

TEST_F(SessionTest, AChildSharesTheCommandsAndDestroysOnlyWhatItMade) {
  std::uint32_t of_parent = 0;
  ASSERT_EQ(alloc_pd(*session, of_parent), 0);
  ASSERT_EQ(session->release(UROCE_CMD_DEALLOC_PD, of_parent), 0);
  const int before = daemon.commands();
  const pid_t child = fork();
  if (child == 0) {
    std::uint32_t own = 0;
    bool good = alloc_pd(*session, own) == 0;
    good = good && session->release(UROCE_CMD_DEALLOC_PD, own + 1) == 0;  // the parent's
    good = good && session->release(UROCE_CMD_DESTROY_AH, own) == 0;      // another kind
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(session->release(UROCE_CMD_DEALLOC_PD, own));  // its parent's
    int status = -1;
    good = good && waitpid(grandchild, &status, 0) == grandchild && status == 0;
    uroce_reg_mr_request memory{};
    uroce_reg_mr_response reply{};
    good = good && session->call(UROCE_CMD_REG_MR, memory, reply) == ENODEV;
    good = good && session->release(UROCE_CMD_DEALLOC_PD, own) == 0;
    good = good && session->release(UROCE_CMD_DEALLOC_PD, own) == 0;  // no longer there
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(daemon.commands(), before + 2) << "the child's ALLOC_PD and DEALLOC_PD";
  EXPECT_EQ(alloc_pd(*session, of_parent), 0);
}

TEST_F(SessionTest, ParentAndChildrenSendCommandsAtTheSameTime) {
  constexpr int kChildren = 3, kCommands = 300;
  const auto run = [&] {
    for (int i = 0; i < kCommands; ++i) {
      std::uint32_t pd = 0;
      if (alloc_pd(*session, pd) != 0 || session->release(UROCE_CMD_DEALLOC_PD, pd) != 0) return 1;
    }
    return 0;
  };
  const int before = daemon.commands();
  pid_t children[kChildren];
  for (pid_t& child : children) {
    child = fork();
    if (child == 0) _exit(run());
  }
  EXPECT_EQ(run(), 0);
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(daemon.commands(), before + 2 * kCommands * (kChildren + 1));
}

TEST_F(SessionTest, TheAnswerToAChildThatDiedIsTakenForNobodyElses) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    std::uint32_t pd = 0;
    if (read(go[0], &byte, 1) == 1) alloc_pd(*session, pd);
    _exit(1);
  }
  daemon.victim = child;
  ASSERT_EQ(write(go[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (int i = 0; i < 3; ++i) {
    std::uint32_t pd = 0;
    EXPECT_EQ(alloc_pd(*session, pd), 0);
  }
  EXPECT_FALSE(session->lost());
  close(go[0]);
  close(go[1]);
}

TEST_F(SessionTest, AChildDoesNotKeepTheSessionThatItsParentCloses) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    std::uint32_t pd = 0;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    _exit(alloc_pd(*session, pd) == EIO ? 0 : 2);
  }
  session.reset();
  ASSERT_EQ(write(go[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
}

TEST(RunDir, OnlyDevicesThatAnswerAreListedInTheOrderAskedFor) {
  FakeDaemon daemon;
  ASSERT_EQ(setenv("UROCE_RUN_DIR", daemon.run_dir().c_str(), 1), 0);
  const std::string stale = daemon.run_dir() + "/stale.sock";
  fclose(fopen(stale.c_str(), "w"));
  EXPECT_EQ(list_devices(), std::vector<std::string>{"fake"});
  ASSERT_EQ(setenv("UROCE_DEVICES", "other,../fake,,fake", 1), 0);
  EXPECT_EQ(list_devices(), std::vector<std::string>{"fake"});
  ASSERT_EQ(setenv("UROCE_DEVICES", "other", 1), 0);
  EXPECT_TRUE(list_devices().empty());
  unsetenv("UROCE_DEVICES");
  unsetenv("UROCE_RUN_DIR");
  unlink(stale.c_str());
}

}  // namespace
}  // namespace uroce::client::test
