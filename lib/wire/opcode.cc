#include "wire/opcode.h"

#include <cstddef>

namespace uroce::wire {
namespace {

constexpr std::uint32_t bit(Service service) { return 1u << static_cast<unsigned>(service); }
constexpr std::uint32_t kR = bit(Service::kRc) | bit(Service::kRd) | bit(Service::kXrc);  // with acknowledges
constexpr std::uint32_t kC = kR | bit(Service::kUc);                                      // connected
constexpr std::uint32_t kRcXrc = bit(Service::kRc) | bit(Service::kXrc);
constexpr std::uint32_t kAll = kC | bit(Service::kUd);

/// An operation in any service that has it. The headers of the service itself (DETH, RDETH, XRCETH) come from
/// service_headers().
struct Row {
  Operation operation;
  std::string_view name;
  std::uint32_t services;
  std::uint32_t flags;
};

constexpr Row kRows[] = {
    {Operation::kSendFirst, "SEND_FIRST", kC, kSend | kRequest | kFirst | kHasPayload},
    {Operation::kSendMiddle, "SEND_MIDDLE", kC, kSend | kRequest | kMiddle | kHasPayload},
    {Operation::kSendLast, "SEND_LAST", kC, kSend | kRequest | kLast | kHasPayload | kConsumesRecv},
    {Operation::kSendLastImm, "SEND_LAST_IMM", kC,
     kSend | kRequest | kLast | kHasImmDt | kHasPayload | kConsumesRecv},
    {Operation::kSendOnly, "SEND_ONLY", kAll, kSend | kRequest | kOnly | kHasPayload | kConsumesRecv},
    {Operation::kSendOnlyImm, "SEND_ONLY_IMM", kAll,
     kSend | kRequest | kOnly | kHasImmDt | kHasPayload | kConsumesRecv},
    {Operation::kWriteFirst, "WRITE_FIRST", kC, kWrite | kRequest | kFirst | kHasReth | kHasPayload},
    {Operation::kWriteMiddle, "WRITE_MIDDLE", kC, kWrite | kRequest | kMiddle | kHasPayload},
    {Operation::kWriteLast, "WRITE_LAST", kC, kWrite | kRequest | kLast | kHasPayload},
    {Operation::kWriteLastImm, "WRITE_LAST_IMM", kC,
     kWrite | kRequest | kLast | kHasImmDt | kHasPayload | kConsumesRecv},
    {Operation::kWriteOnly, "WRITE_ONLY", kC, kWrite | kRequest | kOnly | kHasReth | kHasPayload},
    {Operation::kWriteOnlyImm, "WRITE_ONLY_IMM", kC,
     kWrite | kRequest | kOnly | kHasReth | kHasImmDt | kHasPayload | kConsumesRecv},
    {Operation::kReadRequest, "READ_REQUEST", kR, kRead | kRequest | kOnly | kHasReth},
    {Operation::kReadResponseFirst, "READ_RESP_FIRST", kR, kRead | kResponse | kFirst | kHasAeth | kHasPayload},
    {Operation::kReadResponseMiddle, "READ_RESP_MIDDLE", kR, kRead | kResponse | kMiddle | kHasPayload},
    {Operation::kReadResponseLast, "READ_RESP_LAST", kR, kRead | kResponse | kLast | kHasAeth | kHasPayload},
    {Operation::kReadResponseOnly, "READ_RESP_ONLY", kR, kRead | kResponse | kOnly | kHasAeth | kHasPayload},
    {Operation::kAcknowledge, "ACK", kR, kResponse | kHasAeth},
    {Operation::kAtomicAcknowledge, "ATOMIC_ACK", kR, kAtomic | kResponse | kHasAeth | kHasAtomicAckEth},
    {Operation::kCompareSwap, "CMP_SWAP", kR, kAtomic | kRequest | kOnly | kHasAtomicEth},
    {Operation::kFetchAdd, "FETCH_ADD", kR, kAtomic | kRequest | kOnly | kHasAtomicEth},
    {Operation::kSendLastInvalidate, "SEND_LAST_INV", kRcXrc,
     kSend | kRequest | kLast | kHasIeth | kHasPayload | kConsumesRecv},
    {Operation::kSendOnlyInvalidate, "SEND_ONLY_INV", kRcXrc,
     kSend | kRequest | kOnly | kHasIeth | kHasPayload | kConsumesRecv},
    {Operation::kFlush, "FLUSH", bit(Service::kRc), kRequest | kOnly | kHasFeth | kHasReth},
    {Operation::kAtomicWrite, "ATOMIC_WRITE", bit(Service::kRc),
     kAtomic | kRequest | kOnly | kHasReth | kHasPayload},
};

struct ServiceRow {
  Service service;
  std::string_view name;
  std::uint32_t on_requests, on_responses;  ///< headers
};
constexpr ServiceRow kServices[] = {
    {Service::kRc, "RC", 0, 0},
    {Service::kUc, "UC", 0, 0},
    {Service::kRd, "RD", kHasRdeth | kHasDeth, kHasRdeth},
    {Service::kUd, "UD", kHasDeth, 0},
    {Service::kXrc, "XRC", kHasXrcEth, 0},
};

/// The extended headers in their order after the BTH.
struct HeaderRow {
  std::uint32_t flag;
  std::uint8_t bytes;
  std::uint8_t OpcodeInfo::*offset;
};
constexpr HeaderRow kHeaders[] = {
    {kHasRdeth, 4, &OpcodeInfo::rdeth},   {kHasDeth, 8, &OpcodeInfo::deth},
    {kHasXrcEth, 4, &OpcodeInfo::xrceth}, {kHasFeth, 4, &OpcodeInfo::feth},
    {kHasReth, 16, &OpcodeInfo::reth},    {kHasAtomicEth, 28, &OpcodeInfo::atomic_eth},
    {kHasAeth, 4, &OpcodeInfo::aeth},     {kHasAtomicAckEth, 8, &OpcodeInfo::atomic_ack_eth},
    {kHasImmDt, 4, &OpcodeInfo::immdt},   {kHasIeth, 4, &OpcodeInfo::ieth},
};

constexpr std::size_t kNameBytes = 24;
struct Names {
  char text[256][kNameBytes]{};
  std::uint8_t length[256]{};

