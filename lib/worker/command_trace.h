// The last commands that a worker ran: name, arguments, when, and for how long (urocectl show worker_commands).
//
// Call contract. run() on the thread that runs the worker's commands, last() on any.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace uroce::worker {

class WorkerCore;

/// Arguments as "cq=3 session=7". What does not fit is cut off, whole arguments at a time.
class ArgumentText {
 public:
  ArgumentText& add(std::string_view name, const std::string& value) { return add(name, std::string_view(value)); }
  ArgumentText& add(std::string_view name, std::string_view value) {
    const std::size_t bytes = name.size() + value.size() + 2;
    if (size_ + bytes > text_.size()) return *this;
    if (size_ != 0) text_[size_++] = ' ';
    append(name);
    text_[size_++] = '=';
    append(value);
    return *this;
  }
  ArgumentText& add(std::string_view name, bool value) { return add(name, std::string_view(value ? "yes" : "no")); }
  template <std::integral T>
  ArgumentText& add(std::string_view name, T value) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    return add(name, std::string_view(digits, end));
  }
  ArgumentText& add(std::string_view name, Qpn qpn) {
    char digits[24] = {'0', 'x'};
    const auto end = std::to_chars(digits + 2, digits + sizeof(digits), qpn.value, 16).ptr;
    return add(name, std::string_view(digits, end));
  }
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  void append(std::string_view part) { size_ += part.copy(text_.data() + size_, part.size()); }

  std::array<char, 96> text_{};
  std::size_t size_ = 0;
};

/// A command to a worker: a struct with its name, its arguments, and what it does on the worker's thread. Results
/// are members, too.
template <class T>
concept WorkerCommand = requires(T& command, const T& same, WorkerCore& worker, ArgumentText& text) {
  { T::kName } -> std::convertible_to<std::string_view>;
  command.run(worker);
  same.describe(text);
};

/// Any command, by reference.
class WorkerCommandRef {
 public:
  template <WorkerCommand T>
  explicit WorkerCommandRef(T& command)
      : name_(T::kName),
        command_(&command),
        run_([](void* it, WorkerCore& worker) { static_cast<T*>(it)->run(worker); }),
        describe_([](const void* it, ArgumentText& text) { static_cast<const T*>(it)->describe(text); }) {}

  void run(WorkerCore& worker) const { run_(command_, worker); }
  std::string_view name() const { return name_; }
  void describe(ArgumentText& text) const { describe_(command_, text); }

 private:
  std::string_view name_;
  void* command_;
  void (*run_)(void*, WorkerCore&);
  void (*describe_)(const void*, ArgumentText&);
};

/// "set_cq cq=3 session=7".
inline std::string to_string(const WorkerCommandRef& command) {
  ArgumentText arguments;
  command.describe(arguments);
  std::string text(command.name());
  if (!arguments.view().empty()) text.append(" ").append(arguments.view());
  return text;
}

struct TracedCommand {
  std::string_view name;
  ArgumentText arguments;
  Nanos started = 0;   ///< monotonic
  Nanos duration = 0;  ///< on the worker's thread
};

class CommandTrace {
 public:
  static constexpr std::size_t kKept = 64;

  explicit CommandTrace(Nanos (*clock)()) : clock_(clock) {}
  /// Runs the command and keeps a record of it.
  void run(const WorkerCommandRef& command, WorkerCore& worker);
  /// Oldest first.
  std::vector<TracedCommand> last() const;

 private:
  Nanos (*clock_)();
  mutable std::mutex mutex_;
  std::array<TracedCommand, kKept> ring_;
  std::size_t count_ = 0;  ///< ever
};

}  // namespace uroce::worker
