// What the attacks build on: an honest tenant works, children run as other users, and SIGTERM ends the daemon.
#include <gtest/gtest.h>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

TEST(Tenant, WritesThroughTheRawProtocol) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Tenant tenant(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(tenant.ok()) << tenant.error;
  for (int i = 0; i < 100; ++i) ASSERT_GT(tenant.write_once(), 0u);
  EXPECT_NE(tenant.client.admin(R"({"command":"show","what":"sessions"})"), "");
}

TEST(Tenant, RunsAsAnotherUser) {
  if (!is_root()) GTEST_SKIP() << "needs root to become another user";
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Child child(kAttacker, [&] {
    Tenant tenant(daemon.socket_path(), 1 << 20);
    return ::geteuid() == kAttacker && tenant.ok() && tenant.write_once() > 0 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Tenant, LeavesADaemonThatEnds) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Tenant tenant(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(tenant.ok()) << tenant.error;
  EXPECT_EQ(daemon.stop(), 0);
  EXPECT_TRUE(tenant.client.closed());
}

}  // namespace
}  // namespace uroce::hostile
