// rdma_getaddrinfo(3), and ids that are created in one step: rdma_create_ep(3), rdma_get_request(3).
#include <infiniband/ib.h>
#include <netdb.h>

#include <cstdlib>
#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

bool copy_address(const sockaddr* from, socklen_t bytes, sockaddr*& to, socklen_t& to_bytes) {
  if (from == nullptr || bytes == 0) return true;
  to = static_cast<sockaddr*>(std::malloc(bytes));
  if (to == nullptr) return false;
  std::memcpy(to, from, bytes);
  to_bytes = bytes;
  return true;
}

addrinfo to_addrinfo(const rdma_addrinfo& hints) {
  addrinfo out{};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) out.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) out.ai_flags |= AI_NUMERICHOST;
  if (hints.ai_family != AF_IB) out.ai_family = hints.ai_family;
  if (hints.ai_qp_type == IBV_QPT_UD) {
    out.ai_socktype = SOCK_DGRAM;
  } else if (hints.ai_qp_type != 0) {
    out.ai_socktype = SOCK_STREAM;
  }
  if (hints.ai_port_space == RDMA_PS_TCP || (hints.ai_port_space == RDMA_PS_IB && out.ai_socktype == SOCK_STREAM)) {
    out.ai_protocol = IPPROTO_TCP;
  } else if (hints.ai_port_space != 0 && hints.ai_port_space != RDMA_PS_IB) {
    out.ai_protocol = IPPROTO_UDP;
  } else if (hints.ai_port_space == RDMA_PS_IB && out.ai_socktype == SOCK_DGRAM) {
    out.ai_protocol = IPPROTO_UDP;
  }
  return out;
}

/// Whether the program wants a numeric address as a GID (AF_IB).
bool wants_gid(const rdma_addrinfo* hints) {
  constexpr int kFlags = RAI_FAMILY | RAI_NUMERICHOST;
  return hints != nullptr && hints->ai_family == AF_IB && (hints->ai_flags & kFlags) == kFlags;
}

/// 0, -1 with errno, or the error of getaddrinfo(3).
int look_up(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo& out) {
  const addrinfo wanted = hints != nullptr ? to_addrinfo(*hints) : addrinfo{};
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(node, service, hints != nullptr ? &wanted : nullptr, &found)) return error;
  const bool passive = hints != nullptr && (hints->ai_flags & RAI_PASSIVE) != 0;
  out.ai_flags = passive ? RAI_PASSIVE : 0;
  out.ai_family = found->ai_family;
  out.ai_qp_type = found->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
  if (hints != nullptr && hints->ai_qp_type != 0) out.ai_qp_type = hints->ai_qp_type;
  out.ai_port_space = found->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (hints != nullptr && hints->ai_port_space != 0) out.ai_port_space = hints->ai_port_space;
  sockaddr*& address = passive ? out.ai_src_addr : out.ai_dst_addr;
  socklen_t& bytes = passive ? out.ai_src_len : out.ai_dst_len;
  sockaddr_storage gid{};
  const bool as_gid = wants_gid(hints);
  if (as_gid) {
    out.ai_family = AF_IB;
    to_gid_address(to_abi(found->ai_addr), static_cast<rdma_port_space>(out.ai_port_space), gid);
  }
  const bool copied = as_gid ? copy_address(reinterpret_cast<sockaddr*>(&gid), sizeof(sockaddr_ib), address, bytes)
                             : copy_address(found->ai_addr, found->ai_addrlen, address, bytes);
  if (found->ai_canonname != nullptr) {
    (passive ? out.ai_src_canonname : out.ai_dst_canonname) = ::strdup(found->ai_canonname);
  }
  ::freeaddrinfo(found);
  return copied ? 0 : fail(ENOMEM);
}