  constexpr void append(std::size_t code, std::string_view part) {
    for (const char c : part) text[code][length[code]++] = c;
  }
};

constexpr Names make_names() {
  Names names;
  for (const ServiceRow& service : kServices) {
    for (const Row& row : kRows) {
      if ((row.services & bit(service.service)) == 0) continue;
      const std::uint8_t code = opcode(service.service, row.operation);
      names.append(code, service.name);
      names.append(code, " ");
      names.append(code, row.name);
    }
  }
  names.append(kCnpOpcode, "CNP");
  return names;
}
constexpr Names kNames = make_names();

constexpr OpcodeInfo describe(std::uint8_t code, Service service, Operation operation, std::uint32_t flags) {
  OpcodeInfo info;
  info.name = {kNames.text[code], kNames.length[code]};
  info.flags = flags;
  info.service = service;
  info.operation = operation;
  info.header_bytes = 12;
  for (const HeaderRow& header : kHeaders) {
    if ((flags & header.flag) == 0) continue;
    info.*header.offset = info.header_bytes;
    info.header_bytes = static_cast<std::uint8_t>(info.header_bytes + header.bytes);
  }
  return info;
}

constexpr std::array<OpcodeInfo, 256> make_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const ServiceRow& service : kServices) {
    for (const Row& row : kRows) {
      if ((row.services & bit(service.service)) == 0) continue;
      const std::uint32_t headers = (row.flags & kRequest) != 0 ? service.on_requests : service.on_responses;
      const std::uint8_t code = opcode(service.service, row.operation);
      table[code] = describe(code, service.service, row.operation, row.flags | headers);
    }
  }
  // A congestion notification has 16 reserved bytes instead of extended headers (A17.9.3).
  table[kCnpOpcode] = describe(kCnpOpcode, Service::kCnp, Operation{}, 0);
  table[kCnpOpcode].header_bytes = 12 + kCnpReservedBytes;
  return table;
}

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodes = make_table();
constinit const OpcodeInfo kInvalidRcRequest = [] {
  OpcodeInfo info;
  info.name = "RC INVALID";
  info.flags = kRequest | kOnly | kHasPayload;
  info.service = Service::kRc;
  info.header_bytes = 12;
  return info;
}();

}  // namespace uroce::wire
