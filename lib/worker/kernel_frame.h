// A frame as the kernel hands it over to a device with offloads: after a virtio_net_hdr (linux/virtio_net.h) that
// says which checksum is missing, and into how many TCP segments it is to be cut. Sans-IO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/ethernet_frame.h"

namespace uroce::worker {

/// virtio_net_hdr of linux/virtio_net.h, a file that C++ does not take (VIRTIO 1.2, 5.1.6). Numbers have the
/// machine's byte order.
struct VirtioNetHeader {
  enum Flag : std::uint8_t { kNeedsChecksum = 1 };
  enum Segments : std::uint8_t { kNone = 0, kTcp4 = 1, kTcp6 = 4, kEcn = 0x80 };

  std::uint8_t flags = 0, segments = kNone;
  std::uint16_t header_bytes = 0, segment_bytes = 0;
  std::uint16_t checksum_start = 0, checksum_offset = 0;  ///< the latter from checksum_start on
};

class KernelFrame {
 public:
  /// Before every frame of an interface with offloads, in both directions; all zero: nothing is missing.
  static constexpr std::size_t kHeader = sizeof(VirtioNetHeader);
  /// The longest frame that the kernel hands over, with its header.
  static constexpr std::size_t kMost = kHeader + 18 + 65535;

  /// `read`: what the kernel handed over, which has to stay as long as this object is used; the frame without
  /// segments is completed in place. False: it is too short, or has offloads that were not switched on.
  bool assign(std::span<std::byte> read);
  /// Frames for the wire that are left.
  std::uint32_t left() const { return count_ - next_; }
  /// Length of the next one.
  std::size_t next_bytes() const;
  /// Writes the next one into `to`, which has next_bytes() bytes.
  void take(std::span<std::byte> to);

 private:
  std::span<std::byte> frame_;
  wire::FrameLayout layout_;
  std::size_t headers_ = 0, segment_ = 0;  // bytes; segment_ of payload
  std::uint32_t next_ = 0, count_ = 0;
};

}  // namespace uroce::worker
