// Two ends of a stream and the wire in between, by seed: every byte arrives once and in order, and neither end ever
// has more in flight than the other has granted.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "rsocket/flow.h"

namespace uroce::rdmacm {
namespace {

using Flow = StreamFlow;

constexpr std::uint64_t kListAt = 1ull << 40, kBufferAt = 2ull << 40;

struct Packet {
  std::uint64_t addr = 0;
  std::vector<std::byte> data;
  std::uint32_t imm = 0;
  std::uint64_t wr_id = 0;
};

struct End {
  Flow flow;
  Flow::Config config;
  Target list[kTargets] = {};
  std::vector<std::byte> send_buffer, receive_buffer;
  std::deque<Packet> wire;  ///< to the other end
  std::deque<std::uint64_t> completions;
  std::deque<std::uint32_t> arrived;     ///< messages that were not handled yet
  std::uint64_t sent = 0, received = 0;  ///< bytes
  bool closed = false;
};

std::byte byte_of(std::uint64_t position) { return static_cast<std::byte>(position * 31 + (position >> 8)); }

class World {
 public:
  World(std::uint64_t seed, Flow::Config a, Flow::Config b) : random_(seed) {
    const Flow::Config configs[] = {a, b};
    for (int i = 0; i < 2; ++i) {
      ends[i].config = configs[i];
      ends[i].flow.start(configs[i]);
      ends[i].send_buffer.resize(configs[i].send_buffer);
      ends[i].receive_buffer.resize(configs[i].receive_buffer);
    }
    for (int i = 0; i < 2; ++i) {
      const Flow::Config& peer = configs[1 - i];
      ends[i].flow.connect(peer.rq_size, {kBufferAt, 1, peer.receive_buffer / 2}, kTargets);
    }
  }

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void send(End& e) {
    if (!e.flow.can_send()) return;
    const auto length = static_cast<std::uint32_t>(1 + below(e.flow.room()));
    const bool inlined = length <= 64 && below(2) == 0;
    const Flow::Write w = e.flow.send(length, inlined);
    Packet p{w.remote_addr, std::vector<std::byte>(length), w.imm, w.wr_id};
    ASSERT_EQ(inlined ? 0 : length, w.source.total());
    for (std::uint32_t i = 0; i < length; ++i) p.data[i] = byte_of(e.sent + i);
    if (!inlined) {
      // Through the send buffer. Data in flight must not be overwritten, which the reader would notice.
      for (std::uint32_t i = 0; i < length; ++i) {
        const std::size_t at = i < w.source.first ? w.source.offset + i : i - w.source.first;
        ASSERT_LT(at, e.send_buffer.size());
        e.send_buffer[at] = p.data[i];
      }
    }
    e.sent += length;
    e.wire.push_back(std::move(p));
    ++posted;
  }

  void update(End& e) {
    while (const auto u = e.flow.update()) {
      Packet p{0, {}, u->imm, u->wr_id};
      if (u->has_target) {
        const Target t{kBufferAt + u->buffer_offset, 1, u->buffer_length};
        p.addr = kListAt + u->target_index * sizeof(Target);
        p.data.resize(sizeof(t));
        std::memcpy(p.data.data(), &t, sizeof(t));
      }
      e.wire.push_back(std::move(p));
    }
  }

  // The wire: writes to the other end's memory, then completions at both ends.
  void deliver(End& from, End& to) {
    if (from.wire.empty()) return;
    const Packet p = std::move(from.wire.front());
    from.wire.pop_front();
    if (!p.data.empty()) {
      const bool list = p.addr < kBufferAt;
      auto* base = list ? reinterpret_cast<std::byte*>(to.list) : to.receive_buffer.data();
      const std::uint64_t at = p.addr - (list ? kListAt : kBufferAt);
      ASSERT_LE(at + p.data.size(), list ? sizeof(to.list) : to.receive_buffer.size());
      std::memcpy(base + at, p.data.data(), p.data.size());
    }
    to.arrived.push_back(p.imm);
    // Each consumes a posted receive, which must exist however long the application does not poll.
    ASSERT_LE(to.arrived.size(), to.config.rq_size + Flow::kSpareReceives);
    from.completions.push_back(p.wr_id);
  }

  void look(End& e) {
    for (; !e.completions.empty(); e.completions.pop_front()) ASSERT_TRUE(e.flow.completed(e.completions.front()));
    for (; !e.arrived.empty(); e.arrived.pop_front()) {
      const auto event = e.flow.received(e.arrived.front());
      ASSERT_NE(event, Flow::Event::kProtocolError);
      if (event == Flow::Event::kCredits) e.flow.adopt(e.list, false);
    }
    update(e);
  }

  void read(End& e) {
    const auto part = e.flow.peek(0, 1 + below(5000));
    for (std::uint32_t i = 0; i < part.total(); ++i) {
      const std::size_t at = i < part.first ? part.offset + i : i - part.first;
      ASSERT_EQ(e.receive_buffer[at], byte_of(e.received + i)) << "at " << e.received + i;
    }
    e.received += part.total();
    e.flow.consume(part.total());
    update(e);
  }

  void step() {
    const int i = static_cast<int>(below(2));
    End &e = ends[i], &peer = ends[1 - i];
    switch (below(4)) {
      case 0: return send(e);
      case 1:
        for (std::uint64_t n = below(8); n > 0; --n) deliver(e, peer);
        return;
      case 2: return look(e);
      default: return read(e);
    }
  }

