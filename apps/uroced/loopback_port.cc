#include <algorithm>

#include "apps/uroced/devices.h"
#include "apps/uroced/ports.h"
#include "apps/uroced/serve.h"
#include "drivers/packet/switch/port.h"
#include "drivers/packet/udp/sockets.h"

namespace uroce::uroced {
namespace {

using LoopbackStack = DeviceStack<ethernet::SwitchPort>;
/// One for each worker.
using Switches = std::vector<std::unique_ptr<ethernet::Switch>>;

constexpr std::uint32_t kMtu = 9000;

/// The address of each device on the switch, which no two have in common.
std::vector<wire::Mac> choose_macs(const std::vector<Settings>& devices) {
  std::vector<wire::Mac> macs;
  for (const Settings& device : devices) {
    if (device.mac) macs.push_back(*device.mac);
  }
  std::vector<wire::Mac> chosen;
  for (const Settings& device : devices) {
    const auto& own = device.config.addresses;
    wire::Mac mac =
        device.mac.value_or(derive_mac(device.config.name, own.empty() ? wire::Address{} : own[0].address));
    while (!device.mac && std::ranges::find(macs, mac) != macs.end()) ++mac[5];
    macs.push_back(mac);
    chosen.push_back(mac);
  }
  return chosen;
}

std::string serve_loopback(const Settings& settings, const std::vector<Settings>& devices, Requests& requests) {
  const std::vector<wire::Mac> macs = choose_macs(devices);
  Switches switches;
  for (std::uint32_t i = 0; i < settings.workers; ++i) {
    switches.push_back(
        std::make_unique<ethernet::Switch>(settings.config.mtu != 0 ? settings.config.mtu : kMtu,
                                           settings.buffers * static_cast<std::uint32_t>(devices.size())));
  }
  std::vector<Served<LoopbackStack>> served;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Served<LoopbackStack>& device = served.emplace_back(devices[d]);
    for (std::uint32_t i = 0; i < settings.workers; ++i) device.add_queue(i, *switches[i], macs[d]);
    if (std::string error = device.prepare(); !error.empty()) return error;
  }
  return serve_over<LoopbackStack>(settings, served, requests);
}

}  // namespace

std::string serve(const Settings& settings, Requests& requests) {
  std::vector<Settings> devices;
  if (std::string error = settings_of_devices(settings, devices); !error.empty()) return error;
  if (settings.port == "loopback") return serve_loopback(settings, devices, requests);
  return udp::is_udp(settings.port) ? serve_udp(settings, requests) : serve_dpdk(settings, requests);
}

}  // namespace uroce::uroced
