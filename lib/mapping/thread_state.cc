#include "mapping/thread_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "platform/unique_fd.h"

namespace uroce::mapping {

namespace {

using Text = std::array<char, 256>;

/// The file of the thread; false: it cannot be read.
bool read_file(pid_t thread, const char* name, Text& text) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/%s", static_cast<int>(thread), name);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = file.valid() ? ::read(file.get(), text.data(), text.size() - 1) : 0;
  if (n <= 0) return false;
  text[static_cast<std::size_t>(n)] = '\0';
  return true;
}

/// The state in proc_pid_stat(5); 0: it cannot be read.
char state_of(pid_t thread) {
  Text buffer;
  if (!read_file(thread, "stat", buffer)) return 0;
  const char* const text = buffer.data();
  const char* after_name = std::strrchr(text, ')');
  return after_name != nullptr && after_name[1] == ' ' ? after_name[2] : '\0';
}

}  // namespace

bool is_blocked_in_kernel(pid_t thread) { return thread != 0 && state_of(thread) != 'R'; }

bool waits_for_pages(pid_t thread) { return thread != 0 && state_of(thread) == 'D'; }

std::uint64_t times_run(pid_t thread) {
  Text text;
  unsigned long long ran = 0, waited = 0, times = 0;
  if (!read_file(thread, "schedstat", text)) return 0;
  return std::sscanf(text.data(), "%llu %llu %llu", &ran, &waited, &times) == 3 ? times : 0;
}

}  // namespace uroce::mapping
