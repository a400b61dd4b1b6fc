// The messages of the InfiniBand CM (IBTA vol. 1, 12.6): values with parse and emit. A message is the 232 bytes
// after the common MAD header; the MAD's attribute id identifies it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "wire/address.h"
#include "wire/bth.h"

namespace uroce::cm {

inline constexpr std::size_t kMessageBytes = 232;
using MessageBytes = std::span<const std::byte, kMessageBytes>;
using MessageBuffer = std::span<std::byte, kMessageBytes>;

enum class Attribute : std::uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
};

/// Private data: a fixed area; the used length is not on the wire.
template <std::size_t N>
using PrivateData = std::array<std::byte, N>;

/// A path as a REQ describes it. RoCE has no LIDs: both are 0xffff.
struct Path {
  std::uint16_t local_lid = 0xffff, remote_lid = 0xffff;
  wire::Address local_gid, remote_gid;
  std::uint32_t flow_label = 0;  ///< 20 bits
  std::uint8_t packet_rate = 0;  ///< 6 bits, ibv_rate
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t sl = 0;  ///< 4 bits
  bool subnet_local = true;
  std::uint8_t ack_timeout = 0;  ///< 5 bits, 4.096 us * 2^n
};

enum class TransportService : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };

/// Enhanced connection establishment: vendor and options. The vendor is in the message, the options are in the
/// MAD's attribute modifier (IBTA vol. 1, 12.6.5, 12.6.8 and 12.11.2). All zero: none.
struct Ece {
  std::uint32_t vendor = 0;  ///< 24 bits
  std::uint32_t options = 0;
  bool operator==(const Ece&) const = default;
};

struct Req {  // IBTA vol. 1, 12.6.5
  static constexpr Attribute kAttribute = Attribute::kReq;
  std::uint32_t local_id = 0;
  Ece ece;
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t remote_response_timeout = 20, local_response_timeout = 20;  ///< 5 bits, 4.096 us * 2^n
  TransportService transport = TransportService::kRc;
  bool flow_control = true;
  Psn starting_psn;
  std::uint8_t retry_count = 7;  ///< 3 bits
  std::uint16_t pkey = wire::kDefaultPkey;
  std::uint8_t path_mtu = 3;         ///< 4 bits, ibv_mtu
  std::uint8_t rnr_retry_count = 7;  ///< 3 bits
  std::uint8_t max_cm_retries = 15;  ///< 4 bits
  bool srq = false;
  std::uint8_t extended_transport = 0;  ///< 3 bits; 1: XRC
  Path primary;
  Path alternate;  ///< unused: all zero on the wire when its local GID is zero
  PrivateData<92> private_data{};

  static Req parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

/// The message that an MRA or REJ answers.
enum class MessageAcked : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

struct Mra {  // IBTA vol. 1, 12.6.6
  static constexpr Attribute kAttribute = Attribute::kMra;
  std::uint32_t local_id = 0, remote_id = 0;
  MessageAcked answered = MessageAcked::kReq;
  std::uint8_t service_timeout = 20;  ///< 5 bits, 4.096 us * 2^n
  PrivateData<222> private_data{};

  static Mra parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

/// IBTA vol. 1, 12.6.7 (ib_cm_rej_reason in Linux).
enum class RejReason : std::uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidCommInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransportType = 9,
  kStaleConnection = 10,
  kRdcNotExist = 11,
  kInvalidGid = 12,
  kInvalidLid = 13,
  kInvalidSl = 14,
  kInvalidTrafficClass = 15,
  kInvalidHopLimit = 16,
  kInvalidPacketRate = 17,
  kInvalidAltGid = 18,
  kInvalidAltLid = 19,
  kInvalidAltSl = 20,
  kInvalidAltTrafficClass = 21,
  kInvalidAltHopLimit = 22,
  kInvalidAltPacketRate = 23,
  kPortCmRedirect = 24,
  kPortRedirect = 25,
  kInvalidMtu = 26,
  kInsufficientResponderResources = 27,
  kConsumerDefined = 28,
  kInvalidRnrRetry = 29,
  kDuplicateLocalCommId = 30,
  kInvalidClassVersion = 31,
  kInvalidFlowLabel = 32,
  kInvalidAltFlowLabel = 33,
  kVendorOptionNotSupported = 35,
};

struct Rej {  // IBTA vol. 1, 12.6.7
  static constexpr Attribute kAttribute = Attribute::kRej;
  std::uint32_t local_id = 0, remote_id = 0;
  MessageAcked answered = MessageAcked::kReq;
  std::uint8_t info_bytes = 0;  ///< 7 bits, used of `info`
  RejReason reason = RejReason::kConsumerDefined;
  std::array<std::byte, 72> info{};
  PrivateData<148> private_data{};

