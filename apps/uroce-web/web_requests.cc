#include "web_requests.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace uroce::ctl {
namespace {

constexpr const char* kFormOfListen =
    ": give ADDRESS:PORT, such as 127.0.0.1:8470 or [::1]:8470; port 0 is any free one";

/// A number of at most `most`; nothing else around it.
bool parse_number(std::string_view text, std::uint64_t most, std::uint64_t& out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && read.ec == std::errc{} && read.ptr == text.data() + text.size() && out <= most;
}

/// False: it is not an address of one interface.
bool examine_address(Listen& listen, bool v6) {
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, listen.address.c_str(), bytes.data()) != 1) return false;
  constexpr std::array<std::uint8_t, 16> kAny{}, kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (bytes == kAny || (v6 && std::equal(kMapped.begin(), kMapped.begin() + 12, bytes.begin()))) return false;
  // As a browser writes it into the header Host.
  char text[INET6_ADDRSTRLEN] = "";
  listen.address = ::inet_ntop(v6 ? AF_INET6 : AF_INET, bytes.data(), text, sizeof text);
  auto loopback = kAny;
  loopback[15] = 1;
  listen.loopback = v6 ? bytes == loopback : bytes[0] == 127;
  return true;
}

/// The media type, without parameters.
std::string media_type(const std::string& text) {
  std::string type = text.substr(0, text.find(';'));
  type.erase(type.find_last_not_of(' ') + 1);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; });
  return type;
}

constexpr std::array<const char*, 4> kPosts = {"/fault", "/verbs", "/link", "/latency"};

bool is_post(const std::string& path) { return std::find(kPosts.begin(), kPosts.end(), path) != kPosts.end(); }

/// A string of the body; empty: there is none.
std::string text_of(const Json& body, const char* key) {
  const auto it = body.find(key);
  return it != body.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::string fault_request(const Json& body, unsigned number, Json& out) {
  const std::string rule = text_of(body, "rule"), off = text_of(body, "off");
  if (rule.empty() == off.empty())
    return "give \"rule\" with a rule such as drop=0.01, or \"off\" with the name of one";
  if (!off.empty()) {
    out["remove"] = off;
  } else {
    // A rule is removed by its name.
    const bool named = rule.starts_with("name=") || rule.find(",name=") != std::string::npos;
    out["add"] = named ? rule : "name=web-" + std::to_string(number) + "," + rule;
  }
  return {};
}

std::string verbs_request(const Json& body, Json& out) {
  const std::string rule = text_of(body, "rule");
  const auto off = body.find("off");
  const bool removes = off != body.end() && off->is_number_unsigned();
  if (rule.empty() != removes)
    return "give \"rule\" with a rule such as op=WRITE,nth=100,status=RETRY_EXC_ERR, or \"off\" with the number of "
           "one";
  if (removes) {
    out["verbs"] = {{"remove", *off}};
  } else {
    out["verbs"] = {{"add", rule}};
  }
  return {};
}

std::string switch_request(const Json& body, const char* key, const char* on, const char* off, Json& out,
                           const char* command_key) {
  const std::string word = text_of(body, key);
  if (word != on && word != off) return std::string("give \"") + key + "\": \"" + on + "\" or \"" + off + "\"";
  out[command_key] = word;
  return {};
}

}  // namespace

std::string Listen::authority() const {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::string parse_listen(const std::string& text, Listen& out) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return "--listen " + text + kFormOfListen;
  out.address = text.substr(0, colon);
  const bool v6 = out.address.size() > 2 && out.address.front() == '[' && out.address.back() == ']';
  if (v6) out.address = out.address.substr(1, out.address.size() - 2);
  std::uint64_t port = 0;
  if (!parse_number(std::string_view(text).substr(colon + 1), 65535, port))
    return "--listen " + text + kFormOfListen;
  out.port = static_cast<std::uint16_t>(port);
  if (!examine_address(out, v6)) {
    return "--listen " + text + ": " + out.address +
           " is not the address of an interface: give a numeric one, such as 127.0.0.1:8470 or [::1]:8470";
  }
  return {};
}

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return {};
  constexpr const char* kDigits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference |
                                            (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

Refusal check_request(const RequestFacts& request, const Listen& listen, const std::string& token) {
  // Without a text, as the library would send each part of the list from it.
  if (request.has_range) return {416, {}};
  // A browser leaves out the port that http:// means.
  const std::string port = ":" + std::to_string(listen.port), own = listen.authority();
  const std::string host = listen.port == 80 ? request.host + port : request.host;
  // A page of another site whose name was made to resolve to this address sends the name of that site.
  if (host != own && !(listen.loopback && host == "localhost" + port)) {
    return {403, "the header Host must be " + own + "\n"};
  }
  if (request.has_origin && request.origin != "http://" + request.host) {
    return {403, "requests of other sites are refused\n"};
  }
  const bool get = request.method == "GET", post = request.method == "POST";
  const bool known = request.path == "/" || request.path == "/events" || is_post(request.path);
  if (!known) return {404, "there are /, /events, /fault, /verbs, /link and /latency\n"};
  if (get ? is_post(request.path) : !post || !is_post(request.path)) {
    return {405, is_post(request.path) ? "give POST\n" : "give GET\n"};
  }
  if (request.path == "/") return {};
  if (!same_secret(request.token, token)) return {403, "open the URL that urocectl web has printed\n"};
  Refusal right{.token_is_right = true};
  if (get) return right;
  std::uint64_t length = 0;
  if (!request.has_origin) {
    right = {403, "a POST needs the header Origin\n", true};
  } else if (media_type(request.content_type) != "application/json" || request.has_encoding) {
    right = {415, "give Content-Type: application/json, without an encoding\n", true};
  } else if (!parse_number(request.length, UINT64_MAX, length)) {
    right = {411, "give Content-Length\n", true};
  } else if (length > kMostBody) {
    right = {413, "a body has at most " + std::to_string(kMostBody) + " bytes\n", true};
  }
  return right;
}

std::string request_of(const std::string& path, const std::string& body, const std::vector<std::string>& devices,
                       unsigned number, std::string& device, Json& out) {
  const Json given = Json::parse(body, nullptr, false);
  if (!given.is_object()) return "the body is not a JSON object";
  device = text_of(given, "device");
  // The name becomes part of a path.
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
    return "\"" + device + "\" is not a device that this page shows";
  }
  if (path == "/link") {
    out = {{"command", "link"}, {"address", ""}};
    return switch_request(given, "link", "up", "down", out, "change");
  }
  if (path == "/latency") {
    out = {{"command", "latency"}};
    return switch_request(given, "latency", "on", "off", out, "set");
  }
  out = {{"command", "fault"}};
  return path == "/fault" ? fault_request(given, number, out) : verbs_request(given, out);
}

}  // namespace uroce::ctl
