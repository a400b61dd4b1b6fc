// Rules of `urocectl fault verbs` that put an event in the place of a call of connection management.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "cm_party.h"
#include "control/state/verb_faults.h"

namespace uroce::daemon::testing {

using enum control::CmEventType;

namespace {

class CmFaults : public CmWorld {
 protected:
  void rule(const std::string& text) {
    control::ControlState& state = active.daemon.conductor->state();
    EXPECT_EQ(state.verb_faults().add(state, text), "");
  }
  /// The next event of the active side.
  void expect(std::uint32_t id, std::uint32_t type, int status) {
    const uroce_cm_event event = active.next(type);
    EXPECT_EQ(event.handle, id);
    EXPECT_EQ(event.status, status);
  }
};

TEST_F(CmFaults, AnAddressOrRouteErrorLeavesTheIdAsItWas) {
  rule("call=cm_resolve_address,nth=1,cm=ADDR_ERROR");
  rule("call=cm_resolve_route,nth=1,cm=ROUTE_ERROR,cm_status=-5");
  const std::uint32_t id = active.id();
  EXPECT_EQ(active.resolve(id, at(1, 7000)), 0);
  expect(id, kAddrError, -ETIMEDOUT);
  EXPECT_EQ(active.resolve(id, at(1, 7000)), 0) << "as after a true one";
  expect(id, kAddrResolved, 0);
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, id), 0);
  expect(id, kRouteError, -5);
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, id), 0);
  expect(id, kRouteResolved, 0);
}

TEST_F(CmFaults, AConnectionThatFailsSendsNothing) {
  passive.listener(7000);
  for (const auto& [name, type, status] :
       {std::tuple{"REJECTED", kRejected, 28}, std::tuple{"UNREACHABLE", kUnreachable, -ETIMEDOUT},
        std::tuple{"CONNECT_ERROR", kConnectError, -EINVAL}}) {
    rule(std::string("call=cm_connect,nth=1,cm=") + name);
    const std::uint32_t id = active.connecting(7000, 100);
    expect(id, kAddrResolved, 0);
    expect(id, type, status);
    EXPECT_EQ(active.client.send(UROCE_CMD_CM_CONNECT, active.parameters(id, 100)).status, EINVAL) << "it is over";
    EXPECT_EQ(active.call(UROCE_CMD_CM_DESTROY_ID, id), 0);
    control::ControlState& state = active.daemon.conductor->state();
    state.verb_faults().remove_all(state);
  }
  active.connecting(7000, 100);
  passive.next(kConnectRequest);
  EXPECT_EQ(active.daemon.conductor->cm().manager().counters().received[0], 1u) << "REQs";
}

TEST_F(CmFaults, AnAcceptThatFailsRejectsThePeerWithTheId) {
  rule("call=cm_accept,nth=1,cm=CONNECT_ERROR");
  passive.listener(7000);
  const std::uint32_t id = active.connecting(7000, 100);
  expect(id, kAddrResolved, 0);
  const std::uint32_t requested = passive.next(kConnectRequest).handle;
  EXPECT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(requested, 200)).status, 0);
  EXPECT_EQ(passive.next(kConnectError).handle, requested);
  EXPECT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, requested), 0);
  EXPECT_EQ(active.next(kRejected).handle, id);
}

TEST_F(CmFaults, AJoinThatFailsNamesItsGroup) {
  rule("call=cm_join,nth=1,cm=MULTICAST_ERROR");
  const std::uint32_t id = resolved(kUdp);
  uroce_cm_join_request join{};
  join.handle = id;
  join.context = 0x1234;
  join.group = at(1, 0);
  join.group.gid[12] = 239;
  EXPECT_EQ(active.client.send(UROCE_CMD_CM_JOIN, join).status, 0);
  const uroce_cm_event event = active.next(kMulticastError);
  EXPECT_EQ(event.context, 0x1234u);
  EXPECT_EQ(event.status, -ENETUNREACH);
}

TEST_F(CmFaults, ADeviceRemovalChangesNothingElse) {
  rule("call=cm_resolve_route,nth=1,cm=DEVICE_REMOVAL");
  const std::uint32_t id = resolved();
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, id), 0);
  expect(id, kDeviceRemoval, 0);
  EXPECT_EQ(active.call(UROCE_CMD_CM_RESOLVE_ROUTE, id), 0);
  expect(id, kRouteResolved, 0);
}

TEST_F(CmFaults, ACallInAWrongStateOrWithWrongArgumentsFailsAsEver) {
  for (const char* const call : {"cm_connect", "cm_accept"}) rule(std::string("cm=REJECTED,call=") + call);
  rule("call=cm_join,cm=MULTICAST_ERROR");
  rule("call=cm_resolve_address,cm=ADDR_ERROR");
  EXPECT_EQ(active.client.send(UROCE_CMD_CM_CONNECT, active.parameters(4711, 100)).status, EINVAL);
  EXPECT_EQ(active.client.send(UROCE_CMD_CM_CONNECT, std::span<const std::byte>{}).status, EINVAL);
  EXPECT_EQ(active.call(UROCE_CMD_CM_JOIN, active.id()), EINVAL) << "a request of another size";
  EXPECT_EQ(active.resolve(active.id(), at(0, 7000)), EINVAL) << "any address";
  uroce_cm_address elsewhere = at(1, 7000);
  elsewhere.gid[12] = 10;
  EXPECT_EQ(active.resolve(active.id(), elsewhere), ENETUNREACH) << "librdmacm then tries another device";
  uroce_cm_event event;
  EXPECT_FALSE(active.take(event)) << event.type;
}

/// A listener that lost its state would stay with the connection manager after its end.
TEST_F(CmFaults, AListenerStaysOne) {
  for (const char* const call : {"cm_connect", "cm_accept"}) rule(std::string("cm=REJECTED,call=") + call);
  const std::uint32_t listener = passive.listener(7000);
  EXPECT_EQ(passive.client.send(UROCE_CMD_CM_CONNECT, passive.parameters(listener, 100)).status, EINVAL);
  EXPECT_EQ(passive.client.send(UROCE_CMD_CM_ACCEPT, passive.parameters(listener, 100)).status, EINVAL);
  EXPECT_EQ(passive.call(UROCE_CMD_CM_DESTROY_ID, listener), 0);
  control::ControlState& state = active.daemon.conductor->state();
  state.verb_faults().remove_all(state);
  const std::uint32_t id = active.connecting(7000, 100);
  expect(id, kAddrResolved, 0);
  expect(id, kRejected, 8);
  passive.listener(7000);
}

}  // namespace
}  // namespace uroce::daemon::testing
