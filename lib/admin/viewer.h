// Which objects a caller of `urocectl show` may see.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "control/session.h"

namespace uroce::daemon {

/// Administrators see everything, other callers the objects of their own tenant. Counts the rows that are left out.
class Viewer {
 public:
  Viewer(const Session& caller, bool administrator) : tenant_(caller.peer.tenant()), sees_all_(administrator) {}

  bool sees_all() const { return sees_all_; }
  uid_t user() const { return tenant_.uid; }
  /// Whether the rows of this session are shown; `rows`: how many it has. The control thread does nothing else
  /// while it writes rows, so others than administrators get sessions with 2,000 rows in total.
  bool sees(const Session& session, std::size_t rows) { return sees(session.peer.tenant(), rows); }
  bool sees(const Tenant& owner, std::size_t rows) {
    const bool theirs = owner == tenant_ && shown_ < kMostRows;
    if (sees_all_ || theirs) {
      shown_ += rows;
      return true;
    }
    hidden_ += rows;
    return false;
  }
  /// Rows that do not belong to one tenant.
  nlohmann::ordered_json only_for_all(nlohmann::ordered_json rows) {
    if (sees_all_) return rows;
    hidden_ += rows.size();
    return nlohmann::ordered_json::array();
  }
  std::size_t hidden() const { return hidden_; }

 private:
  Tenant tenant_;
  bool sees_all_;
  static constexpr std::size_t kMostRows = 2000;
  std::size_t hidden_ = 0, shown_ = 0;
};

}  // namespace uroce::daemon
