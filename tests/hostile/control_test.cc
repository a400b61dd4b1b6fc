// Users who keep the control thread busy: requests of others come first.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr int kProcesses = 2, kSessions = 60, kCqs = 10;

/// Many sessions, each with a request that takes long in its socket at all times.
int keep_busy(const std::string& path, std::atomic<int>& ready) {
  constexpr char kShowAll[] = R"({"command":"show","what":"all","pages":true})";
  const auto request = std::as_bytes(std::span(kShowAll, sizeof(kShowAll) - 1));
  std::vector<RawClient> clients;
  for (int i = 0; i < kSessions; ++i) {
    if (clients.emplace_back(path).hello() != 0) return 1;
    for (int k = 0; k < kCqs; ++k) clients.back().create_cq(1);
  }
  ++ready;
  while (ready < kProcesses) ::usleep(1000);
  for (RawClient& client : clients) client.send(UROCE_CMD_ADMIN, request);
  for (;;) {
    for (RawClient& client : clients) {
      if (client.receive(0).status >= 0) client.send(UROCE_CMD_ADMIN, request);
    }
  }
}

TEST(ControlThread, ServesOtherUsersFirst) {
  if (!is_root()) GTEST_SKIP() << "needs root: requests of two users";
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Shared<std::atomic<int>> ready;
  std::vector<Child> attackers;
  for (int i = 0; i < kProcesses; ++i) {
    attackers.emplace_back(kAttacker, [&] { return keep_busy(daemon.socket_path(), *ready); });
  }
  for (int i = 0; i < 3000 && *ready < kProcesses; ++i) ::usleep(10'000);
  ASSERT_EQ(*ready, kProcesses);
  ::usleep(500'000);
  Shared<std::atomic<std::uint64_t>> median, longest;
  Child honest(kHonest, [&] {
    RawClient client(daemon.socket_path());
    if (client.hello() != 0) return 1;
    std::vector<Nanos> times;
    for (int i = 0; i < 100; ++i) {
      const Nanos begun = monotonic_now();
      if (client.alloc_pd() == 0) return 2;
      times.push_back(monotonic_now() - begun);
    }
    std::ranges::sort(times);
    median->store(times[50]);
    longest->store(times.back());
    return 0;
  });
  EXPECT_EQ(honest.wait(), 0);
  std::printf("ALLOC_PD of another user: median %.2f ms, longest %.2f ms\n", static_cast<double>(*median) / 1e6,
              static_cast<double>(*longest) / 1e6);
  // In turn with the others, each would wait for hundreds of them.
  EXPECT_LT(median->load(), kSecond);
}

}  // namespace
}  // namespace uroce::hostile
