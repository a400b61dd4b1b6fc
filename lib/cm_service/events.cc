// Events of the connection manager, written to the event channels of the clients that they concern.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm_service/service.h"
#include "control/commands/command.h"
#include "control/session/cm_event_types.h"
#include "platform/record_socket.h"

namespace uroce::cm_service {

using control::CmChannel;
using control::CmId;
using control::CmIdState;
using enum control::CmEventType;

namespace {

// Events that the daemon keeps for a session in addition to those in its sockets: one for each connection that the
// port supports. Bounds the memory that a client can occupy by not reading its events.
constexpr std::size_t kMaxOwed = 16384;

/// False: try again later.
bool send_event(const CmChannel& channel, const uroce_cm_event& event) {
  return platform::send_record(channel.socket.get(), std::as_bytes(std::span(&event, 1))) != platform::Sent::kLater;
}

void copy_gid(std::uint8_t* to, const wire::Address& from) { std::memcpy(to, from.bytes.data(), 16); }

uroce_cm_address to_abi(const wire::Address& address, std::uint16_t port) {
  uroce_cm_address out{};
  copy_gid(out.gid, address);
  out.family = address.is_v4() ? control::kFamilyIp4 : control::kFamilyIp6;
  out.port = port;
  return out;
}

/// Messages do not contain the length of their private data: all of it is passed on, as the kernel's CM does.
void set_private_data(uroce_cm_parameters& out, std::span<const std::byte> data) {
  const std::size_t bytes = std::min(data.size(), sizeof(out.private_data));
  std::memcpy(out.private_data, data.data(), bytes);
  out.private_data_bytes = static_cast<std::uint8_t>(bytes);
}

/// The QP type that a request is for; 0: unsupported.
std::uint32_t qp_type_of(const cm::Req& req) {
  switch (req.transport) {
    case cm::TransportService::kRc: return control::kTypeRc;
    case cm::TransportService::kUc: return control::kTypeUc;
    case cm::TransportService::kExtended: return req.extended_transport == 1 ? control::kTypeXrcRecv : 0;
    case cm::TransportService::kRd: break;
  }
  return 0;
}

}  // namespace

// ---------------------------------------------------------------- to clients

uroce_cm_event CmService::record(const CmId& id, std::uint32_t type, int status) const {
  uroce_cm_event event{};
  event.type = type;
  event.status = status;
  event.device = id.channel->device;
  event.handle = id.handle;
  event.qp_type = id.qp_type;
  event.source = id.source;
  event.destination = id.destination;
  event.path = id.path;
  return event;
}

bool CmService::write(CmChannel& channel, const uroce_cm_event& event) {
  const bool full = channel.owner->owed >= kMaxOwed;
  if (channel.owed.empty()) {
    if (send_event(channel, event)) return true;
    if (!full) owing_.push_back(&channel);
    retry_at_ = std::min(retry_at_, now_ + kRetry);
  }
  if (full) {
    ++events_lost_;
    return false;
  }
  channel.owed.push_back(event);
  ++channel.owner->owed;
  return true;
}

bool CmService::still_wanted(const CmChannel& channel, const uroce_cm_event& event, Nanos now) {
  const control::HandleTable<CmId>& ids = channel.owner->ids;
  if (event.handle == 0) return true;  // posted by the client, and of no id
  if (!ids.contains(event.handle)) return false;
  if (event.type != kConnectRequest || ids.contains(event.listener)) return true;
  remove_id(*ids.find(event.handle), now);
  return false;
}

void CmService::write_owed(Nanos now) {
  std::erase_if(owing_, [&](CmChannel* channel) {
    auto& owed = channel->owed;
    while (!owed.empty()) {
      if (still_wanted(*channel, owed.front(), now) && !send_event(*channel, owed.front())) return false;
      owed.pop_front();
      --channel->owner->owed;
    }
    return true;
  });
}

// ---------------------------------------------------------------- from the connection manager

void CmService::drain() {
  while (manager_.take_event(event_)) on_event(event_);
}

void CmService::on_event(const cm::Event& event) {
  if (event.type == cm::EventType::kRequest) return on_request(event);
  if (event.type == cm::EventType::kSidrRequest) return on_datagram_request(event);
  const auto it = by_connection_.find(event.id.value);
  if (it == by_connection_.end()) {
    if (event.type == cm::EventType::kClosed) abandoned_.erase(event.id.value);
    return;
  }
  CmId& id = *it->second;
  switch (event.type) {
    case cm::EventType::kResponse: return on_response(id, event);
    case cm::EventType::kSidrResponse: return on_datagram_response(id, event);
    case cm::EventType::kEstablished:
      id.state = CmIdState::kConnected;
      id.was_connected = true;
      return void(report(id, kEstablished));
    case cm::EventType::kRejected: {
      id.state = CmIdState::kClosed;
      uroce_cm_event out = record(id, kRejected, static_cast<int>(event.reject.reason));
      set_private_data(out.parameters, event.reject.private_data);
      write(*id.channel, out);
      return;
    }
    case cm::EventType::kUnreachable:
      id.state = CmIdState::kClosed;
      return void(report(id, kUnreachable, -ETIMEDOUT));
    case cm::EventType::kDisconnected:
      id.state = CmIdState::kClosed;
      return void(report(id, kDisconnected, event.timed_out ? -ETIMEDOUT : 0));
    case cm::EventType::kClosed: {
      const bool told = id.was_connected;
      if (id.state != CmIdState::kConnected || id.qp_type != control::kTypeUd) id.state = CmIdState::kClosed;
      detach(id);
      if (told) report(id, kTimewaitExit);
      return;
    }
    default: return;
  }
}

CmId* CmService::id_for_request(CmId& listener, const cm::Event& event,
                                std::span<const std::byte, cm::IpCmHeader::kBytes> ip, cm::RejReason& refuse) {
  const cm::IpCmHeader header = cm::IpCmHeader::parse(ip);
  refuse = cm::RejReason::kConsumerDefined;
  const unsigned version = event.peer.local.is_v4() ? 4 : 6;
  if (header.version != 0 || header.ip_version != version) return nullptr;
  refuse = cm::RejReason::kInvalidGid;
  if (header.destination != event.peer.local || header.source != event.peer.remote) return nullptr;
  refuse = cm::RejReason::kNoResources;
  control::Session& session = *listener.session;
  if (listener.channel->closing || session.close_pending) return nullptr;
  CmId* const made = add_id(session, *listener.channel, {.cm_ids = 1});
  if (made == nullptr) return nullptr;
  CmId& id = *made;
  if (!admit_connection(id)) {
    remove_id(id, now_);
    return nullptr;
  }
  id.state = CmIdState::kRequested;
  id.space = listener.space;
  id.qp_type = listener.qp_type;
  set_source(id, event.peer.local, listener.source.port);
  id.destination = to_abi(event.peer.remote, header.source_port);
  copy_gid(id.path.gid, event.peer.remote);
  id.path.hop_limit = 64;
  attach(id, event.id);
  return &id;
}

void CmService::on_request(const cm::Event& event) {
  const auto it = listeners_.find(event.cookie);
  const cm::Req& req = event.req;
  const std::uint8_t active_mtu = static_cast<std::uint8_t>(port_.port().active_mtu);
  cm::RejReason refuse = cm::RejReason::kInvalidServiceId;
  CmId* id = nullptr;
  const std::uint32_t qp_type = qp_type_of(req);
  if (it != listeners_.end()) {
    CmId& listener = *it->second;
    const bool known = qp_type != 0 && listener.qp_type != control::kTypeUd;
    refuse = cm::RejReason::kInvalidTransportType;
    if (known && (req.path_mtu == 0 || req.path_mtu > active_mtu)) {
      refuse = cm::RejReason::kInvalidMtu;
    } else if (known) {
      id = id_for_request(listener, event, std::span(req.private_data).first<cm::IpCmHeader::kBytes>(), refuse);
    }
  }
  if (id == nullptr) {
    manager_.reject(event.id, refuse, {}, now_);
    return;
  }
  id->qp_type = qp_type;
  uroce_cm_path& path = id->path;
  path.local_psn = random24();
  path.remote_psn = req.starting_psn.value();
  path.remote_qpn = req.local_qpn.value;
  path.path_mtu = req.path_mtu;
  path.ack_timeout = req.primary.ack_timeout;
  path.retry_count = req.retry_count;
  path.rnr_retry_count = req.rnr_retry_count;
  path.traffic_class = req.primary.traffic_class;
  path.flow_label = req.primary.flow_label;
  // The peer's responder resources limit the local initiator depth, and its initiator depth the local resources.
  path.initiator_depth = req.responder_resources;
  path.responder_resources = req.initiator_depth;
  uroce_cm_event out = record(*id, kConnectRequest, 0);
  out.listener = it->second->handle;
  uroce_cm_parameters& p = out.parameters;
  p.qpn = req.local_qpn.value;
  p.ece_vendor = req.ece.vendor;
  p.ece_options = req.ece.options;
  p.responder_resources = path.responder_resources;
  p.initiator_depth = path.initiator_depth;
  p.flow_control = req.flow_control;
  p.retry_count = req.retry_count;
  p.rnr_retry_count = req.rnr_retry_count;
  p.srq = req.srq;
  set_private_data(p, std::span(req.private_data).subspan(cm::IpCmHeader::kBytes));
  if (write(*id->channel, out)) return;
  manager_.reject(event.id, cm::RejReason::kNoResources, {}, now_);
  remove_id(*id, now_);
}

void CmService::on_datagram_request(const cm::Event& event) {
  const auto it = listeners_.find(event.cookie);
  const cm::SidrReq& req = event.sidr_req;
  cm::SidrRep refusal;
  refusal.service_id = req.service_id;
  refusal.status = cm::SidrStatus::kUnsupported;
  CmId* id = nullptr;
  if (it != listeners_.end() && it->second->qp_type == control::kTypeUd) {
    cm::RejReason reason;
    refusal.status = cm::SidrStatus::kRejected;
    id = id_for_request(*it->second, event, std::span(req.private_data).first<cm::IpCmHeader::kBytes>(), reason);
  }
  if (id == nullptr) {
    manager_.sidr_respond(event.id, refusal, now_);
    return;
  }
  id->path.path_mtu = static_cast<std::uint8_t>(port_.port().active_mtu);
  id->path.qkey = control::kUdpQkey;
  uroce_cm_event out = record(*id, kConnectRequest, 0);
  out.listener = it->second->handle;
  set_private_data(out.parameters, std::span(req.private_data).subspan(cm::IpCmHeader::kBytes));
  if (!write(*id->channel, out)) remove_id(*id, now_);  // which also rejects the request
}

void CmService::on_response(CmId& id, const cm::Event& event) {
  const cm::Rep& rep = event.rep;
  id.state = CmIdState::kResponded;
  uroce_cm_path& path = id.path;
  path.remote_psn = rep.starting_psn.value();
  path.remote_qpn = rep.local_qpn.value;
  path.rnr_retry_count = rep.rnr_retry_count;
  // Never more than this side requested.
  path.responder_resources = std::min(path.responder_resources, rep.initiator_depth);
  path.initiator_depth = std::min(path.initiator_depth, rep.responder_resources);
  uroce_cm_event out = record(id, kConnectResponse, 0);
  uroce_cm_parameters& p = out.parameters;
  p.qpn = rep.local_qpn.value;
  p.ece_vendor = rep.ece.vendor;
  p.ece_options = rep.ece.options;
  p.responder_resources = path.responder_resources;
  p.initiator_depth = path.initiator_depth;
  p.flow_control = rep.flow_control;
  p.retry_count = path.retry_count;
  p.rnr_retry_count = rep.rnr_retry_count;
  p.srq = rep.srq;
  set_private_data(p, rep.private_data);
  write(*id.channel, out);
}

void CmService::on_datagram_response(CmId& id, const cm::Event& event) {
  const cm::SidrRep& rep = event.sidr_rep;
  const bool found = rep.status == cm::SidrStatus::kSuccess;
  id.state = found ? CmIdState::kConnected : CmIdState::kClosed;
  id.path.remote_qpn = rep.qpn.value;
  id.path.qkey = rep.qkey;
  uroce_cm_event out = record(id, found ? kEstablished : kUnreachable, found ? 0 : static_cast<int>(rep.status));
  out.parameters.qpn = rep.qpn.value;
  out.parameters.qkey = rep.qkey;
  out.parameters.ece_vendor = rep.ece.vendor;
  out.parameters.ece_options = rep.ece.options;
  set_private_data(out.parameters, rep.private_data);
  write(*id.channel, out);
}

}  // namespace uroce::cm_service
