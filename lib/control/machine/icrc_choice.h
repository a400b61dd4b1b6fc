// Which ICRC engine uroced uses, and the tests and benchmarks that use the engine of the daemon: the one that the
// environment variable UROCE_ICRC names, to compare or to rule one out, or else the fastest.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/types.h"
#include "platform/clock.h"
#include "wire/icrc.h"

namespace uroce::control {

/// The names of the engines for which `wanted` (of a CrcEngine) is true, slowest first, separated by ", ".
template <class Wanted>
std::string crc_engine_names(Wanted wanted) {
  std::string names;
  for (const wire::CrcEngine* engine : wire::crc_engines()) {
    if (!wanted(*engine)) continue;
    if (!names.empty()) names += ", ";
    names += engine->name;
  }
  return names;
}

/// Those that this CPU has.
inline std::string usable_crc_engines() {
  return crc_engine_names([](const wire::CrcEngine& engine) { return engine.supported(); });
}

/// The least time of some fused copies of 16 times 4 KiB in the L1 cache.
inline Nanos copy_time(const wire::CrcEngine& engine) {
  alignas(64) std::array<std::byte, 4096> from{}, to;
  Nanos least = ~Nanos{0};
  for (int round = 0; round < 32; ++round) {
    const Nanos start = monotonic_now();
    for (int i = 0; i < 16; ++i) engine.copy(0, to.data(), from.data(), from.size());
    least = std::min(least, monotonic_now() - start);
  }
  return least;
}

/// Of the two engines with 512 bits the one that is faster on this CPU.
inline void choose_by_time() {
  const wire::CrcEngine* before = nullptr;
  for (const wire::CrcEngine* engine : wire::crc_engines()) {
    if (!engine->supported()) continue;
    if (engine->name == "gfni" && copy_time(*before) < copy_time(*engine)) wire::force_crc_engine(before->name);
    before = engine;
  }
}

/// Makes wire::crc_engine() return the engine that UROCE_ICRC names; unset or empty: the fastest. To be called
/// before transports are created. Returns empty, or what is wrong, which names are allowed, and what to do.
inline std::string choose_icrc_engine() {
  const char* const given = std::getenv("UROCE_ICRC");
  if (given == nullptr || *given == '\0') {
    choose_by_time();
    return {};
  }
  if (wire::force_crc_engine(given)) return {};
  const std::string name = given;
  const auto engines = wire::crc_engines();
  const bool known = std::any_of(engines.begin(), engines.end(),
                                 [&](const wire::CrcEngine* engine) { return engine->name == name; });
  const char* const why =
      known ? "this CPU lacks its instructions; it must be one of " : "there is no such engine; it must be one of ";
  return "UROCE_ICRC \"" + name + "\": " + why + usable_crc_engines() + ", or unset for the fastest";
}

}  // namespace uroce::control
