// From a QP's path to the Ethernet, IP and UDP headers of its frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/types.h"
#include "wire/address.h"

namespace uroce::wire {

/// Explicit congestion notification (RFC 3168).
inline constexpr std::uint8_t kNotEct = 0, kEct0 = 2, kCongestionExperienced = 3;

/// A flow label has 20 bits.
inline constexpr std::uint32_t kFlowLabelMask = 0xfffff;

/// The header fields below the BTH that are constant on a path (an address vector).
struct PathAddress {
  Mac source_mac{}, dest_mac{};
  std::optional<std::uint16_t> vlan;  ///< TCI: priority and VLAN id
  Address source, dest;               ///< both IPv4 or both IPv6
  std::uint8_t traffic_class = 0;     ///< DSCP; its two ECN bits are ignored, for they are the transport's
  std::uint8_t ecn = kNotEct;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  ///< 20 bits; 0: derive the source port from the QPNs
  std::uint16_t source_port = 0xc000;
};

/// UDP source port of a flow: from the flow label or, when that is 0, from both QPNs (rdma-core's
/// rdma_flow_label_to_udp_sport and rdma_calc_flow_label).
std::uint16_t source_port(std::uint32_t flow_label, Qpn local, Qpn remote);

/// Prebuilt Ethernet, IP and UDP headers of a path. Trivially copyable.
class FrameTemplate {
 public:
  FrameTemplate() = default;
  explicit FrameTemplate(const PathAddress& path);

  /// Bytes of Ethernet, IP and UDP header together.
  std::size_t header_bytes() const { return header_bytes_; }
  std::size_t ip_offset() const { return ip_offset_; }
  std::size_t ip_bytes() const { return header_bytes_ - ip_offset_ - 8; }
  bool ipv4() const { return v4_; }

  /// Writes the headers for `ib_bytes` of BTH through ICRC at `to`, checksum of IPv4 included, and returns
  /// header_bytes(). With `offload_checksum` the IPv4 checksum is left 0 for the port.
  std::size_t emit(std::byte* to, std::size_t ib_bytes, bool offload_checksum = false) const;
  /// emit() for a packet that is not ECN-capable, whatever the path is.
  std::size_t emit_not_ect(std::byte* to, std::size_t ib_bytes, bool offload_checksum = false) const;

 private:
  std::array<std::byte, 68> bytes_{};
  std::uint32_t ip_sum_ = 0;  ///< IPv4 header sum without the total length
  std::uint8_t header_bytes_ = 0;
  std::uint8_t ip_offset_ = 0;
  bool v4_ = true;
};

}  // namespace uroce::wire
