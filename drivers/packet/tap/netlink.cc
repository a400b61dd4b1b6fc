#include "drivers/packet/tap/netlink.h"

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace uroce::tap {
namespace {

/// A request, as it is sent: its header, a message of the family, and attributes, which are few and fit.
class Request {
 public:
  template <class Message>
  Request(std::uint16_t type, std::uint16_t flags, const Message& message) {
    nlmsghdr& head = header();
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    head.nlmsg_len = NLMSG_LENGTH(sizeof(message));
    std::memcpy(NLMSG_DATA(&head), &message, sizeof(message));
  }

  void add(std::uint16_t type, const void* value, std::size_t bytes) {
    rtattr* const at = begin(type);
    std::memcpy(RTA_DATA(at), value, bytes);
    header().nlmsg_len += static_cast<std::uint32_t>(bytes);
    end(at);
  }
  /// An attribute that contains those that follow, until end().
  rtattr* begin(std::uint16_t type) {
    const std::uint32_t start = NLMSG_ALIGN(header().nlmsg_len);
    auto* const at = reinterpret_cast<rtattr*>(bytes_ + start);
    at->rta_type = type;
    header().nlmsg_len = start + static_cast<std::uint32_t>(RTA_LENGTH(0));
    return at;
  }
  void end(rtattr* at) {
    at->rta_len = static_cast<unsigned short>(bytes_ + header().nlmsg_len - reinterpret_cast<std::byte*>(at));
  }

  /// Sends it and waits for the acknowledge. Returns an errno.
  int send(int netlink) {
    static std::atomic<std::uint32_t> last{0};
    header().nlmsg_seq = ++last;
    if (::send(netlink, bytes_, header().nlmsg_len, 0) < 0) return errno;
    alignas(nlmsghdr) std::byte answer[4096];
    for (;;) {
      const ssize_t got = ::recv(netlink, answer, sizeof(answer), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      const auto& head = reinterpret_cast<const nlmsghdr&>(answer);
      if (!NLMSG_OK(&head, static_cast<std::size_t>(got)) || head.nlmsg_type != NLMSG_ERROR ||
          head.nlmsg_seq != header().nlmsg_seq) {
        continue;
      }
      return -static_cast<const nlmsgerr*>(NLMSG_DATA(&head))->error;
    }
  }

 private:
  nlmsghdr& header() { return reinterpret_cast<nlmsghdr&>(bytes_); }

  alignas(nlmsghdr) std::byte bytes_[512]{};
};

ifinfomsg link(std::uint32_t interface) {
  ifinfomsg message{};
  message.ifi_family = AF_UNSPEC;
  message.ifi_index = static_cast<int>(interface);
  return message;
}

int change(int netlink, std::uint16_t type, std::uint16_t flags, std::uint32_t interface,
           const net::InterfaceAddress& own) {
  const bool v4 = own.address.is_v4();
  ifaddrmsg message{};
  message.ifa_family = v4 ? AF_INET : AF_INET6;
  message.ifa_prefixlen = own.prefix_bits;
  message.ifa_flags = IFA_F_NODAD;
  message.ifa_scope = own.address.is_link_local() ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
  message.ifa_index = interface;
  Request request(type, flags, message);
  const std::uint8_t* const bytes = own.address.bytes.data() + (v4 ? 12 : 0);
  request.add(IFA_LOCAL, bytes, v4 ? 4 : 16);
  request.add(IFA_ADDRESS, bytes, v4 ? 4 : 16);
  return request.send(netlink);
}

}  // namespace

int open_netlink() {
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (netlink < 0) return -1;
  const int on = 1;  // an error comes without the request
  ::setsockopt(netlink, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
  return netlink;
}

int add_address(int netlink, std::uint32_t interface, const net::InterfaceAddress& address) {
  return change(netlink, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, interface, address);
}

int remove_address(int netlink, std::uint32_t interface, const net::InterfaceAddress& address) {
  return change(netlink, RTM_DELADDR, 0, interface, address);
}

int set_mac(int netlink, std::uint32_t interface, const wire::Mac& mac) {
  Request request(RTM_NEWLINK, 0, link(interface));
  request.add(IFLA_ADDRESS, mac.data(), mac.size());
  return request.send(netlink);
}

int set_mtu(int netlink, std::uint32_t interface, std::uint32_t bytes) {
  Request request(RTM_NEWLINK, 0, link(interface));
  request.add(IFLA_MTU, &bytes, sizeof(bytes));
  if (const int error = request.send(netlink); error != 0) return error;
  Request mode(RTM_NEWLINK, 0, link(interface));
  rtattr* const families = mode.begin(IFLA_AF_SPEC);
  rtattr* const inet6 = mode.begin(AF_INET6);
  const std::uint8_t none = IN6_ADDR_GEN_MODE_NONE;
  mode.add(IFLA_INET6_ADDR_GEN_MODE, &none, sizeof(none));
  mode.end(inet6);
  mode.end(families);
  static_cast<void>(mode.send(netlink));  // fails where there is no IPv6
  return 0;
}

int set_up(int netlink, std::uint32_t interface) {
  ifinfomsg message = link(interface);
  message.ifi_flags = message.ifi_change = IFF_UP;
  return Request(RTM_NEWLINK, 0, message).send(netlink);
}

}  // namespace uroce::tap
