// What a connection goes through while its peer behaves.
#include "cm/manager.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "world.h"

namespace uroce::cm {
namespace {

TEST(CmManager, ConnectsAndTellsEachSideWhatTheOtherSaid) {
  World world;
  ASSERT_EQ(world.ends[1].listen(kService, 8, 99), 0);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  ASSERT_TRUE(id);
  world.run(kMillisecond);
  const auto requests = world.take(1, EventType::kRequest);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].cookie, 99u);
  EXPECT_EQ(requests[0].req.local_qpn, Qpn{17});
  EXPECT_EQ(requests[0].req.private_data[0], std::byte{0x42});
  EXPECT_EQ(requests[0].peer, world.peer_of(1));
  ASSERT_TRUE(world.ends[1].accept(requests[0].id, reply(18), 6, world.now));
  world.run(kMillisecond);
  const auto responses = world.take(0, EventType::kResponse);
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].rep.local_qpn, Qpn{18});
  EXPECT_EQ(responses[0].cookie, 5u);
}

TEST(CmManager, ListeningTwiceOnOneServiceIsAddressInUse) {
  World world;
  EXPECT_EQ(world.ends[1].listen(kService, 8, 1), 0);
  EXPECT_EQ(world.ends[1].listen(kService, 8, 2), EADDRINUSE);
  world.ends[1].unlisten(kService);
  EXPECT_EQ(world.ends[1].listen(kService, 8, 2), 0);
}

TEST(CmManager, NobodyListensIsRejectedWithInvalidServiceId) {
  World world;
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto rejected = world.take(0, EventType::kRejected);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].reject.reason, RejReason::kInvalidServiceId);
  EXPECT_EQ(world.ends[0].connections(), 0u);
}

TEST(CmManager, RejectionCarriesReasonAndPrivateData) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const std::array<std::byte, 2> why{std::byte{1}, std::byte{2}};
  world.ends[1].reject(world.take(1, EventType::kRequest).at(0).id, RejReason::kConsumerDefined, why, world.now);
  world.run(kSecond);
  const auto rejected = world.take(0, EventType::kRejected);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].reject.reason, RejReason::kConsumerDefined);
  EXPECT_EQ(rejected[0].reject.private_data[1], std::byte{2});
  EXPECT_EQ(world.ends[1].connections(), 0u);
}

TEST(CmManager, ExtendedOptionsArriveWithMessagesThatAreRepeated) {
  World world;
  ASSERT_EQ(world.ends[1].listen(kService, 8, 99), 0);
  Req req = request(17);
  req.ece = {0xabcdef, 0x12345678};
  const auto active = world.ends[0].connect(world.peer_of(0), req, 5, world.now);
  world.lose_then_repeat();
  const auto requests = world.take(1, EventType::kRequest);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].req.ece, (Ece{0xabcdef, 0x12345678}));
  Rep rep = reply(18);
  rep.ece = {0xabcdef, 0x5678};
  ASSERT_TRUE(world.ends[1].accept(requests[0].id, rep, 6, world.now));
  world.lose_then_repeat();
  const auto responses = world.take(0, EventType::kResponse);
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].rep.ece, (Ece{0xabcdef, 0x5678}));
  ASSERT_TRUE(world.ends[0].reject(*active, RejReason::kVendorOptionNotSupported, {}, world.now));
  Message rej;
  ASSERT_TRUE(world.ends[0].take_message(rej));
  EXPECT_EQ(rej.modifier, 0u) << "options are those of a REQ or REP";
}

TEST(CmManager, SilentPeerIsUnreachableAfterAllRetries) {
  World world;
  world.loss = 1;
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(16 * 100 * kMillisecond - 1);
  EXPECT_TRUE(world.take(0, EventType::kUnreachable).empty());
  world.run(kMillisecond);
  EXPECT_EQ(world.take(0, EventType::kUnreachable).size(), 1u);
  EXPECT_EQ(world.ends[0].counters().sent[0], 16u);
  EXPECT_EQ(world.ends[0].connections(), 0u);
}

