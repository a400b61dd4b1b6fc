// Connection management through the control commands, QP 1 and the device, on one thread.
#include "cm_service/service.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "admin/query.h"
#include "cm/mad.h"
#include "cm_party.h"
#include "wire/frame_template.h"

namespace uroce::daemon::testing {

using enum control::CmEventType;

namespace {

class CmTest : public CmWorld {};

TEST_F(CmTest, BothEndsLearnWhatTheOtherOffers) {
  const std::uint32_t listener = passive.listener(7000);
  const std::uint32_t id = active.connecting(7000, 100, 56);
  EXPECT_EQ(active.next(kAddrResolved).handle, id);
  const uroce_cm_event request = passive.next(kConnectRequest);
  EXPECT_EQ(request.listener, listener);
  EXPECT_EQ(request.device, 5u);
  EXPECT_EQ(request.parameters.qpn, 100u);
  EXPECT_EQ(request.parameters.private_data_bytes, 56);
  EXPECT_EQ(request.parameters.private_data[55], 56);
  // Swapped: one side's initiator depth is the other side's responder resources.
  EXPECT_EQ(request.parameters.initiator_depth, 4);
  EXPECT_EQ(request.parameters.responder_resources, 2);
  EXPECT_EQ(request.destination.gid[15], 1);
  EXPECT_NE(request.destination.port, 0);
  auto answer = passive.parameters(request.handle, 200, 196);
  answer.parameters.initiator_depth = 1;
  answer.parameters.responder_resources = 200;
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, answer).status, 0);
  const uroce_cm_event response = active.next(kConnectResponse);
  EXPECT_EQ(response.path.remote_qpn, 200u);
  EXPECT_EQ(response.path.remote_psn, request.path.local_psn);
  EXPECT_EQ(response.path.local_psn, request.path.remote_psn);
  EXPECT_EQ(response.path.responder_resources, 1);
  EXPECT_EQ(response.path.initiator_depth, 2);  // no more than we asked for
  EXPECT_EQ(response.parameters.private_data[195], 196);
}

TEST_F(CmTest, IdsAreShown) {
  const auto shown = [this] {
    const auto answer = nlohmann::json::parse(admin::handle_query(
        active.daemon.conductor->admin(), active.client.session(), R"({"command":"show","what":"cm_ids"})"));
    std::set<std::string> rows;
    for (const auto& row : answer["cm_ids"]) {
      const auto text = [&row](const char* name) { return row[name].get<std::string>() + " "; };
      rows.insert(text("state") + text("ps") + text("source") + text("destination"));
    }
    return rows;
  };
  passive.listener(7000);
  active.id(kTcp, at(0, 7001));
  EXPECT_EQ(shown(), (std::set<std::string>{"LISTEN TCP 192.0.2.1:7000  ", "ADDR_BOUND TCP *:7001  "}));
  const std::uint32_t id = active.id(kUdp, at(1, 7002));
  ASSERT_EQ(active.resolve(id, at(1, 7000)), 0);
  active.next(kAddrResolved);
  EXPECT_TRUE(shown().contains("ADDR_RESOLVED UDP 192.0.2.1:7002 192.0.2.1:7000 "));
  active.call(UROCE_CMD_CM_DESTROY_ID, id);
  EXPECT_EQ(shown().size(), 2u);
}

cm::Ece ece_of(const uroce_cm_event& event) { return {event.parameters.ece_vendor, event.parameters.ece_options}; }

void set_ece(uroce_cm_connect_request& request, cm::Ece ece) {
  request.parameters.ece_vendor = ece.vendor;
  request.parameters.ece_options = ece.options;
}

TEST_F(CmTest, ExtendedOptionsGoBothWays) {
  passive.listener(7000);
  const std::uint32_t id = active.id();
  ASSERT_EQ(active.resolve(id, at(1, 7000)), 0);
  active.next(kAddrResolved);
  auto asked = active.parameters(id, 100);
  asked.parameters.ece_vendor = 1u << 24;
  EXPECT_EQ(active.connect(asked), EINVAL);
  set_ece(asked, {0xabcdef, 0xf0e0d0c0});
  ASSERT_EQ(active.connect(asked), 0);
  const uroce_cm_event request = passive.next(kConnectRequest);
  EXPECT_EQ(ece_of(request), (cm::Ece{0xabcdef, 0xf0e0d0c0}));
  auto answer = passive.parameters(request.handle, 200);
  set_ece(answer, {0xabcdef, 0xc0});
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, answer).status, 0);
  const uroce_cm_event response = active.next(kConnectResponse);
  EXPECT_EQ(ece_of(response), (cm::Ece{0xabcdef, 0xc0}));
}

