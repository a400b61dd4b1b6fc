// The interface of an Ethernet device as a compile-time concept: the packet path makes no virtual call.
// One object serves one worker (one queue pair of the port); only that worker's thread calls it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "wire/address.h"

namespace uroce::net {

enum class LinkState : std::uint8_t {
  kUp,
  kNoCarrier,  ///< nothing at the other end
  kDisabled,   ///< by an administrator
  kGone,       ///< the port has been removed and will not come back
};

struct DeviceInfo {
  wire::Mac mac{};
  std::uint32_t mtu = 1500;       ///< bytes after the Ethernet header
  bool checksum_offload = false;  ///< honours base::kIpChecksumNeeded
  LinkState link = LinkState::kUp;
  std::uint64_t speed_mbps = 0;        ///< 0: unknown
  std::uint32_t kernel_interface = 0;  ///< index of an interface that receives the same frames; 0: none
  std::uint32_t netdev = 0;            ///< index of the interface that the kernel shows for the port; 0: none
  /// The port is sockets, bound to the addresses that it had at the start: RoCE between these and other hosts only,
  /// without groups and frames of other protocols.
  bool sockets_only = false;
  /// Frames to other ports of this process that are switched reach them as they are, with Frame::sender and without
  /// a wire on the way.
  bool switched = false;
};

/// Which frames the port should deliver.
enum class RxFilter : std::uint8_t {
  kRoceOnly,     ///< RoCE and the link stack's protocols, for our addresses
  kAllForPort,   ///< all frames for our addresses
  kPromiscuous,  ///< also frames for others' unicast addresses
};

/// Statistics of a device, cumulative.
struct DeviceCounters {
  std::uint64_t rx_packets = 0, rx_bytes = 0, rx_dropped = 0;
  std::uint64_t tx_packets = 0, tx_bytes = 0, tx_dropped = 0;
};

/// receive   fills up to out.size() frames and returns how many; each must be given back with release
/// release   gives received frames back
/// allocate  fills `out` with up to out.size() empty frames of at least MTU + 18 bytes; each is then either
///           transmitted or discarded
/// transmit  takes frames from the front and returns how many; the caller keeps those it did not take
///           (the port is busy) and offers them again
/// discard   gives back allocated frames that will not be sent
/// wake_fd   becomes readable when a frame arrives after arm_wake returned true; -1: this device cannot wake a
///           sleeping worker, poll it
/// arm_wake  before sleeping: false when frames are waiting already
/// disarm_wake  after sleeping
/// carries_references  optional, otherwise false: whether frames to the port's own address, and to ports that are
///           switched with it, arrive as they are, with base::kByReference, and nobody looks at them on the way.
///           Asked before each turn of transmission
/// set_rx_filter  initially kRoceOnly; a port may deliver more, or less where it cannot deliver all
template <class D>
concept PacketDevice = requires(D device, const D constant, std::span<base::Frame> frames) {
  { device.receive(frames) } -> std::same_as<std::size_t>;
  {device.release(frames)};
  { device.allocate(frames) } -> std::same_as<std::size_t>;
  { device.transmit(frames) } -> std::same_as<std::size_t>;
  {device.discard(frames)};
  { device.wake_fd() } -> std::same_as<int>;
  { device.arm_wake() } -> std::same_as<bool>;
  {device.disarm_wake()};
  {device.set_rx_filter(RxFilter::kRoceOnly)};
  { constant.info() } -> std::same_as<DeviceInfo>;
  { constant.counters() } -> std::same_as<DeviceCounters>;
};

template <class D>
bool carries_references(D& device) {
  if constexpr (requires { device.carries_references(); }) return device.carries_references();
  return false;
}

}  // namespace uroce::net
