#include "apps/uroced/confine.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/uroced/devices.h"
#include "drivers/packet/udp/sockets.h"
#include "mapping/pagemap.h"
#include "platform/log.h"

namespace uroce::uroced {
namespace {

struct Capability {
  int number;
  const char* name;
};
constexpr Capability kNames[] = {
    {CAP_SYS_PTRACE, "cap_sys_ptrace"}, {CAP_DAC_OVERRIDE, "cap_dac_override"}, {CAP_IPC_LOCK, "cap_ipc_lock"},
    {CAP_NET_RAW, "cap_net_raw"},       {CAP_NET_ADMIN, "cap_net_admin"},       {CAP_BPF, "cap_bpf"},
    {CAP_SYS_RAWIO, "cap_sys_rawio"},
};

constexpr std::uint64_t bit(int capability) { return std::uint64_t{1} << capability; }

std::vector<std::string> netdevs_of(const Settings& settings) {
  std::vector<std::string> all;
  for (const Settings& device : devices_of(settings)) {
    if (!device.config.netdev.empty()) all.push_back(device.config.netdev);
  }
  return all;
}

/// What serving needs: reading the namespaces and rights of clients, and their memory if it is not shared; the
/// port.
std::uint64_t needed(const Settings& settings) {
  std::uint64_t set = bit(CAP_SYS_PTRACE);
  if (settings.config.indirect) set |= bit(CAP_DAC_OVERRIDE);  // /proc/PID/mem is its user's file
  if (settings.hugepages) set |= bit(CAP_IPC_LOCK);
  if (!netdevs_of(settings).empty()) set |= bit(CAP_NET_ADMIN);  // their addresses change while it serves
  const std::string& port = settings.port;
  const auto is = [&port](std::string_view kind) { return port.starts_with(kind); };
  if (port == "loopback" || udp::is_udp(port) || is("net_memif") || is("net_null") || is("net_pcap")) return set;
  // Promiscuous mode, group memberships and opening the interface again after it was away.
  set |= bit(CAP_NET_RAW) | bit(CAP_NET_ADMIN);
  if (is("net_af_xdp")) set |= bit(CAP_BPF) | bit(CAP_IPC_LOCK);
  if (!is("net_")) set |= bit(CAP_SYS_RAWIO) | bit(CAP_IPC_LOCK);  // a PCI address
  return set;
}

struct Sets {
  std::uint64_t permitted = 0, effective = 0;
};

Sets current() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return {};
  return {data[0].permitted | std::uint64_t{data[1].permitted} << 32,
          data[0].effective | std::uint64_t{data[1].effective} << 32};
}

bool set_capabilities(std::uint64_t set) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = static_cast<__u32>(set), high = static_cast<__u32>(set >> 32);
  const __user_cap_data_struct data[2] = {{low, low, 0}, {high, high, 0}};
  return ::syscall(SYS_capset, &header, data) == 0;
}

std::string reason(const std::string& what) { return what + " (" + std::strerror(errno) + ")"; }

/// The groups that the daemon keeps: that of its socket, which the owner of a file may give it only as a member.
std::string set_groups(gid_t own, const std::string& socket_group) {
  gid_t groups[2] = {own};
  std::size_t count = 1;
  const group* const found = socket_group.empty() ? nullptr : ::getgrnam(socket_group.c_str());
  if (found != nullptr) groups[count++] = found->gr_gid;
  return ::setgroups(count, groups) == 0 ? "" : reason("can't leave the groups of root");
}

std::string change_user(const Settings& settings) {
  if (std::string error = check_user(settings); !error.empty()) return error;
  const passwd* const user = ::getpwnam(settings.user.c_str());
  const uid_t uid = user->pw_uid;
  const gid_t gid = user->pw_gid;
  if (uid == ::geteuid()) return {};
  // Locks, sockets and the sysfs-like tree are made by the new user.
  for (const Settings& device : devices_of(settings)) {
    const std::string& directory = device.config.run_dir;
    if (::chown(directory.c_str(), uid, gid) != 0)
      return reason("can't give " + directory + " to " + settings.user);
  }
  if (std::string error = set_groups(gid, settings.config.socket_group); !error.empty()) return error;
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || ::setresgid(gid, gid, gid) != 0 ||
      ::setresuid(uid, uid, uid) != 0) {
    return reason("can't change to the user " + settings.user);
  }
  return {};
}

}  // namespace

