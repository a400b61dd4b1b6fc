// One Ethernet frame in a buffer that its device owns: contiguous, Ethernet header first, no FCS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uroce::base {

enum FrameFlag : std::uint32_t {
  kIpChecksumGood = 1,    ///< received: the port has verified the IPv4 header checksum
  kIpChecksumNeeded = 2,  ///< to send: the port must fill in the IPv4 header checksum
  kIcrcGood = 4,          ///< a packet that a transport of this process built: nobody else could change it since
  kByReference = 8,       ///< in place of payload there is a PayloadReference; never leaves the process
};

/// Names the payload of one or several packets with consecutive PSNs, which the receiving QP copies from where it
/// is. No pointer: whoever uses it checks key, protection domain and range again.
struct PayloadReference {
  std::uint64_t address = 0;
  std::uint32_t key = 0, pd = 0;  ///< of the sending QP's memory
  std::uint32_t bytes = 0;
  std::uint32_t life = 0;     ///< of the sending QP, or of its answers: then its program may use the memory again
  std::uint32_t access = 0;   ///< memory::Access that the key must grant
  std::uint32_t packets = 1;  ///< PSNs
};

struct Frame {
  std::byte* data = nullptr;
  std::uint32_t length = 0;    ///< bytes used
  std::uint32_t capacity = 0;  ///< bytes usable at data
  std::uint32_t flags = 0;     ///< FrameFlag
  std::uint32_t sender = 0;    ///< the QP of this process that sent it (proto::LocalDevices); 0: none, or a wire's
  void* handle = nullptr;      ///< the device's own (an rte_mbuf, a slot)

  std::span<const std::byte> bytes() const { return {data, length}; }
};

inline constexpr std::size_t kReferenceTrailer = 4;  ///< bytes after the PayloadReference: the place of the ICRC

/// With kByReference.
inline PayloadReference reference_of(const Frame& frame) {
  PayloadReference reference;
  std::memcpy(&reference, frame.data + frame.length - kReferenceTrailer - sizeof reference, sizeof reference);
  return reference;
}

/// The packets and bytes that a wire would carry for the frame.
struct WireCost {
  std::uint64_t packets = 1, bytes = 0;
};
inline WireCost wire_cost(const Frame& frame) {
  if ((frame.flags & kByReference) == 0) [[likely]]
    return {1, frame.length};
  const PayloadReference reference = reference_of(frame);
  const std::uint64_t headers = frame.length - sizeof reference;
  return {reference.packets, reference.packets * headers + reference.bytes};
}

}  // namespace uroce::base
