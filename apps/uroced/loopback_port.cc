#include "apps/uroced/ports.h"
#include "apps/uroced/serve.h"
#include "drivers/packet/loopback/port.h"
#include "drivers/packet/udp/sockets.h"

namespace uroce::daemon {
namespace {

std::string serve_loopback(const Settings& settings, const std::atomic<bool>& stop) {
  using Device = DeviceStack<loopback::Port>;
  const auto& own = settings.config.addresses;
  loopback::PortOptions options;
  options.mac =
      settings.mac.value_or(derive_mac(settings.config.name, own.empty() ? wire::Address{} : own[0].address));
  if (settings.config.mtu != 0) options.mtu = settings.config.mtu;
  options.buffers = settings.buffers;
  packet::Controls controls(settings.config.name);
  std::vector<std::unique_ptr<Device>> devices;
  for (std::uint32_t i = 0; i < settings.workers; ++i) {
    devices.push_back(std::make_unique<Device>(controls.recorder(), i, controls.faults(), i, options));
  }
  if (std::string error = prepare(controls, settings); !error.empty()) return error;
  return serve_over(settings, devices, controls, "loopback", stop);
}

}  // namespace

std::string serve(const Settings& settings, const std::atomic<bool>& stop) {
  if (settings.port == "loopback") return serve_loopback(settings, stop);
  return udp::is_udp(settings.port) ? serve_udp(settings, stop) : serve_dpdk(settings, stop);
}

}  // namespace uroce::daemon
