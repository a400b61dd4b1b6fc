// Memory whose page faults wait for what its owner does, which costs the owner its session, or would allocate
// pages, which they don't.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr std::size_t kBytes = 512u << 20;

/// A new QP, connected to itself, in place of one that has had an error.
bool remake_qp(Tenant& tenant) {
  tenant.client.destroy(UROCE_CMD_DESTROY_QP, tenant.qp.made.handle);
  tenant.qp = tenant.client.create_qp(tenant.pd, tenant.cq);
  return tenant.qp.status == 0 && tenant.client.connect_qp(tenant.qp, tenant.qp.made.qpn) == 0;
}

/// Registers the file again in place of a region that has lost pages.
bool register_again(Tenant& tenant) {
  Memory& memory = tenant.memory;
  tenant.client.destroy(UROCE_CMD_DEREG_MR, memory.made.handle);
  memory.made =
      tenant.client.register_file(tenant.pd, memory.file.get(), 0, memory.bytes, 0xf, false, memory.address()).made;
  return memory.made.rkey != 0;
}

/// Punches the whole file out, again and again; writes fill it between.
int punch_holes(const std::string& path, std::atomic<int>& stage) {
  Tenant tenant(path, kBytes);
  if (!tenant.ok()) return 1;
  for (std::size_t at = 0; at < kBytes; at += 4096) tenant.memory.data[at] = std::byte{1};
  std::thread([&] {
    for (;;) {
      ::fallocate(tenant.memory.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
      for (std::size_t at = 0; at < kBytes; at += 4096) tenant.memory.data[at] = std::byte{1};
    }
  }).detach();
  stage.store(1);
  uroce_cqe done{};
  for (std::size_t at = 0; !tenant.client.closed(); at = (at + (1 << 20)) % kBytes) {
    tenant.client.post_write(tenant.qp, tenant.memory, tenant.memory.address() + at, tenant.memory.made.rkey,
                             1 << 16);
    const bool failed = tenant.client.poll(tenant.cq, done, 100) && done.status != UROCE_WC_SUCCESS;
    if (failed) static_cast<void>(register_again(tenant) && remake_qp(tenant));
  }
  stage.store(2);
  ::pause();
  return 0;
}

TEST(PageFaults, OfPunchedMemoryCostTheSession) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Tenant tenant(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(tenant.ok()) << tenant.error;
  Shared<std::atomic<int>> stage;
  Child attacker(kAttacker, [&] { return punch_holes(daemon.socket_path(), *stage); });
  std::vector<Nanos> during, after;
  const Nanos end = monotonic_now() + 60 * kSecond;
  while (*stage < 2 && attacker.running() && monotonic_now() < end) {
    const Nanos took = tenant.write_once();
    ASSERT_NE(took, 0u) << daemon.log();
    if (*stage == 1) during.push_back(took);
  }
  EXPECT_EQ(*stage, 2) << "the session was not closed; exit " << attacker.wait(0);
  EXPECT_NE(daemon.log().find("made workers wait"), std::string::npos) << daemon.log();
  for (int i = 0; i < 1000; ++i) after.push_back(tenant.write_once());
  const auto worst = [](const std::vector<Nanos>& times) {
    return times.empty() ? 0.0 : static_cast<double>(*std::ranges::max_element(times)) / 1e6;
  };
  std::printf("longest 8-byte WRITE of another user: %.1f ms before the session was closed, %.1f ms after\n",
              worst(during), worst(after));
  // The user pays its debt before it may register more, which it may have done by now.
  Child again(kAttacker, [&] {
    Tenant second(daemon.socket_path(), 1 << 20);
    return second.memory.status == EAGAIN || second.memory.status == 0 ? 0 : 1;
  });
  EXPECT_EQ(again.wait(), 0);
  EXPECT_EQ(daemon.stop(), 0);
}

/// Two QPs of two users that are connected again after each error.
struct Meeting {
  std::atomic<std::uint32_t> round{0}, answered{0};  ///< the attacker has a new QP; so has the other
  std::atomic<std::uint32_t> attacker_qpn, qpn, rkey;
  std::atomic<std::uint64_t> address;
  std::atomic<bool> over{false};
};

/// Punches the memory out, again and again; writes fill it between. It ends with the process.
void punch_and_fill(Tenant& tenant) {
  std::thread([&tenant] {
    for (;;) {
      for (std::size_t at = 0; at < kBytes; at += 4096) tenant.memory.data[at] = std::byte{1};
      ::fallocate(tenant.memory.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    }
  }).detach();
}

/// Lets another user read and write its memory. 0: its session has lasted.
int be_used(const std::string& path, Meeting& meeting) {
  Tenant tenant(path, 1 << 20);
  if (!tenant.ok()) return 2;
  meeting.rkey = tenant.memory.made.rkey;
  meeting.address = tenant.memory.address();
  while (!meeting.over && !tenant.client.closed()) {
    const std::uint32_t round = meeting.round;
    if (round != meeting.answered) {
      tenant.client.destroy(UROCE_CMD_DESTROY_QP, tenant.qp.made.handle);
      tenant.qp = tenant.client.create_qp(tenant.pd, tenant.cq);
      if (tenant.client.connect_qp(tenant.qp, meeting.attacker_qpn) != 0) continue;
      meeting.qpn = tenant.qp.made.qpn;
      meeting.answered = round;
    }
    ::usleep(200);
  }
  return tenant.client.closed() ? 1 : 0;
}

/// Writes from memory with holes, or reads into it. 0: that has cost this session.
int use_own_holes(const std::string& path, Meeting& meeting, std::uint8_t opcode) {
  Tenant tenant(path, kBytes);
  if (!tenant.ok()) return 2;
  punch_and_fill(tenant);
  const auto meet = [&] {
    tenant.client.destroy(UROCE_CMD_DESTROY_QP, tenant.qp.made.handle);
    tenant.qp = tenant.client.create_qp(tenant.pd, tenant.cq);
    meeting.attacker_qpn = tenant.qp.made.qpn;
    const std::uint32_t round = ++meeting.round;
    while (meeting.answered != round && !meeting.over) ::usleep(100);
    return !meeting.over && tenant.client.connect_qp(tenant.qp, meeting.qpn) == 0;
  };
  bool met = meet();
  uroce_cqe done{};
  for (std::size_t at = 0; !tenant.client.closed() && !meeting.over; at = (at + (1 << 20)) % (kBytes - (1 << 20))) {
    if (!met) met = register_again(tenant) && meet();
    if (!met) continue;  // while the debt is paid, or the session has just been closed
    uroce_sq_entry entry{};
    entry.opcode = opcode;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.remote_addr = meeting.address;
    entry.rkey = meeting.rkey;
    const uroce_sge from{tenant.memory.address() + at, 1 << 16, tenant.memory.made.lkey};
    tenant.client.post_send(tenant.qp, entry, {&from, 1});
    if (tenant.client.poll(tenant.cq, done, 100) && done.status != UROCE_WC_SUCCESS) met = false;
  }
  const bool closed = tenant.client.closed();
  meeting.over = true;
  ::_exit(closed ? 0 : 1);  // the thread still uses the memory
}

void expect_attacker_to_pay(std::uint8_t opcode) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Shared<Meeting> meeting;
  Child other(kOther, [&] { return be_used(daemon.socket_path(), *meeting); });
  while (meeting->address == 0 && other.running()) ::usleep(1'000);
  Child attacker(kAttacker, [&] { return use_own_holes(daemon.socket_path(), *meeting, opcode); });
  const Nanos end = monotonic_now() + 60 * kSecond;
  while (!meeting->over && attacker.running() && other.running() && monotonic_now() < end) ::usleep(1'000);
  meeting->over = true;
  EXPECT_EQ(other.wait(), 0) << "1: the session of the other user was closed\n" << daemon.log();
  EXPECT_EQ(attacker.wait(), 0) << "1: the session of the attacker was not closed\n" << daemon.log();
  EXPECT_EQ(daemon.stop(), 0);
}

// The receiver copies what the packet names. It is the sender whose memory keeps the worker waiting.
TEST(PageFaults, OfMemoryThatAPacketNamesCostTheSender) {
  if (!is_root()) GTEST_SKIP() << "needs two users";
  expect_attacker_to_pay(UROCE_WR_RDMA_WRITE);
}

// The responder's memory is named, and copied into the holes of whoever reads.
TEST(PageFaults, OfMemoryThatIsReadIntoCostTheReader) {
  if (!is_root()) GTEST_SKIP() << "needs two users";
  expect_attacker_to_pay(UROCE_WR_RDMA_READ);
}

TEST(PageFaults, OfTheDaemonsOwnUserMayTakeASecond) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Shared<std::atomic<int>> stage;
  Child owner(::geteuid(), [&] { return punch_holes(daemon.socket_path(), *stage); });
  const Nanos limit = monotonic_now() + 20 * kSecond;
  while (*stage == 0 && owner.running() && monotonic_now() < limit) ::usleep(1'000);
  const Nanos end = monotonic_now() + kSecond / 2;
  while (*stage == 1 && owner.running() && monotonic_now() < end) ::usleep(1'000);
  EXPECT_EQ(*stage, 1) << daemon.log();
  owner.end();
  EXPECT_EQ(daemon.stop(), 0);
}

constexpr std::size_t kStepBytes = 64u << 20, kSteps = 16;
constexpr std::uint64_t kHolesAt = 0x20'0000'0000;

struct Allocated {
  std::atomic<std::uint64_t> by_registration, by_writes;
  std::atomic<int> written;  ///< WRITEs that succeeded
};

/// Registers and releases a sparse file in steps, and then has each part written to.
int use_holes(const std::string& path, Allocated& allocated) {
  Tenant tenant(path, 1 << 20);
  const UniqueFd file(::memfd_create("sparse", MFD_CLOEXEC));
  if (!tenant.ok() || ::ftruncate(file.get(), kSteps * kStepBytes) != 0) return 1;
  const auto bytes = [&file] {
    struct stat info {};
    ::fstat(file.get(), &info);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  for (const bool write : {false, true}) {
    for (std::size_t i = 0; i < kSteps; ++i) {
      const Memory part =
          tenant.client.register_file(tenant.pd, file.get(), i * kStepBytes, kStepBytes, 0xf, false, kHolesAt);
      if (part.status != 0) return 2;
      uroce_cqe done{};
      if (write) {
        tenant.client.post_write(tenant.qp, tenant.memory, kHolesAt + (i << 20), part.made.rkey, 1 << 20);
        if (!tenant.client.poll(tenant.cq, done)) return 3;
        if (done.status == UROCE_WC_SUCCESS) ++allocated.written;
        if (!remake_qp(tenant)) return 4;
      }
      if (tenant.client.destroy(UROCE_CMD_DEREG_MR, part.made.handle) != 0) return 5;
    }
    (write ? allocated.by_writes : allocated.by_registration) = bytes();
  }
  return tenant.client.closed() ? 6 : 0;
}

bool may_guard_holes() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  return fd.valid();
}

TEST(PageFaults, AtHolesOfAFileAllocateNothing) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Shared<Allocated> allocated;
  Child attacker(kAttacker, [&] { return use_holes(daemon.socket_path(), *allocated); });
  ASSERT_EQ(attacker.wait(), 0) << daemon.log();
  EXPECT_EQ(allocated->by_registration, 0u);
  if (may_guard_holes()) {
    EXPECT_EQ(allocated->by_writes, 0u);
    EXPECT_EQ(allocated->written, 0);
    EXPECT_NE(daemon.log().find("hole"), std::string::npos) << daemon.log();
  }
  Tenant honest(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(honest.ok()) << honest.error;
  EXPECT_NE(honest.write_once(), 0u);
  EXPECT_EQ(daemon.stop(), 0);
}

struct OnDisk {
  std::atomic<int> stage{0};  ///< 1: registered and used, 2: the test has looked
};

/// Registers a file on a disk and has it written to, while its pages are dropped.
int use_disk(const std::string& path, int file, OnDisk& state) {
  constexpr std::size_t kFileBytes = 1u << 20;
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // as in a program that this user started
  Tenant tenant(path, kFileBytes);
  if (!tenant.ok()) return 1;
  const Memory part = tenant.client.register_file(tenant.pd, file, 0, kFileBytes, 0xf, true);
  if (part.status != 0) return 2;
  std::memset(tenant.memory.data, 7, kFileBytes);
  uroce_cqe done{};
  for (int i = 0; i < 20; ++i) {
    ::posix_fadvise(file, 0, kFileBytes, POSIX_FADV_DONTNEED);
    tenant.client.post_write(tenant.qp, tenant.memory, part.address(), part.made.rkey, kFileBytes);
    if (!tenant.client.poll(tenant.cq, done)) return 3;
    if (done.status != UROCE_WC_SUCCESS) break;  // the stall budget is spent
    if (std::memcmp(part.data, tenant.memory.data, kFileBytes) != 0) return 4;
    int none = 0;
    state.stage.compare_exchange_strong(none, 1);
  }
  if (state.stage == 0) return 5;
  while (state.stage == 1) ::usleep(1'000);
  return 0;
}

bool maps(const DaemonProcess& daemon, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(daemon.pid()) + "/maps");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  return all.find(name) != std::string::npos;
}

// No worker touches the pages, so that none waits for the disk. Those of the daemon's own user are mapped.
TEST(PageFaults, OfOtherUsersFilesOnADiskReachNoWorker) {
  if (!is_root()) GTEST_SKIP() << "needs two users";
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  for (const uid_t user : {kAttacker, uid_t{0}}) {
    char name[] = "file-on-disk-XXXXXX";
    const UniqueFd file(::mkstemp(name));
    ASSERT_TRUE(file.valid());
    ::unlink(name);
    if (::fcntl(file.get(), F_GET_SEALS) >= 0) GTEST_SKIP() << "this folder is in memory";
    ASSERT_EQ(::ftruncate(file.get(), 1 << 20), 0);
    Shared<OnDisk> state;
    Child child(user, [&] { return use_disk(daemon.socket_path(), file.get(), *state); });
    const Nanos limit = monotonic_now() + 60 * kSecond;
    while (state->stage == 0 && child.running() && monotonic_now() < limit) ::usleep(1'000);
    EXPECT_EQ(state->stage, 1) << child.wait(0) << daemon.log();
    EXPECT_EQ(maps(daemon, name), user == 0);
    state->stage = 2;
    EXPECT_EQ(child.wait(), 0) << daemon.log();
  }
  EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
}  // namespace uroce::hostile
