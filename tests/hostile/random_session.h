// One hostile process: sessions that do anything at random, until its time is over or it ends itself in some way.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "platform/clock.h"

namespace uroce::hostile {

/// What the attackers achieved: an attack that reaches nothing tests nothing.
struct Tally {
  std::atomic<std::uint64_t> processes{0}, sessions{0}, refused_sessions{0};
  std::atomic<std::uint64_t> requests{0}, accepted{0}, refused{0}, unanswered{0}, closed{0};
  std::atomic<std::uint64_t> posted{0}, completed{0}, threads{0};
};

/// Attacks the daemon with choices that follow from `seed`, for about `life`, then returns, or ends the process: by
/// a signal, by _exit, by execve. `threads`: with thousands of threads, else in some way that is drawn. It may also
/// stop the process with SIGSTOP, and leave children that end within 2 s.
void run_random_attack(const std::string& socket_path, std::uint64_t seed, Nanos life, bool threads, Tally& tally);

}  // namespace uroce::hostile
