// The privileges of the process decide how memory is shared, never whether the data is correct.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "fixture.h"
#include "page_sharing/mapping_info.h"
#include "page_sharing/write_guard.h"

namespace uroce::page_sharing {
namespace {

/// A thread that writes continuously and checks what it wrote.
class OtherThread {
 public:
  OtherThread(unsigned char* at, std::size_t pages) : thread_([this, at, pages] { run(at, pages); }) {
    while (writes_ == 0) std::this_thread::yield();
  }
  ~OtherThread() {
    stop_ = true;
    thread_.join();
    EXPECT_EQ(lost_, 0u);
  }

 private:
  void run(unsigned char* at, std::size_t pages) {
    std::uint64_t value = 0;
    while (!stop_) {
      ++value;
      for (std::size_t page = 0; page < pages; ++page) {
        auto* slot = reinterpret_cast<volatile std::uint64_t*>(at + page * kPage + 512);
        if (value > 1 && *slot != value - 1) ++lost_;
        *slot = value;
      }
      ++writes_;
    }
  }
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> writes_ = 0, lost_ = 0;
  std::thread thread_;
};

bool become_nobody() {
  const bool done = ::getuid() != 0 || (::setgid(65534) == 0 && ::setuid(65534) == 0);
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // as in a program that this user started
  return done;
}

bool forbid_userfaultfd() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {4, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void share_many_times(unsigned char* at, std::size_t pages) {
  for (int round = 0; round < 300; ++round) {
    Shared shared(at + 7, pages * kPage - 7);
    ASSERT_TRUE(shared.direct());
    const DaemonView daemon(shared);
    daemon.at(1) = static_cast<unsigned char>(round);
    ASSERT_EQ(at[8], static_cast<unsigned char>(round));
  }
  EXPECT_TRUE(is_private_anonymous(at));
}

TEST(PageSharingRestricted, AnUnprivilegedProcess) {
  EXPECT_TRUE(passes_in_child([] {
    ASSERT_TRUE(become_nobody());
    Userfault userfault;
    if (userfault.mode() == Userfault::Mode::kForbidden) return;
    EXPECT_EQ(userfault.mode(), Userfault::Mode::kUserOnly);
    unsigned char* at = map_anonymous(16 * kPage);
    OtherThread other(at, 16);
    share_many_times(at, 16);
  }));
}

TEST(PageSharingRestricted, SystemCallsOfAnUnprivilegedProcessReadDuringTheMove) {
  EXPECT_TRUE(passes_in_child([] {
    ASSERT_TRUE(become_nobody());
    if (Userfault().mode() == Userfault::Mode::kForbidden) return;
    unsigned char* at = map_anonymous(16 * kPage);
    std::memset(at, 1, 16 * kPage);
    const int file = ::memfd_create("sink", MFD_CLOEXEC);
    std::atomic<bool> stop = false;
    std::atomic<std::uint64_t> calls = 0, failed = 0;
    std::thread reader([&] {
      for (; !stop; ++calls) failed += ::pwrite(file, at + 50, 100, 0) != 100 ? 1 : 0;
    });
    while (calls == 0) std::this_thread::yield();
    for (int round = 0; round < 10; ++round) share_many_times(at, 16);
    stop = true;
    reader.join();
    EXPECT_EQ(failed, 0u);
    for (std::size_t i = 100; i < 16 * kPage; ++i) ASSERT_EQ(at[i], 1);
  }));
}

TEST(PageSharingRestricted, WithoutUserfaultfdManyThreadsGetIndirectAccess) {
  EXPECT_TRUE(passes_in_child([] {
    ASSERT_TRUE(become_nobody());
    ASSERT_TRUE(forbid_userfaultfd());
    unsigned char* at = map_anonymous(16 * kPage);
    at[3] = 1;
    OtherThread other(at, 16);
    for (int round = 0; round < 100; ++round) {
      Shared shared(at, 16 * kPage);
      ASSERT_TRUE(shared.indirect());
    }
    EXPECT_TRUE(is_private_anonymous(at));
    EXPECT_EQ(at[3], 1);
  }));
}

TEST(PageSharingRestricted, WithoutUserfaultfdASingleThreadMovesFreely) {
  static ThreadList threads;
  if (!threads.read() || !threads.single()) GTEST_SKIP() << "a sanitizer runs a thread of its own";
  EXPECT_TRUE(passes_in_child([] {
    ASSERT_TRUE(become_nobody());
    ASSERT_TRUE(forbid_userfaultfd());
    unsigned char* at = map_anonymous(16 * kPage);
    std::memset(at, 1, 16 * kPage);
    share_many_times(at, 16);
    for (std::size_t i = 100; i < 16 * kPage; ++i) ASSERT_EQ(at[i], 1);

    // Registered by the only thread, deregistered when there are others.
    Shared shared(at, 16 * kPage);
    expect_same_memory(shared, at);
    {
      OtherThread other(at, 16);
      shared.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (std::size_t page = 0; page < 16; ++page) ASSERT_EQ(at[page * kPage + 100], 1);
    EXPECT_TRUE(passes_in_child([&] { at[100] = 2; }));
    EXPECT_EQ(at[100], 1);
    ASSERT_EQ(::madvise(at, 8 * kPage, MADV_DONTNEED), 0);
    for (std::size_t i = 0; i < 8 * kPage; ++i) ASSERT_EQ(at[i], 0);
    EXPECT_EQ(at[9 * kPage], 1);
    at[5] = 5;
    ASSERT_EQ(::madvise(at, kPage, MADV_DONTNEED), 0);
    EXPECT_EQ(at[5], 0);
    Shared again(at, 16 * kPage);  // registered again
    expect_same_memory(again, at);
    EXPECT_EQ(DaemonView(again).at(9 * kPage), 1);
  }));
}

TEST(PageSharingRestricted, AProcessThatMayNotReadItself) {
  if (::getuid() != 0) GTEST_SKIP() << "takes root, to stop being root";
  EXPECT_TRUE(passes_in_child([] {
    ASSERT_EQ(::setgid(65534), 0);
    ASSERT_EQ(::setuid(65534), 0);
    ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    unsigned char* at = map_anonymous(4 * kPage);
    at[0] = 1;
    Shared shared(at, 4 * kPage);
    EXPECT_EQ(shared.error(), 0);
    if (shared.direct()) expect_same_memory(shared, at);
    shared.stop();
    EXPECT_EQ(at[0], 1);
  }));
}

TEST(PageSharingRestricted, SystemCallsOfOtherThreadsWaitForTheMove) {
  Userfault userfault;
  if (userfault.mode() != Userfault::Mode::kFull)
    GTEST_SKIP() << "takes CAP_SYS_PTRACE or vm.unprivileged_userfaultfd";
  unsigned char* at = map_anonymous(16 * kPage);
  std::memset(at, 1, 16 * kPage);
  const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const int null = ::memfd_create("sink", MFD_CLOEXEC);
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> calls = 0, failed = 0;
  std::thread caller([&] {
    while (!stop) {
      failed += ::read(zero, at + 3 * kPage - 50, 100) != 100 ? 1 : 0;
      failed += ::pwrite(null, at + 7 * kPage - 50, 100, 0) != 100 ? 1 : 0;
      ++calls;
    }
  });
  while (calls == 0) std::this_thread::yield();
  share_many_times(at, 16);
  const std::uint64_t during = calls;
  while (calls == during) std::this_thread::yield();
  stop = true;
  caller.join();
  EXPECT_EQ(failed.load(), 0u);
  ::close(zero);
  ::close(null);
  ::munmap(at, 16 * kPage);
}

TEST(PageSharingRestricted, PagesThatAreGivenBackDuringTheMove) {
  unsigned char* at = map_anonymous(64 * kPage);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      ::madvise(at + kPage, 62 * kPage, MADV_DONTNEED);
      for (std::size_t page = 1; page < 63; page += 3) at[page * kPage] = 1;
    }
  });
  for (int round = 0; round < 300; ++round) {
    at[0] = static_cast<unsigned char>(round);
    Shared shared(at, 64 * kPage);
    ASSERT_TRUE(shared.direct());
    ASSERT_EQ(DaemonView(shared).at(0), static_cast<unsigned char>(round));
  }
  stop = true;
  other.join();
  ::munmap(at, 64 * kPage);
}

}  // namespace
}  // namespace uroce::page_sharing
