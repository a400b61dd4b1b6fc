// Which objects a caller of `urocectl show` may see.
#pragma once

#include <cstddef>

#include "control/session/session.h"

namespace uroce::admin {

/// Administrators see everything, other callers the objects of their own tenant. Counts the rows that are left out.
class Viewer {
 public:
  Viewer(const control::Session& caller, bool administrator)
      : tenant_(caller.peer.tenant()), sees_all_(administrator) {}

  bool sees_all() const { return sees_all_; }
  uid_t user() const { return tenant_.uid; }
  /// Whether the rows of this session are shown; `rows`: how many it has.
  bool sees(const control::Session& session, std::size_t rows) { return sees(session.peer.tenant(), rows); }
  bool sees(const platform::Tenant& owner, std::size_t rows) {
    if (sees_all_ || owner == tenant_) return true;
    hide(rows);
    return false;
  }
  void hide(std::size_t rows) { hidden_ += rows; }
  std::size_t hidden() const { return hidden_; }

 private:
  platform::Tenant tenant_;
  bool sees_all_;
  std::size_t hidden_ = 0;
};

}  // namespace uroce::admin