TEST_F(CmTest, ADatagramServiceAnswersWithExtendedOptions) {
  passive.listener(7000, kUdp);
  const std::uint32_t handle = resolved(kUdp);
  auto request = datagram(handle);
  ASSERT_EQ(active.connect(request), 0);
  auto answer = passive.parameters(passive.next(kConnectRequest).handle, 300);
  set_ece(answer, {0xabcdef, 0xf0e0d0c0});
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, answer).status, 0);
  const uroce_cm_event told = active.next(kEstablished);
  EXPECT_EQ(ece_of(told), (cm::Ece{0xabcdef, 0xf0e0d0c0}));
  EXPECT_EQ(told.parameters.qpn, 300u);
}

TEST_F(CmTest, PartingIsToldToBothAndTimewaitEnds) {
  establish();
  ASSERT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);
  EXPECT_EQ(passive.next(kDisconnected).handle, passive_id);
  EXPECT_EQ(active.next(kDisconnected).handle, active_id);
  EXPECT_EQ(passive.call(UROCE_CMD_CM_DISCONNECT, passive_id), 0);
  daemon.conductor->cm().step(monotonic_now() + 10 * kSecond);
  EXPECT_EQ(passive.next(kTimewaitExit).handle, passive_id);
  EXPECT_EQ(active.next(kTimewaitExit).handle, active_id);
}

TEST_F(CmTest, APartingThatThePeerNeverHearsOfSaysSo) {
  establish();
  ASSERT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);
  // The DREQ never leaves the port, however often it is repeated.
  Nanos now = monotonic_now();
  for (int i = 0; i < 20; ++i) daemon.conductor->cm().step(now += 10 * kSecond);
  uroce_cm_event told{};
  ASSERT_TRUE(active.take(told));
  EXPECT_EQ(told.type, kDisconnected);
  EXPECT_EQ(told.handle, active_id);
  EXPECT_EQ(told.status, -ETIMEDOUT);
}

TEST_F(CmTest, AClientThatDiesIsPartedFromItsPeers) {
  establish();
  active.client.close();
  EXPECT_EQ(passive.next(kDisconnected).handle, passive_id);
}

TEST_F(CmTest, ADestroyedIdIsPartedFromItsPeer) {
  establish();
  ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, passive_id), 0);
  EXPECT_EQ(active.next(kDisconnected).handle, active_id);
}

TEST_F(CmTest, ARequestThatNobodyListensForIsRefused) {
  active.connecting(7001, 100);
  active.next(kAddrResolved);
  EXPECT_EQ(active.next(kRejected).status, static_cast<int>(cm::RejReason::kInvalidServiceId));
}

TEST_F(CmTest, AQpOfAnotherTenantIsNotNamedInAConnection) {
  establish();
  Party stranger(daemon, 65534);
  const std::uint32_t id = stranger.id();
  ASSERT_EQ(stranger.resolve(id, at(1, 7001)), 0);
  stranger.next(kAddrResolved);
  // 100 is the QP of the active end. Were it named, the passive end would take its connection for a stale one.
  EXPECT_EQ(stranger.connect(stranger.parameters_of_any(id, 100)), EINVAL);
  EXPECT_EQ(stranger.connect(stranger.parameters_of_any(id, 4711)), EINVAL);
  daemon.settle();
  daemon.conductor->cm().step(monotonic_now());
  uroce_cm_event event;
  EXPECT_FALSE(passive.take(event));

  stranger.listener(7002);
  active.connecting(7002, 101);
  const std::uint32_t asked = stranger.next(kConnectRequest).handle;
  EXPECT_EQ(stranger.client.send(UROCE_CMD_CM_ACCEPT, stranger.parameters_of_any(asked, 200)).status, EINVAL);
  EXPECT_EQ(stranger.client.send(UROCE_CMD_CM_ACCEPT, stranger.parameters(asked, 300)).status, 0);
}

