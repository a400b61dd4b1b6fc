#include <sys/eventfd.h>

#include <chrono>

#include "apps/uroced/ports.h"
#include "apps/uroced/serve.h"
#include "drivers/packet/dpdk/eal.h"
#include "drivers/packet/dpdk/ethernet.h"
#include "drivers/packet/dpdk/port.h"
#include "platform/unique_fd.h"

namespace uroce::uroced {
namespace {

using DpdkStack = DeviceStack<dpdk::Port>;

constexpr std::chrono::milliseconds kPeerLimit{500};

dpdk::EthernetOptions ethernet_options(const Settings& settings, int link_events) {
  const auto& own = settings.config.addresses;
  dpdk::EthernetOptions options;
  options.port = settings.port;
  options.queues = settings.workers;
  options.mtu = settings.config.mtu;
  options.mac = settings.mac;
  options.fallback_mac = derive_mac(settings.config.name, own.empty() ? wire::Address{} : own[0].address);
  options.buffers = settings.buffers;
  options.on_link_change = [link_events](bool) { ::eventfd_write(link_events, 1); };
  return options;
}

}  // namespace

std::string serve_dpdk(const Settings& given, Requests& requests) {
  if (std::string error = check_port(given); !error.empty()) return error;
  const UniqueFd link_events(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  Settings settings = given;
  settings.config.link_events = link_events.get();
  dpdk::EthernetOptions options = ethernet_options(settings, link_events.get());
  dpdk::Eal eal;
  dpdk::EalOptions eal_options;
  eal_options.port = settings.port;
  eal_options.hugepages = settings.hugepages;
  eal_options.memory_mib = dpdk::memory_needed(options);
  eal_options.verbose = settings.log_level == platform::LogLevel::kDebug;
  if (std::string error = eal.start(eal_options); !error.empty()) return error;
  if (!eal.uses_hugepages() && dpdk::is_pci_address(settings.port) && dpdk::driven_by_uio(settings.port)) {
    return "port \"" + settings.port + "\": a NIC under a UIO driver needs hugepages (" + eal.why_not() +
           "), whose physical addresses do not change: echo 256 > /proc/sys/vm/nr_hugepages, or bind it to "
           "vfio-pci";
  }
  if (!eal.uses_hugepages() && settings.hugepages) {
    platform::log(platform::LogLevel::kWarning,
                  "no hugepages for packet buffers (%s): ordinary memory is used, which is slower; "
                  "echo 256 > /proc/sys/vm/nr_hugepages reserves some",
                  eal.why_not().c_str());
  }
  std::string error;
  const std::unique_ptr<dpdk::Ethernet> ethernet = dpdk::Ethernet::open(options, error);
  if (ethernet == nullptr) return error;
  std::vector<Served<DpdkStack>> served;
  Served<DpdkStack>& device = served.emplace_back(settings);
  std::vector<dpdk::Port*> ports;
  for (std::uint32_t i = 0; i < settings.workers; ++i) {
    ports.push_back(&device.add_queue(i, ethernet->queue(i)).inner().inner().inner());
  }
  if (error = device.prepare(); !error.empty()) return error;
  if (!ethernet->waiting_for().empty()) {
    platform::log(platform::LogLevel::kInfo, "%s: waiting for %s", settings.config.name.c_str(),
                  ethernet->waiting_for().c_str());
  }
  ethernet->start(ports);
  // If the peer is running already, the first program finds a port that is up.
  ethernet->wait_for_peer(kPeerLimit);
  error = serve_over<DpdkStack>(settings, served, requests);
  ethernet->stop();
  served.clear();
  return error;
}

}  // namespace uroce::uroced
