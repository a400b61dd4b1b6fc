// From frames to datagrams: several in one system call, and rows of packets of one size to one destination as one
// datagram that the kernel, or the adapter, cuts again (UDP_SEGMENT).
//
// A packet on the wire differs from its frame in two fields that the ICRC covers, and the ICRC is adapted. The
// source port is that of the socket, 4791. The IPv4 identification is 0 (an unconnected socket with DF), and i for
// the i-th packet of a datagram that is cut, as Linux numbers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "drivers/packet/udp/icrc_delta.h"
#include "drivers/packet/udp/sockets.h"
#include "net/device.h"

namespace uroce::udp {

/// Whether the frame is a RoCE packet over IPv4 or IPv6, untagged, with lengths that fit.
bool is_roce(const base::Frame& frame);

class Transmitter {
 public:
  /// `endpoints` outlive the object.
  Transmitter(std::span<const Endpoint> endpoints, bool gso) : endpoints_(endpoints), gso_(gso) {}

  /// Sends frames that are RoCE packets, from the front. Returns how many are done with, sent or dropped; the
  /// socket has no room for those after them.
  std::size_t send(std::span<base::Frame> frames, net::DeviceCounters& counters);

 private:
  static constexpr std::size_t kBurst = 64;

  struct Burst;
  const Endpoint* endpoint_of(const base::Frame& frame) const;
  void collect(std::span<base::Frame> frames, const Endpoint& endpoint, Burst& burst);
  std::size_t row(std::span<base::Frame> frames) const;
  void adapt(base::Frame& frame, std::uint16_t identification);

  std::span<const Endpoint> endpoints_;
  bool gso_;
  std::size_t alone_ = 0;  // packets at the front that the kernel did not take as a row
  IcrcDelta delta_;
};

}  // namespace uroce::udp
