// The page of counters: its file, what a daemon's threads write, and what urocectl reads.
#include "apps/urocectl/counters_page.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control/machine/counters_file.h"
#include "platform/clock.h"
#include "worker/counter_section.h"

namespace uroce::admin::testing {
namespace {

namespace fs = std::filesystem;

using abi::CounterSection;
using control::CountersFile;
using worker::CounterSectionWriter;

const std::vector<CountersFile::Name> kOfWorkers = {{"worker", "steps", CounterKind::kTotal},
                                                    {"worker", "busy", CounterKind::kDuration},
                                                    {"worker", "longest_step", CounterKind::kLongest},
                                                    {"worker", "last_stall", CounterKind::kLast}};
const std::vector<CountersFile::Name> kOfControl = {{"device", "rx_packets", CounterKind::kTotal}};

class CountersPageTest : public ::testing::Test {
 protected:
  CountersPageTest() {
    char name[] = "/tmp/uroce-counters-XXXXXX";
    dir = ::mkdtemp(name);
    path = dir + "/test0.counters";
    make();
  }
  ~CountersPageTest() override {
    file.reset();
    fs::remove_all(dir);
  }
  void make() {
    file = std::make_unique<CountersFile>();
    const absl::Status status = file->make(dir, "test0", 2, kOfWorkers, kOfControl);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < 2; ++i) workers[i].open(file->section_of_worker(i), kOfWorkers.size());
    control.open(file->section_of_control(), kOfControl.size());
  }
  static void publish(CounterSectionWriter& writer, const std::vector<std::uint64_t>& values) {
    writer.publish(monotonic_now(), [&](auto&& put) {
      for (const std::uint64_t value : values) put(value);
    });
  }
  ctl::CountersPage read() const { return ctl::read_counters(dir, "test0"); }
  /// The file in this test's hands.
  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  ctl::CountersPage read_as(const std::string& text) const {
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << text;
    return read();
  }

  std::string dir, path;
  std::unique_ptr<CountersFile> file;
  CounterSectionWriter workers[2], control;
};

TEST_F(CountersPageTest, WorkersAreAddedByTheKindOfEachCounter) {
  const Nanos now = monotonic_now();
  publish(workers[0], {5, 7'000'000, 30'000, now - 20 * kMillisecond});
  publish(workers[1], {6, 8'000'000, 90'000, 0});
  publish(control, {4711});
  const ctl::CountersPage page = read();
  ASSERT_EQ(page.problem, "");
  const ctl::Json& of_workers = page.counters.at("worker");
  EXPECT_EQ(of_workers.at("steps"), 11);
  EXPECT_EQ(of_workers.at("busy_us"), 15'000);
  EXPECT_EQ(of_workers.at("longest_step_us"), 90);
  EXPECT_GE(of_workers.at("last_stall_ms_ago"), 20);
  EXPECT_EQ(of_workers.size(), 4u);
  EXPECT_EQ(page.counters.at("device").at("rx_packets"), 4711);
  EXPECT_EQ(page.process, ::getpid());
  EXPECT_EQ(ctl::devices_with_pages(dir), std::vector<std::string>{"test0"});
}

TEST_F(CountersPageTest, MoreValuesThanNamesAreNotWritten) {
  publish(workers[0], std::vector<std::uint64_t>(100, ~std::uint64_t{0}));
  publish(workers[1], {1, 2, 3, 4});
  EXPECT_EQ(file->section_of_worker(1).thread, 0);
  EXPECT_EQ(file->section_of_worker(1).sequence, 2u);
}

TEST_F(CountersPageTest, SaysWhatEachThreadDoes) {
  EXPECT_EQ(ctl::hanging_thread(read(), 0), "") << "no thread has started";
  const Nanos now = monotonic_now();
  for (CounterSectionWriter* const each : {&workers[0], &workers[1], &control}) each->note_thread(42);
  workers[0].begin(now);
  workers[1].sleep(now - 60 * kSecond);
  control.sleep(now);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond), "") << "a worker may sleep as long as it likes";
  workers[0].begin(now - 12 * kSecond);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond), "worker 0 has been in one duty cycle for 12.0 s");
  workers[0].begin(now);
  workers[1].await_command("sum_counters", now - 11 * kSecond);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond),
            "worker 1 has not begun with the command sum_counters for 11.0 s");
  workers[1].start_command(now - 10 * kSecond);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond),
            "worker 1 has not ended the command sum_counters for 11.0 s");
  workers[1].command_done();
  control.await_command("reg_mr", now - 20 * kSecond, 7);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond),
            "the control thread has not ended the command reg_mr of session 7 for 20.0 s");
  const ctl::Json rows = ctl::threads_json(read());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("state"), "runs");
  EXPECT_EQ(rows[1].at("state"), "sleeps");
  EXPECT_GE(rows[1].at("state_ms"), 60'000);
  EXPECT_EQ(rows[2].at("thread"), "control");
  EXPECT_EQ(rows[2].at("command"), "reg_mr");
  EXPECT_EQ(rows[2].at("session"), 7);
  control.command_done();
  control.sleep(now - 15 * kSecond);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond), "the control thread has not run for 15.0 s");
  control.begin(now - 15 * kSecond);
  EXPECT_EQ(ctl::hanging_thread(read(), 10 * kSecond), "the control thread has been in one round for 15.0 s");
}

