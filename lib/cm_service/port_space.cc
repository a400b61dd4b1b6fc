#include "cm_service/port_space.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/machine/port.h"

namespace uroce::cm_service {

using control::CmId;

bool is_any(const uroce_cm_address& address) {
  constexpr std::uint8_t kAny4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::uint8_t kAny6[16] = {};
  return std::memcmp(address.gid, kAny4, 16) == 0 || std::memcmp(address.gid, kAny6, 16) == 0;
}

wire::Address address_of(const uroce_cm_address& address) {
  wire::Address out;
  std::memcpy(out.bytes.data(), address.gid, 16);
  return out;
}

cm::ListenScope where_of(const CmId& id) {
  if (!is_any(id.source)) return {address_of(id.source)};
  const bool ipv6 = id.source.family == AF_INET6;
  return {std::nullopt, !ipv6 || (id.flags & UROCE_CM_ONLY_FAMILY) == 0, ipv6};
}

CmPorts::CmPorts(std::uint64_t seed)
    : next_(static_cast<std::uint16_t>(control::kFirstFreeCmPort + seed % control::kMaxCmPorts)) {}

// Linux: drivers/infiniband/core/cma.c, cma_check_port.
int CmPorts::check(const CmId& id, std::uint16_t port, bool may_share) const {
  const auto it = taken_.find(key(id, port));
  if (it == taken_.end()) return 0;
  const auto one_family = [](const CmId& bound) {
    return bound.source.family == AF_INET || (bound.flags & UROCE_CM_ONLY_FAMILY) != 0;
  };
  const auto shares = [](const CmId& bound) {
    return (bound.flags & UROCE_CM_REUSE_ADDRESS) != 0 && bound.state != control::CmIdState::kListening;
  };
  for (const CmId* other : it->second) {
    if (other == &id || (may_share && shares(id) && shares(*other))) continue;
    if (one_family(id) && one_family(*other) && id.source.family != other->source.family) continue;
    if (is_any(id.source) || is_any(other->source)) return EADDRNOTAVAIL;
    if (address_of(id.source) == address_of(other->source)) return EADDRINUSE;
  }
  return 0;
}

int CmPorts::bind(CmId& id) {
  if (id.source.port == 0) {
    for (std::uint32_t i = 0; i < control::kMaxCmPorts && id.source.port == 0; ++i) {
      next_ = next_ == control::kLastFreeCmPort ? control::kFirstFreeCmPort : static_cast<std::uint16_t>(next_ + 1);
      // A port that is not shared with any id, so that it cannot collide with a listener.
      if (!taken_.contains(key(id, next_))) id.source.port = next_;
    }
    if (id.source.port == 0) return EADDRNOTAVAIL;
  } else if (const int status = check(id, id.source.port, true)) {
    return status;
  }
  taken_[key(id, id.source.port)].insert(&id);
  id.owns_port = true;
  return 0;
}

void CmPorts::unbind(CmId& id) {
  if (!id.owns_port) return;
  id.owns_port = false;
  const auto it = taken_.find(key(id, id.source.port));
  if (it == taken_.end()) return;
  it->second.erase(&id);
  if (it->second.empty()) taken_.erase(it);
}

}  // namespace uroce::cm_service
