// The files of `urocectl trace -w`, with times that the test chooses: which there are, and which frames each has.
#include "apps/urocectl/trace_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace uroce::ctl {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kNoon = 1'700'049'600 * kSecond;  // 2023-11-15 12:00:00 UTC

class TraceFiles : public ::testing::Test {
 protected:
  TraceFiles() {
    char name[] = "/tmp/uroce-trace-XXXXXX";
    folder = ::mkdtemp(name);
    ::setenv("TZ", "UTC", 1);
    options.run_dir = folder;  // without a daemon
    options.trace.file = folder / "part";
  }
  ~TraceFiles() override { std::filesystem::remove_all(folder); }

  /// A frame of 1000 bytes that many seconds after noon. False: the trace is to end before it.
  bool packet(double seconds) {
    pcap::Record record;
    record.time_ns = kNoon + static_cast<std::uint64_t>(seconds * 1e9);
    record.length = record.kept = static_cast<std::uint32_t>(frame.size());
    if (!output->takes(record)) return false;
    output->packet(record, frame);
    return true;
  }
  void begin() { output = make_output(options, "uroce0"); }
  /// Frames by name of the file, as their contents say.
  std::map<std::string, int> end() {
    output->end(0);
    output.reset();
    std::map<std::string, int> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      int frames = 0;
      for (std::size_t at = 0; (at = text.find(kMark, at)) != std::string::npos; at += sizeof kMark) ++frames;
      found[entry.path().filename()] = frames;
    }
    return found;
  }

  static constexpr char kMark[] = "a frame of the trace";
  std::array<std::byte, 1000> frame = [] {
    std::array<std::byte, 1000> bytes{};
    std::memcpy(bytes.data() + 100, kMark, sizeof kMark);
    return bytes;
  }();
  std::filesystem::path folder;
  Options options;
  std::unique_ptr<TraceOutput> output;
};
using Files = std::map<std::string, int>;

TEST_F(TraceFiles, OneFileHoldsAll) {
  begin();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(packet(i * 1000));
  EXPECT_EQ(end(), (Files{{"part", 5}}));
}

TEST_F(TraceFiles, ATimeBeginsTheNextOneWithTheFirstFrameAfterIt) {
  options.trace.rotate_s = 10;
  begin();
  for (const double at : {0.0, 9.999, 10.0, 19.9, 45.0, 45.1, 54.9, 55.0}) EXPECT_TRUE(packet(at));
  EXPECT_EQ(end(), (Files{{"part", 2}, {"part1", 2}, {"part2", 3}, {"part3", 1}}));
}

TEST_F(TraceFiles, APatternNamesThemByTheirTime) {
  options.trace.rotate_s = 10;
  options.trace.file = folder / "%Y-%m-%dT%H%M%S";
  begin();
  for (const double at : {0.0, 1.0, 12.5, 3600.0}) EXPECT_TRUE(packet(at));
  Files found = end();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found.begin()->second + found.rbegin()->second, 3) << "the first has the time of the start, after 2023";
  EXPECT_EQ(found["2023-11-15T120012"], 1);
  EXPECT_EQ(found["2023-11-15T130000"], 1);
}

TEST_F(TraceFiles, ANameThatAPatternMakesTwiceGetsANumber) {
  options.trace.rotate_s = 1;
  options.trace.file = folder / "part-%%";
  begin();
  for (const double at : {0.0, 1.0, 2.0, 2.5}) EXPECT_TRUE(packet(at));
  EXPECT_EQ(end(), (Files{{"part-%", 1}, {"part-%1", 1}, {"part-%2", 2}}));
}

TEST_F(TraceFiles, ALimitOfFilesEndsATraceThatRotatesByTime) {
  options.trace.rotate_s = 10;
  options.trace.files = 2;
  begin();
  for (const double at : {0.0, 10.0, 19.0}) EXPECT_TRUE(packet(at));
  EXPECT_FALSE(packet(20.0));
  EXPECT_EQ(end(), (Files{{"part", 1}, {"part1", 2}}));
}

TEST_F(TraceFiles, ALimitOfFilesOfASizeBeginsAgain) {
  options.trace.file_bytes = 2000;
  options.trace.files = 3;
  begin();
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(packet(i));
  EXPECT_EQ(end(), (Files{{"part0", 2}, {"part1", 1}, {"part2", 2}}));
}

TEST_F(TraceFiles, SizeAndTimeTogether) {
  options.trace.file_bytes = 2000;
  options.trace.rotate_s = 10;
  begin();
  for (const double at : {0.0, 1.0, 2.0, 12.0, 13.0, 14.0}) EXPECT_TRUE(packet(at));
  EXPECT_EQ(end(), (Files{{"part", 2}, {"part1", 1}, {"part2", 2}, {"part3", 1}}));
}

TEST_F(TraceFiles, APatternThatMakesNoNameIsRefused) {
  options.trace.rotate_s = 1;
  options.trace.file = "%Z%Z" + std::string(5000, 'x');
  EXPECT_EXIT(begin(), ::testing::ExitedWithCode(2), "it makes no name");
}

}  // namespace
}  // namespace uroce::ctl