TEST_F(CountersPageTest, AReaderSeesNoHalfOfACopy) {
  std::atomic<bool> stop{false};
  std::jthread writer([&] {
    for (std::uint64_t i = 0; !stop.load(); ++i) {
      publish(workers[0], {i, i * kMicrosecond, i * kMicrosecond, 0});
      if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  int whole = 0;
  for (int i = 0; i < 300; ++i) {
    const ctl::CountersPage page = read();
    ASSERT_EQ(page.threads.size(), 3u);
    if (!page.threads.front().whole) continue;  // this thread had no core while the writer paused
    ++whole;
    const ctl::Json& values = page.counters.at("worker");
    EXPECT_EQ(values.at("steps"), values.at("busy_us"));
    EXPECT_EQ(values.at("steps"), values.at("longest_step_us"));
  }
  EXPECT_GT(whole, 0);
  stop = true;
}

TEST_F(CountersPageTest, AThreadThatEndedWhileItWroteIsRead) {
  publish(workers[0], {5, 0, 0, 0});
  file->section_of_worker(0).sequence += 1;
  const ctl::CountersPage page = read();
  EXPECT_EQ(page.counters.at("worker").at("steps"), 5);
  EXPECT_FALSE(page.threads.front().whole);
  publish(workers[0], {6, 0, 0, 0});
  EXPECT_TRUE(read().threads.front().whole);
}

TEST_F(CountersPageTest, AnyFileIsReadOrRefused) {
  publish(workers[0], {5, 0, 0, 0});
  const std::string whole = bytes();
  file.reset();
  EXPECT_NE(read().problem.find("No such file"), std::string::npos);
  EXPECT_EQ(read_as(whole).problem, "");
  for (std::size_t length = 0; length < whole.size(); length += 61) {
    EXPECT_NE(read_as(whole.substr(0, length)).problem, "") << length;
  }
  for (std::size_t at = 0; at + 4 <= sizeof(abi::CountersPage); at += 4) {
    for (const std::uint32_t value : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      std::string changed = whole;
      std::memcpy(changed.data() + at, &value, sizeof value);
      read_as(changed);  // under the sanitizers: it reads nothing else
    }
  }
  std::string coloured = whole;
  coloured.replace(sizeof(abi::CountersPage), 3, "\x1b[3");
  EXPECT_EQ(read_as(coloured).counters.dump().find('\x1b'), std::string::npos);
  EXPECT_NE(read_as("x" + whole.substr(1)).problem.find("of the same build"), std::string::npos);
  std::string other = whole;
  other.replace(other.find("test0"), 5, "test1");
  EXPECT_NE(read_as(other).problem.find("is the page of test1"), std::string::npos);
}

TEST_F(CountersPageTest, WhatIsNotAFileOfTheDaemonIsRefused) {
  file.reset();
  fs::create_directory(path);
  EXPECT_NE(read().problem.find("is not a file"), std::string::npos);
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0644), 0);
  EXPECT_NE(read().problem.find("is not a file"), std::string::npos);
  if (::geteuid() != 0) return;
  fs::remove(path);
  make();
  const std::string whole = bytes();
  file.reset();
  EXPECT_EQ(read_as(whole).problem, "");
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_NE(read().problem.find("belongs to user 65534"), std::string::npos);
  const std::string socket = dir + "/test0.sock";
  std::ofstream(socket) << "";
  ASSERT_EQ(::chown(socket.c_str(), 65534, 65534), 0);
  EXPECT_EQ(read().problem, "") << "the daemon's user";
  fs::remove(path);
  fs::create_symlink(dir, path);
  EXPECT_NE(read().problem.find("is a link to another folder"), std::string::npos);
  fs::remove(path);
  fs::create_symlink("/dev/shm/uroce-none", path);
  EXPECT_NE(read().problem.find("in the mount namespace of the daemon"), std::string::npos);
}

TEST_F(CountersPageTest, OthersChooseNoNamesThatActOnTheTerminal) {
  std::ofstream(dir + "/\x1b]0;title\a.counters") << "";
  std::ofstream(dir + "/" + std::string(40, 'x') + ".counters") << "";
  EXPECT_EQ(ctl::devices_with_pages(dir), std::vector<std::string>{"test0"});
  EXPECT_TRUE(ctl::devices_with_pages(dir + "/missing").empty());
}

TEST_F(CountersPageTest, ItsFileIsInMemoryAndGoesWithTheDaemon) {
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  const fs::path target = fs::canonical(path);
  file.reset();
  EXPECT_FALSE(fs::exists(fs::symlink_status(path)));
  EXPECT_FALSE(fs::exists(target));
}

TEST_F(CountersPageTest, ReplacesThatOfADaemonThatWasKilled) {
  const fs::path target = fs::canonical(path);
  static const CountersFile* const killed = file.release();  // its destructor does not run
  ASSERT_TRUE(killed->is_made());
  make();
  EXPECT_EQ(read().problem, "");
  EXPECT_EQ(fs::exists(target), !fs::is_symlink(path));
}

TEST_F(CountersPageTest, RemovesNothingElse) {
  file.reset();
  const std::string other = dir + "/other";
  std::ofstream(other) << "text";
  fs::create_symlink("/dev/shm/uroce-/../../.." + other, path);
  make();
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(read().problem, "");
  if (::geteuid() != 0) return;
  // Another user's link to a page of ours.
  file.reset();
  const std::string page = "/dev/shm/uroce-test-" + std::to_string(::getpid());
  std::ofstream(page) << "text";
  fs::create_symlink(page, path);
  ASSERT_EQ(::lchown(path.c_str(), 65534, 65534), 0);
  make();
  EXPECT_TRUE(fs::remove(page));
}

TEST_F(CountersPageTest, WhereItCannotBeMadeTheErrorSaysWhatToDo) {
  CountersFile none;
  const absl::Status status = none.make(dir + "/missing", "test0", 1, kOfWorkers, kOfControl);
  EXPECT_NE(status.message().find(dir + "/missing"), absl::string_view::npos);
  EXPECT_NE(status.message().find("--run-dir"), absl::string_view::npos);
  EXPECT_FALSE(none.is_made());
}

}  // namespace
}  // namespace uroce::admin::testing
