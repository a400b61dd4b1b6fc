// Consecutive TCP segments of one connection that the kernel may take as one large frame, as an adapter with
// receive offload joins them. Sans-IO. The rules are at least as narrow as those of the kernel's own joining (GRO):
// same addresses, ports, acknowledge, window and options, no flags but ACK and a last PSH, sequence numbers without
// a gap, IPv4 with DF only, right checksums, all payloads of one length, and the last one not longer.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/ethernet_frame.h"
#include "worker/kernel_frame.h"

namespace uroce::worker {

class SegmentRun {
 public:
  static constexpr std::size_t kMostFrames = 48;

  /// Adds a frame, which has to stay until the run is written. False: it does not continue the run, which is
  /// unchanged. The first of a run may be any frame.
  bool add(std::span<const std::byte> frame);
  /// Frames so far.
  std::size_t frames() const { return frames_; }
  /// What is to be written at once: a VirtioNetHeader and one frame.
  std::span<const iovec> parts();
  /// The next run begins.
  void clear() { frames_ = 0; }

 private:
  static constexpr std::size_t kMostHeaders = 14 + 40 + 60;  // Ethernet, IPv6, TCP

  /// Whether it may be part of a run at all.
  static bool joinable(std::span<const std::byte> frame, const wire::FrameLayout& layout);
  bool continues(std::span<const std::byte> frame, const wire::FrameLayout& layout) const;
  void make_headers();

  std::size_t frames_ = 0;
  std::span<const std::byte> first_;
  wire::FrameLayout layout_;  // of the first
  bool open_ = false;         // more may follow
  std::size_t segment_ = 0;   // bytes of payload of the first
  std::size_t payload_ = 0;   // of all
  std::uint8_t flags_ = 0;    // of the last
  VirtioNetHeader header_;
  std::array<std::byte, kMostHeaders> headers_;
  std::array<iovec, 2 + kMostFrames> parts_;  // header_, headers_ or the first frame, payloads
};

}  // namespace uroce::worker
