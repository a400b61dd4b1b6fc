// A capture as others read it: block by block here, and by tshark where it is installed.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include "drivers/packet/controls.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/pcap/capture.h"
#include "drivers/packet/switch/port.h"
#include "tests/unit/packet/conformance.h"

namespace uroce::packet_test {
namespace {

std::uint32_t u32(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest() : path_(::testing::TempDir() + "uroce_capture_test_" + std::to_string(::getpid()) + ".pcapng") {}
  ~CaptureTest() override { std::remove(path_.c_str()); }

  void pass(std::uint32_t frames, std::uint32_t length) {
    for (std::uint32_t i = 0; i < frames; ++i) {
      base::Frame frame;
      ASSERT_EQ(device_.allocate(std::span(&frame, 1)), 1u);
      fill(frame, kMac, length, i);
      ASSERT_EQ(device_.transmit(std::span(&frame, 1)), 1u);
      ASSERT_EQ(device_.receive(std::span(&frame, 1)), 1u);
      device_.release(std::span(&frame, 1));
    }
  }

  void end_capture() {
    EXPECT_EQ(controls_.stop_capture(), "");
    controls_.recorder().finish();
  }

  std::string file() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::string path_;
  static constexpr wire::Mac kMac{0x02, 0, 0, 0, 0, 1};
  static constexpr std::uint32_t kBuffers = 2048;
  ethernet::Switch lan_{9000, kBuffers};
  packet::Controls controls_{"uroce7"};
  pcap::Capture<loopback::LoopbackDevice<ethernet::SwitchPort>> device_{controls_.recorder(), 0u, lan_, kMac};
};

TEST_F(CaptureTest, every_block_is_well_formed_and_every_frame_is_there_in_both_directions) {
  pass(3, 80);  // before: not recorded
  ASSERT_EQ(controls_.start_capture(path_), "");
  pass(100, 77);
  end_capture();
  pass(3, 80);
  const std::string bytes = file();
  int packets = 0, inbound = 0;
  std::size_t at = 0;
  while (at + 12 <= bytes.size()) {
    const std::uint32_t type = u32(bytes, at), length = u32(bytes, at + 4);
    ASSERT_EQ(length % 4, 0u);
    ASSERT_LE(at + length, bytes.size());
    ASSERT_EQ(u32(bytes, at + length - 4), length);
    if (type == 6) {
      ASSERT_EQ(u32(bytes, at + 20), 77u);
      ++packets;
      inbound += u32(bytes, at + 28 + 80 + 4) == 1 ? 1 : 0;
    }
    at += length;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(packets, 200);
  EXPECT_EQ(inbound, 100);
}

TEST_F(CaptureTest, tshark_reads_it) {
  if (std::system("command -v tshark >/dev/null") != 0) GTEST_SKIP() << "no tshark here";
  ASSERT_EQ(controls_.start_capture(path_), "");
  pass(10, 60);
  end_capture();
  const std::string command =
      "tshark -n -r " + path_ +
      " -T fields -e frame.interface_name -e frame.packet_flags_direction -e frame.len 2>/dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char line[256];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) output += line;
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 20) << output;
  EXPECT_NE(output.find("uroce7\t0x00000002\t60"), std::string::npos) << output;
  EXPECT_NE(output.find("uroce7\t0x00000001\t60"), std::string::npos) << output;
}

TEST_F(CaptureTest, refuses_a_file_that_cannot_be_written_and_a_second_capture) {
  EXPECT_NE(controls_.start_capture("/nonexistent/x.pcapng"), "");
  EXPECT_NE(controls_.stop_capture(), "");
  ASSERT_EQ(controls_.start_capture(path_), "");
  EXPECT_NE(controls_.start_capture(path_).find(path_), std::string::npos);
  end_capture();
}

TEST_F(CaptureTest, starts_and_stops_under_traffic) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(controls_.start_capture(path_), "");
    std::thread stopper([this] { end_capture(); });
    pass(200, 1000);
    stopper.join();
  }
}

TEST(ByteRing, yields_what_was_published_in_order_past_its_end) {
  pcap::ByteRing ring;
  for (std::uint32_t round = 0; round < 3000; ++round) {
    std::uint64_t at = ring.head();
    const std::size_t bytes = 1 + round * 37 % 9000;
    const std::span<std::byte> room = ring.reserve(at, bytes);
    ASSERT_EQ(room.size(), bytes);
    std::memset(room.data(), static_cast<int>(round & 0xff), bytes);
    EXPECT_TRUE(ring.front().empty()) << "not published yet";
    ring.publish(at);
    const std::span<const std::byte> out = ring.front();
    ASSERT_EQ(out.size(), bytes);
    EXPECT_EQ(out[0], static_cast<std::byte>(round & 0xff));
    EXPECT_EQ(out[bytes - 1], static_cast<std::byte>(round & 0xff));
    ring.pop();
  }
}

TEST(ByteRing, is_full_before_it_overwrites) {
  pcap::ByteRing ring;
  std::uint64_t at = ring.head();
  std::size_t stored = 0;
  while (!ring.reserve(at, 9000).empty()) ++stored;
  ring.publish(at);
  EXPECT_GT(stored, 900u);
  std::size_t taken = 0;
  for (; !ring.front().empty(); ring.pop()) ++taken;
  EXPECT_EQ(taken, stored);
}

}  // namespace
}  // namespace uroce::packet_test
