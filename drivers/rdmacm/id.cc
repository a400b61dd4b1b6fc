// The life of an id: rdma_create_id(3), rdma_bind_addr(3), rdma_resolve_addr(3), rdma_listen(3),
// rdma_destroy_id(3).
#include <infiniband/ib.h>
#include <infiniband/sa.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

void set_source(CmId& id, const uroce_cm_address& source) {
  to_program_address(id, source, id.id.route.addr.src_storage);
}

void drop(const Binding& binding) {
  {
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    registry.remove(binding);
  }
  binding.device->session->release(UROCE_CMD_CM_DESTROY_ID, binding.handle);
}

void drop_bindings(CmId& id, const Device* but = nullptr) {
  for (const Binding& binding : id.bindings) {
    if (binding.device != but) drop(binding);
  }
  std::erase_if(id.bindings, [but](const Binding& b) { return b.device != but; });
}

/// Creates the daemon's part of the id, bound to `source`. errno.
int create_on(CmId& id, Device& device, const uroce_cm_address& source, uroce_cm_bound_response& reply) {
  uroce_cm_create_id_request request{};
  if (const int error = handle_of(as_channel(id.id.channel), device, request.channel)) return error;
  request.port_space = id.id.ps;
  request.qp_type = id.id.qp_type;
  request.flags = id.flags;
  request.source = source;
  return device.call(UROCE_CMD_CM_CREATE_ID, request, reply);
}

int keep(CmId& id, const Binding& binding) {
  id.bindings.push_back(binding);
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.add(binding, id);
  return 0;
}

/// Binds to the device that owns the address. errno.
int bind_to_address(CmId& id, const uroce_cm_address& source) {
  for (const bool again : {false, true}) {
    for (Device* device : Registry::instance().devices(again)) {
      uroce_cm_bound_response reply{};
      const int error = create_on(id, *device, source, reply);
      if (error == ENODEV || error == EIO) continue;
      if (error != 0) return error;
      keep(id, {device, reply.handle});
      return bind_to_device(id, {device, reply.handle}, reply.source, reply.gid, reply.sgid_index);
    }
  }
  return Registry::instance().why_none();
}

/// Reserves the same port on all devices. errno.
int bind_to_all(CmId& id, const uroce_cm_address& source) {
  constexpr int kTries = 16;
  const std::vector<Device*> devices = Registry::instance().devices();
  if (devices.empty()) return Registry::instance().why_none();
  for (int i = 0; i < kTries; ++i) {
    uroce_cm_address wanted = source;
    int error = 0;
    for (Device* device : devices) {
      uroce_cm_bound_response reply{};
      error = create_on(id, *device, wanted, reply);
      if (error != 0) break;
      wanted.port = reply.source.port;
      keep(id, {device, reply.handle});
    }
    if (error == 0) {
      set_source(id, wanted);
      return 0;
    }
    drop_bindings(id);
    // A port that one daemon chose may be in use at another: try another one.
    if (error != EADDRNOTAVAIL || source.port != 0) return error;
  }
  return EADDRNOTAVAIL;
}

/// Whether the address is one of the device's.
bool owns(Device& device, const uroce_cm_address& address) {
  uroce_port_response port{};
  if (device.session->call(UROCE_CMD_QUERY_PORT, {}, std::as_writable_bytes(std::span(&port, 1))) != 0)
    return false;
  for (std::uint32_t i = 0; i < port.gid_tbl_len; ++i) {
    const uroce_gid_request request{i, 0};
    uroce_gid_response reply{};
    if (device.call(UROCE_CMD_QUERY_GID, request, reply) == 0 && std::memcmp(reply.gid, address.gid, 16) == 0) {
      return true;
    }
  }
  return false;
}

/// The first address of the device in this family. errno.
int own_address(Device& device, std::uint16_t family, uroce_cm_address& out) {
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  for (std::uint32_t i = 0;; ++i) {
    const uroce_gid_request request{i, 0};
    uroce_gid_response reply{};
    if (device.call(UROCE_CMD_QUERY_GID, request, reply) != 0) return ENODEV;
    const bool ip4 = std::memcmp(reply.gid, kMapped, sizeof(kMapped)) == 0;
    if (ip4 != (family == AF_INET)) continue;
    std::memcpy(out.gid, reply.gid, 16);
    return 0;
  }
}

