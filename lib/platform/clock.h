// CLOCK_MONOTONIC as Nanos: the clock of the daemon and of the client libraries.
#pragma once

#include <ctime>

#include "base/types.h"

namespace uroce {

inline Nanos monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Nanos>(now.tv_sec) * kSecond + static_cast<Nanos>(now.tv_nsec);
}

}  // namespace uroce
