// Private data of clients, up to the last byte, the reasons for which a peer is rejected, and thousands of ids.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>

#include "cm/mad.h"
#include "cm_party.h"
#include "wire/frame_template.h"

namespace uroce::daemon::testing {

using cm_service::CmService;
using enum control::CmEventType;

namespace {

class CmLimits : public CmWorld {};

TEST_F(CmLimits, PrivateDataOfEveryLengthThatFitsARequestIsTaken) {
  passive.listener(7000);
  for (unsigned bytes = 0; bytes < 256; ++bytes) {
    const std::uint32_t handle = resolved();
    const auto request = active.parameters(handle, 1000 + bytes, static_cast<std::uint8_t>(bytes));
    const int status = active.connect(request);
    EXPECT_EQ(status, bytes <= 56 ? 0 : EINVAL) << bytes;
    if (status == 0) {
      const uroce_cm_event asked = passive.next(kConnectRequest);
      EXPECT_EQ(asked.parameters.qpn, 1000 + bytes);
      EXPECT_EQ(std::memcmp(asked.parameters.private_data, request.parameters.private_data, 56), 0) << bytes;
    }
    ASSERT_EQ(active.call(UROCE_CMD_CM_DESTROY_ID, handle), 0);
    if (status == 0) {
      EXPECT_EQ(passive.next(kRejected).status, static_cast<int>(cm::RejReason::kTimeout));
    }
  }
}

TEST_F(CmLimits, PrivateDataOfEveryLengthThatFitsAnAnswerIsTaken) {
  passive.listener(7000);
  for (unsigned bytes = 0; bytes < 256; ++bytes) {
    const std::uint32_t handle = active.connecting(7000, 1000 + bytes);
    active.next(kAddrResolved);
    const std::uint32_t asked = passive.next(kConnectRequest).handle;
    const auto answer = passive.parameters(asked, 2000 + bytes, static_cast<std::uint8_t>(bytes));
    const int status = passive.client.send(UROCE_CMD_CM_ACCEPT, answer).status;
    EXPECT_EQ(status, bytes <= 196 ? 0 : EINVAL) << bytes;
    if (status == 0) {
      const uroce_cm_event told = active.next(kConnectResponse);
      EXPECT_EQ(std::memcmp(told.parameters.private_data, answer.parameters.private_data, 196), 0) << bytes;
      ASSERT_EQ(active.call(UROCE_CMD_CM_DESTROY_ID, handle), 0);
      EXPECT_EQ(passive.next(kRejected).status, static_cast<int>(cm::RejReason::kConsumerDefined));
      continue;
    }
    uroce_cm_reject_request refusal{};
    refusal.handle = asked;
    refusal.private_data_bytes = static_cast<std::uint8_t>(bytes);
    EXPECT_EQ(passive.client.send(UROCE_CMD_CM_REJECT, refusal).status, EINVAL) << bytes;
    ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, asked), 0);
    EXPECT_EQ(active.next(kRejected).handle, handle);
  }
}

TEST_F(CmLimits, PrivateDataOfEveryLengthThatFitsADatagramServiceIsTaken) {
  passive.listener(7000, kUdp);
  for (unsigned bytes = 0; bytes < 256; ++bytes) {
    const std::uint32_t handle = resolved(kUdp);
    auto request = datagram(handle, static_cast<std::uint8_t>(bytes));
    const int status = active.connect(request);
    EXPECT_EQ(status, bytes <= 180 ? 0 : EINVAL) << bytes;
    if (status != 0) continue;
    const uroce_cm_event asked = passive.next(kConnectRequest);
    EXPECT_EQ(std::memcmp(asked.parameters.private_data, request.parameters.private_data, 180), 0) << bytes;
    auto answer = passive.parameters(asked.handle, 300, static_cast<std::uint8_t>(bytes));
    const int answered = passive.client.send(UROCE_CMD_CM_ACCEPT, answer).status;
    EXPECT_EQ(answered, bytes <= 136 ? 0 : EINVAL) << bytes;
    if (answered != 0) continue;
    const uroce_cm_event told = active.next(kEstablished);
    EXPECT_EQ(std::memcmp(told.parameters.private_data, answer.parameters.private_data, 136), 0) << bytes;
  }
}

TEST_F(CmLimits, EveryReasonReachesTheProgramUnchanged) {
  passive.listener(7000);
  for (std::uint16_t reason = 1; reason <= 35; ++reason) {
    active.connecting(7000, 100u + reason);
    active.next(kAddrResolved);
    uroce_cm_reject_request refusal{};
    refusal.handle = passive.next(kConnectRequest).handle;
    refusal.reason = reason;
    refusal.private_data_bytes = static_cast<std::uint8_t>(reason * 4);
    std::memset(refusal.private_data, reason, refusal.private_data_bytes);
    ASSERT_EQ(passive.client.send(UROCE_CMD_CM_REJECT, refusal).status, 0);
    const uroce_cm_event told = active.next(kRejected);
    EXPECT_EQ(told.status, reason);
    EXPECT_EQ(std::memcmp(told.parameters.private_data, refusal.private_data, 148), 0) << reason;
  }
}

