#include "admin/show_cm.h"

#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "cm_service/port_space.h"
#include "control/machine/port.h"

namespace uroce::admin {

using control::CmIdState;

namespace {

using Json = nlohmann::ordered_json;

const char* state_name(CmIdState state) {
  switch (state) {
    case CmIdState::kBound: return "ADDR_BOUND";
    case CmIdState::kResolving: return "ADDR_QUERY";
    case CmIdState::kResolved: return "ADDR_RESOLVED";
    case CmIdState::kRouteResolved: return "ROUTE_RESOLVED";
    case CmIdState::kListening: return "LISTEN";
    case CmIdState::kRequested:
    case CmIdState::kConnecting:
    case CmIdState::kResponded: return "CONNECT";
    case CmIdState::kConnected: return "CONNECTED";
    case CmIdState::kClosed: return "DISCONNECT";
  }
  return "?";
}

const char* space_name(cm::PortSpace space) {
  switch (space) {
    case cm::PortSpace::kIpoib: return "IPoIB";
    case cm::PortSpace::kTcp: return "TCP";
    case cm::PortSpace::kUdp: return "UDP";
    case cm::PortSpace::kIb: return "IB";
  }
  return "?";
}

/// "192.0.2.1:7174", "[2001:db8::1]:7174", "*:7174" where any address will do; empty: none.
std::string endpoint_text(const uroce_cm_address& at) {
  if (at.family == 0) return {};
  const std::string port = ":" + std::to_string(at.port);
  if (cm_service::is_any(at)) return "*" + port;
  const std::string address = control::address_text(cm_service::address_of(at));
  return (at.family == AF_INET6 ? "[" + address + "]" : address) + port;
}

}  // namespace

Json list_cm_ids(const control::ControlState& state, Page& page) {
  Json list = Json::array();
  for (const auto& [session, id] : page.collect(
           state.sessions(), [](const control::Session& s) -> auto& { return s.cm.ids; })) {
    list.push_back({{"cm_id", id->handle},
                    {"session", session->id},
                    {"program", session->program},
                    {"pid", session->peer.pid},
                    {"state", state_name(id->state)},
                    {"ps", space_name(id->space)},
                    {"source", endpoint_text(id->source)},
                    {"destination", endpoint_text(id->destination)}});
  }
  return list;
}

}  // namespace uroce::admin
