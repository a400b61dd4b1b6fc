#include "control/link/netdev_control.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "control/machine/port.h"
#include "platform/log.h"

namespace uroce::control {

void NetdevControl::report(int error, const std::string& what) {
  if (error == 0 || netdev_ == nullptr) return;
  if (error == ENODEV || error == EBADFD) {  // it was deleted, as its thread says
    netdev_ = nullptr;
    return;
  }
  platform::log(platform::LogLevel::kWarning,
                "the interface %s: %s: %s; RDMA goes on, the kernel's own traffic may not", netdev_->name().c_str(),
                what.c_str(), std::strerror(error));
}

void NetdevControl::give(const net::InterfaceAddress& own) {
  if (netdev_ == nullptr) return;
  const int error = netdev_->add_address(own);
  if (own.address.is_v4() || (error != EACCES && error != EAFNOSUPPORT && error != EOPNOTSUPP)) {
    return report(error, "can't have " + address_text(own.address));
  }
  if (std::exchange(no_ipv6_, true)) return;
  platform::log(
      platform::LogLevel::kInfo,
      "the interface %s has no IPv6 addresses: IPv6 is switched off there (sysctl net.ipv6.conf.all.disable_ipv6)",
      netdev_->name().c_str());
}

void NetdevControl::assign(std::span<const net::InterfaceAddress> ours) {
  if (netdev_ == nullptr) return;
  std::vector<net::InterfaceAddress> removed;
  std::ranges::copy_if(given_, std::back_inserter(removed), [&](const net::InterfaceAddress& own) {
    return std::ranges::find(ours, own) == ours.end();
  });
  for (const net::InterfaceAddress& own : removed) {
    std::erase(given_, own);
    const int error = netdev_ != nullptr ? netdev_->remove_address(own) : 0;
    if (error != EADDRNOTAVAIL) report(error, "can't lose " + address_text(own.address));
  }
  // With the first IPv4 address of a prefix the kernel takes away all of it (promote_secondaries of ip-sysctl).
  if (!removed.empty()) give_again();
  for (const net::InterfaceAddress& own : ours) {
    if (own.vlan != 0 || std::ranges::find(given_, own) != given_.end()) continue;
    given_.push_back(own);
    give(own);
  }
}

void NetdevControl::give_again() {
  for (const net::InterfaceAddress& own : given_) give(own);
}

void NetdevControl::set_mtu(std::uint32_t bytes) {
  if (netdev_ == nullptr) return;
  report(netdev_->set_mtu(bytes), "can't have an MTU of " + std::to_string(bytes));
  give_again();  // below 1280 bytes the kernel takes away those of IPv6
}

void NetdevControl::set_carrier(bool up) {
  if (netdev_ == nullptr) return;
  report(netdev_->set_carrier(up), up ? "can't have a carrier" : "can't lose its carrier");
}

}  // namespace uroce::control
