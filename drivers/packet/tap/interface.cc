#include "drivers/packet/tap/interface.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "drivers/packet/tap/netlink.h"

namespace uroce::tap {
namespace {

constexpr char kNamespaces[] = "/run/netns/";

std::string because(const std::string& what) { return what + " (" + std::strerror(errno) + ")"; }

ifreq request_of(const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

/// The calling thread is in another network namespace as long as this exists.
class Visit {
 public:
  /// Returns empty, or what failed, why, and what to do.
  std::string enter(const std::string& path) {
    const File there(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!there.valid()) {
      const bool missing = errno == ENOENT;
      return because("can't open the network namespace " + path) +
             (missing ? "; make it (ip netns add), or give a path such as /proc/PID/ns/net" : "");
    }
    home_ = File(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!home_.valid()) return because("/proc/thread-self/ns/net");
    if (::setns(there.get(), CLONE_NEWNET) == 0) return {};
    const int error = errno;
    home_ = File();
    if (error == EINVAL)
      return path + " is not a network namespace; give a name of ip netns, or a path /proc/PID/ns/net";
    return (errno = error, because("can't enter the network namespace " + path)) +
           "; it takes the capability CAP_SYS_ADMIN, which this process lacks; start it as root";
  }
  ~Visit() {
    if (home_.valid()) ::setns(home_.get(), CLONE_NEWNET);
  }

 private:
  File home_;
};

}  // namespace

std::string parse_spec(std::string_view text, Spec& out) {
  const std::size_t at = text.find('@');
  const std::string_view name = text.substr(0, at);
  // dev_valid_name() of Linux; "%d" would stand for a number, and a ':' for an alias.
  const bool valid = !name.empty() && name.size() < IFNAMSIZ && name != "." && name != ".." &&
                     std::ranges::all_of(name, [](char c) {
                       return c > ' ' && c != 0x7f && std::string_view("/:%@").find(c) == std::string_view::npos;
                     });
  const std::string_view where = at == std::string_view::npos ? "" : text.substr(at + 1);
  if (!valid || (at != std::string_view::npos && where.empty()) || where == "." || where == "..") {
    return "the name of an interface, of at most 15 characters, or NAME@NAMESPACE with a name of ip netns or a "
           "path";
  }
  out = {std::string(name), std::string(where)};
  return {};
}

std::string path_of(const Spec& spec) {
  const bool is_name = !spec.network_namespace.empty() && spec.network_namespace.find('/') == std::string::npos;
  return (is_name ? kNamespaces : "") + spec.network_namespace;
}

std::string Interface::open(const std::string& text, const wire::Mac& mac, std::uint32_t mtu,
                            std::unique_ptr<Interface>& out) {
  const std::string option = "--netdev " + text + ": ";
  Spec spec;
  if (const std::string allowed = parse_spec(text, spec); !allowed.empty()) return option + "it must be " + allowed;
  std::unique_ptr<Interface> made(new Interface);
  Visit visit;
  if (!spec.network_namespace.empty()) {
    if (const std::string error = visit.enter(path_of(spec)); !error.empty()) return option + error;
  }
  // The interface is made in the namespace of the thread that opens the file.
  made->queue_ = File(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!made->queue_.valid()) {
    const char* const remedy = errno == EACCES || errno == EPERM ? "; give this user the right to read and write it"
                               : errno == EMFILE || errno == ENFILE
                                   ? "; raise the limit of open files (ulimit -n)"
                                   : "; load the module tun, or give the container that device";
    return option + because("can't open /dev/net/tun") + remedy;
  }
  std::string error = made->create(spec.name);
  if (error.empty()) error = made->configure(mac, mtu);
  if (!error.empty()) return option + error;
  out = std::move(made);
  return {};
}

std::string Interface::create(const std::string& name) {
  ifreq request = request_of(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(queue_.get(), TUNSETIFF, &request) != 0) {
    switch (errno) {
      case EPERM: return "it takes the capability CAP_NET_ADMIN, which this process lacks; start it as root";
      case EBUSY: return "another process has this interface; give another name";
      case EINVAL: return "there is such an interface, which is not a TAP; give another name";
      default: return because("can't make the interface");
    }
  }
  const unsigned offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
  if (::ioctl(queue_.get(), TUNSETOFFLOAD, offloads) != 0) return because("can't switch on its offloads");
  name_ = request.ifr_name;
  netlink_ = File(open_netlink());
  if (!netlink_.valid()) return because("no netlink socket");
  if (::ioctl(netlink_.get(), SIOCGIFINDEX, &request) != 0)
    return because("can't find the interface that was made");
  index_ = static_cast<std::uint32_t>(request.ifr_ifindex);
  return {};
}

std::string Interface::configure(const wire::Mac& mac, std::uint32_t mtu) {
  const auto failed = [](int error, const char* what) { return errno = error, because(what); };
  if (const int error = set_mac(netlink_.get(), index_, mac); error != 0)
    return failed(error, "can't set its Ethernet address");
  if (const int error = set_mtu(mtu); error != 0) return failed(error, "can't set its MTU");
  // While it is down, too. Where /proc/sys is read-only, IPv6 addresses go with `ip link set down`.
  const File keep(
      ::open(("/proc/sys/net/ipv6/conf/" + name_ + "/keep_addr_on_down").c_str(), O_WRONLY | O_CLOEXEC));
  if (keep.valid()) static_cast<void>(!::write(keep.get(), "1", 1));
  if (const int error = set_up(netlink_.get(), index_); error != 0) return failed(error, "can't set it up");
  return {};
}

std::string Interface::name() const {
  ifreq request{};
  return ::ioctl(queue_.get(), TUNGETIFF, &request) == 0 ? request.ifr_name : name_;
}

int Interface::add_address(const net::InterfaceAddress& address) {
  return tap::add_address(netlink_.get(), index_, address);
}

int Interface::remove_address(const net::InterfaceAddress& address) {
  return tap::remove_address(netlink_.get(), index_, address);
}

int Interface::set_mtu(std::uint32_t bytes) { return tap::set_mtu(netlink_.get(), index_, bytes); }

int Interface::set_carrier(bool up) {
  int value = up ? 1 : 0;
  return ::ioctl(queue_.get(), TUNSETCARRIER, &value) == 0 ? 0 : errno;
}

}  // namespace uroce::tap
