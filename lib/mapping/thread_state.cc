#include "mapping/thread_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "platform/unique_fd.h"

namespace uroce::daemon {

bool is_blocked_in_kernel(pid_t thread) {
  if (thread == 0) return false;
  char path[64], text[256];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", static_cast<int>(thread));
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = file.valid() ? ::read(file.get(), text, sizeof(text) - 1) : 0;
  if (n <= 0) return true;
  text[n] = '\0';
  const char* after_name = std::strrchr(text, ')');
  return after_name == nullptr || std::strncmp(after_name, ") R", 3) != 0;
}

}  // namespace uroce::daemon
