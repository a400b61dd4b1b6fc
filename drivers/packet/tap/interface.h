// A TAP interface (Documentation/networking/tuntap.rst of Linux) as net::Netdev: `netdev = "NAME@NAMESPACE"`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "drivers/packet/owned_file.h"
#include "net/netdev.h"
#include "wire/address.h"

namespace uroce::tap {

using File = packet::OwnedFile;

/// "NAME", or "NAME@NAMESPACE": a name of `ip netns`, or a path such as /proc/123/ns/net.
struct Spec {
  std::string name;
  std::string network_namespace;  ///< empty: that of this process
};
/// Returns empty, or what is allowed.
std::string parse_spec(std::string_view text, Spec& out);

/// The file of the namespace; empty: that of this process.
std::string path_of(const Spec& spec);

class Interface final : public net::Netdev {
 public:
  /// Makes the interface, without addresses, and sets it up. `text` is a Spec. Takes CAP_NET_ADMIN, and for another
  /// namespace CAP_SYS_ADMIN. The calling thread is in that namespace for a moment. Returns empty, or what failed,
  /// why, and what to do. The interface exists as long as `out`.
  static std::string open(const std::string& text, const wire::Mac& mac, std::uint32_t mtu,
                          std::unique_ptr<Interface>& out);

  std::string name() const override;
  std::uint32_t index() const override { return index_; }
  int fd() const override { return queue_.get(); }
  int add_address(const net::InterfaceAddress& address) override;
  int remove_address(const net::InterfaceAddress& address) override;
  int set_mtu(std::uint32_t bytes) override;
  int set_carrier(bool up) override;

 private:
  Interface() = default;
  std::string create(const std::string& name);
  std::string configure(const wire::Mac& mac, std::uint32_t mtu);

  std::string name_;  ///< when it was made
  std::uint32_t index_ = 0;
  File queue_;
  File netlink_;  ///< rtnetlink(7), in the interface's namespace
};

}  // namespace uroce::tap