/// A REQ that the test writes as a peer, and the reason of its rejection.
class CmRefusals : public CmLimits {
 protected:
  CmRefusals() { daemon.devices[0].connect(outside); }

  cm::Req good(std::uint32_t qpn) {
    cm::Req req;
    req.local_id = qpn;
    req.local_qpn = Qpn{qpn};
    req.service_id = cm::service_id(cm::PortSpace::kTcp, 7000);
    cm::IpCmHeader ip;
    ip.source = ip.destination = ipv4(1);
    ip.emit(std::span(req.private_data).first<cm::IpCmHeader::kBytes>());
    return req;
  }
  /// nullopt: it got no REJ.
  std::optional<cm::RejReason> refusal_of(const cm::Req& req) {
    cm::Message message{cm::Attribute::kReq, 7, {}, {}};
    req.emit(message.bytes);
    std::array<std::byte, wire::kMadBytes> mad;
    cm::emit_mad(message, mad);
    wire::PathAddress path;
    path.dest_mac = daemon.devices[0].info().mac;
    path.source = path.dest = ipv4(1);
    std::vector<std::byte> frame(worker::kMaxGsiFrame);
    frame.resize(worker::emit_gsi_frame(path, mad, Psn(0), frame));
    daemon.devices[0].inject(frame);
    daemon.settle();
    daemon.conductor->cm().step(monotonic_now());
    daemon.settle();
    std::optional<cm::RejReason> reason;
    base::Frame sent;
    while (outside.receive({&sent, 1}) == 1) {
      wire::RxPacket packet;
      cm::Message answer;
      if (wire::parse({sent.data, sent.length}, {}, packet) == wire::ParseVerdict::kOk &&
          packet.payload_bytes == wire::kMadBytes &&
          cm::parse_mad(cm::Mad(packet.payload, wire::kMadBytes), answer) &&
          answer.attribute == cm::Attribute::kRej) {
        const cm::Rej rej = cm::Rej::parse(answer.bytes);
        EXPECT_EQ(rej.remote_id, req.local_id);
        EXPECT_EQ(rej.answered, cm::MessageAcked::kReq);
        reason = rej.reason;
      }
      outside.release({&sent, 1});
    }
    return reason;
  }

  MemoryDevice outside;
};

TEST_F(CmRefusals, ARequestIsRefusedForWhatIsWrongWithIt) {
  using enum cm::RejReason;
  passive.listener(7000);
  EXPECT_EQ(refusal_of(good(100)), std::nullopt);
  EXPECT_EQ(passive.next(kConnectRequest).parameters.qpn, 100u);
  cm::Req req = good(101);
  req.path_mtu = 0;
  EXPECT_EQ(refusal_of(req), kInvalidMtu);
  req = good(102);
  req.path_mtu = 6;  // of more than the port has
  EXPECT_EQ(refusal_of(req), kInvalidMtu);
  req = good(103);
  req.transport = cm::TransportService::kRd;
  EXPECT_EQ(refusal_of(req), kInvalidTransportType);
  req = good(104);
  req.transport = cm::TransportService::kExtended;
  req.extended_transport = 2;
  EXPECT_EQ(refusal_of(req), kInvalidTransportType);
  cm::IpCmHeader ip;
  ip.source = ipv4(9);
  ip.destination = ipv4(1);
  req = good(105);
  ip.emit(std::span(req.private_data).first<cm::IpCmHeader::kBytes>());
  EXPECT_EQ(refusal_of(req), kInvalidGid);
  req = good(106);
  req.private_data[0] = std::byte{0x10};  // a version of the IP CM service that we don't know
  EXPECT_EQ(refusal_of(req), kConsumerDefined);
  req = good(107);
  req.service_id = cm::service_id(cm::PortSpace::kTcp, 7001);
  EXPECT_EQ(refusal_of(req), kInvalidServiceId);
  req = good(108);
  req.local_qpn = Qpn{100};
  EXPECT_EQ(refusal_of(req), kStaleConnection);
  EXPECT_EQ(passive.client.session().cm.ids.size(), 2u);
}

