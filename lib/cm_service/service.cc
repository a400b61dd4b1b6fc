#include "cm_service/service.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fixed_index.h"
#include "control/commands/command.h"
#include "control/session/cm_event_types.h"
#include "control/session/privilege.h"
#include "wire/frame_template.h"

namespace uroce::cm_service {

using control::CmId;
using enum control::CmEventType;

namespace {

cm::ManagerConfig manager_config(const control::Port& port, std::uint64_t seed) {
  cm::ManagerConfig config;
  config.max_connections = control::kMaxCmConnections;
  config.max_listeners = control::kMaxCmPorts;  // each has one
  config.max_pending_events = 512;
  config.seed = seed;
  std::uint64_t guid;
  std::memcpy(&guid, &port.device().node_guid, sizeof(guid));
  config.ca_guid = __builtin_bswap64(guid);
  return config;
}

}  // namespace

CmService::CmService(const control::Port& port, control::Quotas& quotas, worker::GsiPort& gsi,
                     control::LinkControl& link, std::uint64_t seed)
    : port_(port),
      quotas_(quotas),
      gsi_(gsi),
      link_(link),
      manager_(manager_config(port, seed)),
      ports_(base::mix(seed)),
      first_unprivileged_port_(control::first_unprivileged_port()),
      random_(seed) {}

std::uint32_t CmService::random24() { return static_cast<std::uint32_t>(random_()) & 0xffffff; }

// ---------------------------------------------------------------- ids

CmId* CmService::add_id(control::Session& session, control::CmChannel& channel, const control::Usage& usage) {
  control::Charge charge = quotas_.charge(session.peer.uid, usage);
  if (!charge) return nullptr;
  auto made = std::make_unique<CmId>();
  CmId& id = *made;
  id.charge = std::move(charge);
  id.session = &session;
  id.channel = &channel;
  channel.ids.insert(&id);
  id.handle = session.cm.ids.add(std::move(made));
  return &id;
}

bool CmService::admit_connection(CmId& id) {
  id.connection_charge = quotas_.charge(id.session->peer.uid, {.cm_connections = 1});
  return static_cast<bool>(id.connection_charge);
}

void CmService::attach(CmId& id, cm::ConnectionId connection) {
  id.connection = connection;
  by_connection_[connection.value] = &id;
}

void CmService::detach(CmId& id) {
  if (!id.connection) return;
  by_connection_.erase(id.connection->value);
  id.connection.reset();
  id.connection_charge = {};
}

void CmService::remove_id(CmId& id, Nanos now) {
  if (id.state == control::CmIdState::kListening) {
    manager_.unlisten(service_of(id), where_of(id));
    listeners_.erase(id.cookie);
  }
  if (id.connection) {
    if (manager_.state(*id.connection) == cm::State::kSidrReceived) {
      cm::SidrRep refusal;
      refusal.status = cm::SidrStatus::kRejected;
      manager_.sidr_respond(*id.connection, refusal, now);
    }
    manager_.abandon(*id.connection, now);
    if (manager_.state(*id.connection) != cm::State::kFree) {
      abandoned_.emplace(id.connection->value, std::move(id.connection_charge));
    }
    detach(id);
  }
  link_.cancel(id.resolving);
  ports_.unbind(id);
  id.channel->ids.erase(&id);
  id.session->cm.ids.erase(id.handle);
}

void CmService::set_source(CmId& id, const wire::Address& address, std::uint16_t port) {
  std::memcpy(id.source.gid, address.bytes.data(), 16);
  id.source.family = address.is_v4() ? control::kFamilyIp4 : control::kFamilyIp6;
  id.source.port = port;
  id.path.sgid_index = ~0u;
  if (const auto index = port_.gids().find(address)) {
    id.path.sgid_index = static_cast<std::uint32_t>(*index);
  }
}

std::uint16_t CmService::vlan_of(const wire::Address& own) const {
  const net::GidTable& gids = port_.gids();
  const auto index = gids.find(own);
  return index ? gids.vlan(*index) : std::uint16_t{0};
}

bool CmService::release_some(control::Session& session, std::size_t& budget, Nanos now) {
  now_ = now;
  for (; session.cm.ids.size() != 0 && budget != 0; --budget) remove_id(*session.cm.ids.begin()->second, now);
  drain();
  send_messages();
  return session.cm.ids.size() == 0;
}

void CmService::release(control::Session& session, Nanos now) {
  std::size_t all = session.cm.ids.size();
  release_some(session, all, now);
  std::erase_if(owing_, [&](const control::CmChannel* channel) { return channel->owner == &session.cm; });
  session.cm.channels.clear();
}

void CmService::device_gone(const control::Sessions& sessions) {
  for (const auto& [number, session] : sessions) {
    for (const auto& [handle, id] : session->cm.ids) report(*id, kDeviceRemoval);
  }
}

// ---------------------------------------------------------------- time and messages

void CmService::step(Nanos now) {
  now_ = now;
  link_.check_neighbours(now);
  // The control thread serves others before the rest.
  if (received_.empty()) {
    received_ = gsi_.take();
    std::ranges::reverse(received_);
  }
  for (std::size_t i = 0; i < kMessages && !received_.empty(); ++i) {
    manager_.receive(received_.back(), now);
    received_.pop_back();
    drain();
    send_messages();
  }
  if (manager_.next_timeout() <= now) {
    manager_.advance(now);  // as many as there is room for their events
    drain();
    send_messages();
  }
  if (now >= retry_at_) {
    retry_at_ = kNever;
    write_owed(now);
    drain();
    send_messages();
    if (!owing_.empty()) retry_at_ = now + kRetry;
  }
}

Nanos CmService::next_timeout() const {
  return received_.empty() ? std::min(manager_.next_timeout(), retry_at_) : 0;
}

void CmService::send_messages() {
  cm::Message message;
  bool any = false;
  while (manager_.take_message(message)) {
    wire::PathAddress path;
    path.source_mac = port_.mac();
    path.source = message.peer.local;
    path.dest = message.peer.remote;
    if (const std::uint16_t vlan = vlan_of(message.peer.local); vlan != 0) path.vlan = vlan;
    path.source_port = wire::source_port(0, Qpn{wire::kGsiQpn}, Qpn{wire::kGsiQpn});
    gsi_.send(message, path);
    any = true;
  }
  if (any) link_.wake();
}

void CmService::on_resolved(CmId& id, net::Resolution resolution) {
  id.resolving = 0;
  const bool resolved = resolution == net::Resolution::kResolved;
  id.state = resolved ? control::CmIdState::kResolved : control::CmIdState::kBound;
  report(id, resolved ? kAddrResolved : kAddrError, resolved ? 0 : -ETIMEDOUT);
}

}  // namespace uroce::cm_service