/// Starts address resolution on one device, whose binding is created if necessary. errno.
int resolve_on(CmId& id, Device& device, const uroce_cm_resolve_request& wanted, bool to_self) {
  if (const int error = Registry::instance().open_verbs(device)) return error;
  auto at = std::ranges::find(id.bindings, &device, &Binding::device);
  const bool fresh = at == id.bindings.end();
  uroce_cm_bound_response reply{};
  if (fresh) {
    uroce_cm_address any{};
    any.family = wanted.destination.family;
    if (any.family == AF_INET) any.gid[10] = any.gid[11] = 0xff;
    if (wanted.source.family != 0) any = wanted.source;
    if (const int error = create_on(id, device, any, reply)) return error;
    keep(id, {&device, reply.handle});
    at = id.bindings.end() - 1;
  }
  uroce_cm_resolve_request request = wanted;
  request.handle = at->handle;
  int error = to_self ? own_address(device, request.destination.family, request.destination) : 0;
  const Binding binding = *at;
  if (error == 0) error = device.call(UROCE_CMD_CM_RESOLVE_ADDRESS, request, reply);
  if (error != 0) {
    if (fresh) {
      drop(binding);
      std::erase_if(id.bindings, [&](const Binding& b) { return b.device == &device; });
    }
    return error;
  }
  drop_bindings(id, &device);
  id.resolved = true;
  to_program_address(id, request.destination, id.id.route.addr.dst_storage);
  std::memcpy(id.id.route.addr.addr.ibaddr.dgid.raw, request.destination.gid, 16);
  return bind_to_device(id, binding, reply.source, reply.gid, reply.sgid_index);
}

int resolve(CmId& id, const sockaddr* source, const sockaddr* destination, int timeout_ms) {
  uroce_cm_resolve_request request{};
  // An id that is bound keeps its address (Linux: drivers/infiniband/core/cma.c, resolve_prepare_src).
  const bool bound = !id.bindings.empty();
  const sa_family_t own = bound               ? id.id.route.addr.src_addr.sa_family
                          : source != nullptr ? source->sa_family
                                              : destination->sa_family;
  if (own != destination->sa_family) return EINVAL;
  if (bound) source = nullptr;
  id.gid_addresses = destination->sa_family == AF_IB;
  if (source != nullptr) request.source = to_bindable(source);
  request.destination = to_abi(destination);
  request.timeout_ms = static_cast<std::uint32_t>(std::max(timeout_ms, 0));
  const bool to_self = is_any(destination) || is_loopback(destination);
  if (id.device != nullptr) return resolve_on(id, *id.device, request, to_self);
  int error = ENODEV;
  for (const bool again : {false, true}) {
    std::vector<Device*> devices = Registry::instance().devices(again);
    if (devices.size() > 1 && !to_self) {
      // A local address is reached through the device that owns it.
      std::stable_partition(devices.begin(), devices.end(),
                            [&](Device* device) { return owns(*device, request.destination); });
    }
    for (Device* device : devices) {
      const int failed = resolve_on(id, *device, request, to_self);
      if (failed == 0) return 0;
      if (error == ENODEV) error = failed;
    }
    if (error != ENODEV) break;
  }
  return error == ENODEV ? Registry::instance().why_none() : error;
}

}  // namespace

CmId* make_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type) {
  auto made = std::make_unique<CmId>();
  made->id = {};
  made->id.context = context;
  made->id.ps = space;
  made->id.qp_type = type;
  made->synchronous = channel == nullptr;
  made->id.channel = channel != nullptr ? channel : rdma_create_event_channel();
  if (made->id.channel == nullptr) return nullptr;
  const std::lock_guard lock(Registry::instance().mutex);
  Registry::instance().add(*made);
  return made.release();
}

void free_id(CmId* id) {
  {
    const std::lock_guard lock(Registry::instance().mutex);
    Registry::instance().remove(*id);
  }
  rdma_freeaddrinfo(id->addrinfo);
  if (id->synchronous) rdma_destroy_event_channel(id->id.channel);
  std::free(id->id.route.path_rec);
  delete id;
}

