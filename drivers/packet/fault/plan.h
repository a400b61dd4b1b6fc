// Which faults to inject and how often, and counters of the injected ones. Shared by all workers' injectors and
// changed while they run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "base/types.h"

namespace uroce::fault {

/// Chances are of each frame, 0 to 1.
struct Plan {
  double drop = 0, duplicate = 0, reorder = 0, delay = 0, corrupt = 0;
  Nanos delay_by = 200 * kMicrosecond;
  std::uint64_t seed = 1;
  bool receive = true, transmit = true;

  bool active() const { return drop > 0 || duplicate > 0 || reorder > 0 || delay > 0 || corrupt > 0; }

  /// "drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=rx|tx|both" or "off". Returns
  /// an error that names the value, what is allowed and what to do; empty: parsed.
  static std::string parse(std::string_view text, Plan& out);
  std::string text() const;
};

/// Sees frames that arrived and were dropped, which nothing else sees.
class LossObserver {
 public:
  virtual ~LossObserver() = default;
  /// On the thread of worker `index`; the frame is valid during the call.
  virtual void lost(std::uint32_t index, const base::Frame& frame) = 0;
};

/// Edges: set() publishes version_ with release after the plan; Injector reads it relaxed each burst, and plan()
/// (under the mutex) when it has changed.
class SharedPlan {
 public:
  explicit SharedPlan(LossObserver* observer = nullptr) : observer_(observer) {}

  enum Count : std::uint8_t { kDropped, kDuplicated, kReordered, kDelayed, kCorrupted, kCounts };

  void set(const Plan& plan);
  Plan plan() const;
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }

  LossObserver* observer() const { return observer_; }
  void count(Count what) { counts_[what].fetch_add(1, std::memory_order_relaxed); }
  std::vector<std::pair<std::string, std::string>> describe() const;

 private:
  LossObserver* observer_;
  mutable std::mutex mutex_;
  Plan plan_;
  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uint64_t> counts_[kCounts] = {};
};

}  // namespace uroce::fault
