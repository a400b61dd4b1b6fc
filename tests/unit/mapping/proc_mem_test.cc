// Memory whose page faults are never answered: the accessing thread waits briefly, once; all others continue.
#include "mapping/proc_mem.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "../daemon/silent_memory.h"
#include "../daemon/test_client.h"
#include "../daemon/test_daemon.h"
#include "control/session/session.h"
#include "platform/clock.h"

namespace uroce::mapping::testing {

using daemon::testing::SilentMemory;
using daemon::testing::TestClient;
using daemon::testing::time_of;

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kAllAccess = 0xf;

UniqueFd pidfd_of(pid_t process) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))); }
platform::Peer peer_of(pid_t process) { return {process, ::getuid(), pidfd_of(process), ::getgid()}; }

/// `trusted`: as memory of a user that could stop the daemon anyway, as this process could.
MemoryFiles memory_of(pid_t process, bool trusted = false) {
  MemoryFiles files;
  EXPECT_EQ(open_memory(peer_of(process), files), 0);
  EXPECT_TRUE(files.pagemap.valid());
  if (!trusted) files.pagemap = {};
  return files;
}

/// One access by a worker.
bool read_word(const ProcMemAccess& memory, std::uint64_t address) {
  std::byte word[8];
  return memory.io().read(memory.io().context, address, word, sizeof(word));
}

/// Longer than any delay of a slow test machine, shorter than a worker that is blocked for ever.
constexpr Nanos kBounded = kSecond;

class IndirectMemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  std::atomic<bool> few_cores{GetParam()};
  std::shared_ptr<StallBudget> stall_budget = std::make_shared<StallBudget>();
  ProcMemAccess memory{memory_of(::getpid()), stall_budget, few_cores};
  ProcMemAccess trusted{memory_of(::getpid(), true), stall_budget, few_cores};
};

TEST_P(IndirectMemoryTest, CopiesBothWaysInPartsOfAnySize) {
  std::vector<std::byte> there(3 * kPage + 5), here(there.size()), back(there.size());
  for (std::size_t i = 0; i < here.size(); ++i) here[i] = static_cast<std::byte>(i * 7);
  const auto address = reinterpret_cast<std::uintptr_t>(there.data());
  for (const ProcMemAccess* io : {&memory, &trusted}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, kPage, there.size()}) {
      std::ranges::fill(there, std::byte{0});
      ASSERT_TRUE(io->io().write(io->io().context, address, here.data(), bytes));
      ASSERT_TRUE(io->io().read(io->io().context, address, back.data(), bytes));
      EXPECT_EQ(std::memcmp(there.data(), here.data(), bytes), 0);
      EXPECT_EQ(std::memcmp(back.data(), here.data(), bytes), 0);
    }
    EXPECT_FALSE(read_word(*io, 0x1000));
    EXPECT_FALSE(read_word(*io, ~std::uint64_t{0} - 3));
  }
  EXPECT_EQ(memory.probe(address), 0);
  EXPECT_EQ(memory.probe(0x1000), EFAULT);
}

