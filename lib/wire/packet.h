// From a frame to a checked RoCEv2 packet (annex A17).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/address.h"
#include "wire/bth.h"
#include "wire/opcode.h"

namespace uroce::wire {

/// Ethernet 14, 802.1Q 4, IPv6 40, UDP 8, BTH 12, the longest extended headers 28 + 4 + 4, pad 3, ICRC 4.
inline constexpr std::size_t kMaxOverhead = 128;

/// What is known of a packet's ICRC and where its payload is. Pending states come first.
enum class PacketState : std::uint8_t {
  kIcrcPending,    ///< verify_icrc() or place_payload() decides
  kIcrcResumable,  ///< as kIcrcPending, with the ICRC's state before the BTH's last word at hand
  kVerified,       ///< the ICRC is correct, or parse() was called without the check
  kPlaced,         ///< verified, and the payload has been copied to its destination
  kByReference,    ///< a packet of this process, whose payload is a base::PayloadReference until it is resolved
};

/// A packet whose lengths and opcode have been checked. Points into the frame.
struct RxPacket {
  Bth bth;
  const OpcodeInfo* info = nullptr;
  const std::byte* bth_start = nullptr;  ///< extended headers by info->…offsets from here
  const std::byte* payload = nullptr;
  std::uint32_t payload_bytes = 0;  ///< without pad
  const std::byte* ip = nullptr;    ///< IP header (the UD receive area wants it)
  std::uint8_t ip_bytes = 0;        ///< 20 or 40
  bool ce = false;                  ///< ECN congestion experienced
  bool multicast = false;           ///< destination address is a group
  PacketState state = PacketState::kIcrcPending;
  std::uint32_t crc_before_psn = 0;  ///< kIcrcResumable: state of the ICRC before the BTH's last word
  std::uint16_t vlan = 0;            ///< TCI, 0 when untagged
  std::uint16_t psns = 1;            ///< PSNs that it takes, from bth.psn on; more than one only by reference
  std::uint32_t sender = 0;          ///< base::Frame::sender; parse() leaves it
  Mac source_mac{};
  bool icrc_pending() const { return state <= PacketState::kIcrcResumable; }
  bool placed() const { return state == PacketState::kPlaced; }
  bool by_reference() const { return state == PacketState::kByReference; }
  Address source() const;
  Address destination() const;
};

/// Whether a frame is a valid RoCE packet, or why not. Each final verdict has a counter of that name (dump.h).
enum class ParseVerdict : std::int8_t {
  kIcrcPending = -1,  ///< valid up to its ICRC, which verify_icrc() or place_payload() decides: not final
  kOk = 0,
  kNotRoce,      ///< another protocol: ARP, ICMP, ...
  kTruncated,    ///< shorter than its headers say
  kBadIpHeader,  ///< version, IHL, checksum, fragment, IPv4 options
  kBadUdpLength,
  kUnknownOpcode,
  kBadTransportVersion,
  kBadLength,  ///< headers + pad + ICRC exceed the packet, or payload where none may be
  kBadPad,
  kBadIcrc,
  kCount,
};
/// A RoCE packet, whose ICRC may still be pending.
constexpr bool accepted(ParseVerdict verdict) { return verdict <= ParseVerdict::kOk; }

struct ParseOptions {
  bool check_icrc = true;
  bool check_ip_checksum = true;  ///< off where the port has verified it
  /// Defers the ICRC of an RC WRITE's or READ's packets after the first, so that it can be computed while the
  /// payload is copied.
  bool defer_icrc = false;
};

/// Whether ParseOptions::defer_icrc applies to the packet.
inline bool may_defer_icrc(const RxPacket& packet) {
  return packet.info->has(kMiddle | kLast) && !packet.info->has(kSend) && packet.info->service == Service::kRc &&
         packet.bth.pad == 0 && !packet.multicast;
}

/// Checks a frame from its Ethernet header on. Never reads outside `frame`.
ParseVerdict parse(std::span<const std::byte> frame, const ParseOptions& options, RxPacket& out);

/// Checks a pending ICRC: kOk or kBadIcrc.
ParseVerdict verify_icrc(RxPacket& packet);
/// Checks a pending ICRC while it copies the payload to `to`: kOk or kBadIcrc. The last `held` bytes are written
/// only after the ICRC has been found right; after kBadIcrc the bytes before them are undefined.
ParseVerdict place_payload(RxPacket& packet, std::byte* to, std::size_t held);

}  // namespace uroce::wire
