#include "daemon_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "abi/control.h"
#include "pages.h"

namespace uroce::ctl {
namespace {

std::string socket_path(const std::string& run_dir, const std::string& name) {
  return run_dir + "/" + name + ".sock";
}

/// 0 or an errno.
int connect_to(int fd, const std::string& path, int limit_s) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const timeval limit{limit_s, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

std::string problem_of(int error, const std::string& path) {
  if (error == ENAMETOOLONG) return path + ": longer than the path of a Unix socket may be";
  return error == 0 ? std::string() : path + ": " + std::strerror(error);
}

/// The answer, and the stream of a trace.
using Descriptors = std::array<UniqueFd, 2>;

Descriptors passed_descriptors(msghdr& message) {
  Descriptors found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < std::min(count, found.size()); ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      found[i].reset(descriptor);
    }
  }
  return found;
}

std::string read_all(int fd, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = pread(fd, text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

Answer failed(std::string problem) { return {std::move(problem), {}, {}, 0}; }

pid_t peer_of(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

Answer receive(int fd) {
  struct {
    uroce_response head;
    uroce_admin_response body;
  } reply{};
  iovec part{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) {
    return failed(errno == EAGAIN ? "no answer within five seconds; is the daemon stopped?" : std::strerror(errno));
  }
  auto [text, stream] = passed_descriptors(message);
  if (n < static_cast<ssize_t>(sizeof(reply.head))) return failed("the daemon closed the connection; see its log");
  if (reply.head.status != 0 && text.get() < 0) return failed(std::strerror(reply.head.status));
  if (n < static_cast<ssize_t>(sizeof(reply)) || text.get() < 0 || reply.body.bytes > (1ull << 30)) {
    return failed("the answer has another format: daemon and urocectl must be of the same build");
  }
  Json json = Json::parse(read_all(text.get(), reply.body.bytes), nullptr, false);
  if (json.is_discarded()) return failed("the answer is not JSON: daemon and urocectl must be of the same build");
  if (json.is_object() && json.contains("error")) return {json["error"].get<std::string>(), std::move(json), {}, 0};
  if (reply.head.status != 0) return {std::strerror(reply.head.status), std::move(json), {}, 0};
  return {{}, std::move(json), std::move(stream), peer_of(fd)};
}

Answer exchange(int socket, const Json& request) {
  const uroce_request head{UROCE_CMD_ADMIN, 1};
  std::string text(reinterpret_cast<const char*>(&head), sizeof(head));
  text += request.dump();
  if (text.size() > UROCE_MAX_MESSAGE) return failed("the request is longer than a message may be");
  if (send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    return failed(std::strerror(errno));
  }
  return receive(socket);
}

std::vector<std::string> names_of_sockets(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    if (entry.path().extension() == ".sock") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> running_daemons(const std::string& run_dir) {
  std::vector<std::string> names;
  for (std::string& name : names_of_sockets(run_dir)) {
    const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect_to(fd.get(), socket_path(run_dir, name), kAnswerLimit) == 0) names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> served_devices(const std::string& run_dir) {
  std::vector<std::string> names = names_of_sockets(run_dir);
  std::erase_if(names, [&](const std::string& name) { return !is_served(run_dir, name); });
  return names;
}

bool is_served(const std::string& run_dir, const std::string& name) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = connect_to(fd.get(), socket_path(run_dir, name), kAnswerLimit);
  // EAGAIN: more wait than its backlog has places. EACCES: this user may not use it.
  return error == 0 || error == EAGAIN || error == EACCES;
}

Answer ask(const std::string& run_dir, const std::string& name, const Json& request, int limit_s) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const std::string path = socket_path(run_dir, name);
  if (const std::string problem = problem_of(connect_to(fd.get(), path, limit_s), path); !problem.empty()) {
    return failed("no daemon serves " + name + " (" + problem + "); is it running, and with this --run-dir?");
  }
  Json rest = request, all = Json::object();
  rest["pages"] = true;
  Answer whole = exchange(fd.get(), rest);
  if (!whole.problem.empty()) return whole;
  for (Json next = add_page(all, std::move(whole.json)); !next.is_null();) {
    rest["from"] = std::move(next);
    Answer page = exchange(fd.get(), rest);
    if (!page.problem.empty()) return page;
    next = add_page(all, std::move(page.json));
  }
  return {{}, std::move(all), std::move(whole.stream), whole.daemon};
}

}  // namespace uroce::ctl
