// Bounds and tables: every reason, every length, everything twice, floods, thousands at once.
#include <gtest/gtest.h>

#include "world.h"

namespace uroce::cm {
namespace {

constexpr std::uint64_t kDatagramService = service_id(PortSpace::kUdp, 7174);

ManagerConfig large(std::uint64_t seed) {
  ManagerConfig c = config(seed);
  c.max_connections = 8192;
  c.max_pending_events = 4096;
  return c;
}

template <std::size_t N>
PrivateData<N> numbered() {
  PrivateData<N> data;
  for (std::size_t i = 0; i < N; ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
  return data;
}

TEST(CmTable, EveryReasonArrivesAsItWasGivenFromEitherSide) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  for (std::uint16_t reason = 1; reason <= 35; ++reason) {
    for (const bool active_rejects : {false, true}) {
      SCOPED_TRACE("reason " + std::to_string(reason) + (active_rejects ? " of a REP" : " of a REQ"));
      const auto id = world.ends[0].connect(world.peer_of(0), request(100u + reason), 5, world.now);
      world.run(kMillisecond);
      const auto asked = world.take(1, EventType::kRequest);
      ASSERT_EQ(asked.size(), 1u);
      if (active_rejects) {
        ASSERT_TRUE(world.ends[1].accept(asked[0].id, reply(200u + reason), 6, world.now));
        world.run(kMillisecond);
        ASSERT_EQ(world.take(0, EventType::kResponse).size(), 1u);
      }
      const int rejecter = active_rejects ? 0 : 1;
      const ConnectionId rejected = active_rejects ? *id : asked[0].id;
      // As much private data as the reason's number.
      const auto data = numbered<148>();
      ASSERT_TRUE(world.ends[rejecter].reject(rejected, static_cast<RejReason>(reason),
                                              std::span(data).first(reason), world.now));
      world.run(kSecond);
      const auto told = world.take(1 - rejecter, EventType::kRejected);
      ASSERT_EQ(told.size(), 1u);
      EXPECT_EQ(static_cast<std::uint16_t>(told[0].reject.reason), reason);
      EXPECT_EQ(told[0].reject.answered, active_rejects ? MessageAcked::kRep : MessageAcked::kReq);
      for (std::size_t i = 0; i < data.size(); ++i) {
        ASSERT_EQ(told[0].reject.private_data[i], i < reason ? data[i] : std::byte{0}) << i;
      }
      EXPECT_EQ(world.ends[0].connections() + world.ends[1].connections(), 0u);
    }
  }
}

TEST(CmTable, PrivateDataArrivesToItsLastByte) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  world.ends[1].listen(kDatagramService, 8, 98);
  Req req = request(17);
  req.private_data = numbered<92>();
  const auto id = world.ends[0].connect(world.peer_of(0), req, 5, world.now);
  SidrReq sidr;
  sidr.service_id = kDatagramService;
  sidr.private_data = numbered<216>();
  world.ends[0].sidr_request(world.peer_of(0), sidr, 5, world.now);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kRequest), asked_sidr = world.take(1, EventType::kSidrRequest);
  EXPECT_EQ(asked.at(0).req.private_data, numbered<92>());
  EXPECT_EQ(asked_sidr.at(0).sidr_req.private_data, numbered<216>());
  Rep rep = reply(18);
  rep.private_data = numbered<196>();
  ASSERT_TRUE(world.ends[1].accept(asked[0].id, rep, 6, world.now));
  SidrRep answer;
  answer.private_data = numbered<136>();
  ASSERT_TRUE(world.ends[1].sidr_respond(asked_sidr[0].id, answer, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(0, EventType::kResponse).at(0).rep.private_data, numbered<196>());
  EXPECT_EQ(world.take(0, EventType::kSidrResponse).at(0).sidr_rep.private_data, numbered<136>());
  const auto why = numbered<200>();  // longer than its area: cut off
  ASSERT_TRUE(world.ends[0].reject(*id, RejReason::kConsumerDefined, why, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kRejected).at(0).reject.private_data, numbered<148>());
}

TEST(CmTable, EverythingTwiceIsToldOnce) {
  World world;
  world.duplicate = 1;
  world.ends[1].listen(kDatagramService, 8, 98);
  const Ids ids = connected(world);  // counts its own events
  world.ask(kDatagramService);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kSidrRequest);
  ASSERT_EQ(asked.size(), 1u);
  world.ends[1].sidr_respond(asked[0].id, {}, world.now);
  world.run(kMillisecond);
  EXPECT_EQ(world.take(0, EventType::kSidrResponse).size(), 1u);
  world.ends[0].disconnect(ids.active, world.now);
  world.ends[0].connect(world.peer_of(0), request(30), 5, world.now);
  world.run(kMillisecond);
  const auto refused = world.take(1, EventType::kRequest);
  ASSERT_EQ(refused.size(), 1u);
  world.ends[1].reject(refused[0].id, RejReason::kNoResources, {}, world.now);
  world.run(kSecond);
  EXPECT_EQ(world.take(0, EventType::kRejected).size(), 1u);
  for (int end : {0, 1}) {
    EXPECT_EQ(world.take(end, EventType::kDisconnected).size(), 1u);
    EXPECT_EQ(world.take(end, EventType::kClosed).size(), 3u);
    EXPECT_TRUE(world.events[end].empty());
    EXPECT_EQ(world.ends[end].connections(), 0u);
  }
}

