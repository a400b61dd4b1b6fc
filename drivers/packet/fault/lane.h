// One direction of an injector: draws the faults of each frame from seeded generators and holds delayed frames.
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
  std::uint64_t corrupt_at = 0;            ///< a random number, of a bit
  std::uint8_t nak_syndrome = 0;           ///< a positive acknowledge gets it; 0: none
  Nanos hold_until = 0;                    ///< 0: not held
  bool queued = false;                     ///< held for a rate: so is its duplicate
  std::uint32_t overtaken_by = kNoOthers;  ///< released after this many later frames, if that is sooner
  static constexpr std::uint32_t kNoOthers = ~0u;
};

class Direction {
 public:
  static constexpr std::size_t kMaxWaiting = 256;  ///< limit of held frames, which use the port's buffers
  static constexpr Nanos kMaxOvertake = 200 * kMicrosecond;

  explicit Direction(pcap::Direction direction) : direction_(direction) {}

  /// `stream`: each direction of each worker draws a sequence of its own.
  void start(const Plan& plan, std::uint64_t stream);
  bool active() const { return !rules_.empty(); }
  bool empty() const { return ready_.empty() && held_.empty(); }

  Verdict judge(const base::Frame& frame, Nanos now, SharedPlan& counts);
  /// Flips one bit of the frame.
  static void corrupt(base::Frame& frame, const Verdict& verdict);

  /// Writes the verdict's syndrome into a positive acknowledge, and its ICRC. False: the frame is none.
  static bool refuse(base::Frame& frame, const Verdict& verdict);

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
  /// A rule with what it has drawn.
  struct Drawn {
    Rule rule;
    std::uint64_t state = 0;
    bool losing = false;  ///< in a burst
    Nanos free_at = 0;    ///< when the frames so far have passed, at this rate

    std::uint64_t random();
    double chance();
    bool loses();
  };
  void apply(Drawn& drawn, const base::Frame& frame, Nanos now, Verdict& verdict, SharedPlan& counts);

  pcap::Direction direction_;
  std::vector<Drawn> rules_;
  std::deque<base::Frame> ready_;
  std::vector<Held> held_;
};

}  // namespace uroce::fault
