// For LD_PRELOAD: sometimes delays the caller before and after it reads the clock, as a busy machine does.
#include <dlfcn.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>

namespace {
using std::chrono::steady_clock;
constexpr auto kBetween = std::chrono::milliseconds(40);
constexpr useconds_t kBefore = 3'000, kAfter = 20'000;
}  // namespace

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  using Function = int (*)(timeval*, void*);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "gettimeofday"));
  static auto taken = steady_clock::now();
  if (steady_clock::now() - taken < kBetween) return next(time, zone);
  usleep(kBefore);
  const int result = next(time, zone);
  usleep(kAfter);
  taken = steady_clock::now();
  return result;
}
