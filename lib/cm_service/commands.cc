// The control commands of connection management (abi/cm.h).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm_service/service.h"
#include "control/commands/command.h"
#include "control/session/cm_event_types.h"
#include "control/session/privilege.h"
#include "platform/clock.h"
#include "platform/record_socket.h"

namespace uroce::cm_service {

using control::CmChannel;
using control::CmId;
using control::CmIdState;
using control::kTypeUd;
using control::kUdpQkey;
using control::commands::Call;
using enum control::CmEventType;

namespace {

constexpr std::uint32_t kLeastBacklog = 16, kMostBacklog = 4096;
constexpr std::uint8_t kAckTimeout = 16;  // 268 ms
constexpr std::uint8_t kHopLimit = 64;

bool known_space(std::uint32_t space) {
  using enum cm::PortSpace;
  return space == static_cast<std::uint32_t>(kTcp) || space == static_cast<std::uint32_t>(kUdp) ||
         space == static_cast<std::uint32_t>(kIb) || space == static_cast<std::uint32_t>(kIpoib);
}

bool valid(const uroce_cm_address& address) {
  if (address.family == control::kFamilyIp4) return address_of(address).is_v4();
  return address.family == control::kFamilyIp6;
}

template <std::size_t N>
bool all_zero(const std::uint8_t (&bytes)[N]) {
  return std::ranges::all_of(bytes, [](std::uint8_t b) { return b == 0; });
}

bool valid(const uroce_cm_parameters& p, std::size_t most_private_data) {
  return p.qpn < 1u << 24 && p.ece_vendor < 1u << 24 && p.private_data_bytes <= most_private_data &&
         p.ack_timeout < 32 && all_zero(p.reserved);
}

int not_ours(const Call& call, const wire::Address& address) {
  return call.refuse(ENODEV, "%s is not an address of this port (`urocectl show devices`)",
                     control::address_text(address).c_str());
}

int refuse_port(const Call& call, int status, std::uint16_t port) {
  if (port == 0) return call.refuse(status, "no port is free");
  return call.refuse(status,
                     status == EADDRINUSE
                         ? "port %u is in use at this address by another id; two share it if both have "
                           "RDMA_OPTION_ID_REUSEADDR and neither listens"
                         : "port %u is in use by another id, and one of the two is bound to any address",
                     port);
}

int wrong_state(const Call& call) {
  return call.refuse(EINVAL, "the id is not in the state that this call takes (rdma_cm(7) has their order)");
}

template <std::size_t N>
void fill(cm::PrivateData<N>& to, std::size_t offset, const uroce_cm_parameters& p) {
  std::memcpy(to.data() + offset, p.private_data, std::min<std::size_t>(p.private_data_bytes, N - offset));
}

cm::IpCmHeader ip_header(const CmId& id) {
  cm::IpCmHeader header;
  header.ip_version = address_of(id.source).is_v4() ? 4 : 6;
  header.source_port = id.source.port;
  header.source = address_of(id.source);
  header.destination = address_of(id.destination);
  return header;
}

cm::Peer peer_of(const CmId& id) { return {address_of(id.source), address_of(id.destination)}; }

/// The QP of a connection is one of the client's own tenant, though not always of this session: programs also
/// connect QPs that another library of the process created. The peer takes a REQ that names the QP of an existing
/// connection for a sign that this connection is stale, and ends it (IBTA vol. 1, 12.9.8.3.1).
bool may_connect(const Call& call, const uroce_cm_parameters& p) {
  return call.state.owns_qp(call.session.peer.tenant(), Qpn{p.qpn});
}

uroce_cm_bound_response bound(const CmId& id) {
  uroce_cm_bound_response reply{};
  reply.handle = id.handle;
  reply.sgid_index = is_any(id.source) ? ~0u : id.path.sgid_index;
  reply.source = id.source;
  if (!is_any(id.source)) std::memcpy(reply.gid, id.source.gid, 16);
  return reply;
}

}  // namespace

constexpr control::CommandRow<CmService::Handler> CmService::kCommands[] = {
    {UROCE_CMD_CM_OPEN_CHANNEL, &CmService::open_channel},
    {UROCE_CMD_CM_CLOSE_CHANNEL, &CmService::close_channel},
    {UROCE_CMD_CM_CREATE_ID, &CmService::create_id},
    {UROCE_CMD_CM_DESTROY_ID, &CmService::destroy_id},
    {UROCE_CMD_CM_RESOLVE_ADDRESS, &CmService::resolve_address},
    {UROCE_CMD_CM_RESOLVE_ROUTE, &CmService::resolve_route},
    {UROCE_CMD_CM_LISTEN, &CmService::listen},
    {UROCE_CMD_CM_CONNECT, &CmService::connect},
    {UROCE_CMD_CM_ACCEPT, &CmService::accept},
    {UROCE_CMD_CM_REJECT, &CmService::reject},
    {UROCE_CMD_CM_ESTABLISH, &CmService::establish},
    {UROCE_CMD_CM_DISCONNECT, &CmService::disconnect},
    {UROCE_CMD_CM_MIGRATE, &CmService::migrate},
    {UROCE_CMD_CM_JOIN, &CmService::join},
    {UROCE_CMD_CM_POST, &CmService::post},
};

int CmService::run(std::uint32_t command, Call& call) {
  static_assert(control::rows_match_opcodes(kCommands, UROCE_CMD_CM_FIRST, UROCE_CMD_CM_END - 1));
  const control::CommandRow<Handler>* row = control::find_command(kCommands, command);
  if (row == nullptr) {
    call.reply.reason = control::Rejection::unknown_command;
    return EOPNOTSUPP;
  }
  if (call.fds.size() > row->descriptors) {
    call.reply.reason = control::Rejection::malformed;
    return EINVAL;
  }
  return run([&](Nanos now) { return (this->*row->run)(call, now); });
}

int CmService::replace(const Call& call, CmId& id, std::uint64_t context) {
  const std::uint32_t type = *call.instead->cm;
  uroce_cm_event out = record(id, type, call.instead->error);
  out.context = context;
  if (!write(*id.channel, out)) return ENOBUFS;
  if (type == kConnectError || type == kUnreachable || type == kRejected) id.state = CmIdState::kClosed;
  return 0;
}

template <class Command>
int CmService::run(Command&& command) {
  now_ = monotonic_now();
  const int status = command(now_);
  drain();
  send_messages();
  return status;
}

CmId* CmService::id_of(Call& call) const {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return nullptr;
  return call.session.cm.ids.find(request.handle);
}

int CmService::open_channel(Call& call, Nanos) {
  uroce_cm_channel_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  auto channel = std::make_unique<CmChannel>();
  channel->charge = call.state.charge(call.session, {.descriptors = 1});
  if (!channel->charge) return EMFILE;
  // Both ends are the daemon's: what it sent to a socket of the client's would carry the daemon's credentials to
  // whatever service the client had connected it to.
  UniqueFd writer;
  if (!platform::open_record_socket(writer, call.reply.fds.emplace_back())) {
    call.reply.fds.clear();
    return EMFILE;
  }
  channel->socket = {std::move(writer), call.session.stall_budget};
  channel->owner = &call.session.cm;
  channel->device = request.device;
  call.reply.put(uroce_handle{call.session.cm.channels.add(std::move(channel)), 0});
  return 0;
}

int CmService::close_channel(Call& call, Nanos now) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  CmChannel* const channel = call.session.cm.channels.find(request.handle);
  if (channel == nullptr) return EINVAL;
  channel->closing = true;
  return close_some(call, request.handle, now);
}

