// What can be found out without opening the port: `uroced --check`.
#include <net/if.h>

#include "apps/uroced/addresses.h"
#include "apps/uroced/confine.h"
#include "apps/uroced/devices.h"
#include "apps/uroced/ports.h"
#include "daemon/rdma_device.h"
#include "drivers/packet/controls.h"
#include "drivers/packet/udp/sockets.h"

namespace uroce::uroced {
namespace {

/// The value of iface=; empty: there is none.
std::string interface_of(const std::string& port) {
  constexpr std::string_view kInterface = "iface=";
  const std::size_t at = port.find(kInterface);
  if (at == std::string::npos) return {};
  return port.substr(at + kInterface.size(), port.find(',', at) - at - kInterface.size());
}

/// Of what is neither a driver of DPDK nor a PCI address.
std::string check_name(const std::string& port) {
  const std::string given = "--port \"" + port + "\": ";
  if (::if_nametoindex(port.c_str()) != 0) {
    return given + "this is an interface of the kernel; give net_af_packet0,iface=" + port +
           ", which leaves it to the kernel as well, or the faster net_af_xdp0,iface=" + port;
  }
  const std::string name = port.substr(0, port.find(','));
  const std::string near =
      nearest(name, {"loopback", "udp", "net_memif0", "net_af_packet0", "net_af_xdp0", "net_tap0", "net_pcap0"});
  return given + "there is no such port or interface" + (near.empty() ? "." : "; did you mean " + near + "?") +
         " See --help for the kinds of ports";
}

bool is_driver_or_address(std::string_view port) {
  return port.starts_with("net_") || port.starts_with("eth_") || port.find(':') != std::string_view::npos ||
         (port.find('=') != std::string_view::npos && port.find('=') < port.find(','));
}

}  // namespace

std::string check_port(const Settings& settings) {
  const std::string& port = settings.port;
  if (port == "loopback") return {};
  if (udp::is_udp(port)) {
    udp::PortSpec spec;
    return udp::parse_spec(port, spec);
  }
  if (!is_driver_or_address(port)) return check_name(port);
  if (!port.starts_with("net_af_packet") && !port.starts_with("net_af_xdp")) return check_rights(settings);
  const std::string name = interface_of(port);
  if (!name.empty() && ::if_nametoindex(name.c_str()) == 0) {
    return "iface=" + name + ": there is no such interface (see ip link)";
  }
  return check_rights(settings);
}

std::string check_fault(const Settings& settings) {
  const std::string error = packet::Controls("").set_fault(settings.fault);
  return error.empty() ? "" : "--fault: " + error;
}

std::string validate(const Settings& settings) {
  std::vector<Settings> devices;
  if (std::string error = settings_of_devices(settings, devices); !error.empty()) return error;
  for (const Settings& device : devices) {
    const absl::Status status = daemon::check_config(device.config, settings.workers);
    if (!status.ok()) return std::string(status.message().data(), status.message().size());
  }
  if (std::string error = check_fault(settings); !error.empty()) return error;
  if (std::string error = check_user(settings); !error.empty()) return error;
  return check_port(settings);
}

std::string summary(const Settings& settings) {
  const std::vector<Settings> devices = devices_of(settings);
  const control::DaemonConfig& first = devices.front().config;
  std::string text = first.name + " on " + settings.port;
  if (devices.size() > 1) text += ", and " + std::to_string(devices.size() - 1) + " more";
  for (const net::InterfaceAddress& own : first.addresses) {
    text += ", " + to_string(own.address) + "/" + std::to_string(own.prefix_bits);
  }
  return text;
}

}  // namespace uroce::uroced
