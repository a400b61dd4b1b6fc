// Completion and event channels whose reader holds the lock of its end while it sleeps: no event may wait for that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

/// How the reader sleeps in the kernel with the channel's lock held.
enum class Reader { kSplice, kPageFault };

/// Sleeps in splice(2): from the channel into a stream socket that is full.
void splice_into_full_socket(int channel) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  const std::vector<char> bytes(1 << 16);
  while (::send(pair[0], bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  for (;;) {
    if (::splice(channel, nullptr, pair[0], nullptr, 1 << 16, 0) <= 0) return;
  }
}

/// A page whose first access sleeps until the process ends; nullptr: not permitted.
void* page_without_answer() {
  const auto faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_api api{UFFD_API, 0, 0};
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uint64_t>(page), 4096};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (faults < 0 || ::ioctl(faults, UFFDIO_API, &api) != 0) return nullptr;
  return ::ioctl(faults, UFFDIO_REGISTER, &range) == 0 ? page : nullptr;
}

/// Starts a thread that reads the channel and sleeps. False: the kernel does not permit that way of sleeping.
bool start_reader(Reader how, int channel) {
  if (how == Reader::kSplice) {
    std::thread(splice_into_full_socket, channel).detach();
  } else {
    void* const page = page_without_answer();
    if (page == nullptr) return false;
    std::thread([channel, page] { static_cast<void>(::read(channel, page, 4096)); }).detach();
  }
  ::usleep(200'000);
  return true;
}

constexpr int kNotPermitted = 77, kEvents = 20;

/// SRQ limit events, which the control thread writes.
int attack_events(const std::string& path, Reader how, std::atomic<bool>& armed) {
  RawClient client(path);
  if (client.hello() != 0) return 1;
  uroce_create_srq_request srq{};
  srq.pd = client.alloc_pd();
  srq.max_wr = 16, srq.max_sge = 1, srq.limit = 1;
  const Answer made = client.call(UROCE_CMD_CREATE_SRQ, srq);
  if (!made.ok()) return 2;
  const uroce_modify_srq_request limit{made.as<uroce_create_srq_response>().handle, UROCE_SRQ_LIMIT, 0, 1};
  if (client.call(UROCE_CMD_MODIFY_SRQ, limit).status != 0) return 3;
  if (!start_reader(how, client.event_fd())) return kNotPermitted;
  for (int i = 0; i < kEvents; ++i) client.send(UROCE_CMD_MODIFY_SRQ, std::as_bytes(std::span(&limit, 1)));
  armed.store(true);
  ::pause();
  return 0;
}

/// Completion events, which the worker writes.
int attack_completions(const std::string& path, Reader how, std::atomic<bool>& armed) {
  RawClient client(path);
  UniqueFd channel;
  if (client.hello() != 0) return 1;
  const std::uint32_t pd = client.alloc_pd(), handle = client.create_channel(channel);
  Cq cq = client.create_cq(64, handle, 7);
  Qp qp = client.create_qp(pd, cq);
  if (qp.status != 0 || client.connect_qp(qp, qp.made.qpn) != 0 || client.modify_to_error(qp) != 0) return 2;
  const auto event = [&] {
    uroce_cqe flushed{};
    client.arm(cq);
    client.post_recv(qp, 1, {});
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_SEND;
    client.post_send(qp, entry, {});
    while (client.poll(cq, flushed, 100)) {
    }
  };
  event();
  if (!start_reader(how, channel.get())) return kNotPermitted;
  armed.store(true);
  for (int i = 0; i < kEvents; ++i) event();
  ::pause();
  return 0;
}

using Attack = int (*)(const std::string&, Reader, std::atomic<bool>&);

class Channels : public ::testing::TestWithParam<std::pair<Attack, Reader>> {};

TEST_P(Channels, WithASleepingReaderStopNobody) {
  const Attack attack = GetParam().first;
  const Reader how = GetParam().second;
  if (how == Reader::kPageFault && !is_root()) GTEST_SKIP() << "needs root for page faults of the kernel";
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Shared<std::atomic<bool>> armed;
  // Page faults of the kernel reach a userfaultfd of root only; FUSE would do the same for any user.
  Child attacker(how == Reader::kPageFault ? 0 : kAttacker,
                 [&] { return attack(daemon.socket_path(), how, *armed); });
  for (int i = 0; i < 500 && !*armed && attacker.running(); ++i) ::usleep(10'000);
  if (!attacker.running() && attacker.wait() == kNotPermitted) GTEST_SKIP() << "no userfaultfd";
  ASSERT_TRUE(*armed) << attacker.wait(0);
  ::usleep(500'000);
  EXPECT_FALSE(daemon.stuck()) << daemon.thread_states();
  Tenant tenant(daemon.socket_path(), 1 << 20);
  EXPECT_TRUE(tenant.ok()) << tenant.error;
  EXPECT_TRUE(tenant.ok() && tenant.write_once() != 0);
  EXPECT_TRUE(attacker.running());
  EXPECT_EQ(daemon.stop(), 0) << "it does not end while the reader sleeps";
}

INSTANTIATE_TEST_SUITE_P(All, Channels,
                         ::testing::Values(std::pair{&attack_events, Reader::kSplice},
                                           std::pair{&attack_completions, Reader::kSplice},
                                           std::pair{&attack_events, Reader::kPageFault},
                                           std::pair{&attack_completions, Reader::kPageFault}));

/// A channel that nobody reads: no event may be lost beyond the one that each CQ is owed, and the worker sleeps.
TEST(Channel, ThatIsFullLosesNoEvent) {
  constexpr int kRounds = 3000;
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  RawClient client(daemon.socket_path());
  ASSERT_EQ(client.hello(), 0);
  UniqueFd channel;
  const std::uint32_t pd = client.alloc_pd(), handle = client.create_channel(channel);
  ASSERT_NE(handle, 0u);
  // CQ 2 gets one event, after CQ 1 has filled the channel.
  Cq first = client.create_cq(64, handle, 1), second = client.create_cq(64, handle, 2);
  Qp noisy = client.create_qp(pd, first), quiet = client.create_qp(pd, second);
  for (const Qp* qp : {&noisy, &quiet}) {
    ASSERT_EQ(client.connect_qp(*qp, qp->made.qpn), 0);
    ASSERT_EQ(client.modify_to_error(*qp), 0);
  }
  const auto event = [&](Cq& cq, Qp& qp) {
    uroce_cqe flushed{};
    client.arm(cq);
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_SEND;
    ASSERT_TRUE(client.post_send(qp, entry, {}));
    ASSERT_TRUE(client.poll(cq, flushed));
  };
  for (int i = 0; i < kRounds; ++i) event(first, noisy);
  event(second, quiet);
  ::fcntl(channel.get(), F_SETFL, O_NONBLOCK);
  int of_second = 0, of_first = 0;
  for (int empty = 0; empty < 100;) {
    std::uint64_t cookie = 0;
    if (::read(channel.get(), &cookie, sizeof(cookie)) != sizeof(cookie)) {
      EXPECT_EQ(errno, EAGAIN);
      ++empty;
      ::usleep(2000);
      continue;
    }
    ++(cookie == 2 ? of_second : of_first);
  }
  EXPECT_EQ(of_second, 1);
  EXPECT_GT(of_first, 0);
  EXPECT_LE(of_first, kRounds);
}

}  // namespace
}  // namespace uroce::hostile
