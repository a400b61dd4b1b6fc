// The run directory and the sysfs-like tree in it: nothing that other users made is trusted or followed.
#include "control/machine/run_dir.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "control/link/sysfs_tree.h"
#include "control/machine/poller_census.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::make_run_dir;
using control::open_run_file;
using control::Port;
using control::write_sysfs_tree;

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
  EXPECT_TRUE(make_run_dir(top + "/a/b", ::geteuid()).ok());
  EXPECT_TRUE(fs::is_directory(top + "/a/b"));
  EXPECT_TRUE(make_run_dir(top + "/a/b", ::geteuid()).ok());
}

TEST_F(RunDirTest, WhereOthersMayReplaceFilesIsRefused) {
  ASSERT_EQ(::chmod(top.c_str(), 0777), 0);
  const absl::Status open = make_run_dir(top, ::geteuid());
  EXPECT_EQ(open.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(open.message().find(top), absl::string_view::npos);
  ASSERT_EQ(::chmod(top.c_str(), 01777), 0);
  EXPECT_TRUE(make_run_dir(top, ::geteuid()).ok());
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod(top.c_str(), 0755) | ::chown(top.c_str(), 65534, 65534), 0);
  EXPECT_EQ(make_run_dir(top, ::geteuid()).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(make_run_dir(top, 65534).ok()) << "the user to change to has it from the last time";
}

TEST_F(RunDirTest, AFileThatAnotherUserHasMadeIsRefusedByName) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(::chmod(top.c_str(), 01777), 0);
  const std::string path = top + "/presence";
  std::ofstream(path) << "theirs";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  control::PollerCensus census;
  const absl::Status opened = census.open(path);
  EXPECT_EQ(opened.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(opened.message().find(path + " belongs to user 65534"), absl::string_view::npos) << opened;
  EXPECT_EQ(fs::file_size(path), 6u);
  // The same with a link of that user.
  fs::remove(path);
  fs::create_symlink(top + "/elsewhere", path);
  ASSERT_EQ(::lchown(path.c_str(), 65534, 65534), 0);
  EXPECT_NE(census.open(path).message().find(path + " belongs to user 65534"), absl::string_view::npos);
  EXPECT_FALSE(fs::exists(top + "/elsewhere"));
}

TEST_F(RunDirTest, AFileIsTheDaemonsAlone) {
  const std::string path = top + "/file", other = top + "/other";
  UniqueFd file;
  const auto refused = [&] { return absl::IsPermissionDenied(open_run_file(path, file)); };
  ASSERT_TRUE(open_run_file(path, file).ok());
  ASSERT_TRUE(open_run_file(path, file).ok()) << "its own file of an earlier start";
  for (const mode_t mode : {0604, 0640, 0602}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(refused()) << std::oct << mode;
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  fs::create_hard_link(path, other);
  EXPECT_TRUE(refused());
  fs::remove(path);
  fs::create_symlink(other, path);
  EXPECT_TRUE(refused());
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(refused());
  fs::remove(path);
  fs::create_directory(path);
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  EXPECT_TRUE(refused());
  fs::remove(path);
  EXPECT_TRUE(open_run_file(path, file).ok());
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0600));
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
  EXPECT_TRUE(control::update_sysfs_tree(top, "test0", port).ok());
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
  control::remove_sysfs_tree(top, "test0");
  EXPECT_TRUE(fs::exists(top + "/elsewhere/class/infiniband/test0"));
  if (::geteuid() != 0) return;
  // So is one that another user made.
  fs::remove(top + "/sys");
  fs::create_directory(top + "/sys");
  ASSERT_EQ(::chown((top + "/sys").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(write_sysfs_tree(top, "test0", port).ok());
  EXPECT_TRUE(fs::is_empty(top + "/sys"));
}

/// Writes fail, as on a full disk.
class NoSpace {
 public:
  NoSpace() : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoSpace() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  NoSpace(const NoSpace&) = delete;
  NoSpace& operator=(const NoSpace&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(RunDirTest, TheClassLinksToTheVirtualDevice) {
  const Port& port = daemon.conductor->state().port();
  ASSERT_TRUE(write_sysfs_tree(top, "test0", port).ok());
  const fs::path link = top + "/sys/class/infiniband/test0";
  EXPECT_EQ(fs::read_symlink(link), "../../devices/virtual/infiniband/test0");
  EXPECT_EQ(fs::canonical(link / "subsystem"), fs::canonical(top + "/sys/class/infiniband"));
  EXPECT_EQ(text_of(link / "ports/1/rate"), "25 Gb/sec (1X EDR)\n");
  control::remove_sysfs_tree(top, "test0");
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_FALSE(fs::exists(top + "/sys/devices/virtual/infiniband/test0"));
}

TEST_F(RunDirTest, OnlyCountersThatHaveChangedAreWritten) {
  const Port& port = daemon.conductor->state().port();
  const control::CounterFiles before = control::counter_files({}, 0);
  EXPECT_TRUE(control::update_counter_files(top, "test0", {}, before).ok());
  EXPECT_FALSE(fs::exists(top + "/sys")) << "there is no tree";
  ASSERT_TRUE(write_sysfs_tree(top, "test0", port).ok());
  const std::string counters = top + "/sys/class/infiniband/test0/ports/1/counters/";
  std::ofstream(counters + "symbol_error") << "untouched";
  control::worker_commands::SumCounters sums;
  sums.transport.sent_pkts = 7;
  sums.transport.sent_bytes = 4000;
  ASSERT_TRUE(control::update_counter_files(top, "test0", before, control::counter_files(sums, 2)).ok());
  EXPECT_EQ(text_of(counters + "port_xmit_packets"), "7\n");
  EXPECT_EQ(text_of(counters + "port_xmit_data"), "1000\n");
  EXPECT_EQ(text_of(counters + "link_downed"), "2\n");
  EXPECT_EQ(text_of(counters + "../hw_counters/sent_pkts"), "7\n");
  EXPECT_EQ(text_of(counters + "symbol_error"), "untouched");
}

TEST_F(RunDirTest, TheFirstCountersLeaveThoseAloneThatAreStillZero) {
  control::DaemonConfig config = test_config();
  config.run_dir = top;
  TestDaemon own(config);
  ASSERT_TRUE(write_sysfs_tree(top, config.name, own.conductor->state().port()).ok());
  const std::string zero = top + "/sys/class/infiniband/" + config.name + "/ports/1/counters/symbol_error";
  std::ofstream(zero) << "untouched";
  own.conductor->link().publish_counters({});
  EXPECT_EQ(text_of(zero), "untouched");
}

TEST_F(RunDirTest, AFullDiskLeavesTheTreeAsItWas) {
  const Port& port = daemon.conductor->state().port();
  ASSERT_TRUE(write_sysfs_tree(top, "test0", port).ok());
  const std::string ports = top + "/sys/class/infiniband/test0/ports/1";
  const std::string state = text_of(ports + "/state"), gid = text_of(ports + "/gids/0");
  EXPECT_NE(gid, "");
  absl::Status status;
  {
    const NoSpace full;
    status = control::update_sysfs_tree(top, "test0", port);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("--run-dir"), absl::string_view::npos);
  EXPECT_EQ(text_of(ports + "/state"), state);
  EXPECT_EQ(text_of(ports + "/gids/0"), gid);
  EXPECT_EQ(text_of(ports + "/gid_attrs/types/0"), "RoCE v2\n");
}

TEST_F(RunDirTest, TheTreeIsWrittenOnceThereIsSpaceAgain) {
  control::DaemonConfig config = test_config();
  config.run_dir = top;
  TestDaemon own(config);
  const Port& port = own.conductor->state().port();
  ASSERT_TRUE(write_sysfs_tree(top, config.name, port).ok());
  const std::string ports = top + "/sys/class/infiniband/" + config.name + "/ports/1";
  const std::string gid = text_of(ports + "/gids/1");
  {
    const NoSpace full;
    ASSERT_TRUE(own.conductor->link().add_address({ipv4(77), 24}));
  }
  EXPECT_EQ(text_of(ports + "/gids/1"), gid);
  own.conductor->link().refresh();
  EXPECT_NE(text_of(ports + "/gids/1"), gid);
}

TEST_F(RunDirTest, TheTreeHasNoFilesOfRemovedAddresses) {
  control::DaemonConfig config = test_config();
  config.run_dir = top;
  TestDaemon own(config);
  ASSERT_TRUE(write_sysfs_tree(top, config.name, own.conductor->state().port()).ok());
  const auto files = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(top)) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  };
  const std::vector<std::string> before = files();
  for (const std::uint8_t last : {77, 78}) {
    ASSERT_TRUE(own.conductor->link().add_address({ipv4(last), 24}));
  }
  EXPECT_GT(files().size(), before.size());
  for (const std::uint8_t last : {77, 78}) ASSERT_TRUE(own.conductor->link().remove_address(ipv4(last)));
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace uroce::daemon::testing
