// The results of a test, as text or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace uroce::ping {

struct Result {
  std::string device;
  std::string keys;           ///< changing keys: "fast registration" or "window"
  std::uint64_t rounds = 0;   ///< completed
  std::uint64_t bytes = 0;    ///< transferred by READs and WRITEs of this side
  std::uint64_t corrupt = 0;  ///< rounds that returned wrong data
  std::uint64_t elapsed_ns = 0;
  std::vector<std::uint32_t>
      latencies_ns;  ///< of each round (ping, rlat) or half round (wlat); empty: not measured
};

/// Microseconds at a quantile of sorted latencies, 0 to 1.
double quantile_us(const std::vector<std::uint32_t>& sorted, double quantile);

/// Several lines of text, or one JSON object on one line.
std::string report(const Options& options, Result result, bool json);

}  // namespace uroce::ping
