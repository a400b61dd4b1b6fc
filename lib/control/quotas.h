// The objects that each user's clients hold in total, and the limits on them. Used by the control thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "control/config.h"

namespace uroce::daemon {

struct Usage {
  std::uint64_t qps = 0, cqs = 0, mrs = 0, bytes = 0;
};

class Quotas {
 public:
  explicit Quotas(const UserLimits& limits) : limits_(limits) {}

  /// The limit that `more` would exceed ("QPs", "CQs", ...); nullptr: it was added.
  const char* charge(uid_t user, const Usage& more) {
    Usage& now = users_[user];
    if (over(now.qps, more.qps, limits_.qps)) return "QPs";
    if (over(now.cqs, more.cqs, limits_.cqs)) return "CQs";
    if (over(now.mrs, more.mrs, limits_.mrs)) return "MRs";
    if (over(now.bytes, more.bytes, limits_.bytes)) return "bytes";
    now.qps += more.qps, now.cqs += more.cqs, now.mrs += more.mrs, now.bytes += more.bytes;
    return nullptr;
  }
  void refund(uid_t user, const Usage& less) {
    Usage& now = users_[user];
    now.qps -= less.qps, now.cqs -= less.cqs, now.mrs -= less.mrs, now.bytes -= less.bytes;
    if ((now.qps | now.cqs | now.mrs | now.bytes) == 0) users_.erase(user);
  }
  const std::map<uid_t, Usage>& users() const { return users_; }
  const UserLimits& limits() const { return limits_; }

 private:
  static bool over(std::uint64_t now, std::uint64_t more, std::uint64_t limit) {
    return limit != 0 && more != 0 && (more > limit || now > limit - more);
  }

  UserLimits limits_;
  std::map<uid_t, Usage> users_;
};

}  // namespace uroce::daemon