// The remaining ids are those of requests that the client has not read, and those that it did not destroy: maybe
// all that a user may have.
int CmService::close_some(Call& call, std::uint32_t handle, Nanos now) {
  CmChannel* const channel = call.session.cm.channels.find(handle);
  for (std::size_t i = 0; i < kSlice && !channel->ids.empty(); ++i) remove_id(**channel->ids.begin(), now);
  if (!channel->ids.empty()) {
    call.reply.rest = [this, handle](Call& next) {
      return run([&](Nanos later) { return close_some(next, handle, later); });
    };
    return control::kUnfinished;
  }
  std::erase(owing_, channel);
  call.session.cm.owed -= channel->owed.size();
  call.session.cm.channels.erase(handle);
  return 0;
}

int CmService::create_id(Call& call, Nanos now) {
  uroce_cm_create_id_request request;
  if (!call.read(request) || !valid(request.source) || !known_space(request.port_space)) return EINVAL;
  if ((request.flags & ~(UROCE_CM_REUSE_ADDRESS | UROCE_CM_ONLY_FAMILY)) != 0) return EINVAL;
  CmChannel* channel = call.session.cm.channels.find(request.channel);
  if (channel == nullptr) return EINVAL;
  const wire::Address address = address_of(request.source);
  if (!is_any(request.source) && !port_.gids().find(address)) return not_ours(call, address);
  if (request.source.port != 0 && request.source.port < first_unprivileged_port_ &&
      !control::may_use_low_ports(call.session)) {
    return call.refuse(EACCES, "port %u is less than %u: it takes CAP_NET_BIND_SERVICE", request.source.port,
                       first_unprivileged_port_);
  }
  CmId* const made = add_id(call.session, *channel, {.cm_ids = 1, .cm_ports = 1});
  if (made == nullptr) return ENOMEM;
  CmId& id = *made;
  id.space = static_cast<cm::PortSpace>(request.port_space);
  id.qp_type = request.qp_type;
  id.flags = request.flags;
  id.source = request.source;
  id.path.hop_limit = kHopLimit;
  id.path.path_mtu = static_cast<std::uint8_t>(port_.port().active_mtu);
  id.path.qkey = kUdpQkey;
  id.path.sgid_index = ~0u;
  if (const int status = ports_.bind(id)) {
    remove_id(id, now);
    return refuse_port(call, status, request.source.port);
  }
  if (!is_any(id.source)) set_source(id, address, id.source.port);
  call.reply.put(bound(id));
  return 0;
}

