// Turns are short while QPs of several users have something to send, and long again afterwards.
#include <array>
#include <span>
#include <vector>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

constexpr std::uint32_t kFrames = 16, kFrameBytes = 4096 + wire::kMaxOverhead;

/// QPs of two users on one transport; only what they send is looked at.
class CompetingUsers : public testing::Test {
 protected:
  CompetingUsers() {
    const Remote remote{Qpn{0x44}, 100, pair.b.path.source, pair.b.path.source_mac};
    connect(other, remote, pair.now);
    transmit();  // a QP has a turn when it reaches RTS
    pair.now += 2 * kMillisecond;
  }
  static Options options(std::uint64_t user) {
    Options options;
    options.mtu = 4096;
    options.user = user;
    return options;
  }
  void post(End& end, std::uint32_t bytes) {
    end.post({.opcode = UROCE_WR_RDMA_WRITE, .sges = {end.sge(0, bytes)}, .remote = End::kIova, .rkey = 1});
    end.ring();
  }
  /// The sending QP of each frame of a burst.
  std::vector<std::uint32_t> transmit(std::size_t most = kFrames, std::int32_t cost = TxBurst::kAnyCost) {
    std::vector<std::byte> buffer(kFrames * kFrameBytes);
    std::array<base::Frame, kFrames> frames;
    for (std::uint32_t i = 0; i < kFrames; ++i)
      frames[i] = {buffer.data() + i * kFrameBytes, 0, kFrameBytes, 0, 0, nullptr};
    TxBurst burst{std::span(frames).first(most), 0, cost};
    pair.a.transport->transmit(burst, pair.now);
    std::vector<std::uint32_t> senders;
    for (const base::Frame& frame : burst.frames.first(burst.count))
      senders.push_back(LocalDevices::qpn_of(frame.sender).value);
    return senders;
  }

  Pair pair{options(1)};
  End other{options(2), Qpn{0x33}, 1, &pair.a};
};

TEST_F(CompetingUsers, AUserAloneHasLongTurns) {
  post(pair.a, 1 << 20);
  EXPECT_EQ(transmit().size(), kFrames);
  EXPECT_FALSE(pair.a.transport->users_compete(pair.now));
}

TEST_F(CompetingUsers, OneWithLittleToSendIsFirstAndMakesTurnsShort) {
  post(pair.a, 1 << 20);
  transmit(4);
  post(other, 8);
  const std::vector<std::uint32_t> senders = transmit(4);
  ASSERT_FALSE(senders.empty());
  EXPECT_EQ(senders.front(), other.qpn.value);
  EXPECT_TRUE(pair.a.transport->users_compete(pair.now));
  const std::size_t short_burst = transmit(kFrames, 8 << 10).size();
  EXPECT_GE(short_burst, 1u);
  EXPECT_LE(short_burst, 3u);
  pair.now += 2 * kMillisecond;
  EXPECT_FALSE(pair.a.transport->users_compete(pair.now));
}

}  // namespace
}  // namespace uroce::proto::test
