// The longest time for which the control thread was busy with each command or event. Nobody else is served in that
// time, so a client may have waited as long for another one.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/types.h"
#include "platform/clock.h"
#include "worker/counter_section.h"

namespace uroce::control {

/// Used by the control thread only.
class CommandTimes {
 public:
  /// A command or what an event asks for, or one slice of it. `name`: not freed. The page of counters shows it
  /// until end(), if it is not part of another one.
  void begin(std::string_view name, Nanos now, std::uint64_t session) {
    if (depth_++ != 0) return;
    section_.await_command(name, now, session);
    section_.start_command(now);
  }
  void end(std::string_view name, Nanos duration) {
    Nanos& longest = longest_[name];
    longest = std::max(longest, duration);
    if (--depth_ == 0) section_.command_done();
  }
  /// Of the control thread, in the page of counters.
  worker::CounterSectionWriter& section() { return section_; }
  /// By name, since the daemon's start.
  const std::map<std::string_view, Nanos>& all() const { return longest_; }
  /// The longest of all; without a name before the first command.
  std::pair<std::string_view, Nanos> longest() const {
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto it = std::max_element(longest_.begin(), longest_.end(), less);
    return it != longest_.end() ? std::pair<std::string_view, Nanos>(*it) : std::pair<std::string_view, Nanos>();
  }

 private:
  std::map<std::string_view, Nanos> longest_;
  worker::CounterSectionWriter section_;
  unsigned depth_ = 0;  ///< commands that have begun: one may be part of another
};

/// Adds the time of a block.
class CommandTimer {
 public:
  /// `session`: for which it is done; 0: none.
  CommandTimer(CommandTimes& times, std::string_view name, std::uint64_t session = 0) : times_(times), name_(name) {
    times_.begin(name_, begin_, session);
  }
  ~CommandTimer() { times_.end(name_, monotonic_now() - begin_); }
  CommandTimer(const CommandTimer&) = delete;
  CommandTimer& operator=(const CommandTimer&) = delete;

 private:
  CommandTimes& times_;
  std::string_view name_;
  Nanos begin_ = monotonic_now();
};

}  // namespace uroce::control
