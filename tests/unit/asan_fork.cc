// A child of fork(2) has one thread. If another thread of the parent held a lock of the address sanitizer at that
// moment, as a thread that begins does, the child waits for that lock for ever. From LLVM 17 on, the sanitizer
// holds its locks around fork(2) itself. Not held here: that of freed memory, which a thread takes when it ends.

#include <pthread.h>

namespace __lsan {  // NOLINT: internal to compiler-rt, and linked into each program
__attribute__((weak)) void LockThreadRegistry();
__attribute__((weak)) void UnlockThreadRegistry();
__attribute__((weak)) void LockAllocator();
__attribute__((weak)) void UnlockAllocator();
}  // namespace __lsan

namespace {

void lock_sanitizer() {
  __lsan::LockThreadRegistry();
  __lsan::LockAllocator();
}

void unlock_sanitizer() {
  __lsan::UnlockAllocator();
  __lsan::UnlockThreadRegistry();
}

// Before those of the libraries under test, so that the locks are held for the shortest time.
__attribute__((constructor(101))) void hold_locks_around_fork() {
  if (__lsan::LockThreadRegistry == nullptr || __lsan::UnlockThreadRegistry == nullptr ||
      __lsan::LockAllocator == nullptr || __lsan::UnlockAllocator == nullptr) {
    return;
  }
  pthread_atfork(lock_sanitizer, unlock_sanitizer, unlock_sanitizer);
}

}  // namespace
