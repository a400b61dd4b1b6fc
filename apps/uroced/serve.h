// Runs a daemon over a device stack: the part that all kinds of ports share.
#pragma once

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/uroced/addresses.h"
#include "apps/uroced/confine.h"
#include "apps/uroced/service_manager.h"
#include "apps/uroced/settings.h"
#include "control/icrc_choice.h"
#include "daemon/daemon.h"
#include "drivers/packet/controls.h"
#include "drivers/packet/fault/injector.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/pcap/capture.h"

namespace uroce::daemon {

/// From the daemon outwards: capture, faults, loopback of frames to own addresses, port.
template <net::PacketDevice Inner>
using DeviceStack = pcap::Capture<fault::Injector<loopback::LoopbackDevice<Inner>>>;

/// Applies the settings for faults and capture before the first frame.
inline std::string prepare(packet::Controls& controls, const Settings& settings) {
  if (std::string error = controls.set_fault(settings.fault); !error.empty()) return "--fault: " + error;
  if (settings.pcap.empty()) return {};
  if (std::string error = controls.start_capture(settings.pcap); !error.empty()) return "--pcap: " + error;
  return {};
}

inline void say_ready(const daemon::DaemonConfig& config, const std::string& port) {
  std::string addresses;
  for (const auto& own : config.addresses) addresses += " " + to_string(own.address);
  std::printf("uroced: %s ready:%s on %s, pid %d\n", config.name.c_str(), addresses.c_str(), port.c_str(),
              static_cast<int>(::getpid()));
  std::fflush(stdout);
}

template <net::PacketDevice Device>
std::string serve_over(const Settings& settings, const std::vector<std::unique_ptr<Device>>& devices,
                       packet::Controls& controls, const std::string& port_text, const std::atomic<bool>& stop) {
  daemon::DaemonConfig config = settings.config;
  const net::DeviceInfo info = devices.front()->info();
  if (!info.sockets_only) config.addresses.push_back(link_local(info.mac));
  config.port = settings.port;
  config.hugepages = settings.hugepages;
  config.mtu = info.mtu;
  config.controls = &controls;
  for (const wire::Address& gateway : settings.gateways) {
    (gateway.is_v4() ? config.gateway4 : config.gateway6) = gateway;
  }
  if (std::string error = drop_privileges(settings); !error.empty()) return error;
  const ServiceManager manager;
  config.on_ready = [&] {
    daemon::log(daemon::LogLevel::kInfo, "%s: user %u, capabilities: %s; %s", config.name.c_str(),
                static_cast<unsigned>(::geteuid()), capabilities_text().c_str(),
                filter_system_calls(settings).c_str());
    daemon::log(daemon::LogLevel::kInfo, "%s: ICRC engine %s, of %s", config.name.c_str(),
                std::string(wire::crc_engine().name).c_str(), usable_crc_engines().c_str());
    say_ready(config, port_text);
    manager.notify("READY=1");
  };
  if (manager.watchdog()) {
    config.on_alive = [&manager] { manager.notify("WATCHDOG=1"); };
    config.alive_interval = *manager.watchdog() / 3;
  }
  std::vector<Device*> each;
  for (const auto& device : devices) each.push_back(device.get());
  const absl::Status status = daemon::run_daemon<Device>(config, each, stop);
  manager.notify("STOPPING=1");
  return status.ok() ? "" : std::string(status.message().data(), status.message().size());
}

}  // namespace uroce::daemon
