#include "mapping/thread_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "platform/unique_fd.h"

namespace uroce::daemon {

namespace {

/// The state in proc_pid_stat(5); 0: it cannot be read.
char state_of(pid_t thread) {
  char path[64], text[256];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", static_cast<int>(thread));
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = file.valid() ? ::read(file.get(), text, sizeof(text) - 1) : 0;
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* after_name = std::strrchr(text, ')');
  return after_name != nullptr && after_name[1] == ' ' ? after_name[2] : '\0';
}

}  // namespace

bool is_blocked_in_kernel(pid_t thread) { return thread != 0 && state_of(thread) != 'R'; }

bool waits_for_pages(pid_t thread) { return thread != 0 && state_of(thread) == 'D'; }

}  // namespace uroce::daemon
