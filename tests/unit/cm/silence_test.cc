// Peers that fall silent or give up on the way to a connection, and the events that each side gets.
#include <gtest/gtest.h>

#include "cm/fields.h"
#include "world.h"

namespace uroce::cm {
namespace {

constexpr Field kGuid{0, 8};

/// The last REJ on the wire, and its sender.
struct Overheard {
  explicit Overheard(World& world) {
    world.drops = [this](int from, const Message& message) {
      if (message.attribute == Attribute::kRej) rej = Rej::parse(message.bytes), sender = from, ++count;
      return lost == message.attribute;
    };
  }
  std::optional<Attribute> lost;  ///< gets lost for good
  Rej rej;
  int sender = -1, count = 0;
};

// Linux finds the connection of a REJ for a timeout by its sender's CA GUID and id alone.
TEST(CmSilence, ARepThatIsNeverAnsweredEndsInATimeoutWithTheSendersGuid) {
  World world;
  Overheard heard(world);
  world.ends[1].listen(kService, 8, 99);
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto id = world.take(1, EventType::kRequest).at(0).id;
  heard.lost = Attribute::kRtu;
  ASSERT_TRUE(world.ends[1].accept(id, reply(18), 6, world.now));
  world.run(kMillisecond);
  ASSERT_TRUE(world.ends[0].establish(world.take(0, EventType::kResponse).at(0).id, {}, world.now));
  world.run(16 * 100 * kMillisecond - 2 * kMillisecond);
  EXPECT_EQ(heard.count, 0);
  world.run(2 * kMillisecond);
  ASSERT_EQ(heard.count, 1);
  EXPECT_EQ(heard.sender, 1);
  EXPECT_EQ(heard.rej.reason, RejReason::kTimeout);
  EXPECT_EQ(heard.rej.answered, MessageAcked::kRep);
  EXPECT_EQ(heard.rej.info_bytes, 8);
  EXPECT_EQ(kGuid.read<std::uint64_t>(heard.rej.info.data()), config(1001).ca_guid);
  EXPECT_EQ(world.take(1, EventType::kUnreachable).size(), 1u);
  const auto told = world.take(0, EventType::kRejected);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reject.reason, RejReason::kTimeout);
  world.run(kSecond);
  EXPECT_EQ(world.ends[0].connections() + world.ends[1].connections(), 0u);
}

TEST(CmSilence, ARequestThatIsGivenUpGivesBackItsPlaceInTheBacklog) {
  World world;
  Overheard heard(world);
  world.ends[1].listen(kService, 1, 99);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  ASSERT_EQ(world.take(1, EventType::kRequest).size(), 1u);
  world.ends[0].abandon(*id, world.now);
  EXPECT_EQ(world.ends[0].connections(), 0u);
  world.run(kMillisecond);
  EXPECT_EQ(heard.rej.reason, RejReason::kTimeout);
  EXPECT_EQ(heard.rej.local_id, id->value);
  EXPECT_EQ(heard.rej.remote_id, 0u) << "no REP came: the peer's id is not known";
  EXPECT_EQ(kGuid.read<std::uint64_t>(heard.rej.info.data()), config(1).ca_guid);
  const auto told = world.take(1, EventType::kRejected);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reject.reason, RejReason::kTimeout);
  EXPECT_EQ(world.ends[1].counters().unmatched, 0u);
  world.ends[0].connect(world.peer_of(0), request(19), 5, world.now);
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kRequest).size(), 1u);
  EXPECT_EQ(world.ends[1].counters().backlog_full, 0u);
}

TEST(CmSilence, ATimeoutOfAnotherGuidOrAddressIsNobodys) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  Rej rej;
  rej.local_id = id->value;
  rej.reason = RejReason::kTimeout;
  rej.info_bytes = 8;
  kGuid.write(rej.info.data(), config(1).ca_guid);
  Message message{Attribute::kRej, 1, world.peer_of(1), {}, 0};
  const auto deliver = [&] {
    rej.emit(message.bytes);
    world.ends[1].receive(message, world.now);
    world.run(kMillisecond);
    return world.take(1, EventType::kRejected).size();
  };
  kGuid.write(rej.info.data(), config(2).ca_guid);
  EXPECT_EQ(deliver(), 0u);
  kGuid.write(rej.info.data(), config(1).ca_guid);
  message.peer.remote = address(9);
  EXPECT_EQ(deliver(), 0u);
  EXPECT_EQ(world.ends[1].counters().unmatched, 2u);
  message.peer = world.peer_of(1);
  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(deliver(), 0u);
}

std::uint64_t sent(const World& world, int end, Attribute attribute) {
  return world.ends[end].counters().sent[static_cast<unsigned>(attribute) - 0x10];
}

// A MRA asks for 4.3 s; nobody waits longer than a round of its own, which is 15 times 100 ms here.
TEST(CmSilence, AConsumerThatThinksAboutARequestKeepsThePeerWaiting) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(99 * kMillisecond);
  EXPECT_EQ(sent(world, 1, Attribute::kMra), 0u);
  world.run(2 * kMillisecond);
  EXPECT_EQ(sent(world, 0, Attribute::kReq), 2u);
  EXPECT_EQ(sent(world, 1, Attribute::kMra), 1u);
  world.run(1590 * kMillisecond);
  EXPECT_EQ(sent(world, 0, Attribute::kReq), 2u);
  world.run(20 * kMillisecond);
  EXPECT_EQ(sent(world, 0, Attribute::kReq), 3u);
  EXPECT_EQ(world.ends[0].state(*id), State::kReqSent);
  const auto asked = world.take(1, EventType::kRequest);
  ASSERT_EQ(asked.size(), 1u);
  ASSERT_TRUE(world.ends[1].accept(asked[0].id, reply(18), 6, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(0, EventType::kResponse).size(), 1u);
  EXPECT_EQ(world.ends[0].counters().out_of_state + world.ends[1].counters().out_of_state, 0u);
}

