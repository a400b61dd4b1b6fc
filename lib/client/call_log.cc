#include "client/call_log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/errno_name.h"
#include "client/system.h"

namespace uroce::client {
namespace {

constexpr std::size_t kLine = 512, kReason = 256;

const char* library_name = "";
char file[PATH_MAX];  ///< empty: stderr

struct Running {
  const char* verb;
  int error;
  int reason_error;  ///< what `reason` is about
  char reason[kReason];
};
thread_local Running running;

/// False: FILE cannot be opened.
bool write_to_file(const char* line, std::size_t bytes) {
  const int fd = sys::open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (fd < 0) return false;
  (void)sys::write(fd, line, bytes);
  sys::close(fd);
  return true;
}

void write_line(const char* line, std::size_t bytes) {
  if (file[0] == '\0' || !write_to_file(line, bytes)) (void)sys::write(STDERR_FILENO, line, bytes);
}

[[gnu::format(printf, 1, 2)]] void print(const char* format, ...) {
  const int before = errno;  // the program reads it after the verb
  char line[kLine];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  const auto bytes = static_cast<std::size_t>(std::clamp(length, 1, static_cast<int>(kLine) - 1));
  line[bytes - 1] = '\n';
  write_line(line, bytes);
  errno = before;
}

const char* words_for(int error) {
  switch (error) {
    case EINVAL:
      return "the library refused an argument: NULL, out of range, or not for this object (see its manual page)";
    case EOPNOTSUPP: return "this device does not support it (docs/verbs.md)";
    case ENOMEM: return "no memory for it";
    case EFAULT: return "the memory is not mapped, or not with the access that this needs";
    case EBADF: return "the descriptor is not open";
    case EBUSY: return "objects that were made from it still exist; destroy them first";
    case ENODEV:
      return "no daemon serves such a device or address (UROCE_RUN_DIR, `urocectl show devices`), or this process "
             "was forked by the one that opened the device, which keeps queues and memory for itself";
    case EMFILE: return "no descriptor is free (ulimit -n)";
    case EIO: return "the daemon has ended, or has closed this session";
    case EPROTO: return "the library and the daemon are of different builds";
    default: return "refused by the library or the operating system";
  }
}

/// "1779000000.123456 libibverbs: PROGRAM[PID]: VERB: RESULT"
void write_entry(const char* verb, const char* outcome, const char* reason) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  print("%lld.%06ld %s: %s[%d]: %s: %s%s%s\n", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000, library_name,
        program_invocation_short_name, static_cast<int>(::getpid()), verb, outcome, *reason != '\0' ? ": " : "",
        reason);
}

void report(const char* verb, int error) {
  char number[16];
  const char* name = errno_name(error);
  if (name == nullptr) {
    std::snprintf(number, sizeof(number), "errno %d", error);
    name = number;
  }
  const bool explained = running.reason_error == error && running.reason[0] != '\0';
  write_entry(verb, name, explained ? running.reason : words_for(error));
}

bool parse(std::string_view text, LogLevel& level, std::string_view& path) {
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  if (word == "info") {
    level = LogLevel::kInfo;
  } else if (word == "debug") {
    level = LogLevel::kDebug;
  } else {
    return false;
  }
  path = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  return colon == std::string_view::npos || !path.empty();
}

/// The program may change its working directory. False: the path is too long.
bool keep_path(std::string_view path) {
  file[0] = '\0';
  std::size_t used = 0;
  if (!path.empty() && path[0] != '/' && ::getcwd(file, sizeof(file)) != nullptr) {
    used = std::strlen(file);
    file[used++] = '/';
  }
  if (used + path.size() >= sizeof(file)) {
    file[0] = '\0';
    return false;
  }
  path.copy(file + used, path.size());
  file[used + path.size()] = '\0';
  return true;
}

}  // namespace

namespace call_log {

void start(const char* library, bool reports) {
  file[0] = '\0';
  const char* const value = ::secure_getenv("UROCE_LOG");
  if (value == nullptr || *value == '\0') return;
  LogLevel wanted = LogLevel::kOff;
  std::string_view path;
  if (!parse(value, wanted, path)) {
    if (reports) {
      print("%s: UROCE_LOG=%s: give info or debug, or either with a file: info:FILE; nothing is logged\n", library,
            value);
    }
    return;
  }
  library_name = library;
  errno = ENAMETOOLONG;
  if (!path.empty() && (!keep_path(path) || !write_to_file("", 0))) {
    const int error = errno;
    file[0] = '\0';
    if (reports) {
      print("%s: UROCE_LOG: cannot write %.*s: %s; the lines go to stderr\n", library,
            static_cast<int>(path.size()), path.data(), ::strerror(error));
    }
  }
  level.store(wanted, std::memory_order_relaxed);
}

void set_reason(int error, const char* format, ...) {
  if (!on()) return;
  const int before = errno;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(running.reason, sizeof(running.reason), format, arguments);
  va_end(arguments);
  running.reason_error = error;
  errno = before;
}

void note_result(int error) { running.error = error; }

void failed_post(const char* verb, int error) {
  if (!on()) return;
  // A full queue is how many programs find out that it is full.
  if (error == ENOMEM && level.load(std::memory_order_relaxed) != LogLevel::kDebug) return;
  if (error == ENOMEM) set_reason(error, "the queue is full: poll its CQ for completions first");
  report(verb, error);
  running.reason_error = 0;
}

}  // namespace call_log

void Verb::begin(const char* name) {
  if (running.verb != nullptr) return;
  active_ = true;
  running.verb = name;
  running.error = running.reason_error = 0;
}

void Verb::end() {
  if (running.error != 0) {
    report(running.verb, running.error);
  } else if (call_log::level.load(std::memory_order_relaxed) == LogLevel::kDebug) {
    write_entry(running.verb, "done", "");
  }
  running.verb = nullptr;
}

}  // namespace uroce::client
