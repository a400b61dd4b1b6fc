// The reply to one control request.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "control/neighbour_waiters.h"
#include "control/rejections.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

/// The answer to a request.
struct Reply {
  int status = 0;                       ///< 0 or an errno; kParked: the request is executed again later
  std::optional<NeighbourKey> awaited;  ///< with kParked: executed again once this neighbour is known
  std::optional<Rejection> reason;      ///< where the status does not determine it
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;

  template <class T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    body.assign(bytes, bytes + sizeof(T));
  }
  void refuse(int error, Rejection why) {
    status = error;
    reason = why;
  }
};
inline constexpr int kParked = -1;

}  // namespace uroce::daemon