TEST_F(CmTest, ARejectCarriesItsPrivateData) {
  passive.listener(7000);
  active.connecting(7000, 100);
  active.next(kAddrResolved);
  uroce_cm_reject_request refusal{};
  refusal.handle = passive.next(kConnectRequest).handle;
  refusal.private_data_bytes = 3;
  std::memcpy(refusal.private_data, "no!", 3);
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_REJECT, refusal).status, 0);
  const uroce_cm_event told = active.next(kRejected);
  EXPECT_EQ(told.status, static_cast<int>(cm::RejReason::kConsumerDefined));
  EXPECT_EQ(std::memcmp(told.parameters.private_data, "no!", 4), 0);
}

TEST_F(CmTest, APortIsTakenOnce) {
  passive.listener(7000);
  EXPECT_EQ(active.create(kTcp, at(1, 7000)).status, EADDRINUSE);
  EXPECT_EQ(active.create(kTcp, at(0, 7000)).status, EADDRNOTAVAIL);
  EXPECT_EQ(active.create(kUdp, at(1, 7000)).status, 0);
  EXPECT_EQ(active.create(kTcp, at(77, 7002)).status, ENODEV);
}

// Linux: drivers/infiniband/core/cma.c, cma_check_port.
TEST_F(CmTest, APortAtAnyAddressIsNotAvailableNextToAnother) {
  passive.id(kTcp, at(0, 7000));
  passive.id(kTcp, at(1, 7001));
  EXPECT_EQ(active.create(kTcp, at(0, 7000)).status, EADDRNOTAVAIL);
  EXPECT_EQ(active.create(kTcp, at(1, 7000)).status, EADDRNOTAVAIL);
  EXPECT_EQ(active.create(kTcp, at(0, 7001)).status, EADDRNOTAVAIL);
  EXPECT_EQ(active.create(kTcp, at(1, 7001)).status, EADDRINUSE);
  EXPECT_EQ(active.create(kUdp, at(0, 7001)).status, 0);
}

TEST_F(CmTest, IdsThatAllowItShareAPortButNotWithAListener) {
  const auto share = [](Party& party) {
    return TestClient::value<uroce_cm_bound_response>(party.create(kTcp, at(1, 7000), UROCE_CM_REUSE_ADDRESS))
        .handle;
  };
  const auto listen = [this](std::uint32_t handle) {
    return passive.client.send(UROCE_CMD_CM_LISTEN, uroce_cm_listen_request{handle, 0}).status;
  };
  const std::uint32_t first = share(passive), second = share(active);
  ASSERT_NE(second, 0u);
  EXPECT_EQ(listen(first), EADDRINUSE);
  ASSERT_EQ(active.call(UROCE_CMD_CM_DESTROY_ID, second), 0);
  EXPECT_EQ(listen(first), 0);
  EXPECT_EQ(active.create(kTcp, at(1, 7000), UROCE_CM_REUSE_ADDRESS).status, EADDRINUSE);
}

TEST_F(CmTest, AnIdIsResolvedOnce) {
  const std::uint32_t handle = active.id();
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), EINVAL);
  ASSERT_EQ(active.resolve(handle, at(1, 7000)), 0);
  EXPECT_EQ(active.resolve(handle, at(1, 7000)), EINVAL);
  EXPECT_EQ(active.client.send(UROCE_CMD_CM_CONNECT, active.parameters(handle, 100)).status, EINVAL);
  ASSERT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), 0);
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), EINVAL);
  EXPECT_EQ(active.resolve(handle, at(1, 7000)), EINVAL);
}

TEST_F(CmTest, AnAddressThatNobodyAnswersIsGivenUp) {
  const std::uint32_t handle = active.id();
  ASSERT_EQ(active.resolve(handle, at(77, 7000), 20), 0);
  const uroce_cm_event told = active.next(kAddrError);
  EXPECT_EQ(told.handle, handle);
  EXPECT_EQ(told.status, -ETIMEDOUT);
}

TEST_F(CmTest, ARouteFromAnAddressThatHasGoneIsAnError) {
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv4(3), 24}));
  const std::uint32_t handle = active.id(kTcp, at(3, 0));
  ASSERT_EQ(active.resolve(handle, at(1, 7000)), 0);
  active.next(kAddrResolved);
  ASSERT_TRUE(daemon.conductor->link().remove_address(ipv4(3)));
  ASSERT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), 0);
  const uroce_cm_event told = active.next(kRouteError);
  EXPECT_EQ(told.handle, handle);
  EXPECT_EQ(told.status, -ENODEV);
  // As before: it may try again.
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv4(3), 24}));
  ASSERT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), 0);
  EXPECT_EQ(active.next(kRouteResolved).status, 0);
}

