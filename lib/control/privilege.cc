#include "control/privilege.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace uroce::daemon {
namespace {

constexpr std::uint64_t kNetRaw = std::uint64_t{1} << CAP_NET_RAW;

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

bool same_user_namespace(const std::string& process) {
  struct stat own {};
  struct stat other {};
  return ::stat("/proc/self/ns/user", &own) == 0 && ::stat((process + "/ns/user").c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool ended(int pidfd) {
  pollfd look{pidfd, POLLIN, 0};
  return ::poll(&look, 1, 0) != 0;
}

}  // namespace

bool may_use_raw_packets(const Peer& peer) {
  if (!peer.pidfd.valid()) return false;
  const std::string process = "/proc/" + std::to_string(peer.pid);
  // Checked before and after: the process may execute such a program, and then another one, in between.
  if (!belongs_to(process, peer.uid)) return false;
  const Rights rights = rights_of(process);
  const bool own = std::ranges::all_of(rights.uids, [&](uid_t uid) { return uid == peer.uid; });
  const bool capable = own && (rights.effective & kNetRaw) != 0 && same_user_namespace(process);
  if (!belongs_to(process, peer.uid)) return false;
  // A process number is reused only after its process has ended.
  return capable && !ended(peer.pidfd.get());
}

}  // namespace uroce::daemon
