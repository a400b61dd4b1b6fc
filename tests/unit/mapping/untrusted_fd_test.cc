// Descriptors on which every call blocks: a client that sends them delays no other.
#include "mapping/untrusted_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <stop_token>
#include <thread>

#include "../daemon/silent_memory.h"
#include "../daemon/test_client.h"
#include "../daemon/test_daemon.h"
#include "platform/clock.h"

namespace uroce::mapping::testing {
namespace {

constexpr Nanos kBounded = kSecond;

TEST(ForeignFile, FilesOfMemoryAndOfDisksSayWhatTheyAre) {
  const auto stall_budget = std::make_shared<StallBudget>();
  const UniqueFd memory(::memfd_create("client", MFD_CLOEXEC));
  EXPECT_TRUE(is_memory_file(memory.get()));
  struct stat info {};
  FileFacts facts;
  ASSERT_EQ(examine(memory.get(), stall_budget, facts), 0);
  ASSERT_EQ(::fstat(memory.get(), &info), 0);
  EXPECT_EQ(facts.magic, std::uint32_t{TMPFS_MAGIC});
  EXPECT_EQ(facts.inode, info.st_ino);
  EXPECT_EQ(facts.device, info.st_dev);

  const UniqueFd process(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(is_memory_file(process.get()));
  ASSERT_EQ(examine(process.get(), stall_budget, facts), 0);
  ASSERT_EQ(::fstat(process.get(), &info), 0);
  EXPECT_EQ(facts.magic, std::uint32_t{PROC_SUPER_MAGIC});
  EXPECT_EQ(facts.inode, info.st_ino);
  EXPECT_EQ(examine(-1, stall_budget, facts), EBADF);
}

TEST(ForeignFile, WhatIsLetGoIsClosed) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  StallBudget budget;
  budget.closer().close(UniqueFd(ends[1]));
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
}

TEST(ForeignFile, OneThatNobodyAnswersForHoldsNobodyForLong) {
  daemon::testing::SilentMemory silent;
  NEED_SILENT(silent);
  const auto stall_budget = std::make_shared<StallBudget>();
  UniqueFd file = silent.file();
  ASSERT_TRUE(file.valid());
  FileFacts facts;
  EXPECT_LT(daemon::testing::time_of([&] { EXPECT_EQ(examine(file.get(), stall_budget, facts), ETIMEDOUT); }),
            kBounded);
  EXPECT_EQ(stall_budget->stuck.load(), 1u);
  EXPECT_LT(daemon::testing::time_of([&] { stall_budget->closer().close(std::move(file)); }), kBounded);
  silent.answer();
  const Nanos end = monotonic_now() + 10 * kSecond;
  while (stall_budget->stuck.load() != 0 && monotonic_now() < end) std::this_thread::yield();
  EXPECT_EQ(stall_budget->stuck.load(), 0u);
}

/// Threads that never yield, on the one processor that the test and the threads that it starts use.
class Crowd {
 public:
  Crowd() {
    ::sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    for (auto& thread : threads_) {
      thread = std::jthread([](const std::stop_token& stop) {
        while (!stop.stop_requested()) base::cpu_relax();
      });
    }
  }
  ~Crowd() { ::sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
  std::array<std::jthread, 8> threads_;
};

TEST(ForeignFile, ThatTheThreadGetsNoProcessorIsNotTheClientsFault) {
  const UniqueFd process(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  const Crowd crowd;
  for (int i = 0; i < 20; ++i) {
    const auto stall_budget = std::make_shared<StallBudget>();
    while (stall_budget->grant(kMillisecond, monotonic_now())) continue;
    FileFacts facts;
    ASSERT_EQ(examine(process.get(), stall_budget, facts), 0) << i;
  }
}

TEST(ForeignFile, ClientsThatHandItOverAreRefusedAndOthersServed) {
  daemon::testing::SilentMemory silent;
  NEED_SILENT(silent);
  daemon::testing::TestDaemon daemon;
  daemon::testing::TestClient hostile(*daemon.conductor), honest(*daemon.conductor, 4711);
  hostile.hello();
  honest.hello();
  const auto send = [&](std::uint32_t command, auto body) {
    std::vector<UniqueFd> fds;
    fds.push_back(silent.file());
    return hostile.send(command, body, std::move(fds)).status;
  };
  uroce_reg_mr_request mr{};
  mr.pd = hostile.alloc_pd();
  mr.access = memory::kLocalWrite;
  mr.addr = mr.iova = 0x10000;
  mr.length = 4096;
  mr.piece_count = 1;
  mr.piece[0] = {0, 0, 0, 4096};
  uroce_open_xrcd_request xrcd{};
  xrcd.oflags = O_CREAT;
  EXPECT_LT(daemon::testing::time_of([&] {
              EXPECT_EQ(send(UROCE_CMD_REG_MR, mr), EOPNOTSUPP);
              EXPECT_EQ(send(UROCE_CMD_OPEN_XRCD, xrcd), ETIMEDOUT);
              EXPECT_EQ(send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}), ENOENT);
              EXPECT_NE(send(UROCE_CMD_CM_FIRST, std::span<const std::byte>{}), 0);
              EXPECT_NE(send(0xffff, std::span<const std::byte>{}), 0);
              EXPECT_NE(honest.alloc_pd(), 0u);
            }),
            kBounded);
  EXPECT_GE(hostile.session().stall_budget->stuck.load(), 1u);
  EXPECT_EQ(honest.session().stall_budget->stuck.load(), 0u);
}

}  // namespace
}  // namespace uroce::mapping::testing
