// Ethernet, 802.1Q, IPv4, IPv6 and UDP headers as values that hold every field. parse reads and emit writes exactly
// kBytes; parse checks nothing. The InfiniBand headers are in bth.h and extended_headers.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/address.h"
#include "wire/bytes.h"

namespace uroce::wire {

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;
inline constexpr std::uint16_t kEtherTypeServiceVlan = 0x88a8;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr std::uint8_t kProtocolIcmp = 1;
inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr std::uint8_t kProtocolIcmpV6 = 58;
inline constexpr std::uint16_t kRoceUdpPort = 4791;  ///< destination port of RoCEv2 (annex A17)
inline constexpr std::size_t kMinFrameBytes = 60;    ///< without FCS; shorter frames are padded (IEEE 802.3)

/// One's complement sum of `bytes` as 16-bit big-endian words (RFC 1071), continued from `sum`. All pieces of a sum
/// but the last have an even length. 0xffff over a piece that holds its checksum: the checksum is right.
std::uint32_t ones_complement_sum(std::span<const std::byte> bytes, std::uint32_t sum = 0);
/// The value for the checksum field: that sum inverted. `sum` is the sum of a pseudo header.
std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint32_t sum = 0);
/// One's complement sum of an IPv4 header without options (RFC 791, RFC 1071): 0xffff when its checksum is right.
/// Summed in memory order, so only that value and the checksum in memory order mean anything.
inline std::uint32_t ipv4_header_sum(const std::byte* ip) {
  std::uint64_t sum = std::uint64_t{load_raw<std::uint32_t>(ip)} + load_raw<std::uint32_t>(ip + 4) +
                      load_raw<std::uint32_t>(ip + 8) + load_raw<std::uint32_t>(ip + 12) +
                      load_raw<std::uint32_t>(ip + 16);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint32_t>(sum);
}

/// IEEE 802.3.
struct EthernetHeader {
  static constexpr std::size_t kBytes = 14;
  Mac dest{}, source{};
  std::uint16_t type = 0;
  static EthernetHeader parse(const std::byte* from);
  void emit(std::byte* to) const;
  bool operator==(const EthernetHeader&) const = default;
};

/// Follows an EtherType of 0x8100 (IEEE 802.1Q) or 0x88a8 (802.1ad).
struct VlanTag {
  static constexpr std::size_t kBytes = 4;
  std::uint16_t tci = 0;   ///< priority 3 bits, drop eligible 1, VLAN id 12
  std::uint16_t type = 0;  ///< of what follows
  static VlanTag parse(const std::byte* from) { return {load16(from), load16(from + 2)}; }
  void emit(std::byte* to) const {
    store16(to, tci);
    store16(to + 2, type);
  }
  bool operator==(const VlanTag&) const = default;
};

/// An IPv4 header without options (kBytes), or the fixed part of one with options (RFC 791, 3.1).
struct Ipv4Header {
  static constexpr std::size_t kBytes = 20;
  std::uint8_t version = 4;
  std::uint8_t header_words = 5;   ///< IHL
  std::uint8_t traffic_class = 0;  ///< DSCP and ECN
  std::uint16_t total_length = 0;
  std::uint16_t identification = 0;
  std::uint16_t fragment = 0x4000;  ///< flags (don't fragment) and offset
  std::uint8_t ttl = 64;
  std::uint8_t protocol = kProtocolUdp;
  std::uint16_t checksum = 0;
  std::array<std::uint8_t, 4> source{}, dest{};
  static Ipv4Header parse(const std::byte* from);
  /// Writes the field `checksum`, not a computed one.
  void emit(std::byte* to) const;
  /// The checksum that matches the other fields.
  std::uint16_t right_checksum() const;
  bool operator==(const Ipv4Header&) const = default;
};

/// RFC 8200, 3.
struct Ipv6Header {
  static constexpr std::size_t kBytes = 40;
  std::uint8_t version = 6;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  ///< 20 bits
  std::uint16_t payload_length = 0;
  std::uint8_t next_header = kProtocolUdp;
  std::uint8_t hop_limit = 64;
  std::array<std::uint8_t, 16> source{}, dest{};
  static Ipv6Header parse(const std::byte* from);
  void emit(std::byte* to) const;
  bool operator==(const Ipv6Header&) const = default;
};

/// RFC 768.
struct UdpHeader {
  static constexpr std::size_t kBytes = 8;
  std::uint16_t source_port = 0, dest_port = 0;
  std::uint16_t length = 0;
  std::uint16_t checksum = 0;
  static UdpHeader parse(const std::byte* from) {
    return {load16(from), load16(from + 2), load16(from + 4), load16(from + 6)};
  }
  void emit(std::byte* to) const {
    store16(to, source_port);
    store16(to + 2, dest_port);
    store16(to + 4, length);
    store16(to + 6, checksum);
  }
  bool operator==(const UdpHeader&) const = default;
};

}  // namespace uroce::wire
