// Multicast groups (rdma_join_multicast(3), rdma_leave_multicast(3)).
#include <algorithm>
#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

int join(CmId& id, const sockaddr* address, bool send_only, void* context) {
  const socklen_t bytes = bytes_of(address);
  if (bytes == 0 || id.device == nullptr) return EINVAL;
  auto group = std::make_unique<Multicast>();
  std::memcpy(&group->address, address, bytes);
  group->address_bytes = bytes;
  group->send_only = send_only;
  group->context = context;
  uroce_cm_join_request request{};
  request.handle = id.bindings.front().handle;
  request.group = to_abi(address);
  request.traffic_class = id.traffic_class;
  Multicast* const joining = group.get();
  {
    const std::lock_guard lock(id.mutex);
    joining->cookie = ++id.last_group;
    request.context = joining->cookie;
    id.multicast.push_back(std::move(group));
  }
  const int error = id.device->call(UROCE_CMD_CM_JOIN, request);
  if (error != 0) {
    const std::lock_guard lock(id.mutex);
    std::erase_if(id.multicast, [joining](const auto& g) { return g.get() == joining; });
  }
  return error;
}

}  // namespace
}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  const Verb verb("rdma_join_multicast");
  return guarded(-1, [&] { return result(join(as_id(id), address, false, context)); });
}

UROCE_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
  const Verb verb("rdma_join_multicast_ex");
  return guarded(-1, [&] {
    if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return fail(ENOTSUP);
    constexpr std::uint32_t kBoth = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if ((attr->comp_mask & kBoth) != kBoth || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return fail(EINVAL);
    const bool send_only = attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    return result(join(as_id(id), attr->addr, send_only, context));
  });
}

UROCE_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  const Verb verb("rdma_leave_multicast");
  return guarded(-1, [&] {
    const socklen_t bytes = bytes_of(address);
    if (bytes == 0) return fail(EINVAL);
    CmId& member = as_id(id);
    std::unique_ptr<Multicast> left;
    {
      const std::lock_guard lock(member.mutex);
      const auto at = std::ranges::find_if(member.multicast, [&](const auto& group) {
        return group->address_bytes == bytes && std::memcmp(&group->address, address, bytes) == 0;
      });
      if (at == member.multicast.end()) return fail(EADDRNOTAVAIL);
      left = std::move(*at);
      member.multicast.erase(at);
    }
    discard_join(as_channel(id->channel), member.bindings.front(), left->cookie);
    if (left->attached && id->qp != nullptr) return result(ibv_detach_mcast(id->qp, &left->mgid, 0));
    return 0;
  });
}
