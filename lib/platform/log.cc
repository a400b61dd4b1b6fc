#include "platform/log.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "platform/clock.h"

namespace uroce::platform {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

thread_local std::int64_t t_user = -1;

std::uint64_t wall_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// A token bucket for each user that has caused lines lately.
class UserLimits {
 public:
  /// Whether a line of this user may be written. `left_out`: how many were not since the last one that was.
  bool admit(std::int64_t user, LogLevel level, Nanos now, std::uint64_t& left_out) {
    const Nanos burst = level <= LogLevel::kWarning ? 2 * kBurst : kBurst;
    const std::lock_guard lock(mutex_);
    if (users_.size() >= kMaxUsers) std::erase_if(users_, [now](const auto& u) { return u.second.full_at <= now; });
    if (users_.size() >= kMaxUsers && !users_.contains(user)) return false;
    Bucket& bucket = users_[user];
    const Nanos next = std::max(bucket.full_at, now) + kInterval;
    if (next > now + burst * kInterval) {
      ++bucket.left_out;
      return false;
    }
    bucket.full_at = next;
    left_out = std::exchange(bucket.left_out, 0);
    return true;
  }

 private:
  static constexpr Nanos kInterval = 200 * kMillisecond;
  static constexpr Nanos kBurst = 50;  // lines
  static constexpr std::size_t kMaxUsers = 1024;
  struct Bucket {
    Nanos full_at = 0;
    std::uint64_t left_out = 0;
  };
  std::mutex mutex_;
  std::map<std::int64_t, Bucket> users_;
};

/// "<6>" for the journal.
std::string prefix_of(LogLevel level) {
  static const bool journal = is_journal(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
  constexpr const char* kLevels[] = {"<3>", "<4>", "<6>", "<7>"};  // of syslog(3)
  return journal ? kLevels[static_cast<std::size_t>(level)] : "";
}

/// Lines on their way to stderr. Shared with the thread, which may never return from write(2).
struct Lines {
  static constexpr std::size_t kMost = 256;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> waiting;
  std::uint64_t lost = 0;
  bool writing = false, stopping = false;

  // Not through stdio, whose lock others would wait for.
  static void print(const std::string& text) {
    const std::string line = text + "\n";
    static_cast<void>(::write(STDERR_FILENO, line.data(), line.size()) == 0);
  }
  void put(std::string text) {
    {
      const std::lock_guard lock(mutex);
      if (waiting.size() >= kMost) {
        ++lost;
        return;
      }
      waiting.push_back(std::move(text));
    }
    changed.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (waiting.empty()) return;
      const std::string line = std::move(waiting.front());
      const std::uint64_t missing = std::exchange(lost, 0);
      waiting.pop_front();
      writing = true;
      lock.unlock();
      print(line);
      if (missing != 0) {
        print(prefix_of(LogLevel::kWarning) + "uroced: " + std::to_string(missing) +
              " lines are lost because stderr was blocked");
      }
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }
};

UserLimits g_limits;
std::mutex g_lines_mutex;
std::shared_ptr<Lines> g_lines;

void write_line(LogLevel level, const char* text) {
  std::string line = prefix_of(level) + "uroced: " + text;
  std::shared_ptr<Lines> lines;
  {
    const std::lock_guard lock(g_lines_mutex);
    lines = g_lines;
  }
  lines != nullptr ? lines->put(std::move(line)) : static_cast<void>(std::fprintf(stderr, "%s\n", line.c_str()));
}

}  // namespace

LogUser::LogUser(std::uint32_t user) : before_(std::exchange(t_user, std::int64_t{user})) {}
LogUser::~LogUser() { t_user = before_; }

LogWriter::LogWriter() {
  auto lines = std::make_shared<Lines>();
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([lines] {
      ::pthread_setname_np(::pthread_self(), "log");
      lines->run();
    }).detach();
    const std::lock_guard lock(g_lines_mutex);
    g_lines = std::move(lines);
  } catch (const std::system_error&) {
    // Lines are written by the caller.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  std::shared_ptr<Lines> lines;
  {
    const std::lock_guard lock(g_lines_mutex);
    lines = g_lines;
  }
  if (lines == nullptr) return;
  bool written = false;
  {
    std::unique_lock lock(lines->mutex);
    lines->stopping = true;
    lines->changed.notify_all();
    written = lines->changed.wait_for(lock, std::chrono::seconds(1),
                                      [&lines] { return lines->waiting.empty() && !lines->writing; });
  }
  // While stderr is blocked, further lines are lost rather than waited for.
  const std::lock_guard lock(g_lines_mutex);
  if (written) g_lines = nullptr;
}

bool is_journal(int fd, const char* stream) {
  struct stat file {};
  unsigned long long device = 0, inode = 0;
  return stream != nullptr && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 && ::fstat(fd, &file) == 0 &&
         file.st_dev == device && file.st_ino == inode;
}

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
  if (level <= LogLevel::kWarning) fresh = ErrorLog::instance().record(text, wall_clock_ns(), t_user);
  // A client that repeats a mistake must not fill the disk: the repetitions are only counted.
  if (level > g_level.load(std::memory_order_relaxed) || !fresh) return;
  std::uint64_t left_out = 0;
  if (t_user >= 0 && level < LogLevel::kDebug && !g_limits.admit(t_user, level, monotonic_now(), left_out)) return;
  write_line(level, text);
  if (left_out == 0) return;
  std::snprintf(text, sizeof(text), "%llu lines about programs of user %lld are left out",
                static_cast<unsigned long long>(left_out), static_cast<long long>(t_user));
  write_line(LogLevel::kWarning, text);
}

bool ErrorLog::record(std::string_view text, std::uint64_t now_ns, std::int64_t user) {
  std::lock_guard lock(mutex_);
  std::size_t of_user = 0;
  for (LoggedError& entry : entries_) {
    of_user += user >= 0 && entry.user == user;
    if (entry.text == text) {
      ++entry.count;
      entry.last_ns = now_ns;
      return false;
    }
  }
  if (of_user >= kMaxOfUser) {
    LoggedError& last =
        *std::find_if(entries_.rbegin(), entries_.rend(), [user](const LoggedError& e) { return e.user == user; });
    last.text = "others of user " + std::to_string(user);
    ++last.count;
    last.last_ns = now_ns;
    return false;
  }
  if (entries_.size() >= kMaxDistinct) {
    LoggedError& last = entries_.back();
    last.text = "others";
    ++last.count;
    last.last_ns = now_ns;
    return false;
  }
  entries_.push_back({std::string(text), 1, now_ns, now_ns, user});
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

}  // namespace uroce::platform