TEST_F(CmTest, ADatagramServiceTellsItsQp) {
  passive.listener(7000, kUdp);
  const std::uint32_t handle = resolved(kUdp);
  auto request = datagram(handle, 180);
  ASSERT_EQ(active.connect(request), 0);
  const uroce_cm_event asked = passive.next(kConnectRequest);
  EXPECT_EQ(asked.parameters.private_data_bytes, 180);
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(asked.handle, 300, 136)).status, 0);
  const uroce_cm_event told = active.next(kEstablished);
  EXPECT_EQ(told.parameters.qpn, 300u);
  EXPECT_EQ(told.parameters.qkey, control::kUdpQkey);
  EXPECT_EQ(told.parameters.private_data[135], 136);
}

TEST_F(CmTest, TheTrafficClassOfDatagramsComesBackWithTheAddressToSendTo) {
  passive.listener(7000, kUdp);
  const std::uint32_t handle = resolved(kUdp);
  auto request = datagram(handle);
  request.parameters.traffic_class = 0x28;
  ASSERT_EQ(active.connect(request), 0);
  const uroce_cm_event asked = passive.next(kConnectRequest);
  EXPECT_EQ(asked.path.traffic_class, 0) << "a SIDR_REQ has no field for it";
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(asked.handle, 300)).status, 0);
  EXPECT_EQ(active.next(kEstablished).path.traffic_class, 0x28);
  uroce_cm_join_request join{};
  join.handle = handle;
  join.group = at(1, 0);
  join.group.gid[12] = 239;
  join.traffic_class = 0x68;
  ASSERT_EQ(active.client.send(UROCE_CMD_CM_JOIN, join).status, 0);
  EXPECT_EQ(active.next(kMulticastJoin).path.traffic_class, 0x68);
}

TEST_F(CmTest, EventsWaitForASlowReaderInOrder) {
  passive.listener(7000);
  constexpr std::uint32_t kMany = 1500;  // more than the socket holds
  for (std::uint32_t i = 0; i < kMany; ++i) active.connecting(7000, 1 + i);
  daemon.settle();
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const uroce_cm_event event = passive.next(kConnectRequest);
    ASSERT_EQ(event.parameters.qpn, 1 + i);
  }
}

TEST_F(CmTest, RequestsThatWaitedForADestroyedListenerAreRejected) {
  const std::uint32_t listener = passive.listener(7000);
  const control::CmObjects& objects = passive.client.session().cm;
  constexpr std::uint32_t kOwed = 20;  // requests that the socket does not hold
  std::uint32_t requests = 0;
  while (objects.owed < kOwed && requests < 10000) {
    active.connecting(7000, 1 + requests++);
    ASSERT_TRUE(daemon.run_until([&] {
      daemon.conductor->cm().step(monotonic_now());
      return objects.ids.size() == 1 + requests;
    }));
  }
  ASSERT_EQ(objects.owed, kOwed);
  ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, listener), 0);
  uroce_cm_event event;
  std::size_t rejected = 0;
  const auto count = [&] {
    daemon.settle();
    daemon.conductor->cm().step(monotonic_now());
    while (active.take(event)) {
      if (event.type == kRejected && event.status == static_cast<int>(cm::RejReason::kConsumerDefined)) ++rejected;
    }
    return rejected == requests;
  };
  // The library destroys the ids of the requests that it finds in the channel.
  for (std::uint32_t i = kOwed; i < requests; ++i) {
    ASSERT_TRUE(passive.take(event));
    ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, event.handle), 0);
    count();
  }
  EXPECT_TRUE(daemon.run_until(count)) << rejected << " of " << requests;
  EXPECT_FALSE(passive.take(event));
  EXPECT_EQ(objects.ids.size(), 0u);
  EXPECT_EQ(objects.owed, 0u);
}

