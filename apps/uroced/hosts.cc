#include "apps/uroced/hosts.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "apps/uroced/addresses.h"
#include "drivers/packet/tap/interface.h"
#include "net/prefix.h"

namespace uroce::daemon {
namespace {

/// The `index`-th name from `name` on: "uroce0" is followed by "uroce1", "a07" by "a08". A name without a number
/// counts from 0.
std::string nth_name(const std::string& name, std::uint32_t index) {
  const std::size_t most = 9;  // digits of the number; those before them are part of the name
  const std::size_t digits =
      std::max(name.find_last_not_of("0123456789") + 1, name.size() - std::min(most, name.size()));
  std::uint64_t first = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), first);
  const std::string number = std::to_string(first + index);
  const std::size_t width = name.size() - digits;
  return name.substr(0, digits) + std::string(width - std::min(width, number.size()), '0') + number;
}

/// Both names of a netdev count up.
std::string nth_netdev(const std::string& netdev, std::uint32_t index) {
  tap::Spec spec;
  if (netdev.empty() || !tap::parse_spec(netdev, spec).empty()) return netdev;
  return nth_name(spec.name, index) + "@" + nth_name(spec.network_namespace, index);
}

/// The `index`-th address from `own` on; nullopt: the prefix has no such host.
std::optional<net::InterfaceAddress> nth_address(net::InterfaceAddress own, std::uint32_t index) {
  const net::InterfaceAddress first = own;
  auto& bytes = own.address.bytes;
  std::uint32_t carry = index;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    carry += bytes[i];
    bytes[i] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
  const bool is_host = net::in_prefix(first, own.address) && !net::is_broadcast_of(own, own.address);
  return is_host ? std::optional(own) : std::nullopt;
}

/// Empty, or which address two of the hosts would have.
std::string check_distinct(const std::string& option, const std::vector<Settings>& hosts) {
  std::map<std::pair<std::uint16_t, wire::Address>, std::string> names;  // by VLAN and address
  for (const Settings& host : hosts) {
    for (const net::InterfaceAddress& own : host.config.addresses) {
      const auto& name = names.try_emplace({own.vlan, own.address}, host.config.name).first->second;
      if (name == host.config.name) continue;
      return option + ": " + to_string(own.address) + " would be an address of " + name + " and of " +
             host.config.name + "; give addresses with --ip that are at least " + std::to_string(hosts.size()) +
             " apart";
    }
  }
  return {};
}

}  // namespace

std::string settings_of_hosts(const Settings& settings, std::vector<Settings>& hosts) {
  hosts.assign(settings.hosts, settings);
  if (settings.hosts == 1) return {};
  const std::string option = "--hosts " + std::to_string(settings.hosts);
  if (settings.port != "loopback") {
    return option + " with --port " + settings.port +
           ": several hosts are on a switch in memory; leave out --port, or start a daemon for each port";
  }
  if (!settings.config.netdev.empty() && settings.config.netdev.find('@') == std::string::npos) {
    return option + " with --netdev " + settings.config.netdev +
           ": a kernel sends to its own addresses without a network; give each host a namespace of its own, "
           "such as --netdev rdma0@host0 with host0, host1, ... of ip netns";
  }
  if (settings.config.netdev.find('/') != std::string::npos) {
    return option + " with --netdev " + settings.config.netdev +
           ": a path is the same for all hosts; give a name of ip netns, such as rdma0@host0";
  }
  if (settings.mac) return option + " with --mac: each host has an address of its own; leave out --mac";
  if (!settings.pcap.empty()) {
    return option +
           " with --pcap: a file holds the frames of one device; leave out --pcap, and start urocectl -d NAME "
           "trace for each";
  }
  for (std::uint32_t i = 0; i < settings.hosts; ++i) {
    hosts[i].config.name = nth_name(settings.config.name, i);
    std::string& netdev = hosts[i].config.netdev = nth_netdev(settings.config.netdev, i);
    tap::Spec spec;
    if (const std::string allowed = tap::parse_spec(netdev, spec); !netdev.empty() && !allowed.empty()) {
      return option + ": --netdev " + netdev + " of " + hosts[i].config.name + ": it must be " + allowed;
    }
    for (net::InterfaceAddress& own : hosts[i].config.addresses) {
      const auto address = nth_address(own, i);
      if (!address) {
        return option + ": --ip " + to_string(own.address) + "/" + std::to_string(own.prefix_bits) +
               " has room for " + std::to_string(i) +
               " from there on; give a lower address, a shorter prefix, or fewer hosts";
      }
      own = *address;
    }
  }
  return check_distinct(option, hosts);
}

}  // namespace uroce::daemon
