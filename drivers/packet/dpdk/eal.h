// Starts DPDK's environment for this process alone: no shared runtime files, no telemetry socket, no threads bound
// to cores, memory in hugepages when enough are free and in ordinary pages otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace uroce::dpdk {

struct EalOptions {
  std::string name = "uroced";     ///< program name in DPDK's messages
  std::string port;                ///< what will be opened: a PCI address makes EAL probe that PCI device
  bool hugepages = true;           ///< use them when they can be had
  std::uint32_t memory_mib = 128;  ///< for mbufs and queues
  bool verbose = false;            ///< DPDK's own messages to stderr
};

class Eal {
 public:
  /// Starts EAL; once a process. The calling thread keeps its CPU affinity. Returns an error that names the remedy;
  /// empty: started.
  std::string start(const EalOptions& options);
  Eal() = default;
  ~Eal();
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;

  bool uses_hugepages() const { return hugepages_; }
  /// Why there are no hugepages; empty when there are.
  const std::string& why_not() const { return why_not_; }

 private:
  bool started_ = false;
  bool hugepages_ = false;
  std::string why_not_;
};

/// "0000:03:00.0" or "03:00.0".
bool is_pci_address(std::string_view port);

/// Whether the kernel driver of this PCI device is a UIO one. Its interrupts are lines that several devices share
/// and no queue has for itself; Linux disables such a line after interrupts for which it finds no cause.
bool driven_by_uio(std::string_view address);

/// The first error that DPDK or a driver of its logged since the last call, without newline.
std::string take_error();

}  // namespace uroce::dpdk
