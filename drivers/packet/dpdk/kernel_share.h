// An interface that an af_xdp port and the kernel both use. An XDP program (xdp/roce_steering.bpf.c) redirects RoCE
// to the port and passes all other frames to the kernel. A packet socket shows the port copies of the frames that
// the link stack needs (ARP, ICMP, ICMPv6, IGMP), and of all frames while there are flows of raw packets. The port
// thus receives what it would with af_packet, but RoCE bypasses the kernel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace uroce::dpdk {

class KernelShare {
 public:
  /// Claims the interface for one port of this network namespace, and detaches an XDP program that a killed daemon
  /// left attached. On failure nullptr, and an error that names the remedy.
  static std::unique_ptr<KernelShare> open(const std::string& interface, std::string& error);
  ~KernelShare();
  KernelShare(const KernelShare&) = delete;
  KernelShare& operator=(const KernelShare&) = delete;

  /// The object file with the program, for the driver's xdp_prog.
  std::string program() const;
  /// Whether receive() yields every frame that the kernel gets, for flows of raw packets. The kernel gets them
  /// anyway.
  void show_all(bool all);
  /// Readable while receive() has frames.
  int socket() const { return packets_; }
  /// Copies the next frame that the kernel got into `to`, VLAN tag included. Returns its length; 0: there is none.
  std::size_t receive(std::span<std::byte> to);

 private:
  KernelShare() = default;
  std::string claim(const std::string& interface);
  std::string open_object();
  std::string open_packets();

  unsigned index_ = 0;
  int claim_ = -1, object_ = -1, packets_ = -1;
};

}  // namespace uroce::dpdk