int CmService::destroy_id(Call& call, Nanos now) {
  CmId* id = id_of(call);
  if (id == nullptr) return EINVAL;
  remove_id(*id, now);
  return 0;
}

int CmService::bind_towards(const Call& call, CmId& id, const uroce_cm_address& source,
                            const wire::Address& destination) {
  const net::GidTable& gids = port_.gids();
  std::optional<wire::Address> local;
  if (source.family != 0 && !is_any(source)) {
    local = address_of(source);
    if (!gids.find(*local)) return not_ours(call, *local);
  } else if (!is_any(id.source)) {
    local = address_of(id.source);
  } else if (gids.find(destination)) {
    local = destination;
  } else {
    // The address of the destination's family that shares the longest prefix with it.
    int best = -1;
    for (std::size_t i = 0; i < gids.size(); ++i) {
      const std::optional<wire::Address> candidate = gids.at(i);
      if (!candidate || candidate->is_v4() != destination.is_v4()) continue;
      int bits = 0;
      while (bits < 128 && ((candidate->bytes[bits / 8] ^ destination.bytes[bits / 8]) >> (7 - bits % 8) & 1) == 0)
        ++bits;
      if (bits > best) best = bits, local = candidate;
    }
  }
  if (!local || local->is_v4() != destination.is_v4()) {
    return call.refuse(ENETUNREACH, "the port or the id has no address of the family of %s",
                       control::address_text(destination).c_str());
  }
  set_source(id, *local, id.source.port);
  return 0;
}

