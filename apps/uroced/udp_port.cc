#include <algorithm>

#include "apps/uroced/ports.h"
#include "apps/uroced/serve.h"
#include "drivers/packet/udp/port.h"
#include "drivers/packet/udp/sockets.h"

namespace uroce::uroced {
namespace {

using UdpStack = DeviceStack<udp::Port>;

/// More than the largest RoCE packet needs, so that the MTU of the loopback interface makes no huge buffers.
constexpr std::uint32_t kMostMtu = 9216;

/// Errors of the settings that only this kind of port refuses.
std::string check(const Settings& settings, std::vector<wire::Address>& addresses) {
  if (settings.config.addresses.empty()) {
    return "--port udp needs the addresses to bind to; give those of an interface, such as --ip 192.0.2.1/24";
  }
  for (const net::InterfaceAddress& own : settings.config.addresses) {
    if (own.vlan != 0) {
      return "--ip " + to_string(own.address) + "@vlan" + std::to_string(own.vlan) +
             ": the sockets of --port udp don't tag packets; give the address of the kernel's VLAN interface, "
             "without "
             "@vlan";
    }
    if (std::ranges::find(addresses, own.address) == addresses.end()) addresses.push_back(own.address);
  }
  return {};
}

std::string choose_mtu(const Settings& settings, const udp::Sockets& sockets, std::uint32_t& mtu) {
  mtu = std::min(sockets.mtu, kMostMtu);
  if (settings.config.mtu > sockets.mtu) {
    return "--mtu " + std::to_string(settings.config.mtu) + ": the interface of --ip has " +
           std::to_string(sockets.mtu) + " bytes; give at most that, or raise it (ip link set dev INTERFACE mtu)";
  }
  if (settings.config.mtu != 0) mtu = settings.config.mtu;
  return {};
}

}  // namespace

std::string serve_udp(const Settings& settings, Requests& requests) {
  udp::PortSpec spec;
  if (std::string error = udp::parse_spec(settings.port, spec); !error.empty()) return error;
  std::vector<wire::Address> addresses;
  if (std::string error = check(settings, addresses); !error.empty()) return error;
  udp::Sockets sockets;
  if (std::string error = udp::open_sockets(addresses, settings.workers, sockets); !error.empty()) return error;
  udp::PortOptions options;
  options.mac = settings.mac.value_or(derive_mac(settings.config.name, addresses.front()));
  if (std::string error = choose_mtu(settings, sockets, options.mtu); !error.empty()) return error;
  options.buffers = settings.buffers;
  options.gso = spec.gso;
  options.ids = spec.ids;
  options.interface = sockets.interface;
  std::vector<Served<UdpStack>> served;
  Served<UdpStack>& device = served.emplace_back(settings);
  for (std::uint32_t i = 0; i < settings.workers; ++i) device.add_queue(i, options, sockets.queues[i]);
  if (std::string error = device.prepare(); !error.empty()) return error;
  return serve_over<UdpStack>(settings, served, requests);
}

}  // namespace uroce::uroced