  static Rej parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

struct Rep {  // IBTA vol. 1, 12.6.8
  static constexpr Attribute kAttribute = Attribute::kRep;
  std::uint32_t local_id = 0, remote_id = 0;
  Ece ece;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  Psn starting_psn;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;   ///< 5 bits, 4.096 us * 2^n
  std::uint8_t failover_accepted = 0;  ///< 2 bits
  bool flow_control = true;
  std::uint8_t rnr_retry_count = 7;  ///< 3 bits
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  PrivateData<196> private_data{};

  static Rep parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

struct Rtu {  // IBTA vol. 1, 12.6.9
  static constexpr Attribute kAttribute = Attribute::kRtu;
  std::uint32_t local_id = 0, remote_id = 0;
  PrivateData<224> private_data{};

  static Rtu parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

struct Dreq {  // IBTA vol. 1, 12.6.10
  static constexpr Attribute kAttribute = Attribute::kDreq;
  std::uint32_t local_id = 0, remote_id = 0;
  Qpn remote_qpn;
  PrivateData<220> private_data{};

  static Dreq parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

struct Drep {  // IBTA vol. 1, 12.6.11
  static constexpr Attribute kAttribute = Attribute::kDrep;
  std::uint32_t local_id = 0, remote_id = 0;
  PrivateData<224> private_data{};

  static Drep parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

struct SidrReq {  // IBTA vol. 1, 12.11
  static constexpr Attribute kAttribute = Attribute::kSidrReq;
  std::uint32_t request_id = 0;
  std::uint16_t pkey = wire::kDefaultPkey;
  std::uint64_t service_id = 0;
  PrivateData<216> private_data{};

  static SidrReq parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

enum class SidrStatus : std::uint8_t {
  kSuccess = 0,
  kUnsupported = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirect = 4,
  kUnsupportedVersion = 5,
};

struct SidrRep {  // IBTA vol. 1, 12.11
  static constexpr Attribute kAttribute = Attribute::kSidrRep;
  std::uint32_t request_id = 0;
  SidrStatus status = SidrStatus::kSuccess;
  std::uint8_t info_bytes = 0;
  Ece ece;
  Qpn qpn;
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::byte, 72> info{};
  PrivateData<136> private_data{};

  static SidrRep parse(MessageBytes from);
  void emit(MessageBuffer to) const;
};

/// RDMA IP CM service (IBTA annex A11): the head of a REQ's or SIDR_REQ's private data.
struct IpCmHeader {
  static constexpr std::size_t kBytes = 36;
  std::uint8_t version = 0;     ///< major and minor nibble; 0
  std::uint8_t ip_version = 4;  ///< 4 or 6
  std::uint16_t source_port = 0;
  wire::Address source, destination;  ///< IPv4: as ::ffff:a.b.c.d here, as the last 4 of 16 bytes on the wire

  static IpCmHeader parse(std::span<const std::byte, kBytes> from);
  void emit(std::span<std::byte, kBytes> to) const;
};

/// Service ids of the RDMA IP CM: (port space << 16) + port (rdma_port_space of rdma_cma.h).
enum class PortSpace : std::uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };
constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) {
  return static_cast<std::uint64_t>(space) << 16 | port;
}

}  // namespace uroce::cm
