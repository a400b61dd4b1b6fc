// One Ethernet frame in a buffer that its device owns: contiguous, Ethernet header first, no FCS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::base {

enum FrameFlag : std::uint32_t {
  kIpChecksumGood = 1,    ///< received: the port has verified the IPv4 header checksum
  kIpChecksumNeeded = 2,  ///< to send: the port must fill in the IPv4 header checksum
  kIcrcGood = 4,          ///< a packet that a transport of this process built: nobody else could change it since
};

struct Frame {
  std::byte* data = nullptr;
  std::uint32_t length = 0;    ///< bytes used
  std::uint32_t capacity = 0;  ///< bytes usable at data
  std::uint32_t flags = 0;     ///< FrameFlag
  std::uint32_t sender = 0;    ///< QPN of the QP of this port that sent it; 0: none, or it came from the wire
  void* handle = nullptr;      ///< the device's own (an rte_mbuf, a slot)

  std::span<const std::byte> bytes() const { return {data, length}; }
};

}  // namespace uroce::base
