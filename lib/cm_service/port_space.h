// Which ports of which RDMA port space are bound (IP service ids, IBTA annex A11). Used by the control thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "cm/manager.h"
#include "control/session/cm_id.h"

namespace uroce::cm_service {

bool is_any(const uroce_cm_address& address);
wire::Address address_of(const uroce_cm_address& address);
/// The addresses that an id is bound to.
cm::ListenScope where_of(const control::CmId& id);
inline std::uint64_t service_of(const control::CmId& id) { return cm::service_id(id.space, id.source.port); }

class CmPorts {
 public:
  explicit CmPorts(std::uint64_t seed);

  /// Binds id.source.port; if it is 0, chooses a free port and fills it in. errno: 0, EADDRINUSE (another id has
  /// the address and the port), EADDRNOTAVAIL (no port is free, or another id has the port, and one of the two is
  /// bound to any address).
  int bind(control::CmId& id);
  void unbind(control::CmId& id);
  /// Whether the id may listen: ids may share a port when both allow it, but not with a listener. errno: as bind().
  int check_listener(const control::CmId& id) const { return check(id, id.source.port, false); }

 private:
  static std::uint32_t key(const control::CmId& id, std::uint16_t port) {
    return static_cast<std::uint32_t>(id.space) << 16 | port;
  }
  int check(const control::CmId& id, std::uint16_t port, bool may_share) const;

  std::unordered_map<std::uint32_t, std::unordered_set<control::CmId*>> taken_;
  std::uint16_t next_;
};

}  // namespace uroce::cm_service
