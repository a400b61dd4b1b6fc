// Address handles, address vectors, and addresses taken from received headers (ibv_create_ah(3)).
#include <endian.h>

#include <cstring>
#include <memory>
#include <span>

#include "address.h"
#include "export.h"
#include "objects.h"
#include "query.h"

namespace uroce::verbs {
namespace {

// Index of a GID in the port's table; -1 with errno if it is not there.
int find_gid(ibv_context* context, std::uint8_t port, const ibv_gid& gid) {
  ibv_port_attr attr{};
  if (const int error = query_port_ex(context, port, &attr, sizeof(attr)); error != 0) {
    errno = noted(error);
    return -1;
  }
  for (int i = 0; i < attr.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, static_cast<std::uint32_t>(i), &entry, 0) != 0) continue;
    if (std::memcmp(entry.gid.raw, gid.raw, sizeof(gid.raw)) == 0) return i;
  }
  errno = ENOENT;
  return -1;
}

ibv_gid mapped(const std::byte* ipv4) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, ipv4, 4);
  return gid;
}

// The 40 bytes before a received datagram: an IPv6 header, or 20 unused bytes and an IPv4 header. False: neither of
// them.
bool read_network_header(const ibv_grh& grh, ibv_gid& source, ibv_gid& destination, ibv_global_route& route) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&grh);
  const auto* const ipv4 = bytes + 20;
  if (std::to_integer<unsigned>(bytes[0]) >> 4 == 6) {
    const std::uint32_t word = be32toh(grh.version_tclass_flow);
    route.flow_label = word & 0xfffff;
    route.traffic_class = static_cast<std::uint8_t>(word >> 20);
    source = grh.sgid;
    destination = grh.dgid;
    return true;
  }
  if (ipv4[0] != std::byte{0x45}) return false;
  route.flow_label = 0;
  route.traffic_class = std::to_integer<std::uint8_t>(ipv4[1]);
  source = mapped(ipv4 + 12);
  destination = mapped(ipv4 + 16);
  return true;
}

}  // namespace

uroce_av to_av(const ibv_ah_attr& attr) {
  uroce_av av{};
  std::memcpy(av.dgid, attr.grh.dgid.raw, sizeof(av.dgid));
  av.flow_label = attr.grh.flow_label & 0xfffff;  // adapters take the low 20 bits, and UCX sets all 32
  av.sgid_index = attr.grh.sgid_index;
  av.hop_limit = attr.grh.hop_limit;
  av.traffic_class = attr.grh.traffic_class;
  av.is_global = attr.is_global;
  av.dlid = attr.dlid;
  av.sl = attr.sl;
  av.port_num = attr.port_num;
  av.static_rate = attr.static_rate;
  av.src_path_bits = attr.src_path_bits;
  return av;
}

void from_av(const uroce_av& av, ibv_ah_attr& out) {
  std::memcpy(out.grh.dgid.raw, av.dgid, sizeof(out.grh.dgid.raw));
  out.grh.flow_label = av.flow_label;
  out.grh.sgid_index = av.sgid_index;
  out.grh.hop_limit = av.hop_limit;
  out.grh.traffic_class = av.traffic_class;
  out.dlid = av.dlid;
  out.sl = av.sl;
  out.src_path_bits = av.src_path_bits;
  out.static_rate = av.static_rate;
  out.is_global = av.is_global;
  out.port_num = av.port_num;
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  const Verb verb("ibv_create_ah");
  return guarded<ibv_ah*>(nullptr, [&]() -> ibv_ah* {
    auto ah = std::make_unique<Ah>();
    uroce_create_ah_request request{};
    request.pd = pd->handle;
    request.av = to_av(*attr);
    uroce_handle reply{};
    if (const int error = session_of(pd->context).call(UROCE_CMD_CREATE_AH, request, reply); error != 0) {
      return null_with(error);
    }
    ah->ah = {pd->context, pd, reply.handle};
    as_pd(pd)->users.fetch_add(1);
    return &ah.release()->ah;
  });
}
UROCE_VERSIONS_1_0_AND_1_1(create_ah, ibv_create_ah);

UROCE_EXPORT int destroy_ah(ibv_ah* ah) {
  const Verb verb("ibv_destroy_ah");
  const int error = session_of(ah->context).release(UROCE_CMD_DESTROY_AH, ah->handle);
  if (error != 0) return failed(error);
  as_pd(ah->pd)->users.fetch_sub(1);
  delete reinterpret_cast<Ah*>(ah);
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(destroy_ah, ibv_destroy_ah);

UROCE_EXPORT int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                     ibv_ah_attr* attr) {
  const Verb verb("ibv_init_ah_from_wc");
  *attr = {};
  attr->dlid = wc->slid;
  attr->sl = (wc->sl & UROCE_SL_UDP) != 0 ? 0 : wc->sl;  // the kind of packet is not a priority
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  ibv_gid own{};
  if (!read_network_header(*grh, attr->grh.dgid, own, attr->grh)) {
    errno = noted(EINVAL);
    return -1;
  }
  const int index = find_gid(context, port, own);
  if (index < 0) return -1;
  attr->is_global = 1;
  attr->grh.sgid_index = static_cast<std::uint8_t>(index);
  attr->grh.hop_limit = 0xff;
  return 0;
}

UROCE_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
  const Verb verb("ibv_create_ah_from_wc");
  ibv_ah_attr attr;
  return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? create_ah(pd, &attr) : nullptr;
}

namespace uroce::verbs {
namespace {

int change_membership(std::uint32_t command, ibv_qp* qp, const ibv_gid& gid, std::uint16_t lid) {
  uroce_mcast_request request{};
  request.qp = qp->handle;
  request.lid = lid;
  std::memcpy(request.gid, gid.raw, sizeof(request.gid));
  return session_of(qp->context).call(command, std::as_bytes(std::span(&request, 1)), {});
}

}  // namespace
}  // namespace uroce::verbs

UROCE_EXPORT int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  const Verb verb("ibv_attach_mcast");
  return failed(change_membership(UROCE_CMD_ATTACH_MCAST, qp, *gid, lid));
}
UROCE_VERSIONS_1_0_AND_1_1(attach_mcast, ibv_attach_mcast);

UROCE_EXPORT int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  const Verb verb("ibv_detach_mcast");
  return failed(change_membership(UROCE_CMD_DETACH_MCAST, qp, *gid, lid));
}
UROCE_VERSIONS_1_0_AND_1_1(detach_mcast, ibv_detach_mcast);

// Waits up to 3 s for the neighbour's answer. Returns a negative errno, as rdma-core does.
UROCE_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t* mac,
                                             std::uint16_t* vlan) {
  const Verb verb("ibv_resolve_eth_l2_from_gid");
  ibv_gid own{};
  if (ibv_query_gid(context, attr->port_num, attr->grh.sgid_index, &own) != 0) return -1;
  uroce_resolve_request request{};
  request.av = to_av(*attr);
  request.av.is_global = 1;  // the destination is a GID, whatever the attributes say
  uroce_resolve_response reply{};
  int error = session_of(context).call(UROCE_CMD_RESOLVE_NEIGHBOUR, request, reply);
  if (error == ETIMEDOUT) error = EHOSTUNREACH;
  if (error != 0) return -failed(error);
  std::memcpy(mac, reply.mac, sizeof(reply.mac));
  if (vlan != nullptr) *vlan = reply.vlan;
  return 0;
}
