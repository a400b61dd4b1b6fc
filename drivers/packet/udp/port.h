// A port without privileges: RoCE packets as datagrams of ordinary UDP sockets (README.md). One object serves one
// worker: a socket for each local address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "base/frame.h"
#include "drivers/packet/frame_pool.h"
#include "drivers/packet/udp/identifications.h"
#include "drivers/packet/udp/receiver.h"
#include "drivers/packet/udp/sockets.h"
#include "drivers/packet/udp/transmitter.h"
#include "net/device.h"

namespace uroce::udp {

struct PortOptions {
  wire::Mac mac{0x02, 0, 0, 0, 0, 1};  ///< not mac_of() of any peer
  std::uint32_t mtu = 1500;
  std::uint32_t buffers = 4096;
  bool gso = true;
  IdCheck ids = IdCheck::kCount;
  std::uint32_t interface = 0;  ///< whose state is that of the port
};

class Port {
 public:
  /// `endpoints` outlive the object. Throws std::bad_alloc when there is no memory for the buffers.
  Port(const PortOptions& options, std::span<const Endpoint> endpoints);
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  std::size_t receive(std::span<base::Frame> frames);
  void release(std::span<base::Frame> frames) { pool_.give_back(frames); }
  std::size_t allocate(std::span<base::Frame> frames) { return pool_.allocate(frames); }
  std::size_t transmit(std::span<base::Frame> frames);
  void discard(std::span<base::Frame> frames) { pool_.give_back(frames); }

  int wake_fd() const { return receiver_.wake_fd(); }
  bool arm_wake() const { return answers_.empty() && !receiver_.waiting(); }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter) {}
  net::DeviceInfo info() const;
  net::DeviceCounters counters() const;

 private:
  static constexpr std::size_t kMostAnswers = 64;

  net::LinkState link() const;

  PortOptions options_;
  std::span<const Endpoint> endpoints_;
  packet::FramePool pool_;
  Receiver receiver_;
  Transmitter transmitter_;
  std::deque<base::Frame> answers_;  // to ARP and neighbour discovery, to be received
  net::DeviceCounters counters_;
};

}  // namespace uroce::udp