int CmService::resolve_address(Call& call, Nanos now) {
  uroce_cm_resolve_request request;
  if (!call.read(request) || !valid(request.destination)) return EINVAL;
  if (request.source.family != 0 && !valid(request.source)) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  if (id == nullptr || id->state != CmIdState::kBound) return wrong_state(call);
  const wire::Address destination = address_of(request.destination);
  if (is_any(request.destination)) return EINVAL;
  if (const int status = bind_towards(call, *id, request.source, destination)) return status;
  const control::NeighbourKey neighbour{destination, vlan_of(address_of(id->source))};
  const net::Resolution resolution = link_.resolve(neighbour).resolution;
  if (resolution == net::Resolution::kNoRoute) {
    return call.refuse(ENETUNREACH, "no route to %s: it is in none of the port's prefixes and there is no gateway",
                       control::address_text(destination).c_str());
  }
  id->destination = request.destination;
  std::memcpy(id->path.gid, destination.bytes.data(), 16);
  if (call.instead != nullptr) {
    call.reply.put(bound(*id));
    return replace(call, *id);
  }
  switch (resolution) {
    case net::Resolution::kPending:
      id->state = CmIdState::kResolving;
      id->resolving =
          link_.wait_for(neighbour, now + Nanos{request.timeout_ms} * kMillisecond,
                         [this, id](const control::Neighbour& found) { on_resolved(*id, found.resolution); });
      break;
    case net::Resolution::kResolved:
      if (!report(*id, kAddrResolved)) return ENOBUFS;
      id->state = CmIdState::kResolved;
      break;
    default:
      if (!report(*id, kAddrError, -ETIMEDOUT)) return ENOBUFS;
      id->state = CmIdState::kBound;
  }
  call.reply.put(bound(*id));
  return 0;
}

int CmService::resolve_route(Call& call, Nanos) {
  CmId* id = id_of(call);
  if (id == nullptr || id->state != CmIdState::kResolved) return wrong_state(call);
  if (call.instead != nullptr) return replace(call, *id);
  if (!port_.gids().find(address_of(id->source))) {
    return report(*id, kRouteError, -ENODEV) ? 0 : ENOBUFS;  // the port has lost the address after RESOLVE_ADDRESS
  }
  if (!report(*id, kRouteResolved)) return ENOBUFS;
  id->state = CmIdState::kRouteResolved;
  return 0;
}

int CmService::listen(Call& call, Nanos) {
  uroce_cm_listen_request request;
  if (!call.read(request)) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  if (id == nullptr || id->state != CmIdState::kBound) return wrong_state(call);
  if (const int status = ports_.check_listener(*id)) return refuse_port(call, status, id->source.port);
  const std::uint32_t backlog =
      request.backlog == 0 ? kMostBacklog : std::clamp(request.backlog, kLeastBacklog, kMostBacklog);
  id->cookie = ++last_cookie_;
  if (const int status = manager_.listen(service_of(*id), backlog, id->cookie, where_of(*id))) return status;
  id->state = CmIdState::kListening;
  listeners_[id->cookie] = id;
  call.reply.put(bound(*id));
  return 0;
}

int CmService::connect_datagram(Call& call, CmId& id, const uroce_cm_parameters& p, Nanos now) {
  cm::SidrReq req;
  if (!valid(p, req.private_data.size() - cm::IpCmHeader::kBytes)) return EINVAL;
  if (call.instead != nullptr) return replace(call, id);
  id.path.traffic_class = p.traffic_class;
  req.service_id = cm::service_id(id.space, id.destination.port);
  ip_header(id).emit(std::span(req.private_data).first<cm::IpCmHeader::kBytes>());
  fill(req.private_data, cm::IpCmHeader::kBytes, p);
  if (!admit_connection(id)) return ENOMEM;
  const auto connection = manager_.sidr_request(peer_of(id), req, 0, now);
  if (!connection) return ENOMEM;
  attach(id, *connection);
  id.state = CmIdState::kConnecting;
  return 0;
}