TEST_F(CmTest, WhatASessionHasNotReadIsBoundedOverAllItsChannels) {
  constexpr std::size_t kMost = 16384;
  const auto post = [](Party& party, std::uint32_t channel, std::uint32_t type) {
    uroce_cm_post_request request{};
    request.channel = channel;
    request.event.type = type;
    return party.client.send(UROCE_CMD_CM_POST, request).status;
  };
  const std::uint32_t listener = passive.listener(7000);
  const std::uint32_t other = passive.open(passive.other_receiver);
  std::size_t held = 0;
  while (held < 2 * kMost && post(passive, held % 2 == 0 ? passive.channel : other, 99) == 0) ++held;
  EXPECT_EQ(passive.client.session().cm.owed, kMost);
  // Neither channel takes more events, and a connection request that cannot be reported is rejected.
  EXPECT_EQ(post(passive, passive.channel, 99), ENOBUFS);
  EXPECT_EQ(post(passive, other, 99), ENOBUFS);
  EXPECT_EQ(passive.resolve(passive.id(), at(1, 7000)), ENOBUFS);
  active.connecting(7000, 100);
  active.next(kAddrResolved);
  EXPECT_EQ(active.next(kRejected).status, static_cast<int>(cm::RejReason::kNoResources));
  EXPECT_EQ(passive.client.session().cm.ids.size(), 2u);
  // After reading there is room again, and no kept event is lost.
  uroce_cm_event event;
  std::size_t read = 0;
  daemon.run_until([&] {
    daemon.conductor->cm().step(monotonic_now() + kSecond);
    while (passive.take(event)) ++read;
    while (::recv(passive.other_receiver.get(), &event, sizeof(event), MSG_DONTWAIT) == sizeof(event)) ++read;
    return read >= held;
  });
  EXPECT_EQ(read, held);
  EXPECT_EQ(passive.client.session().cm.owed, 0u);
  active.connecting(7000, 101);
  EXPECT_EQ(passive.next(kConnectRequest).listener, listener);
  // Closing a channel releases the events that it held.
  while (post(passive, other, 99) == 0) continue;
  ASSERT_EQ(passive.call(UROCE_CMD_CM_CLOSE_CHANNEL, other), 0);
  EXPECT_EQ(passive.client.session().cm.owed, 0u);
}

TEST_F(CmTest, AFloodOfRequestsIsBoundedByTheBacklog) {
  passive.listener(7000, kTcp, 20);
  for (std::uint32_t i = 0; i < 200; ++i) active.connecting(7000, 1 + i);
  daemon.settle();
  cm_service::CmService& cm = daemon.conductor->cm();
  // Few messages at a time: others are served in between.
  for (std::size_t i = 1; i <= 200 / cm_service::CmService::kMessages; ++i) {
    cm.step(monotonic_now());
    EXPECT_EQ(cm.manager().counters().received[0], i * cm_service::CmService::kMessages);
    EXPECT_EQ(cm.next_timeout(), 0u);
  }
  cm.step(monotonic_now());
  EXPECT_EQ(cm.manager().counters().received[0], 200u);
  EXPECT_NE(cm.next_timeout(), 0u);
  EXPECT_EQ(passive.client.session().cm.ids.size(), 1u + 20u);
  EXPECT_EQ(cm.manager().counters().backlog_full, 180u);
}

TEST_F(CmTest, AClosedListenerLeavesNothingBehind) {
  const std::uint32_t listener = passive.listener(7000);
  active.connecting(7000, 100);
  active.next(kAddrResolved);
  passive.next(kConnectRequest);
  ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, listener), 0);
  ASSERT_EQ(passive.call(UROCE_CMD_CM_CLOSE_CHANNEL, passive.channel), 0);
  EXPECT_EQ(active.next(kRejected).status, static_cast<int>(cm::RejReason::kConsumerDefined));
  EXPECT_EQ(passive.client.session().cm.ids.size(), 0u);
}

TEST_F(CmTest, ASecondDisconnectIsAnsweredAsTheFirst) {
  establish();
  ASSERT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);
  EXPECT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);  // before the DREP
  active.next(kDisconnected);
  EXPECT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);
  passive.next(kDisconnected);
}

TEST_F(CmTest, AnEstablishedConnectionIsToldFromOthers) {
  establish();
  EXPECT_EQ(passive.call(UROCE_CMD_CM_ESTABLISH, passive_id), EISCONN);
  EXPECT_EQ(active.call(UROCE_CMD_CM_ESTABLISH, active_id), EISCONN);
  ASSERT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, active_id), 0);
  passive.next(kDisconnected);
  EXPECT_EQ(passive.call(UROCE_CMD_CM_ESTABLISH, passive_id), EINVAL);
}

