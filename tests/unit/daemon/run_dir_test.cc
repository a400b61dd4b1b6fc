// The run directory and the sysfs-like tree in it: nothing that other users made is trusted or followed.
#include "control/run_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "control/sysfs_tree.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

namespace fs = std::filesystem;

class RunDirTest : public ::testing::Test {
 protected:
  RunDirTest() {
    char name[] = "/tmp/uroce-rundir-XXXXXX";
    top = ::mkdtemp(name);
  }
  ~RunDirTest() override { fs::remove_all(top); }

  std::string top;
  TestDaemon daemon;
};

TEST_F(RunDirTest, IsMadeWithItsParents) {
  EXPECT_TRUE(make_run_dir(top + "/a/b").ok());
  EXPECT_TRUE(fs::is_directory(top + "/a/b"));
  EXPECT_TRUE(make_run_dir(top + "/a/b").ok());
}

TEST_F(RunDirTest, WhereOthersMayReplaceFilesIsRefused) {
  ASSERT_EQ(::chmod(top.c_str(), 0777), 0);
  const absl::Status open = make_run_dir(top);
  EXPECT_EQ(open.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(open.message().find(top), absl::string_view::npos);
  ASSERT_EQ(::chmod(top.c_str(), 01777), 0);
  EXPECT_TRUE(make_run_dir(top).ok());
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod(top.c_str(), 0755) | ::chown(top.c_str(), 65534, 65534), 0);
  EXPECT_EQ(make_run_dir(top).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RunDirTest, TheTreeFollowsNoLinks) {
  const Port& port = daemon.conductor->state().port();
  ASSERT_TRUE(write_sysfs_tree(top, "test0", port).ok());
  const std::string ports = top + "/sys/class/infiniband/test0/ports/1", victim = top + "/victim";
  std::ofstream(victim) << "precious";
  const auto precious = [&] {
    std::ifstream file(victim);
    return std::string(std::istreambuf_iterator<char>(file), {}) == "precious";
  };
  // A file that is a link is replaced, not followed.
  fs::remove(ports + "/state");
  fs::create_symlink(victim, ports + "/state");
  write_link_state(top, "test0", port);
  EXPECT_TRUE(precious());
  EXPECT_FALSE(fs::is_symlink(ports + "/state"));
  // A directory that is a link is refused.
  fs::create_directory(top + "/elsewhere");
  fs::remove_all(top + "/sys");
  fs::create_symlink(top + "/elsewhere", top + "/sys");
  const absl::Status linked = write_sysfs_tree(top, "test0", port);
  EXPECT_EQ(linked.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(fs::is_empty(top + "/elsewhere"));
  // Nothing in its target is removed either.
  fs::create_directories(top + "/elsewhere/class/infiniband/test0");
  remove_sysfs_tree(top, "test0");
  EXPECT_TRUE(fs::exists(top + "/elsewhere/class/infiniband/test0"));
  if (::geteuid() != 0) return;
  // So is one that another user made.
  fs::remove(top + "/sys");
  fs::create_directory(top + "/sys");
  ASSERT_EQ(::chown((top + "/sys").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(write_sysfs_tree(top, "test0", port).ok());
  EXPECT_TRUE(fs::is_empty(top + "/sys"));
}

}  // namespace
}  // namespace uroce::daemon::testing
