#include "control/session/privilege.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace uroce::control {

using platform::Peer;

namespace {

constexpr unsigned kFirstUnprivilegedPort = 1024;

struct Rights {
  std::array<uid_t, 4> uids{};  ///< real, effective, saved, of files
  std::uint64_t effective = 0;  ///< capabilities; 0 also if unknown
};

Rights rights_of(const std::string& process) {
  Rights rights;
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Uid:")) {
      std::istringstream numbers(line.substr(4));
      for (uid_t& uid : rights.uids) numbers >> uid;
    }
    if (line.starts_with("CapEff:")) rights.effective = std::strtoull(line.c_str() + 7, nullptr, 16);
  }
  return rights;
}

/// proc(5): the files are root's while a program with more rights than its user's runs.
bool belongs_to(const std::string& process, uid_t user) {
  struct stat file {};
  return ::stat((process + "/status").c_str(), &file) == 0 && file.st_uid == user;
}

platform::NamespaceId namespace_of(const std::string& process, const char* kind) {
  struct stat file {};
  if (::stat((process + "/ns/" + kind).c_str(), &file) != 0) return {};
  return {file.st_dev, file.st_ino};
}

bool in_own(const std::string& process, const char* kind) {
  const platform::NamespaceId own = namespace_of("/proc/self", kind);
  return own.known() && own == namespace_of(process, kind);
}

bool ended(int pidfd) {
  pollfd look{pidfd, POLLIN, 0};
  return ::poll(&look, 1, 0) != 0;
}

/// Capabilities that count; also whether it is a process of its user, and of no program with more rights.
struct Verdict {
  bool own = false;
  std::uint64_t capabilities = 0;
};

Verdict examine(const Peer& peer, const std::string& process) {
  if (!peer.pidfd.valid()) return {};
  // Checked before and after: the process may execute such a program, and then another one, in between.
  if (!belongs_to(process, peer.uid)) return {};
  const Rights rights = rights_of(process);
  const bool own = std::ranges::all_of(rights.uids, [&](uid_t uid) { return uid == peer.uid; });
  const std::uint64_t capabilities = in_own(process, "user") ? rights.effective : 0;
  // A process number is reused only after its process has ended.
  if (!own || !belongs_to(process, peer.uid) || ended(peer.pidfd.get())) return {};
  return {true, capabilities};
}

bool has(const Verdict& verdict, int capability) { return (verdict.capabilities >> capability & 1) != 0; }

std::string process_of(const Peer& peer) { return "/proc/" + std::to_string(peer.pid); }

}  // namespace

bool may_use_raw_packets(const Peer& peer) {
  const std::string process = process_of(peer);
  const Verdict verdict = examine(peer, process);
  return has(verdict, CAP_NET_RAW) && (has(verdict, CAP_SYS_ADMIN) || in_own(process, "net"));
}

bool may_use_low_ports(const Peer& peer) {
  const std::string process = process_of(peer);
  const Verdict verdict = examine(peer, process);
  return has(verdict, CAP_NET_BIND_SERVICE) && (has(verdict, CAP_SYS_ADMIN) || in_own(process, "net"));
}

std::uint16_t first_unprivileged_port() {
  unsigned port = kFirstUnprivilegedPort;
  if (std::ifstream file("/proc/sys/net/ipv4/ip_unprivileged_port_start"); file) file >> port;
  return static_cast<std::uint16_t>(std::min(port, 0xffffu));
}

bool may_administer(const Peer& peer) {
  const std::string process = process_of(peer);
  const Verdict verdict = examine(peer, process);
  if (has(verdict, CAP_SYS_ADMIN) || (has(verdict, CAP_NET_ADMIN) && in_own(process, "net"))) return true;
  const uid_t daemon = ::geteuid();
  return daemon != 0 && peer.uid == daemon && verdict.own && in_own(process, "user") && in_own(process, "pid");
}

void read_namespaces(Peer& peer) {
  const std::string process = process_of(peer);
  peer.user_ns = namespace_of(process, "user");
  peer.pid_ns = namespace_of(process, "pid");
}

}  // namespace uroce::control
