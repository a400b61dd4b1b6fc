// The connection management objects of a session. Used by the control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_set>

#include "abi/cm.h"
#include "cm/manager.h"
#include "control/session/handle_table.h"
#include "control/session/neighbour_waiters.h"
#include "control/session/quotas.h"
#include "mapping/untrusted_fd.h"

namespace uroce::control {

struct CmId;
struct CmObjects;

/// The daemon's end of a client's event channel.
struct CmChannel {
  Charge charge;
  mapping::ForeignFd socket;
  CmObjects* owner = nullptr;
  std::uint32_t device = 0;
  std::unordered_set<CmId*> ids;    ///< that report to it
  bool closing = false;             ///< its ids are being removed: its listeners take no more requests
  std::deque<uroce_cm_event> owed;  ///< not written yet, because the socket was full
};

enum class CmIdState : std::uint8_t {
  kBound,
  kResolving,
  kResolved,  ///< the neighbour is known
  kRouteResolved,
  kListening,
  kRequested,  ///< created for a request that the client has not answered yet
  kConnecting,
  kResponded,  ///< the peer has accepted; the RTU is still to be sent
  kConnected,
  kClosed,  ///< rejected, timed out or disconnected
};

struct Session;

/// One rdma_cm_id on this device.
struct CmId {
  Charge charge;
  Charge connection_charge;  ///< while it has a connection
  CmIdState state = CmIdState::kBound;
  std::uint32_t handle = 0;
  Session* session = nullptr;
  CmChannel* channel = nullptr;
  std::uint64_t cookie = 0;  ///< of a listener, in the manager
  cm::PortSpace space{};
  std::uint32_t qp_type = 0, flags = 0;
  bool owns_port = false;  ///< it is in the port table; ids created for requests share their listener's port
  uroce_cm_address source{}, destination{};
  NeighbourWaiters::Id resolving = 0;  ///< of the neighbour, in kResolving
  std::optional<cm::ConnectionId> connection;
  bool was_connected = false;
  uroce_cm_path path{};
};

struct CmObjects {
  explicit CmObjects(UnknownHandles& unknown) : channels(unknown), ids(unknown) {}

  HandleTable<CmChannel> channels;
  HandleTable<CmId> ids;
  std::size_t owed = 0;  ///< of all channels
};

}  // namespace uroce::control
