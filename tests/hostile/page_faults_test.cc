// Memory whose page faults wait for what its owner does: it costs the owner its session.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr std::size_t kBytes = 512u << 20;

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
    tenant.client.poll(tenant.cq, done, 100);
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

}  // namespace
}  // namespace uroce::hostile
