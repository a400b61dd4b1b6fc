// Events: received from a channel, translated to struct rdma_cm_event (rdma_get_cm_event(3)), acknowledged.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "client/system.h"
#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

bool hung_up(client::Session& session) {
  if (session.lost()) return true;
  pollfd peer{session.socket(), POLLRDHUP, 0};
  timespec no_wait{};
  if (::syscall(SYS_ppoll, &peer, 1, &no_wait, nullptr, 0) <= 0) return false;
  session.set_dead();
  return true;
}

/// Adds a DEVICE_REMOVAL to the channel for each of its ids whose daemon is gone.
void look_for_dead_devices(Channel& channel) {
  std::vector<Device*> dead;
  {
    const std::lock_guard lock(channel.mutex);
    for (const auto& [device, handle] : channel.handles) {
      if (hung_up(*device->session)) dead.push_back(device);
    }
    for (Device* device : dead) {
      ::epoll_ctl(channel.channel.fd, EPOLL_CTL_DEL, device->session->socket(), nullptr);
      channel.handles.erase(device);
    }
  }
  if (dead.empty()) return;
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  for (const auto& [key, id] : registry.ids()) {
    for (const Binding& binding : id->bindings) {
      if (id->id.channel != &channel.channel || !binding.device->gone()) continue;
      uroce_cm_event event{};
      event.type = RDMA_CM_EVENT_DEVICE_REMOVAL;
      event.device = binding.device->index;
      event.handle = binding.handle;
      add_event(channel, event);
    }
  }
}

/// Takes the next event and the id that it belongs to, which can't be destroyed until the event is acknowledged.
/// `owner` becomes nullptr if the program is not to receive the event. errno; EAGAIN: no event is waiting.
int claim(Channel& channel, uroce_cm_event& record, CmId*& owner) {
  Registry& registry = Registry::instance();
  Device* astray = nullptr;
  rdma_event_channel* now_at = nullptr;
  owner = nullptr;
  {
    const std::lock_guard lock(registry.mutex);
    if (const int error = take_event(channel, record)) return error;
    const bool request = record.type == RDMA_CM_EVENT_CONNECT_REQUEST;
    CmId* const id = registry.find(record.device, request ? record.listener : record.handle);
    if (id != nullptr && id->id.channel == &channel.channel) {
      const std::lock_guard inner(id->mutex);
      ++id->events_given;
      owner = id;
      return 0;
    }
    astray = registry.device(record.device);
    if (id != nullptr) now_at = id->id.channel;
  }
  if (astray == nullptr) return 0;
  if (now_at != nullptr) {
    forward_event(as_channel(now_at), *astray, record);
  } else if (record.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    astray->session->release(UROCE_CMD_CM_DESTROY_ID, record.handle);  // the listener is gone
  }
  return 0;
}

