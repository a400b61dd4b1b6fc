// How a function gets out of this library: everything is hidden but what says UROCE_EXPORT and is named in
// librdmacm.map.
#pragma once

#include <cerrno>
#include <new>

#define UROCE_EXPORT extern "C" __attribute__((visibility("default")))

namespace uroce::rdmacm {

/// -1 with errno, as most functions here fail.
inline int fail(int error) {
  errno = error;
  return -1;
}
/// 0, or -1 with errno.
inline int result(int error) { return error == 0 ? 0 : fail(error); }

/// Calls f(), which may run out of memory; no exception gets through to a C caller.
template <class Result, class F>
Result guarded(Result failed, F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return failed;
  }
}

}  // namespace uroce::rdmacm
