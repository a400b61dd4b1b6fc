// The environment variable UROCE_ICRC: the ICRC engine to use in place of the fastest, to compare or to rule one
// out. Read by uroced, and by the tests and benchmarks that use the engine of the daemon.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "wire/icrc.h"

namespace uroce::daemon {

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

/// Makes wire::crc_engine() return the engine that UROCE_ICRC names; unset or empty: no change. To be called before
/// transports are created. Returns empty, or what is wrong, which names are allowed, and what to do.
inline std::string apply_icrc_variable() {
  const char* const given = std::getenv("UROCE_ICRC");
  if (given == nullptr || *given == '\0' || wire::force_crc_engine(given)) return {};
  const std::string name = given;
  const auto engines = wire::crc_engines();
  const bool known = std::any_of(engines.begin(), engines.end(),
                                 [&](const wire::CrcEngine* engine) { return engine->name == name; });
  const char* const why =
      known ? "this CPU lacks its instructions; it must be one of " : "there is no such engine; it must be one of ";
  return "UROCE_ICRC \"" + name + "\": " + why + usable_crc_engines() + ", or unset for the fastest";
}

}  // namespace uroce::daemon