TEST(CmManager, DisconnectEndsBothSidesThroughTimewait) {
  World world;
  const Ids ids = connected(world);
  ASSERT_TRUE(world.ends[0].disconnect(ids.active, world.now));
  world.run(kMillisecond);
  for (int end : {0, 1}) {
    const auto told = world.take(end, EventType::kDisconnected);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_FALSE(told[0].timed_out);
  }
  EXPECT_EQ(world.ends[0].state(ids.active), State::kTimewait);
  world.run(kSecond);
  EXPECT_EQ(world.take(0, EventType::kClosed).size(), 1u);
  EXPECT_EQ(world.take(1, EventType::kClosed).size(), 1u);
  EXPECT_EQ(world.ends[0].connections() + world.ends[1].connections(), 0u);
}

TEST(CmManager, SimultaneousDisconnectEndsOnceOnEachSide) {
  World world;
  const Ids ids = connected(world);
  world.ends[0].disconnect(ids.active, world.now);
  world.ends[1].disconnect(ids.passive, world.now);
  world.run(kSecond);
  for (int end : {0, 1}) {
    EXPECT_EQ(world.take(end, EventType::kDisconnected).size(), 1u);
    EXPECT_EQ(world.take(end, EventType::kClosed).size(), 1u);
  }
}

TEST(CmManager, PeerThatVanishedIsDisconnectedAfterAllRetries) {
  World world;
  const Ids ids = connected(world);
  world.loss = 1;
  world.ends[0].disconnect(ids.active, world.now);
  world.run(2 * kSecond);
  const auto told = world.take(0, EventType::kDisconnected);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].timed_out);
}

TEST(CmManager, QpThatConnectsAnewMakesItsOldConnectionStale) {
  World world;
  const Ids ids = connected(world, 17);
  // The peer has restarted: it knows nothing of the old connection, and uses the same QP number.
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto rejected = world.take(0, EventType::kRejected);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].reject.reason, RejReason::kStaleConnection);
  EXPECT_EQ(world.take(1, EventType::kDisconnected).size(), 1u);
  EXPECT_EQ(world.ends[1].state(ids.passive), State::kTimewait);
}

TEST(CmManager, BacklogBoundsRequestsThatNobodyHasAnswered) {
  World world;
  world.ends[1].listen(kService, 2, 99);
  for (std::uint32_t qpn = 20; qpn < 25; ++qpn)
    world.ends[0].connect(world.peer_of(0), request(qpn), qpn, world.now);
  world.run(kMillisecond);
  const auto first = world.take(1, EventType::kRequest);
  EXPECT_EQ(first.size(), 2u);
  for (const Event& e : first) world.ends[1].accept(e.id, reply(e.req.local_qpn.value + 100), 6, world.now);
  world.run(150 * kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kRequest).size(), 2u);  // asked again, and there was room
}

TEST(CmManager, AbandonedConnectionTellsThePeerAndNobodyHere) {
  World world;
  const Ids ids = connected(world);
  world.ends[0].abandon(ids.active, world.now);
  world.run(kSecond);
  EXPECT_EQ(world.take(1, EventType::kDisconnected).size(), 1u);
  EXPECT_EQ(world.take(0, EventType::kClosed).size(), 1u);
  EXPECT_TRUE(world.events[0].empty());
  EXPECT_EQ(world.ends[0].connections(), 0u);
}

TEST(CmManager, ResolvesAServiceWithSidr) {
  World world;
  const std::uint64_t service = service_id(PortSpace::kUdp, 7174);
  world.ends[1].listen(service, 8, 99);
  world.ask(service);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kSidrRequest);
  ASSERT_EQ(asked.size(), 1u);
  SidrRep rep;
  rep.qpn = Qpn{77};
  rep.qkey = 0x01234567;
  world.ends[1].sidr_respond(asked[0].id, rep, world.now);
  world.run(kMillisecond);
  const auto answered = world.take(0, EventType::kSidrResponse);
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(answered[0].sidr_rep.qpn, Qpn{77});
  EXPECT_EQ(world.ends[0].connections() + world.ends[1].connections(), 0u);
}

