// The port's multicast groups, and when each must be reported (RFC 3376 and 3810 for hosts, with their
// compatibility modes for versions 2 and 1). Sources are never filtered, so a group's state is one record.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/types.h"
#include "wire/address.h"

namespace uroce::net {

/// Group record types of IGMPv3 and MLDv2 (RFC 3376, 4.2.12).
enum class Report : std::uint8_t { kIs = 2, kLeft = 3, kJoined = 4 };

class Membership {
 public:
  struct Due {
    wire::Address group;
    Report report;
  };

  void join(const wire::Address& group, Nanos now);
  /// True: the port was a member, and a leave report is due.
  bool leave(const wire::Address& group);
  bool contains(const wire::Address& group) const { return groups_.contains(group); }

  /// A query for `group`, or for all groups of a family if it is zero: the reports become due within `within`.
  void on_query(bool v4, const wire::Address& group, Nanos now, Nanos within);
  /// The querier uses the older version; forgotten after kOldQuerierTime.
  void saw_old_querier(bool v4, Nanos now) { old_until_[v4] = now + kOldQuerierTime; }
  bool speaks_old(bool v4, Nanos now) const { return now < old_until_[v4]; }

  /// Removes and returns the next report that is due.
  std::optional<Due> take_due(Nanos now);
  Nanos next_deadline() const { return next_; }

 private:
  static constexpr Nanos kOldQuerierTime = 260 * kSecond;
  static constexpr Nanos kRepeat = kSecond;
  static constexpr std::uint8_t kTimes = 2;  ///< reports of a change, in case one is lost

  struct Group {
    Nanos deadline = kNever;
    std::uint8_t joins_left = 0;
  };
  void recompute();

  std::map<wire::Address, Group> groups_;
  Nanos next_ = kNever;
  Nanos old_until_[2] = {};
};

/// False for the all-systems and all-nodes groups, which are never reported (RFC 3376, 5; RFC 3810, 6).
bool is_reported(const wire::Address& group);

}  // namespace uroce::net
