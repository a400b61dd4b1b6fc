// The longest time for which the control thread was busy with each command or event. Nobody else is served in that
// time, so a client may have waited as long for another one.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/types.h"
#include "platform/clock.h"

namespace uroce::control {

/// Used by the control thread only.
class CommandTimes {
 public:
  /// A command or what an event asks for, or one slice of it. `name`: not freed.
  void add(std::string_view name, Nanos duration) {
    Nanos& longest = longest_[name];
    longest = std::max(longest, duration);
  }
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
};

/// Adds the time of a block.
class CommandTimer {
 public:
  CommandTimer(CommandTimes& times, std::string_view name) : times_(times), name_(name) {}
  ~CommandTimer() { times_.add(name_, monotonic_now() - begin_); }
  CommandTimer(const CommandTimer&) = delete;
  CommandTimer& operator=(const CommandTimer&) = delete;

 private:
  CommandTimes& times_;
  std::string_view name_;
  Nanos begin_ = monotonic_now();
};

}  // namespace uroce::control
