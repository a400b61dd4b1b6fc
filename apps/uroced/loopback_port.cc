#include <algorithm>

#include "apps/uroced/hosts.h"
#include "apps/uroced/ports.h"
#include "apps/uroced/serve.h"
#include "drivers/packet/switch/port.h"
#include "drivers/packet/udp/sockets.h"

namespace uroce::daemon {
namespace {

using LoopbackStack = DeviceStack<ethernet::SwitchPort>;
/// One for each worker.
using Switches = std::vector<std::unique_ptr<ethernet::Switch>>;

constexpr std::uint32_t kMtu = 9000;

/// The address of each host on the switch, which no two have in common.
std::vector<wire::Mac> choose_macs(const std::vector<Settings>& hosts) {
  std::vector<wire::Mac> macs;
  for (const Settings& host : hosts) {
    const auto& own = host.config.addresses;
    wire::Mac mac = host.mac.value_or(derive_mac(host.config.name, own.empty() ? wire::Address{} : own[0].address));
    while (std::ranges::find(macs, mac) != macs.end()) ++mac[5];
    macs.push_back(mac);
  }
  return macs;
}

std::string serve_loopback(const Settings& settings, Requests& requests) {
  std::vector<Settings> hosts;
  if (std::string error = settings_of_hosts(settings, hosts); !error.empty()) return error;
  const std::vector<wire::Mac> macs = choose_macs(hosts);
  Switches switches;
  for (std::uint32_t i = 0; i < settings.workers; ++i) {
    switches.push_back(std::make_unique<ethernet::Switch>(settings.config.mtu != 0 ? settings.config.mtu : kMtu,
                                                          settings.buffers * settings.hosts));
  }
  std::vector<Served<LoopbackStack>> served;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    Served<LoopbackStack>& device = served.emplace_back(hosts[h].config, "loopback");
    for (std::uint32_t i = 0; i < settings.workers; ++i) device.add_queue(i, *switches[i], macs[h]);
    if (std::string error = device.prepare(settings); !error.empty()) return error;
  }
  return serve_over<LoopbackStack>(settings, served, requests);
}

}  // namespace

std::string serve(const Settings& settings, Requests& requests) {
  if (settings.port == "loopback") return serve_loopback(settings, requests);
  if (settings.hosts != 1) {
    std::vector<Settings> hosts;
    return settings_of_hosts(settings, hosts);
  }
  return udp::is_udp(settings.port) ? serve_udp(settings, requests) : serve_dpdk(settings, requests);
}

}  // namespace uroce::daemon
