// Runs a function at the end of a scope unless it was dismissed: the undo of a step whose successors may fail.
#pragma once

#include <utility>

namespace uroce::base {

template <class F>
class ScopeGuard {
 public:
  /// `undo` must not throw.
  explicit ScopeGuard(F undo) : undo_(std::move(undo)) {}
  ~ScopeGuard() {
    if (armed_) undo_();
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

  void dismiss() { armed_ = false; }

 private:
  F undo_;
  bool armed_ = true;
};

}  // namespace uroce::base
