// Calls that a rule of `urocectl fault verbs` lets fail (tests/e2e/cases_faults.py).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "fixtures.h"

namespace conformance {

/// Makes its object ready, then makes the call that the command is named for. Returns the call's errno, or 0.
using FailingCall = std::function<int(Bench&)>;

/// What a call that returns an object left in errno; 0: there is an object.
template <class T>
int errno_of(T* made) {
  return made == nullptr ? errno : 0;
}
/// Of a call that returns an errno, or -1 and errno, or a negative errno.
inline int errno_of(int result) { return result == -1 ? errno : result < 0 ? -result : result; }

/// By command, as `urocectl show rejections` names them.
std::map<std::string, FailingCall> failing_verbs();
std::map<std::string, FailingCall> failing_connections();
/// Of completion counters, whose functions the program finds at run time.
std::map<std::string, FailingCall> failing_counters();

}  // namespace conformance
