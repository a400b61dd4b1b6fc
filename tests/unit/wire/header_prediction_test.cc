// Whatever comes before and after it, a frame is parsed as wire::parse() alone would.
#include "wire/header_prediction.h"

#include <gtest/gtest.h>

#include <random>

#include "packets.h"

namespace uroce::wire {
namespace {

using testing::build;
using testing::Bytes;

constexpr ParseOptions kOptions{.defer_icrc = true};
constexpr std::uint8_t kWriteMiddle = opcode(Service::kRc, Operation::kWriteMiddle);
constexpr std::uint8_t kReadMiddle = opcode(Service::kRc, Operation::kReadResponseMiddle);

Bytes middle(std::uint32_t psn, std::uint8_t code = kWriteMiddle, bool is_v6 = false, std::size_t bytes = 256) {
  return build(testing::path(is_v6), Bth{.opcode = code, .dest_qpn = Qpn{0x123456}, .psn = Psn(psn)}, bytes);
}

void expect_as_parsed_alone(HeaderPrediction& prediction, const Bytes& frame,
                            const ParseOptions& options = kOptions) {
  RxPacket one, other;
  const ParseVerdict verdict = prediction.parse(frame, options, one);
  ASSERT_EQ(verdict, parse(frame, options, other));
  if (!accepted(verdict)) return;
  EXPECT_EQ(words_of(one.bth, one.bth.pad), words_of(other.bth, other.bth.pad));
  EXPECT_EQ(one.info, other.info);
  EXPECT_EQ(one.bth_start, other.bth_start);
  EXPECT_EQ(one.payload, other.payload);
  EXPECT_EQ(one.payload_bytes, other.payload_bytes);
  EXPECT_EQ(one.ip, other.ip);
  EXPECT_EQ(one.ip_bytes, other.ip_bytes);
  EXPECT_EQ(one.ce, other.ce);
  EXPECT_EQ(one.multicast, other.multicast);
  EXPECT_EQ(one.vlan, other.vlan);
  EXPECT_EQ(one.source_mac, other.source_mac);
  EXPECT_EQ(one.icrc_pending(), other.icrc_pending());
  EXPECT_FALSE(one.placed());
  if (verdict != ParseVerdict::kIcrcPending) return;
  std::vector<std::byte> here(one.payload_bytes), there(here.size());
  EXPECT_EQ(place_payload(one, here.data(), 0), place_payload(other, there.data(), 0));
  EXPECT_EQ(here, there);
}

TEST(HeaderPrediction, TakesTheNextMiddlesOfAMessage) {
  for (const bool is_v6 : {false, true}) {
    for (const std::uint8_t code : {kWriteMiddle, kReadMiddle}) {
      HeaderPrediction prediction;
      for (std::uint32_t psn = 0xfffffe; psn < 0x1000002; ++psn) {
        const Bytes frame = middle(psn & 0xffffff, code, is_v6);
        expect_as_parsed_alone(prediction, frame);
        RxPacket packet;
        prediction.parse(frame, kOptions, packet);
        EXPECT_EQ(packet.state, PacketState::kIcrcResumable) << "the prediction was not used";
        EXPECT_EQ(verify_icrc(packet), ParseVerdict::kOk);
      }
    }
  }
}

// Frames from this process and from the wire come in turn.
TEST(HeaderPrediction, TakesFramesWhoseIcrcNeedsNoCheck) {
  constexpr ParseOptions kGood{.check_icrc = false, .defer_icrc = true};
  for (const bool wire_first : {false, true}) {
    HeaderPrediction prediction;
    for (std::uint32_t psn = 0; psn < 8; ++psn) {
      const ParseOptions& options = (psn % 2 == 0) == wire_first ? kOptions : kGood;
      const Bytes frame = middle(psn);
      expect_as_parsed_alone(prediction, frame, options);
      RxPacket packet;
      prediction.parse(frame, options, packet);
      EXPECT_EQ(packet.state, options.check_icrc ? PacketState::kIcrcResumable : PacketState::kVerified);
    }
    expect_as_parsed_alone(prediction, middle(9, opcode(Service::kRc, Operation::kSendMiddle)), kGood);
    expect_as_parsed_alone(prediction, middle(10, opcode(Service::kRc, Operation::kSendMiddle)), kOptions);
  }
}

TEST(HeaderPrediction, BeginsWithNothing) {
  for (const Bytes& frame : {Bytes{}, Bytes(1), Bytes(60), middle(7)}) {
    HeaderPrediction prediction;
    expect_as_parsed_alone(prediction, frame);
  }
}

TEST(HeaderPrediction, SeesEachBitThatDiffers) {
  const Bytes first = middle(7);
  for (std::size_t bit = 0; bit < (first.size() - 200) * 8; ++bit) {
    HeaderPrediction prediction;
    expect_as_parsed_alone(prediction, first);
    Bytes changed = middle(8);
    changed[bit / 8] ^= std::byte{1} << bit % 8;
    expect_as_parsed_alone(prediction, changed);
  }
}

TEST(HeaderPrediction, IsNotMisledByWhatComesBetween) {
  std::vector<Bytes> frames;
  for (const bool is_v6 : {false, true}) {
    for (std::size_t code = 0; code < kOpcodes.size(); ++code) {
      if (kOpcodes[code].known())
        frames.push_back(build(testing::path(is_v6), static_cast<std::uint8_t>(code), 64));
    }
    for (const std::size_t bytes : {256, 1024, 4096}) frames.push_back(middle(9, kWriteMiddle, is_v6, bytes));
  }
  frames.push_back(build(testing::path(false, 5), kWriteMiddle, 256));
  frames.push_back(Bytes(60));
  frames.push_back({});
  std::mt19937 random(1);
  HeaderPrediction prediction;
  for (int i = 0; i < 20'000; ++i) {
    Bytes frame = frames[random() % frames.size()];
    if (!frame.empty() && random() % 8 == 0) frame[random() % frame.size()] ^= static_cast<std::byte>(random());
    if (!frame.empty() && random() % 16 == 0) frame.resize(random() % frame.size());
    expect_as_parsed_alone(prediction, frame);
  }
}

}  // namespace
}  // namespace uroce::wire
