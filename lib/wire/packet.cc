#include "wire/packet.h"

#include <cstring>

#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace uroce::wire {
namespace {

constexpr std::size_t kIcrcAndBth = kBthBytes + kIcrcBytes;

/// The UDP datagram as the IP header bounds it.
struct Network {
  const std::byte* udp;
  std::uint32_t udp_bytes;
};

// IPv4 (RFC 791). `bytes`: from the IP header to the end of the frame. RoCEv2 uses no options (annex A17).
ParseVerdict parse_v4(const std::byte* ip, std::size_t bytes, bool check_sum, RxPacket& out, Network& network) {
  if (bytes < 20) return ParseVerdict::kTruncated;
  if (load8(ip + 9) != 17) return ParseVerdict::kNotRoce;
  const std::size_t header = (load8(ip) & 15u) * 4u;
  const std::uint16_t fragment = load16(ip + 6);
  if (load8(ip) >> 4 != 4 || header < 20) return ParseVerdict::kBadIpHeader;
  if ((fragment & 0x1fff) != 0) return ParseVerdict::kNotRoce;  // no UDP header in this fragment
  if (bytes < header + 8) return ParseVerdict::kTruncated;
  if (load16(ip + header + 2) != kRoceUdpPort) return ParseVerdict::kNotRoce;
  if (header != 20 || (fragment & 0x2000) != 0) return ParseVerdict::kBadIpHeader;
  if (check_sum && ipv4_header_sum(ip) != 0xffff) return ParseVerdict::kBadIpHeader;
  const std::uint32_t total = load16(ip + 2);
  if (total > bytes) return ParseVerdict::kTruncated;
  if (total < 28) return ParseVerdict::kBadIpHeader;
  network = {ip + 20, total - 20};
  out.ip_bytes = 20;
  out.ce = (load8(ip + 1) & 3) == 3;
  out.multicast = load8(ip + 16) >> 4 == 0xe;
  return ParseVerdict::kOk;
}

ParseVerdict parse_v6(const std::byte* ip, std::size_t bytes, RxPacket& out, Network& network) {
  if (bytes < 40) return ParseVerdict::kTruncated;
  if (load8(ip + 6) != 17) return ParseVerdict::kNotRoce;
  if (load8(ip) >> 4 != 6) return ParseVerdict::kBadIpHeader;
  if (bytes < 48) return ParseVerdict::kTruncated;
  if (load16(ip + 42) != kRoceUdpPort) return ParseVerdict::kNotRoce;
  const std::uint32_t payload = load16(ip + 4);
  if (payload > bytes - 40) return ParseVerdict::kTruncated;
  if (payload < 8) return ParseVerdict::kBadIpHeader;
  network = {ip + 40, payload};
  out.ip_bytes = 40;
  out.ce = (load8(ip + 1) & 0x30) == 0x30;
  out.multicast = load8(ip + 24) == 0xff;
  return ParseVerdict::kOk;
}

// `bytes` from BTH through ICRC.
ParseVerdict parse_transport(const std::byte* bth, std::uint32_t bytes, RxPacket& out) {
  if (bytes < kIcrcAndBth) return ParseVerdict::kBadLength;
  out.bth = Bth::parse(bth);
  const OpcodeInfo* info = &kOpcodes[out.bth.opcode];
  if (!info->known()) [[unlikely]] {
    if (out.bth.opcode >> 5 != static_cast<unsigned>(Service::kRc)) return ParseVerdict::kUnknownOpcode;
    info = &kInvalidRcRequest;
  }
  if (out.bth.version != 0) return ParseVerdict::kBadTransportVersion;
  std::uint32_t headers = info->header_bytes + std::uint32_t{kIcrcBytes};
  const bool fits = info->has(kHasPayload) ? bytes >= headers : bytes == headers;
  if (!fits) [[unlikely]] {
    if (info->service != Service::kRc || !info->has(kRequest)) return ParseVerdict::kBadLength;
    info = &kInvalidRcRequest;
    headers = kIcrcAndBth;
  }
  const std::uint32_t rest = bytes - headers;
  if (rest < out.bth.pad || rest % 4 != 0) return ParseVerdict::kBadPad;
  out.info = info;
  out.bth_start = bth;
  out.payload = bth + info->header_bytes;
  out.payload_bytes = rest - out.bth.pad;
  return ParseVerdict::kOk;
}

/// Compares the computed ICRC with the packet's own at `at`.
ParseVerdict conclude(RxPacket& packet, std::uint32_t icrc, const std::byte* at, PacketState good) {
  if (icrc != load_raw<std::uint32_t>(at)) return ParseVerdict::kBadIcrc;
  packet.state = good;
  return ParseVerdict::kOk;
}

}  // namespace

