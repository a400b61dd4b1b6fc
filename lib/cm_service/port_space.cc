#include "cm_service/port_space.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace uroce::daemon {

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
    : next_(static_cast<std::uint16_t>(kFirstFree + seed % (kLastFree - kFirstFree))) {}

bool CmPorts::conflicts(const CmId& id, std::uint16_t port) const {
  const auto it = taken_.find(key(id, port));
  if (it == taken_.end()) return false;
  const cm::ListenScope where = where_of(id);
  return std::ranges::any_of(it->second, [&](const CmId* other) {
    const bool shared = (id.flags & other->flags & UROCE_CM_REUSE_ADDRESS) != 0;
    if (shared && other->state != CmIdState::kListening) return false;
    const cm::ListenScope theirs = where_of(*other);
    if (where.address && theirs.address) return where.address == theirs.address;
    if (where.address) return theirs.serves(*where.address);
    return theirs.address ? where.serves(*theirs.address) : where.overlaps(theirs);
  });
}

int CmPorts::bind(CmId& id) {
  if (id.source.port == 0) {
    for (std::uint32_t i = 0; i <= kLastFree - kFirstFree && id.source.port == 0; ++i) {
      next_ = next_ == kLastFree ? kFirstFree : static_cast<std::uint16_t>(next_ + 1);
      // A port that is not shared with any id, so that it cannot collide with a listener.
      if (!taken_.contains(key(id, next_))) id.source.port = next_;
    }
    if (id.source.port == 0) return EADDRNOTAVAIL;
  } else if (conflicts(id, id.source.port)) {
    return EADDRINUSE;
  }
  taken_[key(id, id.source.port)].push_back(&id);
  id.owns_port = true;
  return 0;
}

void CmPorts::unbind(CmId& id) {
  if (!id.owns_port) return;
  id.owns_port = false;
  const auto it = taken_.find(key(id, id.source.port));
  if (it == taken_.end()) return;
  std::erase(it->second, &id);
  if (it->second.empty()) taken_.erase(it);
}

bool CmPorts::may_listen(const CmId& id) const {
  const auto it = taken_.find(key(id, id.source.port));
  if (it == taken_.end()) return false;
  const cm::ListenScope where = where_of(id);
  return std::ranges::none_of(it->second, [&](const CmId* other) {
    return other != &id && other->state == CmIdState::kListening && where_of(*other).overlaps(where);
  });
}

}  // namespace uroce::daemon