std::string check_user(const Settings& settings) {
  if (settings.user.empty()) return {};
  const passwd* const user = ::getpwnam(settings.user.c_str());
  if (user == nullptr) {
    return "there is no user " + settings.user + "; make it (useradd --system), or give another with --user";
  }
  if (user->pw_uid == ::geteuid() || ::geteuid() == 0) return {};
  return "only root can change to the user " + settings.user + "; start as root or without --user";
}

uid_t user_of(const Settings& settings) {
  const passwd* const user = settings.user.empty() ? nullptr : ::getpwnam(settings.user.c_str());
  return user != nullptr ? user->pw_uid : ::geteuid();
}

std::string check_rights(const Settings& settings) {
  const std::string_view port = settings.port;
  std::vector<Capability> wanted;
  const bool xdp = port.starts_with("net_af_xdp");
  if (xdp || port.starts_with("net_af_packet")) wanted.push_back({CAP_NET_RAW, "CAP_NET_RAW"});
  if (xdp || port.starts_with("net_tap")) wanted.push_back({CAP_NET_ADMIN, "CAP_NET_ADMIN"});
  for (const Capability& each : wanted) {
    if ((current().effective & bit(each.number)) != 0) continue;
    return "--port " + settings.port + ": it takes the capability " + each.name +
           ", which this process lacks; start it as root, or use --port udp, which takes none";
  }
  return {};
}

std::string check_netdev_rights(const Settings& settings) {
  for (const std::string& netdev : netdevs_of(settings)) {
    std::vector<Capability> wanted{{CAP_NET_ADMIN, "CAP_NET_ADMIN"}};
    if (netdev.find('@') != std::string::npos) wanted.push_back({CAP_SYS_ADMIN, "CAP_SYS_ADMIN"});
    for (const Capability& each : wanted) {
      if ((current().effective & bit(each.number)) != 0) continue;
      return "--netdev " + netdev + ": it takes the capability " + each.name +
             ", which this process lacks; start it as root, or without --netdev";
    }
  }
  return {};
}

void forbid_new_privileges() { ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

std::string drop_privileges(const Settings& settings) {
  if (!mapping::Pagemap::own().valid()) {
    platform::log(platform::LogLevel::kWarning,
                  "/proc/self/pagemap cannot be opened (%s): a program that takes away pages while another "
                  "one copies them makes that one pay for the wait",
                  std::strerror(errno));
  }
  if (!settings.sandbox && settings.user.empty()) return {};
  if (!settings.user.empty()) {
    if (std::string error = change_user(settings); !error.empty()) return error;
  } else if (::geteuid() == 0) {
    // Without CAP_CHOWN, root gives its socket to a group that it is in.
    static_cast<void>(set_groups(::getegid(), settings.config.socket_group));
  }
  const std::uint64_t keep = current().permitted & needed(settings);
  for (int i = 0; i <= CAP_LAST_CAP; ++i) {
    if ((keep & bit(i)) == 0) ::prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return set_capabilities(keep) ? "" : reason("can't give up capabilities");
}

std::string capabilities_text() {
  const std::uint64_t effective = current().effective;
  std::string text;
  std::uint64_t named = 0;
  for (const Capability& each : kNames) {
    named |= bit(each.number);
    if ((effective & bit(each.number)) != 0) text += (text.empty() ? "" : " ") + std::string(each.name);
  }
  if ((effective & ~named) != 0) text += text.empty() ? "others" : " and others";
  return text.empty() ? "none" : text;
}

}  // namespace uroce::uroced
