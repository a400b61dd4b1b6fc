// Log of the control path: one line each to stderr, and a de-duplicated list of errors (count, first and last time,
// text) that urocectl reads while the daemon runs. Thread-safe. The data path never logs: it counts.
//
// Lines that a user causes (LogUser) are limited: 50 at once, then 5 a second, and room for 50 more errors and
// warnings; a later line gives the number of those left out. While LogWriter exists, a thread writes to stderr, and
// no other waits for it. Lines to systemd's journal begin with their level (sd-daemon(3)).
#pragma once

#include <cstdarg>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::platform {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

void set_log_level(LogLevel level);

/// Whether the descriptor is that of systemd's journal, as `stream` says, the value of $JOURNAL_STREAM ("8:12345");
/// nullptr: it is not.
bool is_journal(int fd, const char* stream);

/// "error", "warning", "info", "debug". False: none of these.
bool parse_log_level(std::string_view text, LogLevel& level);

/// Like printf; adds "uroced: " and the newline. Errors and warnings go into the error log too.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);

/// While it exists, the calling thread's lines are caused by clients of this user.
class LogUser {
 public:
  explicit LogUser(std::uint32_t user);
  ~LogUser();
  LogUser(const LogUser&) = delete;
  LogUser& operator=(const LogUser&) = delete;

 private:
  std::int64_t before_;
};

/// Writes lines on a thread of its own. Lines for which there is no room, because stderr is blocked, are counted.
/// At most one exists. Without a free thread lines are written by the caller, as without a LogWriter.
class LogWriter {
 public:
  LogWriter();
  /// Waits for the lines to be written, at most a second.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
};

struct LoggedError {
  std::string text;
  std::uint64_t count = 0;
  std::uint64_t first_ns = 0, last_ns = 0;  ///< CLOCK_REALTIME
  std::int64_t user = -1;                   ///< that caused it; -1: none
};

/// The distinct errors so far, oldest first. Beyond kMaxDistinct, or kMaxOfUser caused by one user, they are only
/// counted, as "others".
class ErrorLog {
 public:
  static constexpr std::size_t kMaxDistinct = 256, kMaxOfUser = 32;

  /// False: seen before (so it need not be printed again).
  bool record(std::string_view text, std::uint64_t now_ns, std::int64_t user = -1);
  std::vector<LoggedError> entries() const;

  static ErrorLog& instance();

 private:
  mutable std::mutex mutex_;
  std::vector<LoggedError> entries_;
};

}  // namespace uroce::platform
