// Many hosts write to one at the same time, through a switch whose memory does not hold what they send at first.
#include "tests/sim/incast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace uroce::sim {
namespace {

struct Rounds {
  std::uint8_t opcode;
  std::uint32_t senders;
  std::uint32_t bytes;  ///< of each message
  std::uint8_t timeout;
  bool marks;   ///< by the switch (ECN)
  Nanos limit;  ///< of a round

  Load load() const {
    return {.opcode = opcode,
            .senders = senders,
            .bytes = bytes,
            .timeout = timeout,
            .network = {.mark_bytes = marks ? 200'000 : SIZE_MAX}};
  }
  /// Time on the last cable for the payload alone.
  Nanos least() const { return Nanos{senders} * bytes * 8 / load().network.gbps; }
};

class IncastRounds : public ::testing::TestWithParam<Rounds> {};

// Their connections are new, so that nobody knows the round trip or the bottleneck. No round waits for the verbs
// timeout, which is 67 ms and 1.07 s here.
TEST_P(IncastRounds, EndSoon) {
  const Rounds rounds = GetParam();
  Incast incast(rounds.load(), 1);
  Nanos longest = 0;
  for (int i = 0; i < 5; ++i) longest = std::max(longest, incast.round());
  const proto::Counters counters = incast.counters();
  EXPECT_LE(longest, rounds.limit);
  EXPECT_EQ(counters.local_ack_timeout_err, 0u);
  const auto ms = [](Nanos time) { return static_cast<double>(time) / 1e6; };
  std::printf("longest round %.3f ms, at least %.3f; %llu frames lost, %llu sent again\n", ms(longest),
              ms(rounds.least()), static_cast<unsigned long long>(incast.network().overflowed()),
              static_cast<unsigned long long>(counters.retransmitted_pkts));
}

INSTANTIATE_TEST_SUITE_P(Loads, IncastRounds,
                         ::testing::Values(Rounds{UROCE_WR_RDMA_WRITE, 1, 65536, 14, false, 30 * kMicrosecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 1, 1u << 20, 14, false, 120 * kMicrosecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 8, 65536, 14, false, 60 * kMicrosecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 16, 1u << 20, 14, true, 2 * kMillisecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 32, 65536, 14, false, kMillisecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 128, 65536, 14, false, 20 * kMillisecond},
                                           Rounds{UROCE_WR_RDMA_WRITE, 128, 65536, 18, true, 2 * kMillisecond},
                                           Rounds{UROCE_WR_RDMA_READ, 8, 65536, 14, false, 60 * kMicrosecond},
                                           Rounds{UROCE_WR_RDMA_READ, 16, 1u << 20, 18, true, 20 * kMillisecond},
                                           Rounds{UROCE_WR_RDMA_READ, 128, 65536, 18, true, 20 * kMillisecond}),
                         [](const auto& test) {
                           const Rounds& rounds = test.param;
                           return (rounds.opcode == UROCE_WR_RDMA_READ ? "Read" : "Write") +
                                  std::to_string(rounds.senders) + "Of" + std::to_string(rounds.bytes) +
                                  (rounds.marks ? "Marked" : "");
                         });

}  // namespace
}  // namespace uroce::sim