int bind_to_device(CmId& id, const Binding& binding, const uroce_cm_address& source, const std::uint8_t* gid,
                   std::uint32_t sgid_index) {
  if (const int error = Registry::instance().open_verbs(*binding.device)) return error;
  id.device = binding.device;
  id.id.verbs = binding.device->verbs;
  if (id.id.pd == nullptr) id.id.pd = binding.device->pd;
  id.id.port_num = 1;
  id.id.route.addr.addr.ibaddr.pkey = 0xffff;
  std::memcpy(id.id.route.addr.addr.ibaddr.sgid.raw, gid, 16);
  id.path.sgid_index = sgid_index;
  set_source(id, source);
  return 0;
}

int complete(CmId& id) {
  if (!id.synchronous) return 0;
  if (id.id.event != nullptr) {
    rdma_ack_cm_event(id.id.event);
    id.id.event = nullptr;
  }
  if (rdma_get_cm_event(id.id.channel, &id.id.event) != 0) return -1;
  const int status = id.id.event->status;
  if (status == 0) return 0;
  if (id.id.event->event == RDMA_CM_EVENT_REJECTED) return fail(ECONNREFUSED);
  return fail(status < 0 ? -status : status);
}

int migrate(CmId& id, rdma_event_channel* to) {
  rdma_event_channel* const from = id.id.channel;
  for (const Binding& binding : id.bindings) {
    uroce_cm_migrate_request request{binding.handle, 0};
    if (const int error = handle_of(as_channel(to), *binding.device, request.channel)) return error;
    if (const int error = binding.device->call(UROCE_CMD_CM_MIGRATE, request)) return error;
  }
  const std::lock_guard lock(Registry::instance().mutex);  // events.cc looks up ids and their channels under it
  id.migrated = true;
  if (from != to) move_events(id, as_channel(from), as_channel(to));
  id.id.channel = to;
  return 0;
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
                                rdma_port_space space) {
  const Verb verb("rdma_create_id");
  return guarded(-1, [&] {
    if (Registry::instance().devices().empty()) return fail(Registry::instance().why_none());
    const bool datagram = space == RDMA_PS_IPOIB || space == RDMA_PS_UDP;
    if (!datagram && space != RDMA_PS_TCP && space != RDMA_PS_IB) return fail(EINVAL);
    CmId* const made = make_id(channel, context, space, datagram ? IBV_QPT_UD : IBV_QPT_RC);
    if (made == nullptr) return -1;
    *out = &made->id;
    return 0;
  });
}

UROCE_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  const Verb verb("rdma_destroy_id");
  CmId* const destroyed = &as_id(id);
  for (const Binding& binding : destroyed->bindings) drop(binding);
  const std::vector<Binding> bindings = std::move(destroyed->bindings);
  {
    const std::lock_guard lock(Registry::instance().mutex);
    Registry::instance().remove(*destroyed);
  }
  // From here on no event of the id is delivered.
  guarded(-1, [&] {
    discard_events(as_channel(id->channel), bindings, destroyed->serial);
    return 0;
  });
  if (id->event != nullptr) rdma_ack_cm_event(id->event);
  {
    std::unique_lock lock(destroyed->mutex);
    destroyed->acknowledged.wait(lock,
                                 [destroyed] { return destroyed->events_acknowledged == destroyed->events_given; });
  }
  free_id(destroyed);
  return 0;
}

UROCE_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  const Verb verb("rdma_bind_addr");
  return guarded(-1, [&] {
    CmId& bound = as_id(id);
    if (bytes_of(address) == 0) return fail(EINVAL);
    if (!bound.bindings.empty()) return fail(EINVAL);
    if (!in_port_space(address, id->ps)) return fail(EPROTONOSUPPORT);
    bound.gid_addresses = address->sa_family == AF_IB;
    if (!is_any(address) && !is_loopback(address)) return result(bind_to_address(bound, to_abi(address)));
    if (const int error = bind_to_all(bound, to_bindable(address))) return fail(error);
    uroce_cm_address source = to_abi(address);
    source.port = port_of(&id->route.addr.src_addr);
    set_source(bound, source);
    return 0;
  });
}

UROCE_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  const Verb verb("rdma_resolve_addr");
  return guarded(-1, [&] {
    if (bytes_of(destination) == 0 || (source != nullptr && bytes_of(source) == 0)) return fail(EINVAL);
    if (!in_port_space(destination, id->ps)) return fail(EPROTONOSUPPORT);
    {
      const std::lock_guard lock(as_id(id).binding_mutex);
      if (const int error = resolve(as_id(id), source, destination, timeout_ms)) return fail(error);
    }
    return complete(as_id(id));
  });
}

