#include "daemon_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "abi/control.h"
#include "pages.h"
#include "platform/unique_fd.h"

namespace uroce::ctl {
namespace {

std::string socket_path(const std::string& run_dir, const std::string& name) {
  return run_dir + "/" + name + ".sock";
}

/// Empty on success, else the reason.
std::string connect_to(int fd, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return path + ": longer than the path of a Unix socket may be";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return path + ": " + std::strerror(errno);
  }
  return {};
}

/// The descriptor received with a message, or -1.
int passed_descriptor(msghdr& message) {
  int found = -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::memcpy(&found, CMSG_DATA(header), sizeof(found));
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

Answer receive(int fd) {
  struct {
    uroce_response head;
    uroce_admin_response body;
  } reply{};
  iovec part{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) {
    return {errno == EAGAIN ? "no answer within five seconds; is the daemon stopped?" : std::strerror(errno), {}};
  }
  const UniqueFd text(passed_descriptor(message));
  if (n < static_cast<ssize_t>(sizeof(reply.head))) return {"the daemon closed the connection; see its log", {}};
  if (reply.head.status != 0 && text.get() < 0) return {std::strerror(reply.head.status), {}};
  if (n < static_cast<ssize_t>(sizeof(reply)) || text.get() < 0 || reply.body.bytes > (1ull << 30)) {
    return {"the answer has another format: daemon and urocectl must be of the same build", {}};
  }
  Json json = Json::parse(read_all(text.get(), reply.body.bytes), nullptr, false);
  if (json.is_discarded()) return {"the answer is not JSON: daemon and urocectl must be of the same build", {}};
  if (json.is_object() && json.contains("error")) return {json["error"].get<std::string>(), std::move(json)};
  if (reply.head.status != 0) return {std::strerror(reply.head.status), std::move(json)};
  return {{}, std::move(json)};
}

/// Sends one message, with a descriptor if `file` is one.
bool send_request(int socket, std::string& text, int file) {
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

Answer exchange(int socket, const Json& request, int file) {
  const uroce_request head{UROCE_CMD_ADMIN, 1};
  std::string text(reinterpret_cast<const char*>(&head), sizeof(head));
  text += request.dump();
  if (text.size() > UROCE_MAX_MESSAGE) return {"the request is longer than a message may be", {}};
  if (!send_request(socket, text, file)) return {std::strerror(errno), {}};
  return receive(socket);
}

}  // namespace

std::vector<std::string> running_daemons(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    if (entry.path().extension() != ".sock") continue;
    const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect_to(fd.get(), entry.path()).empty()) names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Answer ask(const std::string& run_dir, const std::string& name, const Json& request, int file) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (std::string problem = connect_to(fd.get(), socket_path(run_dir, name)); !problem.empty()) {
    return {"no daemon serves " + name + " (" + problem + "); is it running, and with this --run-dir?", {}};
  }
  // A socket that the daemon has not accepted yet takes no descriptors (SO_PASSRIGHTS): the first answer shows that
  // it has.
  if (file >= 0) {
    Answer first = exchange(fd.get(), {{"command", "show"}, {"what", "devices"}}, -1);
    if (!first.problem.empty()) return first;
  }
  Json rest = request, all = Json::object();
  rest["pages"] = true;
  Answer whole = exchange(fd.get(), rest, file);
  if (!whole.problem.empty()) return whole;
  for (Json next = add_page(all, std::move(whole.json)); !next.is_null();) {
    rest["from"] = std::move(next);
    Answer page = exchange(fd.get(), rest, -1);
    if (!page.problem.empty()) return page;
    next = add_page(all, std::move(page.json));
  }
  return {{}, std::move(all)};
}

}  // namespace uroce::ctl