Address RxPacket::source() const { return ip_bytes == 20 ? load_ipv4(ip + 12) : load_ipv6(ip + 8); }
Address RxPacket::destination() const { return ip_bytes == 20 ? load_ipv4(ip + 16) : load_ipv6(ip + 24); }

ParseVerdict parse(std::span<const std::byte> frame, const ParseOptions& options, RxPacket& out) {
  const std::byte* const start = frame.data();
  const std::size_t size = frame.size();
  if (size < EthernetHeader::kBytes) return ParseVerdict::kTruncated;
  std::size_t ip_at = EthernetHeader::kBytes;
  std::uint16_t type = load16(start + 12);
  out.vlan = 0;
  for (int tags = 0; tags < 2 && (type == kEtherTypeVlan || type == kEtherTypeServiceVlan); ++tags) {
    if (size < ip_at + VlanTag::kBytes) return ParseVerdict::kTruncated;
    out.vlan = load16(start + ip_at);
    type = load16(start + ip_at + 2);
    ip_at += VlanTag::kBytes;
  }
  const std::byte* const ip = start + ip_at;
  Network network;
  ParseVerdict verdict;
  if (type == kEtherTypeIpv4) {
    verdict = parse_v4(ip, size - ip_at, options.check_ip_checksum, out, network);
  } else if (type == kEtherTypeIpv6) {
    verdict = parse_v6(ip, size - ip_at, out, network);
  } else {
    return ParseVerdict::kNotRoce;
  }
  if (verdict != ParseVerdict::kOk) return verdict;
  if (load16(network.udp + 4) != network.udp_bytes) return ParseVerdict::kBadUdpLength;
  const std::uint32_t ib_bytes = network.udp_bytes - 8;
  verdict = parse_transport(network.udp + 8, ib_bytes, out);
  if (verdict != ParseVerdict::kOk) return verdict;
  out.ip = ip;
  std::memcpy(out.source_mac.data(), start + 6, 6);
  if (!options.check_icrc) {
    out.state = PacketState::kVerified;
    return ParseVerdict::kOk;
  }
  out.state = PacketState::kIcrcPending;
  if (options.defer_icrc && may_defer_icrc(out)) return ParseVerdict::kIcrcPending;
  return verify_icrc(out);
}

ParseVerdict verify_icrc(RxPacket& packet) {
  const std::byte* const end = packet.payload + packet.payload_bytes + packet.bth.pad;
  const auto covered = static_cast<std::size_t>(end - packet.bth_start);
  return conclude(packet, icrc_of(packet.ip, packet.ip_bytes, covered), end, PacketState::kVerified);
}

ParseVerdict place_payload(RxPacket& packet, std::byte* to, std::size_t held) {
  const CrcEngine& crc = crc_engine();
  const std::size_t early = packet.payload_bytes - held, headers = packet.info->header_bytes;
  const std::byte* const rest = packet.payload + early;
  std::uint32_t state;
  if (headers == kBthBytes) {
    state = packet.state == PacketState::kIcrcResumable ? packet.crc_before_psn
                                                        : icrc_begin(packet.ip, packet.ip_bytes, kBthBytes - 4);
    state = crc.copy_after(state, load_raw<std::uint32_t>(packet.payload - 4), to, packet.payload, early);
  } else {
    state = crc.copy(icrc_begin(packet.ip, packet.ip_bytes, headers), to, packet.payload, early);
  }
  if (held != 0) state = crc.update(state, rest, held);
  const ParseVerdict verdict = conclude(packet, icrc_finish(state), rest + held, PacketState::kPlaced);
  if (verdict == ParseVerdict::kOk && held != 0) std::memcpy(to + early, rest, held);
  return verdict;
}

}  // namespace uroce::wire
