// Log of the control path: one line each to stderr, and a de-duplicated list of errors (count, first and last time,
// text) that urocectl reads while the daemon runs. Thread-safe. The data path never logs: it counts.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::daemon {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

void set_log_level(LogLevel level);

/// "error", "warning", "info", "debug". False: none of these.
bool parse_log_level(std::string_view text, LogLevel& level);

/// Like printf; adds "uroced: " and the newline. Errors and warnings go into the error log too.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);

struct LoggedError {
  std::string text;
  std::uint64_t count = 0;
  std::uint64_t first_ns = 0, last_ns = 0;  ///< CLOCK_REALTIME
};

/// The distinct errors so far, oldest first. Beyond kMaxDistinct they are only counted, as "others".
class ErrorLog {
 public:
  static constexpr std::size_t kMaxDistinct = 256;

  /// False: seen before (so it need not be printed again).
  bool record(std::string_view text, std::uint64_t now_ns);
  std::vector<LoggedError> entries() const;

  static ErrorLog& instance();

 private:
  mutable std::mutex mutex_;
  std::vector<LoggedError> entries_;
};

}  // namespace uroce::daemon
