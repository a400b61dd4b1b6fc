// A lock for sections of a few instructions. Satisfies Lockable.
#pragma once

#include <atomic>

namespace uroce::base {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Spinlock {
 public:
  Spinlock() = default;
  // A copy starts unlocked: objects with a lock are copied only before other threads can reach them.
  Spinlock(const Spinlock&) {}
  Spinlock& operator=(const Spinlock&) { return *this; }

  void lock() {
    while (flag_.exchange(true, std::memory_order_acquire)) {
      while (flag_.load(std::memory_order_relaxed)) cpu_relax();
    }
  }
  bool try_lock() { return !flag_.exchange(true, std::memory_order_acquire); }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> flag_{false};
};

/// Holds a lock for a scope.
class SpinGuard {
 public:
  explicit SpinGuard(Spinlock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  Spinlock& lock_;
};

/// A Spinlock that can be turned off, before a second thread can reach it, when its users are serialized otherwise.
class OptionalSpinlock {
 public:
  void turn_off() { on_ = false; }
  void lock() {
    if (on_) lock_.lock();
  }
  bool try_lock() { return !on_ || lock_.try_lock(); }
  void unlock() {
    if (on_) lock_.unlock();
  }

 private:
  Spinlock lock_;
  bool on_ = true;
};

}  // namespace uroce::base