TEST_P(IndirectMemoryTest, SeveralWorkersTakeTurns) {
  std::vector<std::uint64_t> words(4);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < words.size(); ++i) {
    workers.emplace_back([&, i] {
      const auto address = reinterpret_cast<std::uintptr_t>(&words[i]);
      for (std::uint64_t n = 1; n <= 200; ++n) {
        std::uint64_t seen = 0;
        EXPECT_TRUE(memory.io().write(memory.io().context, address, reinterpret_cast<std::byte*>(&n), sizeof(n)));
        EXPECT_TRUE(memory.io().read(memory.io().context, address, reinterpret_cast<std::byte*>(&seen), sizeof(n)));
        EXPECT_EQ(seen, n);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(IndirectMemoryTest, AFaultThatIsNeverAnsweredHoldsNobodyForLong) {
  SilentMemory pages;
  NEED_SILENT(pages);
  ProcMemAccess silent(memory_of(pages.owner()), stall_budget, few_cores);
  EXPECT_TRUE(read_word(silent, pages.address(0)));
  EXPECT_LT(time_of([&] { EXPECT_FALSE(read_word(silent, pages.address(1))); }), kBounded);
  EXPECT_EQ(stall_budget->stuck.load(), 1u);
  // From now on accesses fail at once, even to pages that are present.
  EXPECT_LT(time_of([&] {
              for (int i = 0; i < 1000; ++i) EXPECT_FALSE(read_word(silent, pages.address(0)));
            }),
            kBounded);
  EXPECT_EQ(silent.probe(pages.address(0)), ETIMEDOUT);
  EXPECT_EQ(memory.probe(reinterpret_cast<std::uintptr_t>(&pages)), 0);  // another session's thread is free
  pages.answer();
  const Nanos end = monotonic_now() + 10 * kSecond;
  while (!read_word(silent, pages.address(0)) && monotonic_now() < end) std::this_thread::yield();
  EXPECT_TRUE(read_word(silent, pages.address(0)));
  EXPECT_EQ(stall_budget->stuck.load(), 0u);
}

TEST_P(IndirectMemoryTest, PagesThatAreThereNeedNoThreadWhereTheUserIsTrusted) {
  SilentMemory pages;
  NEED_SILENT(pages);
  ProcMemAccess silent(memory_of(pages.owner(), true), stall_budget, few_cores);
  EXPECT_TRUE(read_word(silent, pages.address(0)));
  EXPECT_LT(time_of([&] { EXPECT_FALSE(read_word(silent, pages.address(1))); }), kBounded);
  EXPECT_LT(time_of([&] { EXPECT_FALSE(read_word(silent, pages.address(1) - 4)); }), kBounded);
  EXPECT_EQ(stall_budget->stuck.load(), 1u);
  EXPECT_TRUE(read_word(silent, pages.address(1) - 8));
}

TEST_P(IndirectMemoryTest, ItsEndDoesNotWaitForTheFaultEither) {
  SilentMemory pages;
  NEED_SILENT(pages);
  {
    ProcMemAccess silent(memory_of(pages.owner()), stall_budget, few_cores);
    EXPECT_FALSE(read_word(silent, pages.address(1)));
  }
  EXPECT_EQ(stall_budget->stuck.load(), 1u);
  pages.answer();
  const Nanos end = monotonic_now() + 10 * kSecond;
  while (stall_budget->stuck.load() != 0 && monotonic_now() < end) std::this_thread::yield();
  EXPECT_EQ(stall_budget->stuck.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Cores, IndirectMemoryTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "few" : "many"; });

TEST(StallBudget, IsALittleAtOnceAndASmallPartOfTheTime) {
  StallBudget stall_budget;
  Nanos now = kSecond, granted = 0;
  while (stall_budget.grant(kMillisecond, now)) granted += kMillisecond;
  EXPECT_EQ(granted, StallBudget::kBurst);
  for (; now < 101 * kSecond; now += kMillisecond) {
    if (stall_budget.grant(kMillisecond, now)) granted += kMillisecond;
  }
  EXPECT_LE(granted, StallBudget::kBurst + 100 * kSecond / StallBudget::kRefillDivisor);
  EXPECT_FALSE(stall_budget.is_full(now));
  EXPECT_TRUE(stall_budget.is_full(now + kSecond));
}

TEST(StalledClient, TheTrafficOfOthersGoesOn) {
  SilentMemory pages;
  NEED_SILENT(pages);
  daemon::testing::TestDaemon daemon;
  struct End {
    End(daemon::testing::TestDaemon& daemon, platform::Peer peer) : client(*daemon.conductor, std::move(peer)) {
      client.hello();
      pd = client.alloc_pd();
      cq = client.create_cq(64);
      a = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
      b = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
      const auto gid = daemon::testing::ipv4(1).bytes;
      EXPECT_EQ(client.connect(a, b.made.qpn, gid), 0);
      EXPECT_EQ(client.connect(b, a.made.qpn, gid), 0);
    }
    void write(std::uint64_t from, std::uint64_t to, std::uint32_t key) {
      uroce_sq_entry entry{};
      entry.opcode = UROCE_WR_RDMA_WRITE;
      entry.flags = UROCE_SEND_SIGNALED;
      entry.num_sge = 1;
      entry.remote_addr = to;
      entry.rkey = key;
      const uroce_sge sge{from, 64, key};
      a.post_send(entry, std::span(&sge, 1));
    }
    TestClient client;
    std::uint32_t pd = 0;
    daemon::testing::ClientCq cq;
    daemon::testing::ClientQp a, b;
  };
  End hostile(daemon, peer_of(pages.owner())), honest(daemon, {::getpid(), 4711, UniqueFd()});
  uroce_reg_mr_request request{};
  request.pd = hostile.pd;
  request.addr = request.iova = pages.address(0);
  request.length = 8 * kPage;
  request.access = kAllAccess;
  const control::Reply reply = hostile.client.send(UROCE_CMD_REG_MR, request);
  ASSERT_EQ(reply.status, 0);
  const std::uint32_t bad_key = TestClient::value<uroce_reg_mr_response>(reply).lkey;
  std::byte* data = nullptr;
  const control::Reply good = honest.client.reg_mr(honest.pd, 0x10000, 2 * kPage, kAllAccess, data);
  const std::uint32_t good_key = TestClient::value<uroce_reg_mr_response>(good).lkey;
  std::memset(data, 7, 64);

  // Read from a page that never comes, and, after that, to one.
  hostile.write(pages.address(1), pages.address(0), bad_key);
  EXPECT_LT(time_of([&] {
              for (int i = 0; i < 50; ++i) {
                honest.write(0x10000, 0x11000, good_key);
                ASSERT_TRUE(daemon.run_until([&] { return honest.cq.ring.peek() != nullptr; }));
                EXPECT_EQ(honest.cq.ring.peek()->status, UROCE_WC_SUCCESS);
                honest.cq.ring.pop();
                honest.cq.ring.publish();
              }
            }),
            kBounded);
  EXPECT_EQ(data[kPage], std::byte{7});
  ASSERT_TRUE(daemon.run_until([&] { return hostile.cq.ring.peek() != nullptr; }));
  EXPECT_EQ(hostile.cq.ring.peek()->status, UROCE_WC_LOC_PROT_ERR);
  // The control thread is not blocked, either.
  request.addr = pages.address(1);
  request.length = kPage;
  EXPECT_EQ(hostile.client.send(UROCE_CMD_REG_MR, request).status, ETIMEDOUT);
  EXPECT_NE(honest.client.alloc_pd(), 0u);
}

TEST(OpenMemory, StaysWithTheProgramThatConnected) {
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  static std::uint64_t word = 0x1234;
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    ::execl("/bin/sleep", "sleep", "100", nullptr);
    ::_exit(1);
  }
  MemoryFiles files;
  ASSERT_EQ(open_memory(peer_of(child), files), 0);
  std::atomic<bool> few_cores{true};
  ProcMemAccess io(std::move(files), std::make_shared<StallBudget>(), few_cores);
  const auto address = reinterpret_cast<std::uintptr_t>(&word);
  EXPECT_TRUE(read_word(io, address));
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  const Nanos end = monotonic_now() + 10 * kSecond;
  while (read_word(io, address) && monotonic_now() < end) std::this_thread::yield();
  EXPECT_FALSE(read_word(io, address));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  MemoryFiles none;
  EXPECT_EQ(open_memory({child, ::getuid(), pidfd_of(::getpid()), ::getgid()}, none), ENOENT);
  ::close(go[0]);
  ::close(go[1]);
}

TEST(OpenMemory, IsRefusedWhereTheProgramHasMoreRightsThanItsUser) {
  MemoryFiles files;
  // A user's process that runs with root's rights now, as one that executed a setuid program does.
  platform::Peer peer = peer_of(::getpid());
  peer.uid = ::getuid() + 4711;
  EXPECT_EQ(open_memory(peer, files), EPERM);
  EXPECT_FALSE(files.memory.valid());
}

}  // namespace
}  // namespace uroce::mapping::testing
