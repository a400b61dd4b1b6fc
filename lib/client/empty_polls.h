// What a poller does that finds nothing: it looks now and then whether the daemon lives, and yields if there are
// fewer cores than pollers. Any thread may call any function.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "client/session.h"

namespace uroce::client {

class EmptyPolls {
 public:
  /// A poll has found something.
  void end(Session& session) {
    count_.store(0, std::memory_order_relaxed);
    if (!yielding_.load(std::memory_order_relaxed)) return;
    yielding_.store(false, std::memory_order_relaxed);
    session.publish_yielding(false);
  }
  /// A poll has found nothing. Polls of two threads at the same time may count as one.
  void count() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  /// After count(), without a lock: may give up the core.
  void pause(Session& session) {
    // Between two checks of the clock: one poll with a yield may take a scheduler slice, without one it takes some
    // nanoseconds.
    constexpr std::uint32_t kPollsYielding = 16, kPollsSpinning = 2048;
    const bool yield = session.should_yield();
    const std::uint32_t polls = count_.load(std::memory_order_relaxed);
    if (polls % (yield ? kPollsYielding : kPollsSpinning) == 0) session.check_alive();
    if (!yield) return;
    yielding_.store(true, std::memory_order_relaxed);
    session.publish_yielding(true);
    sched_yield();
  }

 private:
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> yielding_{false};  ///< publish_yielding(true) was called
};

}  // namespace uroce::client