int CmService::connect(Call& call, Nanos now) {
  uroce_cm_connect_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  if (id == nullptr || id->state != CmIdState::kRouteResolved) return wrong_state(call);
  const uroce_cm_parameters& p = request.parameters;
  id->qp_type = p.qp_type;
  if (p.qp_type == kTypeUd) return connect_datagram(call, *id, p, now);
  cm::Req req;
  if (!valid(p, req.private_data.size() - cm::IpCmHeader::kBytes) || !may_connect(call, p)) return EINVAL;
  switch (p.qp_type) {
    case control::kTypeRc: break;
    case control::kTypeUc: req.transport = cm::TransportService::kUc; break;
    case control::kTypeXrcSend:
    case control::kTypeXrcRecv:
      req.transport = cm::TransportService::kExtended;
      req.extended_transport = 1;
      break;
    default: return EINVAL;
  }
  if (call.instead != nullptr) return replace(call, *id);
  uroce_cm_path& path = id->path;
  path.local_psn = random24();
  path.ack_timeout = p.ack_timeout != 0 ? p.ack_timeout : kAckTimeout;
  path.retry_count = std::min<std::uint8_t>(p.retry_count, 7);
  path.responder_resources = p.responder_resources;
  path.initiator_depth = p.initiator_depth;
  path.traffic_class = p.traffic_class;
  req.service_id = cm::service_id(id->space, id->destination.port);
  req.local_qpn = Qpn{p.qpn};
  req.ece = {p.ece_vendor, p.ece_options};
  req.responder_resources = p.responder_resources;
  req.initiator_depth = p.initiator_depth;
  req.flow_control = p.flow_control != 0;
  req.starting_psn = Psn(path.local_psn);
  req.retry_count = path.retry_count;
  req.rnr_retry_count = std::min<std::uint8_t>(p.rnr_retry_count, 7);
  req.path_mtu = path.path_mtu;
  req.srq = p.srq != 0;
  req.primary.local_gid = address_of(id->source);
  req.primary.remote_gid = address_of(id->destination);
  req.primary.hop_limit = kHopLimit;
  req.primary.subnet_local = false;
  req.primary.traffic_class = p.traffic_class;
  req.primary.ack_timeout = path.ack_timeout;
  ip_header(*id).emit(std::span(req.private_data).first<cm::IpCmHeader::kBytes>());
  fill(req.private_data, cm::IpCmHeader::kBytes, p);
  if (!admit_connection(*id)) return ENOMEM;
  const auto connection = manager_.connect(peer_of(*id), req, 0, now);
  if (!connection) return ENOMEM;
  attach(*id, *connection);
  id->state = CmIdState::kConnecting;
  return 0;
}

int CmService::accept_datagram(Call& call, CmId& id, const uroce_cm_parameters& p, Nanos now) {
  cm::SidrRep rep;
  if (!valid(p, rep.private_data.size())) return EINVAL;
  if (call.instead != nullptr) return replace(call, id);
  rep.service_id = service_of(id);
  rep.qpn = Qpn{p.qpn};
  rep.qkey = p.qkey != 0 ? p.qkey : kUdpQkey;
  rep.ece = {p.ece_vendor, p.ece_options};
  fill(rep.private_data, 0, p);
  if (!manager_.sidr_respond(*id.connection, rep, now)) return EINVAL;
  id.state = CmIdState::kConnected;
  return 0;
}

int CmService::accept(Call& call, Nanos now) {
  uroce_cm_connect_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  if (id == nullptr || id->state != CmIdState::kRequested || !id->connection) return wrong_state(call);
  const uroce_cm_parameters& p = request.parameters;
  if (id->qp_type == kTypeUd) return accept_datagram(call, *id, p, now);
  cm::Rep rep;
  if (!valid(p, rep.private_data.size()) || !may_connect(call, p)) return EINVAL;
  if (call.instead != nullptr) return replace(call, *id);
  rep.local_qpn = Qpn{p.qpn};
  rep.ece = {p.ece_vendor, p.ece_options};
  rep.starting_psn = Psn(id->path.local_psn);
  rep.responder_resources = p.responder_resources;
  rep.initiator_depth = p.initiator_depth;
  rep.flow_control = p.flow_control != 0;
  rep.rnr_retry_count = std::min<std::uint8_t>(p.rnr_retry_count, 7);
  rep.srq = p.srq != 0;
  fill(rep.private_data, 0, p);
  if (!manager_.accept(*id->connection, rep, 0, now)) return EINVAL;
  id->state = CmIdState::kConnecting;
  return 0;
}

