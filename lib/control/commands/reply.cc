// The words of refusals.
#include "control/commands/reply.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "control/commands/command.h"

namespace uroce::control::commands {

int Call::refuse(int error, const char* format, ...) const {
  char text[UROCE_MAX_REASON];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  reply.why = text;
  return error;
}

bool Call::within(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) const {
  if (value >= least && value <= most) return true;
  static_cast<void>(refuse(EINVAL, "%s is %llu; allowed are %llu to %llu", name,
                           static_cast<unsigned long long>(value), static_cast<unsigned long long>(least),
                           static_cast<unsigned long long>(most)));
  return false;
}

int Call::in_use(const char* kind, std::uint32_t users, const char* by) const {
  return refuse(EBUSY, "the %s is in use by %u %s; destroy those first", kind, users, by);
}

}  // namespace uroce::control::commands
