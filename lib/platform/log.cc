#include "platform/log.h"

#include <atomic>
#include <cstdio>
#include <ctime>

namespace uroce::daemon {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

std::uint64_t wall_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool parse_log_level(std::string_view text, LogLevel& level) {
  constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (text == kNames[i]) {
      level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void log(LogLevel level, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  bool fresh = true;
  if (level <= LogLevel::kWarning) fresh = ErrorLog::instance().record(text, wall_clock_ns());
  // A client that repeats a mistake must not fill the disk: the repetitions are only counted.
  if (level <= g_level.load(std::memory_order_relaxed) && fresh) std::fprintf(stderr, "uroced: %s\n", text);
}

bool ErrorLog::record(std::string_view text, std::uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  for (LoggedError& entry : entries_) {
    if (entry.text == text) {
      ++entry.count;
      entry.last_ns = now_ns;
      return false;
    }
  }
  if (entries_.size() >= kMaxDistinct) {
    LoggedError& last = entries_.back();
    last.text = "others";
    ++last.count;
    last.last_ns = now_ns;
    return false;
  }
  entries_.push_back({std::string(text), 1, now_ns, now_ns});
  return true;
}

std::vector<LoggedError> ErrorLog::entries() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

ErrorLog& ErrorLog::instance() {
  static ErrorLog log;
  return log;
}

}  // namespace uroce::daemon
