// A log that nobody reads, and a client that fills it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "proto/state/attributes.h"
#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

/// Requests that are refused with a line in the log.
int flood(const std::string& path, int count) {
  Tenant tenant(path, 1 << 20);
  if (!tenant.ok()) return 1;
  uroce_modify_qp_request bad{};
  bad.handle = tenant.qp.made.handle;
  bad.attr.state = static_cast<std::uint32_t>(proto::QpState::kInit);
  bad.mask = proto::kAttrState;
  for (int i = 0; i < count; ++i) {
    if (tenant.client.call(UROCE_CMD_MODIFY_QP, bad).status <= 0) return 2;
  }
  return 0;
}

TEST(Log, ThatNobodyReadsStopsNobody) {
  int log[2];
  ASSERT_EQ(::pipe2(log, O_CLOEXEC), 0);
  ::fcntl(log[1], F_SETPIPE_SZ, 4096);
  // The pipe is full except for the line that says that the daemon is ready.
  const std::string filler(3072, '-');
  ASSERT_EQ(::write(log[1], filler.data(), filler.size()), static_cast<ssize_t>(filler.size()));
  DaemonProcess daemon({}, log[1]);
  ASSERT_TRUE(daemon.ready());
  Child first(kAttacker, [&] { return flood(daemon.socket_path(), 100); });
  Child second(kOther, [&] { return flood(daemon.socket_path(), 100); });
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  Tenant tenant(daemon.socket_path(), 1 << 20);
  EXPECT_TRUE(tenant.ok()) << tenant.error;
  EXPECT_TRUE(tenant.ok() && tenant.write_once() != 0);
  EXPECT_EQ(daemon.stop(), 0);
}

TEST(Log, TakesAFewLinesOfEachUser) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Child attacker(kAttacker, [&] { return flood(daemon.socket_path(), 3000); });
  EXPECT_EQ(attacker.wait(), 0);
  const std::string log = daemon.log();
  EXPECT_LT(std::ranges::count(log, '\n'), 1000);
  EXPECT_NE(log.find("refused"), std::string::npos) << log;
}

}  // namespace
}  // namespace uroce::hostile
