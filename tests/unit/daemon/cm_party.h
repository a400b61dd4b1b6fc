// Clients of connection management, on one thread with their daemon.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "cm_service/service.h"
#include "control/session/cm_event_types.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

inline constexpr std::uint32_t kTcp = 0x0106, kUdp = 0x0111;

inline uroce_cm_address at(std::uint8_t last, std::uint16_t port) {
  uroce_cm_address address{};
  const wire::Address ip = ipv4(last);
  std::memcpy(address.gid, ip.bytes.data(), 16);
  if (last == 0) std::memset(address.gid + 12, 0, 4);
  address.family = control::kFamilyIp4;
  address.port = port;
  return address;
}

/// One client with one event channel.
struct Party {
  explicit Party(TestDaemon& d, uid_t uid = ::geteuid()) : daemon(d), client(*d.conductor, uid) {
    client.hello();
    channel = open(receiver);
  }

  /// `socket`: on which the daemon answers what it does in slices.
  Party(TestDaemon& d, UniqueFd socket) : daemon(d), client(*d.conductor, TestClient::myself(), std::move(socket)) {
    client.hello();
    channel = open(receiver);
  }

  std::uint32_t open(UniqueFd& end) {
    control::Reply reply = client.send(UROCE_CMD_CM_OPEN_CHANNEL, uroce_cm_channel_request{5, 0});
    EXPECT_EQ(reply.status, 0);
    if (reply.fds.size() == 1) end = std::move(reply.fds[0]);
    return TestClient::value<uroce_handle>(reply).handle;
  }

  control::Reply create(std::uint32_t space, const uroce_cm_address& source, std::uint32_t flags = 0) {
    uroce_cm_create_id_request request{};
    request.channel = channel;
    request.port_space = space;
    request.qp_type = space == kUdp ? control::kTypeUd : control::kTypeRc;
    request.flags = flags;
    request.source = source;
    return client.send(UROCE_CMD_CM_CREATE_ID, request);
  }
  std::uint32_t id(std::uint32_t space = kTcp, const uroce_cm_address& source = at(0, 0)) {
    const control::Reply reply = create(space, source);
    EXPECT_EQ(reply.status, 0);
    return TestClient::value<uroce_cm_bound_response>(reply).handle;
  }
  std::uint32_t listener(std::uint16_t port, std::uint32_t space = kTcp, std::uint32_t backlog = 0) {
    const std::uint32_t handle = id(space, at(1, port));
    EXPECT_EQ(client.send(UROCE_CMD_CM_LISTEN, uroce_cm_listen_request{handle, backlog}).status, 0);
    return handle;
  }
  int resolve(std::uint32_t handle, const uroce_cm_address& destination, std::uint32_t timeout_ms = 1000) {
    uroce_cm_resolve_request request{};
    request.handle = handle;
    request.timeout_ms = timeout_ms;
    request.destination = destination;
    return client.send(UROCE_CMD_CM_RESOLVE_ADDRESS, request).status;
  }
  /// Resolves the route, too, if the address is resolved; next() does not return the event of that.
  int connect(const uroce_cm_connect_request& request) {
    if (call(UROCE_CMD_CM_RESOLVE_ROUTE, request.handle) == 0) ++routes;
    return client.send(UROCE_CMD_CM_CONNECT, request).status;
  }
  int call(std::uint32_t command, std::uint32_t handle) {
    return client.send(command, uroce_handle{handle, 0}).status;
  }
  /// Parameters that name a QP of this party: the number is given to it, as if it had created the QP.
  uroce_cm_connect_request parameters(std::uint32_t handle, std::uint32_t qpn, std::uint8_t bytes = 0) {
    daemon.conductor->state().set_qp_owner(Qpn{qpn}, client.session().peer.tenant());
    return parameters_of_any(handle, qpn, bytes);
  }
  uroce_cm_connect_request parameters_of_any(std::uint32_t handle, std::uint32_t qpn, std::uint8_t bytes = 0) {
    uroce_cm_connect_request request{};
    request.handle = handle;
    request.parameters.qpn = qpn;
    request.parameters.qp_type = control::kTypeRc;
    request.parameters.responder_resources = 4;
    request.parameters.initiator_depth = 2;
    request.parameters.retry_count = 7;
    request.parameters.rnr_retry_count = 6;
    request.parameters.private_data_bytes = bytes;
    // The length may claim more bytes than the field holds.
    const std::size_t there = std::min<std::size_t>(bytes, std::size(request.parameters.private_data));
    for (std::size_t i = 0; i < there; ++i) request.parameters.private_data[i] = static_cast<std::uint8_t>(i + 1);
    return request;
  }
  /// An id whose REQ has been sent.
  std::uint32_t connecting(std::uint16_t port, std::uint32_t qpn, std::uint8_t bytes = 0) {
    const std::uint32_t handle = id();
    EXPECT_EQ(resolve(handle, at(1, port)), 0);
    EXPECT_EQ(connect(parameters(handle, qpn, bytes)), 0);
    return handle;
  }

  bool take(uroce_cm_event& event) {
    return ::recv(receiver.get(), &event, sizeof(event), MSG_DONTWAIT) == sizeof(event);
  }
  /// The next event; its type is ~0 if none arrives.
  uroce_cm_event next() {
    uroce_cm_event event{};
    event.type = ~0u;
    daemon.run_until([&] {
      daemon.conductor->cm().step(monotonic_now());
      if (!take(event)) return false;
      if (event.type != control::kRouteResolved || routes == 0) return true;
      --routes;
      return take(event);
    });
    return event;
  }
  uroce_cm_event next(std::uint32_t type) {
    const uroce_cm_event event = next();
    EXPECT_EQ(event.type, type);
    return event;
  }

  TestDaemon& daemon;
  TestClient client;
  UniqueFd receiver, other_receiver;
  std::uint32_t channel = 0;
  unsigned routes = 0;  ///< resolved by connect(), whose events were not read yet
};

/// A daemon with two clients that connect over it.
class CmWorld : public ::testing::Test {
 protected:
  /// An id of the active side whose address is resolved.
  std::uint32_t resolved(std::uint32_t space = kTcp) {
    const std::uint32_t handle = active.id(space);
    EXPECT_EQ(active.resolve(handle, at(1, 7000)), 0);
    active.next(control::kAddrResolved);
    return handle;
  }
  uroce_cm_connect_request datagram(std::uint32_t handle, std::uint8_t bytes = 0) {
    auto request = active.parameters(handle, 100, bytes);
    request.parameters.qp_type = control::kTypeUd;
    return request;
  }
  /// Both ends of an established connection.
  void establish() {
    passive.listener(7000);
    active_id = active.connecting(7000, 100);
    active.next(control::kAddrResolved);
    passive_id = passive.next(control::kConnectRequest).handle;
    ASSERT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(passive_id, 200)).status, 0);
    active.next(control::kConnectResponse);
    ASSERT_EQ(active.call(UROCE_CMD_CM_ESTABLISH, active_id), 0);
    passive.next(control::kEstablished);
  }

  TestDaemon daemon;
  Party passive{daemon}, active{daemon};
  std::uint32_t active_id = 0, passive_id = 0;
};

}  // namespace uroce::daemon::testing
