// For LD_PRELOAD: a clock that is read up to 5 ms late, differently each time, as on a busy machine.
#include <dlfcn.h>
#include <sys/time.h>

#include <cstdint>

namespace {

constexpr std::uint32_t kLatest = 5'000;  // microseconds

std::uint32_t next_lateness() {
  static std::uint32_t state = 1;
  state = state * 1664525 + 1013904223;  // a linear congruential generator; its high bits are the good ones
  return (state >> 16) % kLatest;
}

}  // namespace

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  using Function = int (*)(timeval*, void*);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = next(time, zone);
  const timeval late{0, static_cast<suseconds_t>(next_lateness())};
  timeradd(time, &late, time);
  return result;
}
