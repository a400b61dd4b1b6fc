// Runs a daemon over device stacks: the part that all kinds of ports share.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/uroced/addresses.h"
#include "apps/uroced/confine.h"
#include "apps/uroced/devices.h"
#include "apps/uroced/ports.h"
#include "apps/uroced/service_manager.h"
#include "apps/uroced/settings.h"
#include "control/machine/icrc_choice.h"
#include "daemon/daemon.h"
#include "drivers/packet/controls.h"
#include "drivers/packet/fault/injector.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/pcap/capture.h"
#include "drivers/packet/tap/interface.h"

namespace uroce::uroced {

/// From the daemon outwards: capture, faults, loopback of frames to own addresses, port.
template <net::PacketDevice Inner>
using DeviceStack = pcap::Capture<fault::Injector<loopback::LoopbackDevice<Inner>>>;

/// An RDMA device that is to be served: its settings, its port's queues, and what urocectl changes in these.
template <net::PacketDevice Device>
struct Served {
  explicit Served(const Settings& of_device) : settings(of_device) {}

  /// `arguments`: of the port's own part.
  template <class... Arguments>
  Device& add_queue(std::uint32_t index, Arguments&&... arguments) {
    queues.push_back(std::make_unique<Device>(controls->recorder(), index, controls->faults(), index,
                                              std::forward<Arguments>(arguments)...));
    return *queues.back();
  }
  /// Applies the settings for faults and capture before the first frame.
  std::string prepare() {
    if (std::string error = controls->set_fault(settings.fault); !error.empty()) return "--fault: " + error;
    if (settings.pcap.empty()) return {};
    if (std::string error = controls->start_capture(settings.pcap); !error.empty()) return "--pcap: " + error;
    return {};
  }

  Settings settings;
  std::unique_ptr<packet::Controls> controls = std::make_unique<packet::Controls>(settings.config.name);
  std::vector<std::unique_ptr<Device>> queues;
};

inline void say_ready(const control::DaemonConfig& config) {
  std::string addresses;
  for (const auto& own : config.addresses) addresses += " " + to_string(own.address);
  std::printf("uroced: %s ready:%s on %s, pid %d\n", config.name.c_str(), addresses.c_str(), config.port.c_str(),
              static_cast<int>(::getpid()));
  std::fflush(stdout);
}

/// The configuration of a device, with what the port and other settings add.
inline control::DaemonConfig complete(const Settings& settings, const net::DeviceInfo& info) {
  control::DaemonConfig config = settings.config;
  if (!info.sockets_only) config.addresses.push_back(link_local(info.mac));
  config.port = settings.port;
  config.hugepages = settings.hugepages;
  config.mtu = info.mtu;
  for (const wire::Address& gateway : settings.gateways) {
    (gateway.is_v4() ? config.gateway4 : config.gateway6) = gateway;
  }
  return config;
}

/// The device as run_daemon() takes it.
template <net::PacketDevice Device>
daemon::PortSpec<Device> port_spec(const Served<Device>& served) {
  daemon::PortSpec<Device> port;
  for (const auto& queue : served.queues) port.queues.push_back(queue.get());
  port.config = complete(served.settings, port.queues.front()->info());
  port.config.controls = served.controls.get();
  return port;
}

/// Reads the settings again, and takes those over into `current` that change while the devices serve.
template <net::PacketDevice Device>
daemon::Reread reread(Settings& current, const std::vector<Served<Device>>& served, const Requests& requests) {
  daemon::Reread result;
  Settings next;
  std::string& error = result.outcome.error;
  if (error = requests.reread(next); !error.empty()) return result;
  Settings candidate = current;
  Adopted adopted = adopt(candidate, next);
  std::vector<Settings> devices;
  if (error = settings_of_devices(candidate, devices); !error.empty()) return result;
  for (std::size_t i = 0; i < served.size(); ++i) {
    if (candidate.fault != current.fault) {
      if (error = served[i].controls->set_fault(candidate.fault); !error.empty()) return result;
    }
    result.devices.push_back(complete(devices[i], served[i].queues.front()->info()));
  }
  current = std::move(candidate);
  platform::set_log_level(current.log_level);
  result.outcome.changed = std::move(adopted.changed);
  result.outcome.waiting = std::move(adopted.waiting);
  return result;
}

/// Opens the kernel's interface of each device that is to have one. Returns empty, or what failed.
template <net::PacketDevice Device>
std::string open_netdevs(std::vector<daemon::PortSpec<Device>>& ports,
                         std::vector<std::unique_ptr<tap::Interface>>& out) {
  for (daemon::PortSpec<Device>& port : ports) {
    control::DaemonConfig& config = port.config;
    if (config.netdev.empty()) continue;
    const net::DeviceInfo info = port.queues.front()->info();
    if (info.kernel_interface != 0 || info.netdev != 0) return second_netdev(config.netdev, config.port);
    if (std::string error = tap::Interface::open(config.netdev, info.mac, config.mtu, out.emplace_back());
        !error.empty()) {
      return error;
    }
    config.netdev_port = out.back().get();
  }
  return {};
}

template <net::PacketDevice Device>
std::string serve_over(const Settings& settings, const std::vector<Served<Device>>& served, Requests& requests) {
  std::vector<daemon::PortSpec<Device>> ports;
  for (const Served<Device>& each : served) ports.push_back(port_spec(each));
  std::vector<std::unique_ptr<tap::Interface>> netdevs;
  if (std::string error = open_netdevs(ports, netdevs); !error.empty()) return error;
  if (std::string error = drop_privileges(settings); !error.empty()) return error;
  const ServiceManager manager;
  daemon::ProcessHooks hooks;
  hooks.on_ready = [&] {
    const char* const name = ports.front().config.name.c_str();
    platform::log(platform::LogLevel::kInfo, "%s: user %u, capabilities: %s; %s", name,
                  static_cast<unsigned>(::geteuid()), capabilities_text().c_str(),
                  filter_system_calls(settings).c_str());
    platform::log(platform::LogLevel::kInfo, "%s: ICRC engine %s, of %s", name,
                  std::string(wire::crc_engine().name).c_str(), control::usable_crc_engines().c_str());
    for (std::size_t i = 0; i < ports.size(); ++i) say_ready(ports[i].config);
    manager.notify("READY=1");
  };
  if (manager.watchdog()) {
    hooks.on_alive = [&manager] { manager.notify("WATCHDOG=1"); };
    hooks.alive_interval = *manager.watchdog() / 3;
  }
  Settings current = settings;
  hooks.reload = &requests.reload;
  hooks.reread = [&] { return reread(current, served, requests); };
  hooks.settings = [&] { return list_settings(current); };
  const absl::Status status = daemon::run_daemon<Device>(ports, hooks, requests.stop);
  manager.notify("STOPPING=1");
  return status.ok() ? "" : std::string(status.message().data(), status.message().size());
}

}  // namespace uroce::uroced
