// Which faults to inject into which frames and how often, and counters of the injected ones. Shared by all workers'
// injectors and changed while they run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "base/types.h"
#include "drivers/packet/pcap/filter.h"

namespace uroce::fault {

/// What happens to the frames of one kind. Chances are of each frame, 0 to 1.
struct Rule {
  std::string name;     ///< empty: none
  std::string of;       ///< the filter as it was given
  pcap::Filter frames;  ///< all, unless it says otherwise
  double drop = 0, duplicate = 0, reorder = 0, delay = 0, corrupt = 0;
  std::uint32_t burst = 1;                          ///< frames that are lost in a row, on average
  Nanos delay_by = 200 * kMicrosecond, jitter = 0;  ///< at least, and how much longer at most
  std::uint64_t rate = 0;                           ///< bit/s that pass; 0: no limit
  double nak = 0;                                   ///< of positive acknowledges
  std::uint8_t nak_syndrome = 0;                    ///< of the AETH that they get (wire::Aeth)
  std::uint64_t seed = 1;
  bool receive = true, transmit = true;
  std::shared_ptr<std::atomic<std::uint64_t>>
      matched;  ///< frames so far; SharedPlan makes it, and knows the rule by it

  bool active() const {
    return drop > 0 || duplicate > 0 || reorder > 0 || delay > 0 || corrupt > 0 || rate > 0 || nak > 0;
  }
  std::string text() const;
};

/// A frame meets the rules in their order; one that drops it ends that.
struct Plan {
  static constexpr std::size_t kMost = 128;
  std::vector<Rule> rules;

  bool active() const;
  /// Rules separated by ';', each of "drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us-300us,corrupt=0.001,burst=4,
  /// rate=1G,nak=0.01:RNR,seed=7,direction=rx|tx|both,qp=0x12,peer=192.0.2.7,op=SEND|ACK,name=NAME"; or "off".
  /// Returns an error that names the value, what is allowed and what to do; empty: parsed.
  static std::string parse(std::string_view text, Plan& out);
  /// Appends the other plan's rules, or says why not: a name twice, too many.
  std::string add(const Plan& more);
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

  enum Count : std::uint8_t { kDropped, kDuplicated, kReordered, kDelayed, kCorrupted, kRefused, kCounts };

  /// Rules that were in plan() go on with their random numbers.
  void set(Plan plan);
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
