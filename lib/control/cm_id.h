// What a session owns of connection management. Used by the conductor alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "abi/cm.h"
#include "cm/manager.h"
#include "control/handle_table.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

struct CmObjects;

/// The sending end of an event channel of the client's.
struct CmChannel {
  UniqueFd socket;
  CmObjects* owner = nullptr;
  std::uint32_t device = 0;
  std::uint32_t users = 0;
  std::deque<uroce_cm_event> owed;  ///< the socket was full
};

enum class CmIdState : std::uint8_t {
  kBound,
  kResolving,
  kResolved,  ///< the neighbour is known
  kListening,
  kRequested,  ///< made for a request that nobody has answered yet
  kConnecting,
  kResponded,  ///< the peer has accepted: to be established
  kConnected,
  kClosed,  ///< was rejected, given up or disconnected
};

struct Session;

/// One rdma_cm_id on this device.
struct CmId {
  CmIdState state = CmIdState::kBound;
  std::uint32_t handle = 0;
  Session* session = nullptr;
  CmChannel* channel = nullptr;
  std::uint64_t cookie = 0;  ///< of a listener, in the manager
  cm::PortSpace space{};
  std::uint32_t qp_type = 0, flags = 0;
  bool owns_port = false;  ///< stands in the port table; those made for requests share their listener's
  uroce_cm_address source{}, destination{};
  Nanos resolve_until = 0;
  std::optional<cm::ConnectionId> connection;
  bool was_connected = false;
  uroce_cm_path path{};
};

struct CmObjects {
  explicit CmObjects(std::uint64_t& unknown) : channels(unknown), ids(unknown) {}

  HandleTable<CmChannel> channels;
  HandleTable<CmId> ids;
  std::size_t owed = 0;  ///< of all channels
};

}  // namespace uroce::daemon
