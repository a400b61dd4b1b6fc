// Opens an Ethernet port through DPDK: any ethdev, named by a vdev string or a PCI address. Needs a started Eal.
//
//   open       finds the driver, sizes the buffers, starts the port
//   queues     one Port for each worker, owned by the caller; they must be gone before the Ethernet
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/packet/dpdk/port.h"
#include "net/device.h"

namespace uroce::dpdk {

struct EthernetOptions {
  std::string port;              ///< "net_memif0,role=server,..." or "0000:03:00.0"
  std::uint32_t queues = 1;      ///< one per worker
  std::uint32_t mtu = 0;         ///< bytes after the Ethernet header; 0: the port's own MTU, at most 9000
  std::optional<wire::Mac> mac;  ///< nullopt: the port's own
  wire::Mac fallback_mac{2};     ///< for ports that make up their own or share it with the kernel (memif, tap, ...)
  std::uint32_t buffers = 4096;  ///< mbufs a queue, at least
  std::function<void(bool)> on_link_change;  ///< called on a thread of the port's; may be empty
};

/// A vdev string taken apart: the name in front, then key=value pairs.
struct VdevSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments;

  static VdevSpec parse(std::string_view text);
  std::string argument(std::string_view key, std::string_view otherwise = {}) const;
  std::string text() const;
  bool is(std::string_view driver) const;  ///< "net_memif" is the driver of "net_memif0"
};

/// EAL memory for the buffers of all queues, in MiB.
std::uint32_t memory_needed(const EthernetOptions& options);

class Ethernet {
 public:
  /// nullptr and an error that names the remedy. Waits 2 s for a queue that the kernel refuses (af_xdp).
  static std::unique_ptr<Ethernet> open(const EthernetOptions& options, std::string& error);
  ~Ethernet();
  Ethernet(const Ethernet&) = delete;
  Ethernet& operator=(const Ethernet&) = delete;

  QueueConfig queue(std::uint32_t index);
  /// Lets frames pass. Call it when all Ports exist; until stop() only their owners use them.
  void start(const std::vector<Port*>& ports);
  void stop();
  /// Returns when the link is up, at the latest after `limit`, if another uroced is at the other end of the memif.
  /// At once otherwise.
  void wait_for_peer(std::chrono::milliseconds limit) const;

  const net::DeviceInfo& info() const;
  /// The peer that must connect before frames can pass, as text for the user; empty: the port is ready.
  std::string waiting_for() const;

 private:
  /// `queue_refused`: the kernel refused a queue, which it may not have freed yet.
  static std::unique_ptr<Ethernet> open_once(const EthernetOptions& options, std::string& error,
                                             bool& queue_refused);
  struct Impl;
  explicit Ethernet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::dpdk
