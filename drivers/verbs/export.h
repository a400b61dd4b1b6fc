// Exports of this library: only functions that are marked UROCE_EXPORT and listed in libibverbs.map are visible. A
// function with two versions is defined once under an internal name and given its versions here.
#pragma once

#include <cerrno>
#include <new>

#include "client/call_log.h"

#define UROCE_EXPORT extern "C" __attribute__((visibility("default")))
#define UROCE_DEFAULT_VERSION(function, name, node) __asm__(".symver " #function "," #name "@@" node)
#define UROCE_COMPAT_VERSION(function, name, node) __asm__(".symver " #function "," #name "@" node)

/// Exports `function` as `name` in IBVERBS_1.1, the default, and in IBVERBS_1.0. The latter's device list is always
/// empty (device.cc): programs that use it date from 2006 and have other struct layouts.
#define UROCE_VERSIONS_1_0_AND_1_1(function, name)                                                        \
  UROCE_DEFAULT_VERSION(function, name, "IBVERBS_1.1");                                                   \
  extern "C" __attribute__((visibility("default"), alias(#function))) decltype(function) function##_v1_0; \
  UROCE_COMPAT_VERSION(function##_v1_0, name, "IBVERBS_1.0")

#define UROCE_PRIVATE_VERSION(symbol, name, number)                                                             \
  extern "C" __attribute__((visibility("default"), alias(#symbol))) decltype(symbol) symbol##_private_##number; \
  UROCE_COMPAT_VERSION(symbol##_private_##number, name, "IBVERBS_PRIVATE_" #number)
/// Exports `symbol` as `name` in the nodes of what rdma-core exports to its providers, of all versions since 34:
/// providers find no devices, so what they import is not called.
#define UROCE_PRIVATE_VERSIONS(symbol, name)                 \
  UROCE_DEFAULT_VERSION(symbol, name, "IBVERBS_PRIVATE_34"); \
  UROCE_PRIVATE_VERSION(symbol, name, 57);                   \
  UROCE_PRIVATE_VERSION(symbol, name, 59);                   \
  UROCE_PRIVATE_VERSION(symbol, name, 64);                   \
  UROCE_PRIVATE_VERSION(symbol, name, 65)

namespace uroce::verbs {

using client::noted;
using client::Verb;

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
/// guarded() for a function that returns an errno.
template <class F>
int guarded_errno(F&& f) {
  try {
    return noted(f());
  } catch (const std::bad_alloc&) {
    return noted(ENOMEM);
  }
}

/// For functions that both return an errno and set it. `words`: the reason, for UROCE_LOG.
inline int failed(int error, const char* words = nullptr) {
  if (error != 0) errno = error;
  return noted(error, words);
}
inline std::nullptr_t null_with(int error, const char* words = nullptr) {
  errno = noted(error, words);
  return nullptr;
}

}  // namespace uroce::verbs