TEST(CmConnections, ThatAListenersUserMayNotHaveAreRefused) {
  control::DaemonConfig config = test_config();
  config.limits.cm_connections = 3;
  TestDaemon daemon(config);
  Party passive{daemon, 5000}, active{daemon};
  passive.listener(7000, kTcp, 64);
  for (unsigned i = 0; i < 5; ++i) {
    active.connecting(7000, 100 + i);
    active.next(kAddrResolved);
    if (i < 3) {
      passive.next(kConnectRequest);
    } else {
      EXPECT_EQ(active.next(kRejected).status, static_cast<int>(cm::RejReason::kNoResources)) << i;
    }
  }
}

TEST(CmConnections, AreChargedUntilTheyAreGone) {
  control::DaemonConfig config = test_config();
  config.limits.cm_connections = 2;
  TestDaemon daemon(config);
  Party passive{daemon, 5000}, active{daemon}, late{daemon};
  passive.listener(7000, kTcp, 64);
  const auto attempt = [&](unsigned qpn) {
    active.connecting(7000, qpn);
    active.next(kAddrResolved);
    const std::uint32_t asked = passive.next(kConnectRequest).handle;
    EXPECT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(asked, 100 + qpn)).status, 0);
    active.next(kConnectResponse);
    ASSERT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, asked), 0);
    active.next(kDisconnected);
  };
  attempt(200);
  attempt(201);
  late.connecting(7000, 202);
  late.next(kAddrResolved);
  EXPECT_EQ(late.next(kRejected).status, static_cast<int>(cm::RejReason::kNoResources)) << "TIMEWAIT is not over";
  daemon.end_connections();
  late.connecting(7000, 203);
  late.next(kAddrResolved);
  passive.next(kConnectRequest);
}

// The control thread serves others between two slices.
TEST_F(CmLimits, AChannelWithManyIdsIsClosedInSlices) {
  constexpr std::size_t kIds = 600, kSlice = CmService::kSlice;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd own_end(ends[0]);
  Party party(daemon, UniqueFd(ends[1]));
  for (std::size_t i = 0; i < kIds; ++i) party.id();
  party.channel = party.open(party.other_receiver);
  for (std::size_t i = 0; i < kIds; ++i) party.id();
  const control::CmObjects& objects = party.client.session().cm;
  control::Reply reply = party.client.send(UROCE_CMD_CM_CLOSE_CHANNEL, uroce_handle{party.channel, 0});
  ASSERT_EQ(reply.status, control::kUnfinished);
  std::size_t left = objects.ids.size();
  EXPECT_EQ(left, 2 * kIds - kSlice);
  daemon.conductor->finish_later(party.client.session(), {UROCE_CMD_CM_CLOSE_CHANNEL, 7}, std::move(reply.rest));
  uroce_response answer{};
  EXPECT_LT(::recv(own_end.get(), &answer, sizeof(answer), MSG_DONTWAIT), 0) << "answered before it is done";
  std::size_t slices = 1;
  for (; daemon.conductor->run_slice(); ++slices) {
    EXPECT_LE(left - objects.ids.size(), kSlice);
    left = objects.ids.size();
  }
  EXPECT_EQ(slices, (kIds + kSlice - 1) / kSlice);
  EXPECT_EQ(left, kIds) << "those of the other channel";
  EXPECT_EQ(objects.channels.size(), 1u);
  ASSERT_EQ(::recv(own_end.get(), &answer, sizeof(answer), MSG_DONTWAIT), ssize_t{sizeof(answer)});
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.sequence, 7u);
}

TEST_F(CmLimits, TheIdsOfASessionAreReleasedInSlices) {
  constexpr std::size_t kIds = 300;
  for (std::size_t i = 0; i < kIds; ++i) active.id();
  std::size_t budget = CmService::kSlice;
  EXPECT_FALSE(daemon.conductor->cm().release_some(active.client.session(), budget, monotonic_now()));
  EXPECT_EQ(budget, 0u);
  EXPECT_EQ(active.client.session().cm.ids.size(), kIds - CmService::kSlice);
  budget = CmService::kSlice;
  EXPECT_TRUE(daemon.conductor->cm().release_some(active.client.session(), budget, monotonic_now()));
  EXPECT_EQ(budget, 2 * CmService::kSlice - kIds);
}

TEST_F(CmLimits, AChannelThatIsBeingClosedTakesNoRequests) {
  passive.listener(7000);
  passive.client.session().cm.channels.find(passive.channel)->closing = true;
  active.connecting(7000, 100);
  active.next(kAddrResolved);
  EXPECT_EQ(active.next(kRejected).status, static_cast<int>(cm::RejReason::kNoResources));
}

TEST_F(CmLimits, WhoListensOnManyPortsLeavesListenersToOthers) {
  for (int i = 0; i < 6000; ++i) passive.listener(0);
  active.listener(7000);
}

}  // namespace
}  // namespace uroce::daemon::testing
