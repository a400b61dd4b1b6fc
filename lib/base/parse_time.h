// Times as people write them: "200us", "5ms".
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/types.h"

namespace uroce::base {

/// A whole number with a unit, ns, us, ms or s. False: it is none, or above `most`.
inline bool parse_time(std::string_view text, Nanos& value, Nanos most = 10 * kSecond) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  const Nanos scale = unit == "ns"   ? 1
                      : unit == "us" ? kMicrosecond
                      : unit == "ms" ? kMillisecond
                      : unit == "s"  ? kSecond
                                     : 0;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (scale == 0 || error != std::errc{} || end != text.data() + digits || number > most / scale) return false;
  value = number * scale;
  return true;
}

}  // namespace uroce::base
