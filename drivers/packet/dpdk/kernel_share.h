// An interface that an af_xdp port and the kernel both use. An XDP program (xdp/roce_steering.bpf.c) gives RoCE to
// the port and leaves all else to the kernel; of that a packet socket shows us what the link stack wants, too: ARP,
// ICMP, ICMPv6, IGMP, and all while there are flows of raw packets. So the port sees what af_packet would show it,
// and RoCE alone takes the fast way.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace uroce::dpdk {

class KernelShare {
 public:
  /// Claims the interface: one port of this network namespace has it; the program that one left behind which was
  /// killed is taken off. nullptr and an error that names the remedy.
  static std::unique_ptr<KernelShare> open(const std::string& interface, std::string& error);
  ~KernelShare();
  KernelShare(const KernelShare&) = delete;
  KernelShare& operator=(const KernelShare&) = delete;

  /// The object file with the program, for the driver's xdp_prog.
  std::string program() const;
  /// Whether all that the kernel gets is shown, for flows of raw packets; the kernel gets it in any case.
  void show_all(bool all);
  /// Copies the next frame of those that the kernel got into `to`, its tag in place. Its length; 0: none is there.
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