TEST(CmSilence, AConsumerThatThinksAboutAResponseKeepsThePeerWaiting) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kRequest);
  ASSERT_TRUE(world.ends[1].accept(asked.at(0).id, reply(18), 6, world.now));
  world.run(101 * kMillisecond);
  EXPECT_EQ(sent(world, 1, Attribute::kRep), 2u);
  EXPECT_EQ(sent(world, 0, Attribute::kMra), 1u);
  EXPECT_EQ(world.ends[0].counters().duplicates, 1u);
  EXPECT_EQ(world.ends[0].counters().out_of_state, 0u);
  world.run(1400 * kMillisecond);
  EXPECT_EQ(sent(world, 1, Attribute::kRep), 2u);
  EXPECT_EQ(world.take(0, EventType::kResponse).size(), 1u);
  ASSERT_TRUE(world.ends[0].establish(*id, {}, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kEstablished).size(), 1u);
}

TEST(CmSilence, AMraForAnotherMessageStretchesNothing) {
  World world;
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.loss = 1;
  world.run(kMillisecond);
  Mra mra;
  mra.remote_id = id->value;
  mra.answered = MessageAcked::kRep;
  Message message{Attribute::kMra, 1, world.peer_of(0), {}, 0};
  mra.emit(message.bytes);
  world.ends[0].receive(message, world.now);
  EXPECT_EQ(world.ends[0].counters().out_of_state, 1u);
  mra.answered = MessageAcked::kReq;
  mra.emit(message.bytes);
  message.peer.remote = address(9);
  world.ends[0].receive(message, world.now);
  EXPECT_EQ(world.ends[0].counters().unmatched, 1u);
  world.run(100 * kMillisecond);
  EXPECT_EQ(sent(world, 0, Attribute::kReq), 2u);
}

// A program that dies takes its daemon's word for it; a machine that dies says nothing.
TEST(CmSilence, APeerThatDiesBeforeItsRequestIsAnsweredIsUnreachable) {
  World world;
  Overheard heard(world);
  world.ends[1].listen(kService, 8, 99);
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kRequest);
  world.loss = 1;
  ASSERT_TRUE(world.ends[1].accept(asked.at(0).id, reply(18), 6, world.now));
  world.run(1599 * kMillisecond);
  EXPECT_TRUE(world.take(1, EventType::kUnreachable).empty());
  world.run(2 * kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kUnreachable).size(), 1u);
  EXPECT_EQ(sent(world, 1, Attribute::kRep), 16u);
  EXPECT_EQ(heard.rej.reason, RejReason::kTimeout);
  world.run(kSecond);
  EXPECT_EQ(world.take(1, EventType::kClosed).size(), 1u);
  EXPECT_EQ(world.ends[1].connections(), 0u);
}

TEST(CmSilence, ARequestOfADeadPeerThatNobodyLooksAtGoes) {
  World world;
  world.ends[1].listen(kService, 1, 99);
  world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  const auto asked = world.take(1, EventType::kRequest);
  world.loss = 1;
  world.run(2 * kSecond);
  EXPECT_EQ(world.take(1, EventType::kClosed).size(), 1u);
  EXPECT_FALSE(world.ends[1].accept(asked.at(0).id, reply(18), 6, world.now));
  world.loss = 0;
  world.ends[0].connect(world.peer_of(0), request(19), 5, world.now);
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kRequest).size(), 1u);
}

TEST(CmSilence, AResponseOfADeadPeerThatNobodyLooksAtIsUnreachable) {
  World world;
  world.ends[1].listen(kService, 8, 99);
  const auto id = world.ends[0].connect(world.peer_of(0), request(17), 5, world.now);
  world.run(kMillisecond);
  ASSERT_TRUE(world.ends[1].accept(world.take(1, EventType::kRequest).at(0).id, reply(18), 6, world.now));
  world.run(kMillisecond);
  world.loss = 1;
  world.run(2 * kSecond);
  EXPECT_EQ(world.take(0, EventType::kResponse).size(), 1u);
  EXPECT_EQ(world.take(0, EventType::kUnreachable).size(), 1u);
  EXPECT_EQ(world.take(0, EventType::kClosed).size(), 1u);
  EXPECT_FALSE(world.ends[0].establish(*id, {}, world.now));
}

TEST(CmSilence, ADatagramServiceThatIsSilentIsUnreachable) {
  World world;
  world.loss = 1;
  world.ask(service_id(PortSpace::kUdp, 7174));
  world.run(1601 * kMillisecond);
  EXPECT_EQ(sent(world, 0, Attribute::kSidrReq), 16u);
  EXPECT_EQ(world.take(0, EventType::kUnreachable).size(), 1u);
  EXPECT_EQ(world.take(0, EventType::kClosed).size(), 1u);
  EXPECT_EQ(world.ends[0].connections(), 0u);
}

}  // namespace
}  // namespace uroce::cm
