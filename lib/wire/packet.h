// From a frame to a checked RoCEv2 packet, and from a QP's path to a frame. The field-by-field views and values are
// in headers.h; this is what the transport and the engine use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/types.h"
#include "wire/bytes.h"
#include "wire/opcode.h"

namespace uroce::wire {

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kBthBytes = 12;
/// Ethernet 14, 802.1Q 4, IPv6 40, UDP 8, BTH 12, the longest extended headers 28 + 4 + 4, pad 3, ICRC 4.
inline constexpr std::size_t kMaxOverhead = 128;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

/// A GID or an IPv6 address; an IPv4 address stands as ::ffff:a.b.c.d.
struct Address {
  std::array<std::uint8_t, 16> bytes{};
  bool is_v4() const;
  bool is_multicast() const;
  bool operator==(const Address&) const = default;
  auto operator<=>(const Address&) const = default;
};
using Mac = std::array<std::uint8_t, 6>;

struct Bth {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migreq = true;
  std::uint8_t pad = 0;      ///< bytes, 0-3
  std::uint8_t version = 0;  ///< TVer
  std::uint16_t pkey = kDefaultPkey;
  bool fecn = false, becn = false;
  Qpn dest_qpn;
  bool ack_req = false;
  Psn psn;
};

/// What is known of a packet's ICRC and where its payload is. Pending states come first.
enum class PacketState : std::uint8_t {
  kIcrcPending,    ///< verify_icrc() or place_payload() decides
  kIcrcResumable,  ///< the same, with the ICRC's state before the BTH's last word at hand
  kVerified,       ///< the ICRC is right, or parse() was not asked to check it
  kPlaced,         ///< verified, and the payload has been copied to its destination
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
  Mac source_mac{};
  bool icrc_pending() const { return state <= PacketState::kIcrcResumable; }
  bool placed() const { return state == PacketState::kPlaced; }
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

/// Checks a frame from its Ethernet header on. Never reads outside `frame`.
ParseVerdict parse(std::span<const std::byte> frame, const ParseOptions& options, RxPacket& out);

/// Checks a pending ICRC: kOk or kBadIcrc.
ParseVerdict verify_icrc(RxPacket& packet);
/// Checks a pending ICRC while it copies the payload to `to`: kOk or kBadIcrc. The last `held` bytes are written
/// only after the ICRC has been found right; after kBadIcrc the bytes before them are undefined.
ParseVerdict place_payload(RxPacket& packet, std::byte* to, std::size_t held);

/// Everything below the BTH that one path (an address vector) always sends.
struct PathAddress {
  Mac source_mac{}, dest_mac{};
  std::optional<std::uint16_t> vlan;  ///< TCI: priority and VLAN id
  Address source, dest;               ///< both IPv4 or both IPv6
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  ///< 20 bits; 0: derive the source port from the QPNs
  std::uint16_t source_port = 0xc000;
};

/// UDP source port of a flow: from the flow label, or, when that is 0, from both QPNs (roce-facts; rdma-core's
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

  /// Writes the headers for `ib_bytes` of BTH through ICRC at `to`, checksum of IPv4 included, and returns
  /// header_bytes(). With `offload_checksum` the IPv4 checksum is left 0 for the port.
  std::size_t emit(std::byte* to, std::size_t ib_bytes, bool offload_checksum = false) const;

