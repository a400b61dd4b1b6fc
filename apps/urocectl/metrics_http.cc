#include "metrics_http.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <utility>

namespace uroce::ctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 8192;

bool is_whole(const std::string& head) {
  return head.find("\r\n\r\n") != std::string::npos || head.find("\n\n") != std::string::npos;
}

std::string response(const char* status, const std::string& type, const std::string& body, bool with_body,
                     const std::string& more = {}) {
  std::string text = std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
                     "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n" + more +
                     "\r\n";
  return with_body ? text + body : text;
}

}  // namespace

std::optional<std::string> read_request(int input, std::chrono::milliseconds within) {
  const auto end = Clock::now() + within;
  std::string head;
  while (!is_whole(head)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd readable{input, POLLIN, 0};
    if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) < 0) return std::nullopt;
    if (readable.revents == 0) continue;
    char part[1024];
    const ssize_t got = ::read(input, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || head.size() + static_cast<std::size_t>(got) > kMostBytes) return std::nullopt;
    head.append(part, static_cast<std::size_t>(got));
  }
  return head;
}

std::string http_response(const std::string& request, const std::function<std::optional<std::string>()>& metrics) {
  constexpr const char* kText = "text/plain; charset=utf-8";
  std::istringstream line(request.substr(0, request.find_first_of("\r\n")));
  std::string method, target, version, rest;
  if (!(line >> method >> target >> version) || (line >> rest) || !version.starts_with("HTTP/1.")) {
    return response("400 Bad Request", kText, "not a request of HTTP/1.x\n", true);
  }
  const bool with_body = method != "HEAD";
  if (method != "GET" && method != "HEAD") {
    return response("405 Method Not Allowed", kText, "only GET and HEAD\n", with_body, "Allow: GET, HEAD\r\n");
  }
  if (target.substr(0, target.find('?')) != "/metrics") {
    return response("404 Not Found", kText, "the metrics are at /metrics\n", with_body);
  }
  const std::optional<std::string> text = metrics();
  if (!text) return response("503 Service Unavailable", kText, "no daemon runs\n", with_body);
  return response("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", *text, with_body);
}

bool write_all(int output, const std::string& text) {
  std::signal(SIGPIPE, SIG_IGN);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(output, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace uroce::ctl
