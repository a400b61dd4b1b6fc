// UROCE_LOG: the lines that refused verbs leave.
#include "client/call_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "client/session.h"
#include "fake_daemon.h"

namespace uroce::client::test {
namespace {

class CallLogTest : public ::testing::Test {
 protected:
  CallLogTest() {
    char name[] = "/tmp/uroce-call-log-XXXXXX";
    ::close(::mkstemp(name));
    file_ = name;
  }
  ~CallLogTest() override {
    ::unsetenv("UROCE_LOG");
    call_log::level = LogLevel::kOff;
    ::unlink(file_.c_str());
  }
  static void start(const std::string& value) {
    ::setenv("UROCE_LOG", value.c_str(), 1);
    call_log::start("libtest", true);
  }
  void start_with_file(const std::string& level) { start(level + ":" + file_); }
  std::vector<std::string> lines() const {
    std::ifstream in(file_);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  /// Each line matches the pattern in its place.
  void expect_lines(const std::vector<std::string>& patterns) const {
    const std::vector<std::string> all = lines();
    ASSERT_EQ(all.size(), patterns.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(std::regex_search(all[i], std::regex(patterns[i]))) << all[i] << "\nis not like\n" << patterns[i];
    }
  }
  /// A verb that fails with `error`, or succeeds.
  static void run(const char* name, int error, const char* words = nullptr) {
    const Verb verb(name);
    errno = noted(error, words);
  }

  std::string file_;
};

TEST_F(CallLogTest, ARefusedVerbLeavesALineWithItsReason) {
  start_with_file("info");
  run("ibv_create_cq", EINVAL, "cqe must be 1 or more");
  EXPECT_EQ(errno, EINVAL);
  run("ibv_alloc_pd", 0);
  expect_lines({R"(^\d+\.\d{6} libtest: client-test\[\d+\]: ibv_create_cq: EINVAL: cqe must be 1 or more$)"});
}

TEST_F(CallLogTest, AReasonOfAnEarlierVerbIsNotRepeated) {
  start_with_file("info");
  run("ibv_create_cq", EINVAL, "cqe must be 1 or more");
  run("ibv_create_qp", EINVAL);
  expect_lines({"ibv_create_cq: EINVAL: cqe must be", "ibv_create_qp: EINVAL: the library refused an argument"});
}

TEST_F(CallLogTest, AVerbWithinAVerbLeavesNoLineOfItsOwn) {
  start_with_file("info");
  {
    const Verb outer("ibv_create_ah_from_wc");
    run("ibv_create_ah", EHOSTUNREACH, "no route");
  }
  {
    const Verb outer("ibv_import_device");
    run("ibv_open_device", EPERM);
    noted(0);  // the next device took it
  }
  expect_lines({"ibv_create_ah_from_wc: EHOSTUNREACH: no route"});
}

TEST_F(CallLogTest, DebugShowsVerbsThatSucceedAndFullQueues) {
  start_with_file("info");
  call_log::failed_post("ibv_post_send", ENOMEM);
  run("ibv_alloc_pd", 0);
  expect_lines({});
  start_with_file("debug");
  call_log::failed_post("ibv_post_send", ENOMEM);
  run("ibv_alloc_pd", 0);
  expect_lines({"ibv_post_send: ENOMEM: the queue is full", "ibv_alloc_pd: done$"});
}

TEST_F(CallLogTest, TheDaemonsWordsAreTheReason) {
  FakeDaemon daemon;
  std::unique_ptr<Session> session;
  ASSERT_EQ(Session::open(daemon.socket_path(), session), 0);
  daemon.words = "max_send_sge is 1000; allowed are 0 to 32";
  daemon.status = EINVAL;
  const auto refused = [&session] {
    const Verb verb("ibv_create_qp");
    return noted(session->call(UROCE_CMD_CREATE_QP, {}, {}));
  };
  const int before = daemon.commands();
  EXPECT_EQ(refused(), EINVAL);
  EXPECT_EQ(daemon.commands(), before + 1) << "without UROCE_LOG there is no second request";
  start_with_file("info");
  EXPECT_EQ(refused(), EINVAL);
  expect_lines({"ibv_create_qp: EINVAL: max_send_sge is 1000; allowed are 0 to 32$"});
}

TEST_F(CallLogTest, ADaemonThatIsNotThereIsNamed) {
  start_with_file("info");
  {
    const Verb verb("ibv_open_device");
    std::unique_ptr<Session> session;
    noted(Session::open("/nonexistent/uroce0.sock", session));
  }
  expect_lines({"ibv_open_device: ENOENT: cannot connect to /nonexistent/uroce0.sock: is the daemon running"});
}

TEST_F(CallLogTest, WrongValuesAreNamedAndLogNothing) {
  for (const char* wrong : {"loud", "info:", "INFO", ":/tmp/x", "debug,info"}) {
    ::testing::internal::CaptureStderr();
    start(wrong);
    run("ibv_alloc_pd", EINVAL);
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(printed, std::string("libtest: UROCE_LOG=") + wrong +
                           ": give info or debug, or either with a file: info:FILE; nothing is logged\n");
  }
}

TEST_F(CallLogTest, WithoutTheFileTheLinesGoToStderr) {
  ::testing::internal::CaptureStderr();
  start("info:/nonexistent/file");
  run("ibv_alloc_pd", ENOMEM);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      printed.starts_with("libtest: UROCE_LOG: cannot write /nonexistent/file: No such file or directory; "
                          "the lines go to stderr\n"))
      << printed;
  EXPECT_NE(printed.find("ibv_alloc_pd: ENOMEM: "), std::string::npos) << printed;
}

TEST_F(CallLogTest, LinesOfThreadsAndChildrenStayWhole) {
  start_with_file("info");
  const auto many = [] {
    for (int i = 0; i < 200; ++i) run("ibv_create_qp", EINVAL, "a reason of some length, the same in each line");
  };
  const pid_t child = ::fork();
  if (child == 0) {
    many();
    ::_exit(0);
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(many);
  }
  ::waitpid(child, nullptr, 0);
  const std::vector<std::string> all = lines();
  EXPECT_EQ(all.size(), 800u);
  const std::string end = ": ibv_create_qp: EINVAL: a reason of some length, the same in each line";
  for (const std::string& line : all) {
    EXPECT_TRUE(line.ends_with(end)) << line;
    EXPECT_EQ(line.find(end), line.size() - end.size()) << line;
  }
}

TEST_F(CallLogTest, ALongReasonIsCutNotSpilled) {
  start_with_file("info");
  run("ibv_create_qp", EINVAL, std::string(2000, 'x').c_str());
  expect_lines({"EINVAL: x+$"});
}

}  // namespace
}  // namespace uroce::client::test
