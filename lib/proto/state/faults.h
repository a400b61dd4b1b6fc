// Faults of work requests, as a rule of `urocectl fault verbs` describes them. A QP that a rule selects has a
// QpFaults; every other QP has none, and the packet path never asks for it (proto/work/faults.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "abi/queue_entries.h"
#include "base/types.h"
#include "proto/state/types.h"
#include "wire/address.h"

namespace uroce::proto {

/// The failure of a status that a rule chose, in the 8 bits of Wqe::failure: the code of the status with the number
/// UROCE_FAIL_INJECTED. Statuses from 16 on do not fit: 1, 2, ... stand for them, which no other failure uses.
constexpr std::uint8_t injected_failure(std::uint8_t status) {
  return static_cast<std::uint8_t>(status < 16 ? UROCE_FAIL(status, UROCE_FAIL_INJECTED) : status - 15);
}
/// What the completion shows of a failure; the status is in the bits from 4 on. 0: success.
constexpr std::uint32_t vendor_err_of(std::uint8_t failure) {
  const bool beyond = failure != 0 && failure < 16;
  return beyond ? UROCE_FAIL(failure + 15u, std::uint32_t{UROCE_FAIL_INJECTED}) : failure;
}

/// What happens to the completion of a work request that ends with success.
struct CompletionFault {
  enum class Kind : std::uint8_t {
    kNone,
    kLate,     ///< by `delay`; those after it wait as well, as the completions of a queue are in order
    kLost,     ///< there is none
    kSwapped,  ///< the next one of the queue comes first; it waits for that for `delay`
  };
  Kind kind = Kind::kNone;
  Nanos delay = 0;
};

/// Which work requests of a QP, and what happens to them. Matches are counted for each QP from 1 on, in the order
/// in which its requests are executed, so that the choice depends on the QP's own requests alone.
struct FaultPlan {
  static constexpr std::uint64_t kReceives = std::uint64_t{1} << 63;  ///< the other bits are uroce_wr_opcode

  std::uint64_t operations = ~kReceives;
  std::optional<Qpn> peer;
  std::optional<wire::Address> peer_address;

  std::uint64_t nth = 0;    ///< fires at that match; 0: at others
  std::uint64_t every = 1;  ///< fires at each multiple
  double probability = 1;   ///< of these, drawn from the seed, the QP's stream and the match
  std::uint64_t seed = 1;
  std::uint64_t most = ~std::uint64_t{0};  ///< times that it fires, all QPs together

  std::uint8_t failure = 0;  ///< of the work request: injected_failure(); 0: none
  bool fatal = false;        ///< the QP enters ERR as after a local failure
  bool hides = false;        ///< the receive is not there: an RC peer gets an RNR NAK
  CompletionFault completion;
  std::optional<AsyncEvent> event;

  /// Whether it ends a work request: later rules do not see that.
  bool ends() const { return failure != 0 || hides || for_completions(); }
  bool for_completions() const { return completion.kind != CompletionFault::Kind::kNone; }
  /// Whether the rule fires at this match. `stream`: differs between QPs.
  bool fires(std::uint64_t stream, std::uint64_t match) const;
};

/// A rule, shared by the QPs of all workers. Edges: the counts are relaxed; a rule is published to a worker by the
/// command that sets a QP's QpFaults.
struct FaultRule : FaultPlan {
  explicit FaultRule(const FaultPlan& plan) : FaultPlan(plan) {}

  std::atomic<std::uint64_t> matched{0}, fired{0};

  /// Counts a match, and whether the rule fires at it.
  bool take(std::uint64_t stream, std::uint64_t match);
};

/// The completions of one queue of a QP that are kept back, the oldest first, but for one that was swapped
/// (proto/work/held_completions.h).
struct HeldCompletions {
  struct Chosen {
    std::uint32_t index = 0;  ///< of the work request; receives: none
    CompletionFault fault;
  };
  struct Held {
    uroce_cqe cqe;
    std::uint32_t index = 0;  ///< of the send WQE
    bool solicited = false;
    bool swapped = false;  ///< waits for the next one
    Nanos until = 0;
  };
  std::deque<Chosen> chosen;  ///< work requests that have not ended
  std::deque<Held> held;
  std::uint32_t given = 0;  ///< one past the newest send WQE whose completion has come
};

/// The rules that select a QP, in the order in which they are tried. The control thread makes it, and destroys it
/// once the worker has another one; `matches` and what follows `entries` are the worker's.
struct QpFaults {
  struct Entry {
    std::shared_ptr<FaultRule> rule;
    std::uint64_t stream = 0;
    std::uint64_t matches = 0;
  };
  std::vector<Entry> entries;
  SrqId srq;  ///< what ReceiveQueue::srq would be
  HeldCompletions sends, receives;

  /// Whether completions may be kept back: there is a rule for it, or an earlier one has chosen some.
  bool hold() const {
    const auto rule = [](const Entry& entry) { return entry.rule->for_completions(); };
    return std::any_of(entries.begin(), entries.end(), rule) || !sends.chosen.empty() || !receives.chosen.empty();
  }
};

}  // namespace uroce::proto
