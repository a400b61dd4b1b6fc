// Tables for people, made of whatever the daemon answers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon_client.h"

namespace uroce::ctl {

/// Each list of objects under its own heading, one row an object; then what stands alone, one a line.
std::string tables(const Json& answer);

/// Every number in `answer` under its path ("port.rx_packets").
std::map<std::string, std::int64_t> numbers(const Json& answer);

}  // namespace uroce::ctl
