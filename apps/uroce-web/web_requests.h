// What `urocectl web` lets in, and what it asks daemons for a request of the page. Nothing here does input or
// output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "urocectl/daemon_client.h"

namespace uroce::ctl {

constexpr const char* kDefaultListen = "127.0.0.1:8470";

/// Where the page is served.
struct Listen {
  std::string address;     ///< numeric
  std::uint16_t port = 0;  ///< 0: any free one
  bool loopback = true;

  /// As a URL and the header Host have it: "127.0.0.1:8470", "[::1]:8470".
  std::string authority() const;
};

/// From "ADDRESS:PORT" or "[ADDRESS]:PORT". Returns what is wrong with it, empty: nothing.
std::string parse_listen(const std::string& text, Listen& out);

/// 128 bits of the kernel's random numbers, as 32 hexadecimal digits; empty: it gave none.
std::string new_token();

/// Takes a time that depends on the lengths alone.
bool same_secret(std::string_view a, std::string_view b);

/// The parts of a request that decide whether it is served. A header that is there twice makes its field invalid.
struct RequestFacts {
  std::string method, path, host, origin, token, content_type;
  bool has_origin = false;
  bool has_encoding = false;  ///< Transfer-Encoding or Content-Encoding
  bool has_range = false;     ///< Range: each part of a list makes the response longer
  std::string length;         ///< Content-Length
};

struct Refusal {
  int status = 0;  ///< of HTTP; 0: the request is served
  std::string text;
  bool token_is_right = false;  ///< though the request may be refused for another reason
};

constexpr std::size_t kMostBody = 4096;

/// Against web sites that the user visits (RFC 6454, DNS rebinding), and against other users of the machine, who
/// can connect as well but do not have the token.
Refusal check_request(const RequestFacts& request, const Listen& listen, const std::string& token);

/// The request for the daemon that a POST to `path` with this body wants: to `device`, one of `devices`. Returns
/// what is wrong with it, empty: nothing. `number`: part of the name of a rule that has none, which it needs to be
/// removed.
std::string request_of(const std::string& path, const std::string& body, const std::vector<std::string>& devices,
                       unsigned number, std::string& device, Json& out);

}  // namespace uroce::ctl