  void settle() {
    for (int n = 0; n < 1000; ++n) {
      for (int i = 0; i < 2; ++i) {
        while (!ends[i].wire.empty()) deliver(ends[i], ends[1 - i]);
        look(ends[i]);
        read(ends[i]);
      }
    }
  }

  End ends[2];
  std::uint64_t posted = 0;

 private:
  std::mt19937_64 random_;
};

class FlowWorlds : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(FlowWorlds, BringsEveryByteOnceAndInOrder) {
  std::mt19937_64 random(GetParam());
  const auto draw = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(random() % (high - low + 1));
  };
  const auto config = [&] {
    return Flow::Config{draw(16, 20000), draw(8, 20000) * 2, static_cast<std::uint16_t>(draw(16, 100)),
                        static_cast<std::uint16_t>(draw(16, 100))};
  };
  World world(GetParam(), config(), config());
  for (int i = 0; i < 20000; ++i) {
    world.step();
    if (HasFatalFailure()) return;
  }
  world.settle();
  EXPECT_GT(world.posted, 1000u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(world.ends[i].sent, world.ends[1 - i].received);
    EXPECT_TRUE(world.ends[i].flow.all_sent());
    EXPECT_TRUE(world.ends[i].flow.can_send());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FlowWorlds, ::testing::Range<std::uint64_t>(1, 41));

Flow connected(std::uint16_t rq_size = 16, std::uint32_t receive_buffer = 4096) {
  Flow flow;
  flow.start({8192, receive_buffer, 32, rq_size});
  flow.connect(16, {1000, 7, 100}, kTargets);
  return flow;
}

TEST(Flow, AnnouncesTheSecondHalfOfItsBufferAtOnceInTheSecondEntry) {
  Flow flow = connected();
  const auto u = flow.update();
  ASSERT_TRUE(u && u->has_target);
  EXPECT_EQ(u->target_index, 1u);
  EXPECT_EQ(u->buffer_offset, 2048u);
  EXPECT_EQ(u->buffer_length, 2048u);
  EXPECT_EQ(value_of(u->imm), 16u);
  EXPECT_FALSE(flow.update());
}

TEST(Flow, SendsNoMoreThanATargetHoldsAndWaitsForTheNext) {
  Flow flow = connected();
  EXPECT_EQ(flow.room(), 100u);
  EXPECT_EQ(flow.send(60, false).remote_addr, 1000u);
  EXPECT_EQ(flow.room(), 40u);
  EXPECT_EQ(flow.send(40, false).remote_addr, 1060u);
  EXPECT_FALSE(flow.can_send());
  Target list[kTargets] = {{}, {5000, 7, 50}};
  flow.received(message(MessageOp::kCredits, 16));
  flow.adopt(list, false);
  EXPECT_TRUE(flow.can_send());
  EXPECT_EQ(flow.room(), 50u);
  EXPECT_EQ(list[1].length, 0u);
}

TEST(Flow, StopsWithoutCreditsAndContinuesWithMore) {
  Flow flow = connected();
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(flow.can_send());
    flow.completed(flow.send(1, true).wr_id);
  }
  EXPECT_FALSE(flow.can_send());
  flow.received(message(MessageOp::kCredits, 17));
  EXPECT_TRUE(flow.can_send());
}

TEST(Flow, RefusesMoreBytesThanItGranted) {
  Flow flow = connected();
  EXPECT_EQ(flow.received(message(MessageOp::kData, 2049)), Flow::Event::kProtocolError);
  EXPECT_EQ(flow.received(message(MessageOp::kData, 2048)), Flow::Event::kData);
  EXPECT_EQ(flow.received(message(MessageOp::kData, 1)), Flow::Event::kProtocolError);
}

TEST(Flow, RefusesMoreMessagesThanItGaveCreditsFor) {
  Flow flow = connected();
  for (int i = 0; i < 16; ++i) ASSERT_EQ(flow.received(message(MessageOp::kData, 1)), Flow::Event::kData);
  EXPECT_EQ(flow.received(message(MessageOp::kData, 1)), Flow::Event::kProtocolError);
}

TEST(Flow, RefusesReservedOperations) {
  Flow flow = connected();
  for (const std::uint32_t op : {1u, 2u, 3u, 5u}) EXPECT_EQ(flow.received(op << 29), Flow::Event::kProtocolError);
}

TEST(Flow, IgnoresCompletionsThatItDidNotRequest) {
  Flow flow = connected();
  EXPECT_FALSE(flow.completed(0));
  EXPECT_FALSE(flow.completed(flow.send(1, true).wr_id + 1));
}

TEST(Flow, GivesCreditsBackWhenHalfOfTheMessagesAreRead) {
  Flow flow = connected();
  flow.completed(flow.update()->wr_id);
  for (int i = 0; i < 8; ++i) flow.received(message(MessageOp::kData, 1));
  flow.consume(7);
  EXPECT_FALSE(flow.update());
  flow.consume(1);
  const auto u = flow.update();
  ASSERT_TRUE(u);
  EXPECT_FALSE(u->has_target);
  EXPECT_EQ(value_of(u->imm), 24u);
}

TEST(Flow, KeepsSendSlotsForControlMessages) {
  Flow flow = connected();
  while (flow.can_send()) flow.send(1, true);
  EXPECT_TRUE(flow.can_control());
  for (std::uint32_t i = 0; i < Flow::kControlSlots; ++i) flow.control();
  EXPECT_FALSE(flow.can_control());
  EXPECT_FALSE(flow.update());
}

}  // namespace
}  // namespace uroce::rdmacm
