// `urocectl metrics --http`: answers one HTTP request on standard input, which systemd hands to a service of a
// socket unit with Accept=yes. The daemon itself speaks no HTTP.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace uroce::ctl {

/// The head of a request, up to its empty line. nullopt: the client closed, sent more than 8 KiB, or was not done
/// in time.
std::optional<std::string> read_request(int input, std::chrono::milliseconds within = std::chrono::seconds(5));

/// The response (RFC 9110, RFC 9112), after which the connection ends. `metrics` is called for GET and HEAD of
/// /metrics; nullopt: no daemon is there.
std::string http_response(const std::string& request, const std::function<std::optional<std::string>()>& metrics);

/// False: the client did not take all of it.
bool write_all(int output, const std::string& text);

}  // namespace uroce::ctl