UROCE_EXPORT int rdma_resolve_route(rdma_cm_id* id, int) {
  const Verb verb("rdma_resolve_route");
  return guarded(-1, [&] {
    CmId& resolved = as_id(id);
    if (resolved.device == nullptr) return fail(EINVAL);
    const uroce_handle request{resolved.bindings.front().handle, 0};
    if (const int error = resolved.device->call(UROCE_CMD_CM_RESOLVE_ROUTE, request)) return fail(error);
    return complete(resolved);
  });
}

UROCE_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) {
  const Verb verb("rdma_listen");
  return guarded(-1, [&] {
    CmId& listener = as_id(id);
    if (listener.bindings.empty()) {
      uroce_cm_address any{};
      any.family = AF_INET;  // as in the kernel: cma.c, rdma_listen
      any.gid[10] = any.gid[11] = 0xff;
      if (const int error = bind_to_all(listener, any)) return fail(error);
    }
    for (const Binding& binding : listener.bindings) {
      const uroce_cm_listen_request request{binding.handle, static_cast<std::uint32_t>(std::max(backlog, 0))};
      uroce_cm_bound_response reply{};
      if (const int error = binding.device->call(UROCE_CMD_CM_LISTEN, request, reply)) return fail(error);
    }
    listener.listening = true;
    return 0;
  });
}

UROCE_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  const Verb verb("rdma_migrate_id");
  return guarded(-1, [&] {
    CmId& moved = as_id(id);
    if (moved.synchronous && channel == nullptr) return fail(EINVAL);
    rdma_event_channel* const to = channel != nullptr ? channel : rdma_create_event_channel();
    if (to == nullptr) return -1;
    rdma_event_channel* const from = id->channel;
    if (const int error = migrate(moved, to)) {
      if (channel == nullptr) rdma_destroy_event_channel(to);
      return fail(error);
    }
    if (moved.synchronous) {
      if (id->event != nullptr) rdma_ack_cm_event(id->event);
      id->event = nullptr;
      rdma_destroy_event_channel(from);
    }
    moved.synchronous = channel == nullptr;
    // Events delivered from the old channel must be acknowledged first (rdma_migrate_id(3)).
    std::unique_lock lock(moved.mutex);
    moved.acknowledged.wait(lock, [&moved] { return moved.events_acknowledged == moved.events_given; });
    return 0;
  });
}

// The states are those of Linux: drivers/infiniband/core/cma.c, rdma_set_reuseaddr, rdma_set_afonly and
// rdma_set_ack_timeout; ucma.c, ucma_set_ib_path.
UROCE_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t bytes) {
  const Verb verb("rdma_set_option");
  CmId& changed = as_id(id);
  const bool bound = !changed.bindings.empty();
  const auto flag = [&](std::uint32_t bit, const auto& allowed) {
    int on;
    if (bytes != sizeof(on)) return fail(EINVAL);
    std::memcpy(&on, value, sizeof(on));
    if (!allowed(on != 0)) return fail(EINVAL);
    changed.flags = on != 0 ? changed.flags | bit : changed.flags & ~bit;
    return 0;
  };
  if (value == nullptr) return fail(EINVAL);
  if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
    if (bytes == 0 || bytes % sizeof(ibv_path_data) != 0) return fail(EINVAL);
    return rdma_resolve_route(id, 0);
  }
  if (level != RDMA_OPTION_ID) return fail(ENOSYS);
  switch (name) {
    case RDMA_OPTION_ID_REUSEADDR:
      return flag(UROCE_CM_REUSE_ADDRESS, [&](bool on) { return !bound || (on && !changed.listening); });
    case RDMA_OPTION_ID_AFONLY:
      return flag(UROCE_CM_ONLY_FAMILY, [&](bool) { return !changed.listening && !changed.resolved; });
    case RDMA_OPTION_ID_TOS:
      if (bytes != 1) return fail(EINVAL);
      changed.traffic_class = *static_cast<const std::uint8_t*>(value);
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (bytes != 1 || *static_cast<const std::uint8_t*>(value) > 31) return fail(EINVAL);
      if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_SEND) return fail(EINVAL);
      changed.ack_timeout = *static_cast<const std::uint8_t*>(value);
      return 0;
    default: return fail(ENOSYS);
  }
}
