// Settings that are well formed one by one and make no device together, or not on this machine.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "apps/uroced/addresses.h"
#include "apps/uroced/settings.h"
#include "net/prefix.h"

namespace uroce::uroced {
namespace {

std::string check_address(const net::InterfaceAddress& own) {
  const bool network = net::is_network_of(own, own.address);
  if (!network && !net::is_broadcast_of(own, own.address)) return {};
  return "--ip \"" + to_string(own) + "\": this is the " + (network ? "network's own" : "broadcast") +
         " address; give one between the first and the last of the prefix, or another prefix length";
}

std::string check_gateway(const Settings& settings, const wire::Address& gateway) {
  const std::string given = "--gateway \"" + to_string(gateway) + "\": ";
  const auto& addresses = settings.config.addresses;
  const auto same = std::ranges::find(addresses, gateway, &net::InterfaceAddress::address);
  if (same != addresses.end()) return given + "this is an address of the device itself; give that of the router";
  const auto of_family = [&](const wire::Address& each) { return each.is_v4() == gateway.is_v4(); };
  if (std::ranges::count_if(settings.gateways, of_family) > 1) {
    return given + "there is another one for " + (gateway.is_v4() ? "IPv4" : "IPv6") + "; give one for each";
  }
  if (gateway.is_link_local()) return {};
  const auto reaches = [&](const net::InterfaceAddress& own) { return net::in_prefix(own, gateway); };
  if (std::ranges::any_of(addresses, reaches)) return {};
  return given +
         "it is in no prefix of the device's addresses, so no packet reaches it; give a router on this "
         "network, or the right prefix length with --ip";
}

std::string check_netdev(const Settings& settings) {
  const std::string_view port = settings.port;
  const bool udp = port == "udp" || port.starts_with("udp,");
  const bool shared = udp || port.starts_with("net_af_packet") || port.starts_with("net_af_xdp") ||
                      port.starts_with("net_tap") || port.starts_with("net_pcap");
  return settings.config.netdev.empty() || !shared ? "" : second_netdev(settings.config.netdev, settings.port);
}

}  // namespace

std::string second_netdev(const std::string& netdev, const std::string& port) {
  return "--netdev " + netdev + " with --port " + port +
         ": the kernel has an interface of this port already; leave out --netdev";
}

std::string check_settings(const Settings& settings) {
  if (std::string error = check_netdev(settings); !error.empty()) return error;
  const auto& addresses = settings.config.addresses;
  for (auto own = addresses.begin(); own != addresses.end(); ++own) {
    if (std::string error = check_address(*own); !error.empty()) return error;
    const auto same = [&](const net::InterfaceAddress& each) {
      return each.address == own->address && each.vlan == own->vlan;
    };
    if (std::any_of(addresses.begin(), own, same)) return "--ip \"" + to_string(*own) + "\": it is given twice";
  }
  for (const wire::Address& gateway : settings.gateways) {
    if (std::string error = check_gateway(settings, gateway); !error.empty()) return error;
  }
  return {};
}

std::string check_cpus(const Settings& settings) {
  cpu_set_t before;
  if (::sched_getaffinity(0, sizeof(before), &before) != 0) return {};
  std::string error;
  for (const int cpu : settings.config.cpus) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpu), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) == 0) continue;
    error = "--cpus: workers can't run on CPU " + std::to_string(cpu) + " (" + std::strerror(errno) +
            "); this machine has CPUs 0 to " + std::to_string(::sysconf(_SC_NPROCESSORS_CONF) - 1) +
            ", and a container may use fewer";
    break;
  }
  ::sched_setaffinity(0, sizeof(before), &before);
  return error;
}

}  // namespace uroce::uroced