TEST_F(CmTest, CommandsOutOfStateAreRefused) {
  const std::uint32_t handle = active.id();
  EXPECT_EQ(active.connect(active.parameters(handle, 1)), EINVAL);
  EXPECT_EQ(active.client.send(UROCE_CMD_CM_ACCEPT, active.parameters(handle, 1)).status, EINVAL);
  EXPECT_EQ(active.call(UROCE_CMD_CM_ESTABLISH, handle), EINVAL);
  EXPECT_EQ(active.call(UROCE_CMD_CM_DISCONNECT, handle), EINVAL);
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, handle), EINVAL);
  EXPECT_EQ(active.call(UROCE_CMD_CM_DESTROY_ID, handle + 1), EINVAL);
  // Handles of another session are not valid.
  EXPECT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, handle), EINVAL);
}

// The service would take what it receives for the daemon's own words: the credentials of a message are the
// sender's.
TEST_F(CmTest, TheDaemonWritesToNoSocketOfAClient) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd service(ends[0]);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[1]);
  const control::Reply opened =
      active.client.send(UROCE_CMD_CM_OPEN_CHANNEL, uroce_cm_channel_request{}, std::move(fds));
  uroce_cm_post_request post{};
  post.channel = TestClient::value<uroce_handle>(opened).handle;
  active.client.send(UROCE_CMD_CM_POST, post);
  uroce_cm_event event;
  EXPECT_LE(::recv(service.get(), &event, sizeof(event), MSG_DONTWAIT), 0);
  EXPECT_EQ(opened.status, EINVAL);
}

TEST_F(CmTest, AChannelIsReadByTheClientOnly) {
  control::Reply opened = active.client.send(UROCE_CMD_CM_OPEN_CHANNEL, uroce_cm_channel_request{});
  ASSERT_EQ(opened.status, 0);
  ASSERT_EQ(opened.fds.size(), 1u);
  // Nothing can be sent to the daemon's end, so no descriptor waits in it.
  EXPECT_EQ(::send(opened.fds[0].get(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
}

/// A MAD as a peer at 192.0.2.9 would send it.
std::vector<std::byte> frame_of(std::span<const std::byte, wire::kMadBytes> mad, const MemoryDevice& device,
                                std::uint8_t to = 1, std::optional<std::uint16_t> tci = {}) {
  wire::PathAddress path;
  path.dest_mac = device.info().mac;
  path.source = ipv4(9);
  path.dest = ipv4(to);
  path.vlan = tci;
  std::vector<std::byte> frame(worker::kMaxGsiFrame);
  frame.resize(worker::emit_gsi_frame(path, mad, Psn(0), frame));
  return frame;
}

TEST_F(CmTest, MalformedDatagramsAreCountedAndDropped) {
  cm::Message message{cm::Attribute::kReq, 7, {}, {}};
  std::array<std::byte, wire::kMadBytes> mad;
  cm::emit_mad(message, mad);
  cm::Message back;
  ASSERT_TRUE(cm::parse_mad(mad, back));
  EXPECT_EQ(back.transaction, 7u);
  const auto deliver = [&](std::size_t offset, std::uint8_t value) {
    auto changed = mad;
    changed[offset] = std::byte{value};
    const std::vector<std::byte> bytes = frame_of(changed, daemon.devices[0]);
    wire::RxPacket packet;
    ASSERT_EQ(wire::parse(bytes, {}, packet), wire::ParseVerdict::kOk);
    daemon.shared.gsi.receive(packet, *daemon.link);
  };
  for (const std::size_t offset : {0, 1, 2, 3, 16, 17}) deliver(offset, 0x77);
  EXPECT_EQ(daemon.shared.gsi.counters().bad_mad, 5u);
  // A request of another class version gets an answer.
  EXPECT_EQ(daemon.shared.gsi.counters().received, 1u);
  const auto taken = daemon.shared.gsi.take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].class_version, 0x77);
  deliver(4, 0);
  EXPECT_EQ(daemon.shared.gsi.counters().received, 2u);
  mad[17] = std::byte{0x13};  // a REP
  deliver(2, 0x77);
  EXPECT_EQ(daemon.shared.gsi.counters().bad_mad, 6u);
}

TEST_F(CmTest, DatagramsOfOtherQpsThanOneAreDropped) {
  cm::Message message{cm::Attribute::kReq, 7, {}, {}};
  std::array<std::byte, wire::kMadBytes> mad;
  cm::emit_mad(message, mad);
  std::vector<std::byte> frame = frame_of(mad, daemon.devices[0]);
  constexpr std::size_t kSourceQpn = 14 + 20 + 8 + wire::kBthBytes + 4;
  for (const std::uint32_t from : {0x123456u, 0u, 1u}) {
    wire::store32(frame.data() + kSourceQpn, from);
    wire::RxPacket packet;
    ASSERT_EQ(wire::parse(frame, {.check_icrc = false}, packet), wire::ParseVerdict::kOk);
    daemon.shared.gsi.receive(packet, *daemon.link);
  }
  EXPECT_EQ(daemon.shared.gsi.counters().bad_packet, 2u);
  EXPECT_EQ(daemon.shared.gsi.counters().received, 1u);
}

TEST_F(CmTest, ConnectionsInAVlanAreMadeWithItsTag) {
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv4(130), 25, 5}));
  const uroce_cm_listen_request listen{passive.id(kTcp, at(130, 7000)), 0};
  ASSERT_EQ(passive.client.send(UROCE_CMD_CM_LISTEN, listen).status, 0);
  const std::uint32_t id = active.id();
  ASSERT_EQ(active.resolve(id, at(130, 7000)), 0);
  active.next(kAddrResolved);
  ASSERT_EQ(active.connect(active.parameters(id, 100)), 0);
  EXPECT_EQ(passive.next(kConnectRequest).parameters.qpn, 100u);
  EXPECT_EQ(daemon.cores[0]->counters().wrong_vlan, 0u);
}

