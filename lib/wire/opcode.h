// Every BTH opcode: its service, its headers, its place in a message (IBTA vol. 1, 9.2.1, tables 35-38; RoCEv2
// annex A17 for CNP). One row per operation and one per service; lengths, offsets and names are derived at compile
// time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace uroce::wire {

enum class Service : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5, kNone = 7 };

/// The low five bits of an opcode: the operation, common to all services.
enum class Operation : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kFlush = 0x1c,
  kAtomicWrite = 0x1d,
};

/// An opcode on the wire: service in the top three bits.
constexpr std::uint8_t opcode(Service service, Operation operation) {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(service) << 5 | static_cast<std::uint8_t>(operation));
}
inline constexpr std::uint8_t kCnpOpcode = 0x81;
inline constexpr std::uint8_t kCnpReservedBytes = 16;  ///< zero, after the BTH of a CNP; counted as header

/// Extended headers and roles of an opcode.
enum OpcodeFlag : std::uint32_t {
  kHasRdeth = 1 << 0,
  kHasDeth = 1 << 1,
  kHasReth = 1 << 2,
  kHasAtomicEth = 1 << 3,
  kHasAeth = 1 << 4,
  kHasAtomicAckEth = 1 << 5,
  kHasImmDt = 1 << 6,
  kHasIeth = 1 << 7,
  kHasXrcEth = 1 << 8,
  kHasPayload = 1 << 9,
  kHasFeth = 1 << 10,
  kFirst = 1 << 11,
  kMiddle = 1 << 12,
  kLast = 1 << 13,
  kOnly = 1 << 14,
  kRequest = 1 << 15,
  kResponse = 1 << 16,
  kSend = 1 << 17,
  kWrite = 1 << 18,
  kRead = 1 << 19,
  kAtomic = 1 << 20,
  kConsumesRecv = 1 << 21,  ///< the last packet of a message whose completion consumes a receive WQE
};

struct OpcodeInfo {
  std::string_view name;    ///< "RC SEND_ONLY"; empty: no such opcode
  std::uint32_t flags = 0;  ///< OpcodeFlag
  Service service = Service::kNone;
  Operation operation{};
  std::uint8_t header_bytes = 0;  ///< BTH and extended headers
  // Offset of each extended header from the start of the BTH; 0: absent.
  std::uint8_t rdeth = 0, deth = 0, reth = 0, atomic_eth = 0, aeth = 0, atomic_ack_eth = 0, immdt = 0, ieth = 0,
               xrceth = 0, feth = 0;

  constexpr bool has(std::uint32_t mask) const { return (flags & mask) != 0; }
  constexpr bool known() const { return !name.empty(); }
};

/// Indexed by the opcode byte; unknown ones have an empty name.
extern const std::array<OpcodeInfo, 256> kOpcodes;
/// An RC request with a reserved opcode, or whose length does not fit its opcode: all after the BTH is payload. The
/// responder answers it with NAK invalid request (IBTA vol. 1, 9.7.4.1).
extern const OpcodeInfo kInvalidRcRequest;

}  // namespace uroce::wire