TEST(CmTable, BothMayConnectToEachOtherAtOnce) {
  World world;
  std::optional<ConnectionId> active[2];
  for (int end : {0, 1}) {
    world.ends[end].listen(kService, 8, 99);
    active[end] =
        world.ends[end].connect(world.peer_of(end), request(static_cast<std::uint32_t>(17 + end)), 5, world.now);
  }
  world.run(kMillisecond);
  for (int end : {0, 1}) {
    const auto asked = world.take(end, EventType::kRequest);
    ASSERT_EQ(asked.size(), 1u);
    ASSERT_TRUE(world.ends[end].accept(asked[0].id, reply(static_cast<std::uint32_t>(27 + end)), 6, world.now));
  }
  world.run(kMillisecond);
  for (int end : {0, 1}) {
    ASSERT_EQ(world.take(end, EventType::kResponse).size(), 1u);
    ASSERT_TRUE(world.ends[end].establish(*active[end], {}, world.now));
  }
  world.run(kMillisecond);
  for (int end : {0, 1}) {
    EXPECT_EQ(world.take(end, EventType::kEstablished).size(), 1u);
    EXPECT_EQ(world.ends[end].connections(), 2u);
    EXPECT_EQ(world.ends[end].counters().stale, 0u);
  }
}

// The QP of a REP must be of no other connection with that peer, and a REP must answer something.
TEST(CmTable, AStaleRepAndOneForNobodyAreRefused) {
  World world;
  connected(world, 17);
  std::vector<Rej> heard;
  world.drops = [&](int from, const Message& message) {
    if (from == 0 && message.attribute == Attribute::kRej) heard.push_back(Rej::parse(message.bytes));
    return false;
  };
  world.ends[0].connect(world.peer_of(0), request(30), 5, world.now);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kRequest);
  ASSERT_TRUE(world.ends[1].accept(asked.at(0).id, reply(17 + 100), 6, world.now));  // as the first one's
  world.run(kMillisecond);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].reason, RejReason::kStaleConnection);
  EXPECT_EQ(heard[0].answered, MessageAcked::kRep);
  for (int end : {0, 1}) {
    const auto told = world.take(end, EventType::kRejected);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].reject.reason, RejReason::kStaleConnection);
  }
  Rep rep = reply(40);
  rep.local_id = 77;
  rep.remote_id = 12345;
  Message message{Attribute::kRep, 1, world.peer_of(0), {}};
  rep.emit(message.bytes);
  world.ends[0].receive(message, world.now);
  world.run(kMillisecond);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[1].reason, RejReason::kInvalidCommId);
  EXPECT_EQ(heard[1].remote_id, 77u);
}

TEST(CmTable, AFullTableRefusesAndHasRoomAgain) {
  World world;  // of 64 connections
  world.ends[1].listen(kService, 100, 99);
  world.ends[1].listen(kDatagramService, 100, 98);
  Message message{Attribute::kReq, 1, world.peer_of(1), {}};
  for (std::uint32_t i = 0; i < 200; ++i) {
    Req req = request(100 + i);
    req.local_id = 1000 + i;
    req.emit(message.bytes);
    world.ends[1].receive(message, world.now);
    world.run(0);
  }
  EXPECT_EQ(world.ends[1].connections(), 64u);
  EXPECT_EQ(world.ends[1].counters().table_full, 136u);
  message.attribute = Attribute::kSidrReq;
  for (std::uint32_t i = 0; i < 200; ++i) {
    SidrReq req;
    req.service_id = kDatagramService;
    req.request_id = 5000 + i;
    req.emit(message.bytes);
    world.ends[1].receive(message, world.now);
    world.run(0);
  }
  EXPECT_EQ(world.ends[1].connections(), 64u);
  EXPECT_EQ(world.ends[1].counters().sent[8], 200u) << "each is rejected";
  for (const Event& e : world.take(1, EventType::kRequest)) {
    world.ends[1].reject(e.id, RejReason::kNoQp, {}, world.now);
  }
  world.run(kSecond);
  EXPECT_EQ(world.ends[1].connections(), 0u);
  EXPECT_FALSE(world.ends[0].connect(world.peer_of(0), request(17), 5, world.now) == std::nullopt);
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kRequest).size(), 1u);
}

