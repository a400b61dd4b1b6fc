// UROCE_LOG=info|debug[:FILE]: one line for each verb that fails, with its errno and the reason, in the daemon's
// own words where the daemon refused it; with debug also for each verb that succeeds.
//
// Contract. Any thread, also in the child of a fork: there is no lock, and each line is one write(2). FILE is
// opened for each line, because programs close descriptors that they do not know. Without UROCE_LOG nothing happens
// but one relaxed load for each call; the data path calls nothing here unless a post fails.
#pragma once

#include <atomic>

namespace uroce::client {

enum class LogLevel : int { kOff, kInfo, kDebug };

namespace call_log {

inline constinit std::atomic<LogLevel> level{LogLevel::kOff};
inline bool on() { return level.load(std::memory_order_relaxed) != LogLevel::kOff; }

/// Reads UROCE_LOG. Called when `library` is loaded. `reports`: it prints one line about a wrong value, or a file
/// that cannot be written; of the two libraries, which are loaded together, one does.
void start(const char* library, bool reports);

/// Why an error will be returned, as printf; it counts for the next failure of this thread with that errno.
[[gnu::format(printf, 2, 3)]] void set_reason(int error, const char* format, ...);

/// The verb that runs fails with `error`, or 0: it went on after an earlier failure.
void note_result(int error);

/// A post that failed, on its cold path.
[[gnu::cold]] void failed_post(const char* verb, int error);

}  // namespace call_log

/// The call of a verb by the program, from its first statement to its return. A verb that a verb calls is part of
/// it: its failure is the outer one's, unless that notes 0.
class Verb {
 public:
  explicit Verb(const char* name) {
    if (call_log::on()) [[unlikely]]
      begin(name);
  }
  ~Verb() {
    if (active_) [[unlikely]]
      end();
  }
  Verb(const Verb&) = delete;
  Verb& operator=(const Verb&) = delete;

 private:
  void begin(const char* name);
  void end();

  bool active_ = false;
};

/// note_result() of `error`, with `words` for the reason unless it is nullptr. Returns `error`.
inline int noted(int error, const char* words = nullptr) {
  if (call_log::on()) [[unlikely]] {
    if (words != nullptr && error != 0) call_log::set_reason(error, "%s", words);
    call_log::note_result(error);
  }
  return error;
}

}  // namespace uroce::client