int find(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo& out) {
  if (node != nullptr || service != nullptr) {
    if (const int error = look_up(node, service, hints, out)) return error;
  } else {
    out.ai_flags = hints->ai_flags;
    out.ai_family = hints->ai_family;
    out.ai_qp_type = hints->ai_qp_type;
    out.ai_port_space = hints->ai_port_space;
    if (!copy_address(hints->ai_dst_addr, hints->ai_dst_len, out.ai_dst_addr, out.ai_dst_len)) return fail(ENOMEM);
  }
  if (out.ai_src_len != 0 || hints == nullptr) return 0;
  return copy_address(hints->ai_src_addr, hints->ai_src_len, out.ai_src_addr, out.ai_src_len) ? 0 : fail(ENOMEM);
}

int make_passive(CmId& id, const rdma_addrinfo& info, ibv_pd* pd, const ibv_qp_init_attr* attr) {
  if (rdma_bind_addr(&id.id, info.ai_src_addr) != 0) return -1;
  if (pd != nullptr) id.id.pd = pd;
  if (attr != nullptr) {
    id.accepted_qp = *attr;
    id.accepted_qp->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  }
  return 0;
}

int make_active(CmId& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  constexpr int kTimeoutMs = 2000;
  if (rdma_resolve_addr(&id.id, info.ai_src_addr, info.ai_dst_addr, kTimeoutMs) != 0) return -1;
  if (rdma_resolve_route(&id.id, kTimeoutMs) != 0) return -1;
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (rdma_create_qp(&id.id, pd, attr) != 0) return -1;
  }
  const auto* data = static_cast<const std::uint8_t*>(info.ai_connect);
  if (data != nullptr) id.connect_data.assign(data, data + info.ai_connect_len);
  return 0;
}

}  // namespace
}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                  rdma_addrinfo** out) {
  const Verb verb("rdma_getaddrinfo");
  return guarded(-1, [&] {
    if (node == nullptr && service == nullptr && hints == nullptr) return fail(EINVAL);
    if (Registry::instance().devices().empty()) return fail(Registry::instance().why_none());
    auto* const info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
    if (info == nullptr) return -1;
    if (const int error = find(node, service, hints, *info)) {
      rdma_freeaddrinfo(info);
      return error;
    }
    *out = info;
    return 0;
  });
}

UROCE_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* const next = info->ai_next;
    for (void* part : {info->ai_connect, info->ai_route, static_cast<void*>(info->ai_src_canonname),
                       static_cast<void*>(info->ai_dst_canonname), static_cast<void*>(info->ai_src_addr),
                       static_cast<void*>(info->ai_dst_addr)}) {
      std::free(part);
    }
    std::free(info);
    info = next;
  }
}

UROCE_EXPORT int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Verb verb("rdma_create_ep");
  return guarded(-1, [&] {
    CmId* const made = make_id(nullptr, nullptr, static_cast<rdma_port_space>(info->ai_port_space),
                               static_cast<ibv_qp_type>(info->ai_qp_type));
    if (made == nullptr) return -1;
    const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
    if ((passive ? make_passive(*made, *info, pd, attr) : make_active(*made, *info, pd, attr)) != 0) {
      const int error = errno;
      rdma_destroy_ep(&made->id);
      return fail(error);
    }
    *out = &made->id;
    return 0;
  });
}

UROCE_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

UROCE_EXPORT int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** out) {
  const Verb verb("rdma_get_request");
  return guarded(-1, [&] {
    CmId& id = as_id(listener);
    if (!id.synchronous) return fail(EINVAL);
    if (listener->event != nullptr) {
      rdma_ack_cm_event(listener->event);
      listener->event = nullptr;
    }
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(listener->channel, &event) != 0) return -1;
    int error = 0;
    if (event->event == RDMA_CM_EVENT_REJECTED) {
      error = ECONNREFUSED;
    } else if (event->status != 0) {
      error = event->status < 0 ? -event->status : event->status;
    } else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
      error = EINVAL;
    } else if (id.accepted_qp) {
      ibv_qp_init_attr attr = *id.accepted_qp;
      if (rdma_create_qp(event->id, listener->pd, &attr) != 0) error = errno;
    }
    if (error != 0) {
      listener->event = event;
      return fail(error);
    }
    *out = event->id;
    event->id->event = event;
    return 0;
  });
}
