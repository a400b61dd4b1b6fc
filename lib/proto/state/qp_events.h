// Why QPs send again, send less, are refused or fail (`urocectl show events`); off at first. A QP without losses,
// NAKs and marks of congestion writes nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/types.h"

namespace uroce::proto {

enum class QpEventType : std::uint8_t {
  kWentBack,   ///< it sends `value` packets again, from `psn` on; cause: RetryCause
  kProbed,     ///< it sends the last packet or READ request again, from `psn` on, as no acknowledge has come
  kWindowCut,  ///< to `value` bytes; cause: CongestionCause
  kWaits,      ///< `value` us before it sends `psn` again, as an RNR NAK demands
  kNakSent,    ///< for `psn`; cause: the syndrome
  kFailed,     ///< cause: uroce_failure of the work request; 0: `value` is the AsyncEvent
};

/// Why a requester goes back.
enum class RetryCause : std::uint8_t {
  kSequenceNak,
  kImpliedNak,
  kMissingAcknowledge,  ///< before the timeout (rc/ack_timeout)
  kTimeout,
};

struct QpEvent {
  Nanos when = 0;
  std::uint64_t owner = 0;  ///< session
  Qpn qpn;
  std::uint32_t psn = 0;
  std::uint32_t value = 0;
  std::uint32_t count = 1;
  QpEventType type{};
  std::uint8_t cause = 0;

  bool repeats(const QpEvent& other) const {
    return owner == other.owner && qpn == other.qpn && psn == other.psn && type == other.type &&
           cause == other.cause;
  }
};

/// A ring: the oldest events are overwritten. One that repeats one of the newest is counted there, with its time
/// and value: a peer without receives does not push all others out.
class QpEventLog {
 public:
  static constexpr std::size_t kEntries = 1024, kCompared = 8;
  using Entries = std::unique_ptr<QpEvent[]>;
  static Entries allocate() { return std::make_unique<QpEvent[]>(kEntries); }

  bool on() const { return on_; }
  /// From none on. The caller gets the memory that was used before.
  void turn_on(Entries& entries) {
    std::swap(entries_, entries);
    added_ = 0;
    on_ = true;
  }
  /// Keeps what was recorded.
  void turn_off() { on_ = false; }
  /// While it is on.
  void add(const QpEvent& event) {
    for (std::uint64_t i = 1; i <= std::min<std::uint64_t>(added_, kCompared); ++i) {
      QpEvent& earlier = entries_[(added_ - i) % kEntries];
      if (!event.repeats(earlier)) continue;
      ++earlier.count;
      earlier.when = event.when;
      earlier.value = event.value;
      return;
    }
    entries_[added_++ % kEntries] = event;
  }

  /// Events have numbers: the number of the next one.
  std::uint64_t end() const { return added_; }
  /// Copies those from `first` on, or from the oldest that is left, and makes `out` as long as there are. Returns
  /// the number of the first one copied.
  std::uint64_t read(std::uint64_t first, std::span<QpEvent>& out) const {
    const std::uint64_t oldest = added_ > kEntries ? added_ - kEntries : 0;
    const std::uint64_t begin = std::clamp(first, oldest, added_);
    out = out.first(std::min<std::uint64_t>(out.size(), added_ - begin));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = entries_[(begin + i) % kEntries];
    return begin;
  }

 private:
  bool on_ = false;
  std::uint64_t added_ = 0;
  Entries entries_;
};

}  // namespace uroce::proto