TEST_F(CmTest, WhatComesInAnotherVlanIsDropped) {
  ASSERT_TRUE(daemon.conductor->link().add_address({ipv4(130), 25, 5}));
  std::array<std::byte, wire::kMadBytes> mad;
  cm::emit_mad({cm::Attribute::kDreq, 7, {}, {}}, mad);
  const auto inject = [&](std::uint8_t to, std::optional<std::uint16_t> tci) {
    daemon.devices[0].inject(frame_of(mad, daemon.devices[0], to, tci));
    daemon.settle();
  };
  const worker::WorkerCounters& counters = daemon.cores[0]->counters();
  const auto received = [&] { return daemon.shared.gsi.counters().received; };
  inject(130, std::nullopt);
  inject(130, 0x6000);
  inject(130, 6);
  inject(1, 5);
  EXPECT_EQ(counters.wrong_vlan, 4u);
  inject(77, std::nullopt);
  EXPECT_EQ(counters.wrong_address, 1u);
  EXPECT_EQ(received(), 0u);
  inject(130, 0x6005);
  inject(1, std::nullopt);
  inject(1, 0x6000);
  EXPECT_EQ(received(), 3u);
  EXPECT_EQ(counters.wrong_vlan, 4u);
}

TEST_F(CmTest, APacketForQpOneThatIsNoDatagramIsDropped) {
  cm::Message message{cm::Attribute::kReq, 7, {}, {}};
  std::array<std::byte, wire::kMadBytes> mad;
  cm::emit_mad(message, mad);
  std::vector<std::byte> bytes = frame_of(mad, daemon.devices[0]);
  wire::RxPacket packet;
  ASSERT_EQ(wire::parse(bytes, {}, packet), wire::ParseVerdict::kOk);
  for (int fault = 0; fault < 4; ++fault) {
    wire::RxPacket bad = packet;
    std::vector<std::byte> copy = bytes;
    bad.bth_start = copy.data() + (packet.bth_start - bytes.data());
    bad.ip = copy.data() + (packet.ip - bytes.data());
    if (fault == 0) bad.bth.opcode = 4;  // RC SEND_ONLY
    if (fault == 1) bad.payload_bytes = 255;
    if (fault == 2) copy[14 + 20 + 8 + 12] ^= std::byte{1};  // Q_Key
    if (fault == 3) copy[14 + 16 + 3] = std::byte{44};       // not our address
    daemon.shared.gsi.receive(bad, *daemon.link);
    EXPECT_EQ(daemon.shared.gsi.counters().bad_packet, static_cast<std::uint64_t>(fault + 1)) << fault;
  }
}

}  // namespace
}  // namespace uroce::daemon::testing
