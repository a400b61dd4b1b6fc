// Exports of this library: only functions that are marked UROCE_EXPORT and listed in librdmacm.map are visible.
#pragma once

#include <cerrno>
#include <new>

#include "client/call_log.h"

#define UROCE_EXPORT extern "C" __attribute__((visibility("default")))

namespace uroce::rdmacm {

using client::noted;
using client::Verb;

/// Sets errno and returns -1, as most functions of this library do on failure.
/// `words`: the reason, for UROCE_LOG.
inline int fail(int error, const char* words = nullptr) {
  errno = noted(error, words);
  return -1;
}
/// 0, or fail(error).
inline int result(int error) { return error == 0 ? 0 : fail(error); }

/// Calls f(). std::bad_alloc becomes ENOMEM: no exception may reach a C caller.
template <class Result, class F>
Result guarded(Result failed, F&& f) {
  try {
    const Result result = f();
    noted(result == failed ? errno : 0);
    return result;
  } catch (const std::bad_alloc&) {
    errno = noted(ENOMEM);
    return failed;
  }
}

}  // namespace uroce::rdmacm
