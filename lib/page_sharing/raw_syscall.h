// System calls that neither write errno, which may be on a page that is write-protected at the moment, nor are
// cancellation points. The result is that of the kernel: negative values are -errno.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <type_traits>

#include "base/owned_fd.h"

namespace uroce::page_sharing {

namespace detail {

inline long syscall6(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
  const long result = ::syscall(number, a, b, c, d, e, f);
  return result < 0 ? -errno : result;
#endif
}

template <class T>
long as_long(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else {
    return static_cast<long>(value);
  }
}

}  // namespace detail

template <class A = long, class B = long, class C = long, class D = long, class E = long, class F = long>
long raw_syscall(long number, A a = 0, B b = 0, C c = 0, D d = 0, E e = 0, F f = 0) {
  using detail::as_long;
  return detail::syscall6(number, as_long(a), as_long(b), as_long(c), as_long(d), as_long(e), as_long(f));
}

struct RawClose {
  void operator()(int fd) const { raw_syscall(SYS_close, fd); }
};

/// A descriptor that is closed without touching errno. release() gives up a number that the program may have closed
/// (with all descriptors) and reused for a file of its own.
using RawFd = base::OwnedFd<RawClose>;

/// Blocks all signals of the calling thread during its lifetime: a signal handler must neither touch protected
/// pages nor call this library again.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    const std::uint64_t all = ~std::uint64_t{0};
    raw_syscall(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &before_, sizeof(before_));
  }
  ~SignalsBlocked() { raw_syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &before_, nullptr, sizeof(before_)); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  std::uint64_t before_ = 0;
};

}  // namespace uroce::page_sharing
