// Tables made from the JSON of a daemon.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon_client.h"

namespace uroce::ctl {

/// One table with a heading for each list of objects; then single values, one per line.
std::string tables(const Json& answer);

/// A value as a table shows it.
std::string cell(const Json& value);

/// All numbers in `answer`, by path ("port.rx_packets").
std::map<std::string, std::int64_t> numbers(const Json& answer);

}  // namespace uroce::ctl