TEST(CmManager, RequestsOfAnotherClassVersionAreAnswered) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  world.changes = [](int from, Message& message) {
    if (from == 0) message.class_version = 1;
  };
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.ask(kService);
  world.run(kMillisecond);
  const auto rejected = world.take(0, EventType::kRejected);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].id, *id);
  EXPECT_EQ(rejected[0].reject.reason, RejReason::kInvalidClassVersion);
  const auto answered = world.take(0, EventType::kSidrResponse);
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(answered[0].sidr_rep.status, SidrStatus::kUnsupportedVersion);
  EXPECT_TRUE(world.events[1].empty());
  EXPECT_EQ(world.ends[1].counters().bad_version, 2u);
}

// Consumers as rdma_cm's: accept each request, establish each response, disconnect some; whatever the network does,
// every connection ends on both sides and nothing is left over.
TEST(CmManager, NothingIsLeftOverWhateverTheNetworkDoes) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    World world(seed);
    world.loss = 0.2;
    world.duplicate = 0.2;
    world.max_delay = 50 * kMillisecond;
    world.ends[1].listen(kService, 16, 99);
    std::map<std::uint32_t, int> established[2];
    for (std::uint32_t i = 0; i < 10; ++i) world.ends[0].connect(world.peer_of(0), request(100 + i), i, world.now);
    for (int step = 0; step < 400; ++step) {
      world.run(10 * kMillisecond);
      for (const Event& e : world.take(1, EventType::kRequest)) {
        world.ends[1].accept(e.id, reply(e.req.local_qpn.value + 1000), 6, world.now);
      }
      for (const Event& e : world.take(0, EventType::kResponse)) {
        if (world.ends[0].establish(e.id, {}, world.now)) ++established[0][e.id.value];
      }
      for (const Event& e : world.take(1, EventType::kEstablished)) ++established[1][e.id.value];
      if (step == 300) {
        for (const auto& [id, count] : established[0]) world.ends[0].disconnect({id}, world.now);
      }
    }
    world.run(20 * kSecond);
    for (int end : {0, 1}) {
      for (const auto& [id, count] : established[end]) EXPECT_EQ(count, 1) << "seed " << seed;
      EXPECT_EQ(world.ends[end].connections(), 0u) << "seed " << seed << " end " << end;
    }
    EXPECT_EQ(established[0].size(), 10u) << "seed " << seed;
    EXPECT_EQ(world.take(0, EventType::kClosed).size(), 10u) << "seed " << seed;
  }
}

// Hostile peers: any bytes, any attribute, any address. Nothing grows beyond the table.
TEST(CmManager, RandomMessagesAreCountedAndBounded) {
  Manager manager(config(3));
  manager.listen(kService, 4, 1);
  std::mt19937_64 random(4);
  Nanos now = kSecond;
  for (int round = 0; round < 100'000; ++round) {
    Message message{static_cast<Attribute>(random() % 0x20), random(), {address(1), address(random() % 4)}, {}};
    for (std::byte& b : message.bytes) b = static_cast<std::byte>(random());
    if (random() % 2 == 0) {
      request(static_cast<std::uint32_t>(random() % 64)).emit(message.bytes);
      message.attribute = Attribute::kReq;
    }
    manager.receive(message, now);
    manager.advance(now += kMillisecond);
    Message out;
    while (manager.take_message(out)) continue;
    Event event;
    while (manager.take_event(event)) {
      if (event.type == EventType::kRequest && random() % 2 == 0) manager.accept(event.id, reply(5), 1, now);
    }
    ASSERT_LE(manager.connections(), 64u);
  }
  EXPECT_GT(manager.counters().unmatched, 0u);
}

}  // namespace
}  // namespace uroce::cm