int CmService::reject(Call& call, Nanos now) {
  uroce_cm_reject_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  if (id == nullptr || !id->connection) return EINVAL;
  const auto data = std::as_bytes(std::span(request.private_data));
  if (id->qp_type == kTypeUd) {
    cm::SidrRep rep;
    if (request.private_data_bytes > rep.private_data.size()) return EINVAL;
    rep.service_id = service_of(*id);
    rep.status = cm::SidrStatus::kRejected;
    std::memcpy(rep.private_data.data(), request.private_data, request.private_data_bytes);
    if (!manager_.sidr_respond(*id->connection, rep, now)) return EINVAL;
  } else {
    if (request.private_data_bytes > cm::Rej{}.private_data.size()) return EINVAL;
    const auto reason =
        request.reason == 0 ? cm::RejReason::kConsumerDefined : static_cast<cm::RejReason>(request.reason);
    if (!manager_.reject(*id->connection, reason, data.first(request.private_data_bytes), now)) return EINVAL;
  }
  id->state = CmIdState::kClosed;
  return 0;
}

int CmService::establish(Call& call, Nanos now) {
  CmId* id = id_of(call);
  if (id == nullptr || !id->connection) return EINVAL;
  if (manager_.state(*id->connection) == cm::State::kEstablished) return EISCONN;
  if (!manager_.establish(*id->connection, {}, now)) return EINVAL;
  id->state = CmIdState::kConnected;
  id->was_connected = true;
  return 0;
}

int CmService::disconnect(Call& call, Nanos now) {
  CmId* id = id_of(call);
  if (id == nullptr || id->qp_type == kTypeUd) return EINVAL;
  if (id->connection && manager_.disconnect(*id->connection, now)) {
    id->was_connected = true;
    return 0;
  }
  // Either end has disconnected: the answer is the same whether the other one has heard of it or not.
  return id->was_connected ? 0 : EINVAL;
}

int CmService::migrate(Call& call, Nanos) {
  uroce_cm_migrate_request request;
  if (!call.read(request)) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  CmChannel* channel = call.session.cm.channels.find(request.channel);
  if (id == nullptr || channel == nullptr) return EINVAL;
  id->channel->ids.erase(id);
  channel->ids.insert(id);
  id->channel = channel;
  return 0;
}

int CmService::join(Call& call, Nanos) {
  uroce_cm_join_request request;
  if (!call.read(request) || !all_zero(request.reserved) || !valid(request.group)) return EINVAL;
  CmId* id = call.session.cm.ids.find(request.handle);
  const wire::Address group = address_of(request.group);
  if (id == nullptr || !group.is_multicast() || id->path.sgid_index == ~0u) return EINVAL;
  if (call.instead != nullptr) return replace(call, *id, request.context);
  uroce_cm_event out = record(*id, kMulticastJoin, 0);
  out.context = request.context;
  std::memcpy(out.path.gid, group.bytes.data(), 16);
  out.path.traffic_class = request.traffic_class;
  out.path.remote_qpn = 0xffffff;
  out.path.qkey = kUdpQkey;
  out.parameters.qpn = 0xffffff;
  out.parameters.qkey = kUdpQkey;
  return write(*id->channel, out) ? 0 : ENOBUFS;
}

int CmService::post(Call& call, Nanos) {
  uroce_cm_post_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  CmChannel* channel = call.session.cm.channels.find(request.channel);
  if (channel == nullptr) return EINVAL;
  return write(*channel, request.event) ? 0 : ENOBUFS;
}

}  // namespace uroce::cm_service