/// As claim(), but waits for an event of an id unless the program has set O_NONBLOCK on the channel. errno.
int next_event(Channel& channel, uroce_cm_event& out, CmId*& owner) {
  bool looked = false;
  while (true) {
    const int error = claim(channel, out, owner);
    if (error == 0 && owner != nullptr) return 0;
    if (error == 0) continue;
    if (error != EAGAIN) return error;
    if (!looked) {
      look_for_dead_devices(channel);
      looked = true;
      continue;
    }
    if ((::fcntl(channel.channel.fd, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
    pollfd ready{channel.channel.fd, POLLIN, 0};
    if (::ppoll(&ready, 1, nullptr, nullptr) < 0) return errno;
    looked = false;
  }
}

void acknowledge(CmId& id) {
  const std::lock_guard lock(id.mutex);
  ++id.events_acknowledged;
  id.acknowledged.notify_all();
}

ibv_ece ece_of(const uroce_cm_event& record) {
  return {.vendor_id = record.parameters.ece_vendor, .options = record.parameters.ece_options, .comp_mask = 0};
}

void fill_parameters(Event& event, const uroce_cm_event& record, bool datagram) {
  const uroce_cm_parameters& from = record.parameters;
  std::memcpy(event.private_data, from.private_data, sizeof(event.private_data));
  const void* const data = from.private_data_bytes != 0 ? event.private_data : nullptr;
  if (!datagram) {
    rdma_conn_param& to = event.event.param.conn;
    to.private_data = data;
    to.private_data_len = from.private_data_bytes;
    to.responder_resources = from.responder_resources;
    to.initiator_depth = from.initiator_depth;
    to.flow_control = from.flow_control;
    to.retry_count = from.retry_count;
    to.rnr_retry_count = from.rnr_retry_count;
    to.srq = from.srq;
    to.qp_num = from.qpn;
    return;
  }
  rdma_ud_param& to = event.event.param.ud;
  to.private_data = data;
  to.private_data_len = from.private_data_bytes;
  to.qp_num = from.qpn;
  to.qkey = from.qkey;
  to.ah_attr.is_global = 1;
  std::memcpy(to.ah_attr.grh.dgid.raw, record.path.gid, 16);
  to.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(record.path.sgid_index);
  to.ah_attr.grh.hop_limit = record.path.hop_limit;
  to.ah_attr.grh.traffic_class = record.path.traffic_class;
  to.ah_attr.port_num = 1;
}

/// Fills the path record. RoCE has one path.
int fill_route(CmId& id) {
  std::free(id.id.route.path_rec);
  id.id.route.path_rec = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
  if (id.id.route.path_rec == nullptr) return ENOMEM;
  id.id.route.num_paths = 1;
  ibv_sa_path_rec& path = *id.id.route.path_rec;
  constexpr std::uint8_t kExactly = 2;
  path.dgid = id.id.route.addr.addr.ibaddr.dgid;
  path.sgid = id.id.route.addr.addr.ibaddr.sgid;
  path.pkey = id.id.route.addr.addr.ibaddr.pkey;
  path.hop_limit = 64;
  path.traffic_class = id.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
  path.mtu = id.path.path_mtu;
  path.packet_life_time = 16;
  return 0;
}

/// Creates the id of a connection request. errno.
int make_requested_id(CmId& listener, const uroce_cm_event& record, Event& event) {
  Device* device;
  {
    const std::lock_guard lock(Registry::instance().mutex);
    device = Registry::instance().device(record.device);
  }
  CmId* const made = make_id(listener.synchronous ? nullptr : listener.id.channel, listener.id.context,
                             listener.id.ps, listener.id.qp_type);
  const Binding binding{device, record.handle};
  if (made == nullptr) {
    device->session->release(UROCE_CMD_CM_DESTROY_ID, record.handle);
    return ENOMEM;
  }
  made->gid_addresses = listener.gid_addresses;
  made->bindings.push_back(binding);
  {
    const std::lock_guard lock(Registry::instance().mutex);
    Registry::instance().add(binding, *made);
  }
  // The daemon has put it at the channel that the listener had when the request arrived.
  int error = listener.migrated || listener.synchronous ? migrate(*made, made->id.channel) : 0;
  if (error == 0) {
    error = bind_to_device(*made, binding, record.source, record.source.gid, record.path.sgid_index);
  }
  to_program_address(*made, record.destination, made->id.route.addr.dst_storage);
  std::memcpy(made->id.route.addr.addr.ibaddr.dgid.raw, record.path.gid, 16);
  made->path = record.path;
  made->peer_known = true;
  made->initiator_depth = record.parameters.initiator_depth;
  made->responder_resources = record.parameters.responder_resources;
  made->traffic_class = record.path.traffic_class;
  made->remote_ece = ece_of(record);
  made->requested = made->passive = made->resolved = true;
  if (error == 0) error = fill_route(*made);
  if (error != 0) {
    rdma_destroy_id(&made->id);
    return error;
  }
  event.event.id = &made->id;
  event.event.listen_id = &listener.id;
  return 0;
}

void join_group(CmId& id, const uroce_cm_event& record, Event& event) {
  const std::lock_guard lock(id.mutex);
  for (const auto& group : id.multicast) {
    if (group->cookie != record.context) continue;
    event.event.param.ud.private_data = group->context;
    if (record.type == RDMA_CM_EVENT_MULTICAST_ERROR) return;
    std::memcpy(group->mgid.raw, record.path.gid, 16);
    if (id.id.qp == nullptr || group->send_only) return;
    const int error = ibv_attach_mcast(id.id.qp, &group->mgid, 0);
    group->attached = error == 0;
    if (error == 0) return;
    event.event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    event.event.status = -error;
  }
}

void answer_response(CmId& id, const uroce_cm_event& record, Event& event) {
  id.path = record.path;
  id.peer_known = true;
  id.remote_ece = ece_of(record);
  if (id.id.qp == nullptr) return;  // the program will call rdma_establish(3)
  if (establish(id) == 0) {
    event.event.event = RDMA_CM_EVENT_ESTABLISHED;
    return;
  }
  event.event.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event.event.status = -errno;
  id.connect_failed = true;
}

/// False: the event is not delivered to the program.
bool handle(CmId& owner, const uroce_cm_event& record, Event& event) {
  event.owner = &owner;
  // The enumeration of rdma-core 44 lacks the later types.
  std::memcpy(&event.event.event, &record.type, sizeof(event.event.event));
  event.event.status = record.status;
  event.event.id = &owner.id;
  fill_parameters(event, record, owner.id.qp_type == IBV_QPT_UD);
  if (record.type == kUserEvent) std::memcpy(&event.event.param, &record.context, sizeof(record.context));
  switch (record.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: {
      // The id may still be being bound by the thread that started the resolution.
      const std::lock_guard lock(owner.binding_mutex);
      return true;
    }
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      owner.path.path_mtu = record.path.path_mtu;
      if (const int error = fill_route(owner)) {
        event.event.event = RDMA_CM_EVENT_ROUTE_ERROR;
        event.event.status = -error;
      }
      return true;
    case RDMA_CM_EVENT_CONNECT_REQUEST: return make_requested_id(owner, record, event) == 0;
    case RDMA_CM_EVENT_CONNECT_RESPONSE: answer_response(owner, record, event); return true;
    case RDMA_CM_EVENT_ESTABLISHED:
      owner.path = record.path;
      owner.peer_known = true;
      if (owner.id.qp_type == IBV_QPT_UD) owner.remote_ece = ece_of(record);
      return true;
    case RDMA_CM_EVENT_REJECTED:
      if (owner.connect_failed) return false;
      to_error(owner);
      return true;
    case RDMA_CM_EVENT_DISCONNECTED: return !owner.connect_failed;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR: join_group(owner, record, event); return true;
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return !std::exchange(owner.removal_delivered, true);
    default: return true;
  }
}

}  // namespace

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** out) {
  return guarded(-1, [&] {
    if (channel == nullptr || out == nullptr) return fail(EINVAL);
    auto event = std::make_unique<Event>();
    while (true) {
      uroce_cm_event record;
      CmId* owner = nullptr;
      if (const int error = next_event(as_channel(channel), record, owner)) return fail(error);
      *event = Event{};
      if (handle(*owner, record, *event)) break;
      acknowledge(*owner);
    }
    *out = &event.release()->event;
    return 0;
  });
}

UROCE_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return fail(EINVAL);
  Event* const given = reinterpret_cast<Event*>(event);
  acknowledge(*given->owner);
  delete given;
  return 0;
}

// rdma_write_cm_event(3), since rdma-core 60.
UROCE_EXPORT int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, std::uint64_t argument) {
  const Verb verb("rdma_write_cm_event");
  std::uint32_t type;
  std::memcpy(&type, &event, sizeof(type));
  return guarded(-1, [&] {
    if (id == nullptr || type != kUserEvent) return fail(EINVAL, "only RDMA_CM_EVENT_USER can be written");
    const std::lock_guard lock(Registry::instance().mutex);
    add_own_event(as_id(id), kUserEvent, status, argument);
    return 0;
  });
}
