// Whose turn to send it is, and how long it is: QPs in the order of the scheduler, each with what it owes its peer
// first, then its own requests, within its budget and its user's rate limit.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/state/context.h"

namespace uroce::proto {

class Turns {
 public:
  explicit Turns(Context& context) : context_(context) {}

  /// There is a QP of a user with a rate limit.
  void expect_user_limits() { has_user_limits_ = true; }
  /// Whether several users had turns of late: turns are short then.
  bool users_compete(Nanos now) const { return now < users_compete_until_; }
  /// Until the burst is full, its cost is used up, or no QP can send.
  void run(TxBurst& burst);

 private:
  static constexpr std::uint32_t kSharedTurnBytes = 8 << 10;
  /// Users compete for so long after their turns alternated.
  static constexpr Nanos kCompetition = kMillisecond;

  void prefetch_ahead();
  std::uint32_t packets_of(const Qp& qp) const;
  bool answer(Qp& qp, TxBurst& burst, std::uint32_t& budget);
  bool turn(Qp& qp, TxBurst& burst, std::uint32_t budget, bool requests);
  bool limited_turn(Qp& qp, TxBurst& burst);
  void charge(const Qp& qp, std::uint32_t cost);

  Context& context_;
  Nanos users_compete_until_ = 0;
  std::uint32_t user_changes_ = 0;  // of the scheduler, when they were last looked at
  bool has_user_limits_ = false;    // there is, or was, such a QP
};

}  // namespace uroce::proto