TEST(CmTable, OfThousandsOfListenersEachIsFoundAndItsPlaceUsedAgain) {
  constexpr std::uint64_t kMost = 6000;
  World world(1, [](std::uint64_t seed) {
    ManagerConfig c = config(seed);
    c.max_listeners = kMost;
    return c;
  });
  Manager& passive = world.ends[1];
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kMost; ++i) ASSERT_EQ(passive.listen(kService + i, 8, 100 + i), 0) << i;
    EXPECT_EQ(passive.listen(kService + kMost, 8, 1), ENOMEM);
    for (const std::uint64_t i : {std::uint64_t{0}, kMost / 2, kMost - 1}) {
      world.ask(kService + i);
      world.run(kMillisecond);
      const auto asked = world.take(1, EventType::kSidrRequest);
      ASSERT_EQ(asked.size(), 1u);
      EXPECT_EQ(asked[0].cookie, 100 + i);
    }
    for (std::uint64_t i = 0; i < kMost; ++i) passive.unlisten(kService + i);
    world.ask(kService);
    world.run(kSecond);
    EXPECT_TRUE(world.take(1, EventType::kSidrRequest).empty());
  }
}

TEST(CmTable, AListenerAtTheAddressComesBeforeThoseAtAll) {
  World world;
  Manager& passive = world.ends[1];
  const ListenScope here{address(2)}, elsewhere{address(3)}, v6_only{.address = {}, .ipv4 = false};
  ASSERT_EQ(passive.listen(kService, 8, 1), 0);
  ASSERT_EQ(passive.listen(kService, 8, 2, elsewhere), 0);
  EXPECT_EQ(passive.listen(kService, 8, 3, v6_only), EADDRINUSE);
  ASSERT_EQ(passive.listen(kService, 8, 4, here), 0);
  EXPECT_EQ(passive.listen(kService, 8, 5, here), EADDRINUSE);
  const auto answers = [&] {
    world.ask(kService);
    world.run(kMillisecond);
    const auto asked = world.take(1, EventType::kSidrRequest);
    return asked.size() == 1 ? asked[0].cookie : 0;
  };
  EXPECT_EQ(answers(), 4u);
  passive.unlisten(kService, here);
  EXPECT_EQ(answers(), 1u);
  passive.unlisten(kService);
  EXPECT_EQ(answers(), 0u);
}

TEST(CmTable, AFloodOfDatagramRequestsIsBoundedByTheBacklog) {
  World world;
  world.ends[1].listen(kDatagramService, 10, 98);
  Message message{Attribute::kSidrReq, 1, world.peer_of(1), {}};
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    SidrReq req;
    req.service_id = kDatagramService;
    req.request_id = i;
    req.emit(message.bytes);
    world.ends[1].receive(message, world.now);
    world.run(0);
  }
  EXPECT_EQ(world.ends[1].connections(), 10u);
  EXPECT_EQ(world.ends[1].counters().backlog_full, 9990u);
  const auto asked = world.take(1, EventType::kSidrRequest);
  ASSERT_EQ(asked.size(), 10u);
  // Nobody answers them: they go, and so does what they held.
  world.run(3 * kSecond);
  EXPECT_EQ(world.ends[1].connections(), 0u);
  EXPECT_FALSE(world.ends[1].sidr_respond(asked[0].id, {}, world.now));
}

TEST(CmTable, FourThousandConnectionsAreSetUpAtOnce) {
  World world(1, large);
  constexpr std::uint32_t kMany = 4000;
  world.ends[1].listen(kService, 4096, 99);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    ASSERT_TRUE(world.ends[0].connect(world.peer_of(0), request(1 + i), i, world.now));
  }
  std::size_t established = 0;
  for (int round = 0; round < 50 && established < kMany; ++round) {
    world.run(20 * kMillisecond);
    for (const Event& e : world.take(1, EventType::kRequest)) {
      world.ends[1].accept(e.id, reply(e.req.local_qpn.value + 10'000), 6, world.now);
    }
    for (const Event& e : world.take(0, EventType::kResponse)) world.ends[0].establish(e.id, {}, world.now);
    established += world.take(1, EventType::kEstablished).size();
  }
  EXPECT_EQ(established, kMany);
  EXPECT_EQ(world.ends[0].connections(), kMany);
  EXPECT_EQ(world.ends[1].connections(), kMany);
  EXPECT_TRUE(world.take(0, EventType::kUnreachable).empty());
}

}  // namespace
}  // namespace uroce::cm
