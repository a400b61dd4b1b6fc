// The one clock of the engine.
#pragma once

#include <ctime>

#include "base/types.h"

namespace uroce::daemon {

inline Nanos monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Nanos>(now.tv_sec) * kSecond + static_cast<Nanos>(now.tv_nsec);
}

}  // namespace uroce::daemon
