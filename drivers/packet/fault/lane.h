// One direction of an injector: draws the faults of each frame from a seeded generator and holds delayed frames.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/frame.h"
#include "base/types.h"
#include "drivers/packet/fault/plan.h"

namespace uroce::fault {

/// Faults of one frame; several may apply.
struct Verdict {
  bool drop = false, duplicate = false, corrupt = false;
  Nanos hold_until = 0;            ///< 0: not held
  std::uint32_t overtaken_by = 0;  ///< released after this many later frames, if that is sooner
};

class Direction {
 public:
  static constexpr std::size_t kMaxWaiting = 256;  ///< limit of held frames, which use the port's buffers
  static constexpr Nanos kMaxOvertake = 200 * kMicrosecond;

  void start(const Plan& plan, bool active, std::uint64_t stream);
  bool active() const { return active_; }
  bool empty() const { return ready_.empty() && held_.empty(); }

  Verdict judge(Nanos now, SharedPlan& counts);
  /// Flips one bit of the frame.
  void corrupt(base::Frame& frame);

  void pass(const base::Frame& frame);
  void hold(const base::Frame& frame, const Verdict& verdict);
  /// Releases the frames that are due; all of them when the plan has ended.
  void release_due(Nanos now);

  std::deque<base::Frame>& ready() { return ready_; }

 private:
  struct Held {
    base::Frame frame;
    Nanos until;
    std::uint32_t overtaken_by;
  };
  std::uint64_t random();
  bool chance(double p);

  Plan plan_;
  bool active_ = false;
  std::uint64_t state_ = 1;
  std::deque<base::Frame> ready_;
  std::vector<Held> held_;
};

}  // namespace uroce::fault