 private:
  std::array<std::byte, 68> bytes_{};
  std::uint32_t ip_sum_ = 0;  ///< IPv4 header sum without the total length
  std::uint8_t header_bytes_ = 0;
  std::uint8_t ip_offset_ = 0;
  bool v4_ = true;
};

/// The words of a BTH as they lie in memory, with this pad.
inline std::array<std::uint32_t, 3> words_of(const Bth& bth, unsigned pad) {
  const unsigned byte1 =
      unsigned{bth.solicited} << 7 | unsigned{bth.migreq} << 6 | (pad & 3u) << 4 | (bth.version & 15u);
  return {
      swap_bytes(std::uint32_t{bth.opcode} << 24 | byte1 << 16 | bth.pkey),
      swap_bytes(std::uint32_t{bth.fecn} << 31 | std::uint32_t{bth.becn} << 30 | (bth.dest_qpn.value & 0xffffff)),
      swap_bytes(std::uint32_t{bth.ack_req} << 31 | bth.psn.value())};
}
/// Each word by itself: stored and loaded with other sizes they would wait for each other.
inline void emit(const std::array<std::uint32_t, 3>& bth, std::byte* to) {
  store_raw(to, bth[0]);
  store_raw(to + 4, bth[1]);
  store_raw(to + 8, bth[2]);
}
inline void emit(const Bth& bth, std::byte* to) { emit(words_of(bth, bth.pad), to); }

inline Bth parse_bth(const std::byte* from) {
  const std::uint32_t first = load32(from), qpn = load32(from + 4), psn = load32(from + 8);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(first >> 24);
  bth.solicited = (first & 0x800000) != 0;
  bth.migreq = (first & 0x400000) != 0;
  bth.pad = (first >> 20) & 3;
  bth.version = (first >> 16) & 15;
  bth.pkey = static_cast<std::uint16_t>(first);
  bth.fecn = (qpn & 0x80000000) != 0;
  bth.becn = (qpn & 0x40000000) != 0;
  bth.dest_qpn = Qpn{qpn & 0xffffff};
  bth.ack_req = (psn & 0x80000000) != 0;
  bth.psn = Psn(psn);
  return bth;
}

/// Extended headers as values. parse_ reads and emit writes exactly kBytes.
struct Reth {
  static constexpr std::size_t kBytes = 16;
  std::uint64_t address = 0;
  Key rkey;
  std::uint32_t length = 0;
  static Reth parse(const std::byte* from) { return {load64(from), Key{load32(from + 8)}, load32(from + 12)}; }
  void emit(std::byte* to) const {
    store64(to, address);
    store32(to + 8, rkey.value);
    store32(to + 12, length);
  }
};
struct AtomicEth {
  static constexpr std::size_t kBytes = 28;
  std::uint64_t address = 0;
  Key rkey;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  static AtomicEth parse(const std::byte* from) {
    return {load64(from), Key{load32(from + 8)}, load64(from + 12), load64(from + 20)};
  }
  void emit(std::byte* to) const {
    store64(to, address);
    store32(to + 8, rkey.value);
    store64(to + 12, swap_or_add);
    store64(to + 20, compare);
  }
};
struct Aeth {
  static constexpr std::size_t kBytes = 4;
  std::uint8_t syndrome = 0;
  Msn msn;
  static Aeth parse(const std::byte* from) { return {load8(from), Msn(load32(from))}; }
  void emit(std::byte* to) const { store32(to, std::uint32_t{syndrome} << 24 | msn.value()); }
};
struct AtomicAckEth {
  static constexpr std::size_t kBytes = 8;
  std::uint64_t original = 0;
  static AtomicAckEth parse(const std::byte* from) { return {load64(from)}; }
  void emit(std::byte* to) const { store64(to, original); }
};
struct Deth {
  static constexpr std::size_t kBytes = 8;
  std::uint32_t qkey = 0;
  Qpn source_qpn;
  static Deth parse(const std::byte* from) { return {load32(from), Qpn{load32(from + 4) & 0xffffff}}; }
  void emit(std::byte* to) const {
    store32(to, qkey);
    store32(to + 4, source_qpn.value & 0xffffff);
  }
};
/// Immediate data, as it stands on the wire (big-endian, passed through unchanged).
struct ImmDt {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t value = 0;
  static ImmDt parse(const std::byte* from) { return {load_raw<std::uint32_t>(from)}; }
  void emit(std::byte* to) const { store_raw(to, value); }
};
struct Ieth {
  static constexpr std::size_t kBytes = 4;
  Key rkey;
  static Ieth parse(const std::byte* from) { return {Key{load32(from)}}; }
  void emit(std::byte* to) const { store32(to, rkey.value); }
};
struct XrcEth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t srqn = 0;
  static XrcEth parse(const std::byte* from) { return {load32(from) & 0xffffff}; }
  void emit(std::byte* to) const { store32(to, srqn & 0xffffff); }
};
struct Rdeth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t ee_context = 0;
  static Rdeth parse(const std::byte* from) { return {load32(from) & 0xffffff}; }
  void emit(std::byte* to) const { store32(to, ee_context & 0xffffff); }
};
/// FLUSH: type in bits 0-3, selectivity level in bits 4-5.
struct Feth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t bits = 0;
  static Feth parse(const std::byte* from) { return {load32(from)}; }
  void emit(std::byte* to) const { store32(to, bits); }
};

/// AETH syndromes (IBTA vol. 1, table 44).
inline constexpr std::uint8_t kAckUnlimited = 0x1f;
inline constexpr std::uint8_t kRnrNak = 0x20;  ///< | timer code
enum class Nak : std::uint8_t {
  kSequence = 0x60,
  kInvalidRequest = 0x61,
  kRemoteAccess = 0x62,
  kRemoteOperational = 0x63,
  kInvalidRdRequest = 0x64,
};

}  // namespace uroce::wire
