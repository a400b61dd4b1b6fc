// How a function gets out of this library: everything is hidden but what says UROCE_EXPORT and is named in
// libibverbs.map. A name with two versions is defined twice under names of our own, and versioned here.
#pragma once

#include <cerrno>
#include <new>

#define UROCE_EXPORT extern "C" __attribute__((visibility("default")))
#define UROCE_DEFAULT_VERSION(function, name, node) __asm__(".symver " #function "," #name "@@" node)
#define UROCE_COMPAT_VERSION(function, name, node) __asm__(".symver " #function "," #name "@" node)

/// Defines `name` at IBVERBS_1.1, the default, and at IBVERBS_1.0, for which no list of devices is ever filled
/// (device.cc): the programs that used it are from 2006, with structs of another shape.
#define UROCE_VERSIONS_1_0_AND_1_1(function, name)                                                        \
  UROCE_DEFAULT_VERSION(function, name, "IBVERBS_1.1");                                                   \
  extern "C" __attribute__((visibility("default"), alias(#function))) decltype(function) function##_v1_0; \
  UROCE_COMPAT_VERSION(function##_v1_0, name, "IBVERBS_1.0")

namespace uroce::verbs {

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
/// The same for a function that returns an errno.
template <class F>
int guarded_errno(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

/// For functions that return an errno and set it, too.
inline int failed(int error) {
  if (error != 0) errno = error;
  return error;
}
inline std::nullptr_t null_with(int error) {
  errno = error;
  return nullptr;
}

}  // namespace uroce::verbs
