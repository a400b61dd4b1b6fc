// How long a thread of the daemon waits for a helper thread that accesses what a client provides.
#pragma once

#include <algorithm>

#include "base/types.h"
#include "mapping/stall_budget.h"

namespace uroce::mapping {

/// Counts looks instead of time: between two looks this process may have been stopped with its whole machine, or
/// the caller may have had no processor, which is not the client's fault. Each look is a kLook after the one
/// before, or later.
class WaitLimit {
 public:
  static constexpr Nanos kLook = kMillisecond;

  /// `looks`: how many may find a helper that is runnable and has no processor.
  WaitLimit(StallBudget& budget, int looks) : budget_(budget), looks_left_(looks) {}

  /// A look, `span` after the one before, finds the helper still at work. `blocked`: in the kernel, which its user
  /// pays for. False: give up.
  bool goes_on(bool blocked, Nanos span, Nanos now) {
    return blocked ? budget_.grant(std::min(span, kLook), now) : looks_left_-- > 0;
  }

 private:
  StallBudget& budget_;
  int looks_left_;
};

}  // namespace uroce::mapping
