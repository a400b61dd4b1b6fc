// The reply to one control request.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "abi/control.h"
#include "control/diagnosis/rejections.h"
#include "control/session/neighbour_waiters.h"
#include "platform/unique_fd.h"

namespace uroce::control {

namespace commands {
struct Call;
}

/// The rest of a command that needs a neighbour.
struct NeighbourWait {
  NeighbourKey neighbour;
  /// The rest of the command: it fills the reply of the call, which has neither body nor descriptors, and returns 0
  /// or an errno. kPending: no neighbour has answered in time.
  std::function<int(commands::Call&, const Neighbour&)> resume;
};

/// The answer to a request.
struct Reply {
  int status = 0;  ///< 0 or an errno; kPending: `wait` completes the command later; kUnfinished: `rest` does
  std::optional<NeighbourWait> wait;
  /// The next slice of a command that would keep the control thread for long. Others are served before it runs,
  /// with a call that has neither body nor descriptors. Returns 0, an errno or, having set Reply::rest again,
  /// kUnfinished.
  std::function<int(commands::Call&)> rest;
  std::optional<Rejection> reason;  ///< where the status does not determine it
  std::string why;                  ///< of a refusal, for a person; empty: default_text() of the reason
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;

  template <class T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    body.assign(bytes, bytes + sizeof(T));
  }
  void refuse(int error, Rejection because) {
    status = error;
    reason = because;
  }
};
inline constexpr int kPending = -1, kUnfinished = -2;

}  // namespace uroce::control
