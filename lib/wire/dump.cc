#include "wire/dump.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "wire/bytes.h"

namespace uroce::wire {
namespace {

class Line {
 public:
  explicit Line(std::span<char> text) : text_(text) {}

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    if (used_ + 1 >= text_.size()) return;
    std::va_list arguments;
    va_start(arguments, format);
    const int wanted = std::vsnprintf(&text_[used_], text_.size() - used_, format, arguments);
    va_end(arguments);
    used_ = std::min(text_.size() - 1, used_ + static_cast<std::size_t>(std::max(wanted, 0)));
  }
  void add_address(const Address& address) {
    char buffer[kAddressTextBytes];
    const std::string_view text = to_text(address, buffer);
    add("%.*s", static_cast<int>(text.size()), text.data());
  }
  std::string_view text() const { return {text_.data(), used_}; }

 private:
  std::span<char> text_;
  std::size_t used_ = 0;
};

void add_v6(Line& line, const Address& address) {
  unsigned group[8];
  int best = -1, best_length = 1;  // the longest run of at least two zero groups is left out
  for (int i = 0; i < 8; ++i) group[i] = unsigned{address.bytes[2 * i]} << 8 | address.bytes[2 * i + 1];
  for (int i = 0; i < 8; ++i) {
    int length = 0;
    while (i + length < 8 && group[i + length] == 0) ++length;
    if (length > best_length) {
      best = i;
      best_length = length;
    }
  }
  for (int i = 0; i < 8; ++i) {
    if (i == best) {
      line.add("::");
      i += best_length - 1;
    } else {
      line.add(i == 0 || i == best + best_length ? "%x" : ":%x", group[i]);
    }
  }
}

void add_syndrome(Line& line, std::uint8_t syndrome) {
  static constexpr const char* kNakNames[] = {"psn sequence", "invalid request", "remote access",
                                              "remote operational", "invalid rd request"};
  const unsigned low = syndrome & 0x1f;
  switch (syndrome >> 5) {
    case 0:
      if (low == kAckUnlimited)
        line.add(" ack");
      else
        line.add(" ack credits=%u", low);
      break;
    case 1: line.add(" rnr-nak timer=%u", low); break;
    case 3:
      if (low < std::size(kNakNames))
        line.add(" nak(%s)", kNakNames[low]);
      else
        line.add(" nak(%u)", low);
      break;
    default: line.add(" syndrome=0x%02x", syndrome);
  }
}

void add(Line& line, const Rdeth& rdeth) { line.add(" ee=%u", rdeth.ee_context); }
void add(Line& line, const Deth& deth) { line.add(" src_qp=0x%06x qkey=0x%08x", deth.source_qpn.value, deth.qkey); }
void add(Line& line, const XrcEth& xrceth) { line.add(" srqn=0x%06x", xrceth.srqn); }
void add(Line& line, const Feth& feth) { line.add(" flush=0x%08x", feth.bits); }
void add(Line& line, const Reth& reth) {
  line.add(" va=0x%llx rkey=0x%08x dma_len=%u", static_cast<unsigned long long>(reth.address), reth.rkey.value,
           reth.length);
}
void add(Line& line, const AtomicEth& atomic) {
  line.add(" va=0x%llx rkey=0x%08x swap_add=0x%llx cmp=0x%llx", static_cast<unsigned long long>(atomic.address),
           atomic.rkey.value, static_cast<unsigned long long>(atomic.swap_or_add),
           static_cast<unsigned long long>(atomic.compare));
}
void add(Line& line, const Aeth& aeth) {
  add_syndrome(line, aeth.syndrome);
  line.add(" msn=%u", aeth.msn.value());
}
void add(Line& line, const AtomicAckEth& ack) {
  line.add(" original=0x%llx", static_cast<unsigned long long>(ack.original));
}
void add(Line& line, const ImmDt& immdt) { line.add(" imm=0x%08x", swap_bytes(immdt.value)); }
void add(Line& line, const Ieth& ieth) { line.add(" inv_rkey=0x%08x", ieth.rkey.value); }

void add_mac(Line& line, const Mac& mac) {
  line.add("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}
void add(Line& line, const EthernetHeader& ethernet) {
  line.add(" ");
  add_mac(line, ethernet.source);
  line.add(" > ");
  add_mac(line, ethernet.dest);
  line.add(" type=0x%04x", ethernet.type);
}
void add(Line& line, const VlanTag& tag) {
  line.add(" vlan=%u priority=%u type=0x%04x", tag.tci & 0xfffu, tag.tci >> 13u, tag.type);
}
void add(Line& line, const Ipv4Header& ip) {
  const auto& [a, b, c, d] = ip.source;
  const auto& [e, f, g, h] = ip.dest;
  line.add(" %u.%u.%u.%u > %u.%u.%u.%u tos=0x%02x len=%u id=%u fragment=0x%04x ttl=%u protocol=%u sum=0x%04x", a, b,
           c, d, e, f, g, h, ip.traffic_class, ip.total_length, ip.identification, ip.fragment, ip.ttl, ip.protocol,
           ip.checksum);
}
void add(Line& line, const Ipv6Header& ip) {
  line.add(" ");
  line.add_address(Address{ip.source});
  line.add(" > ");
  line.add_address(Address{ip.dest});
  line.add(" class=0x%02x flow=0x%05x len=%u next=%u hops=%u", ip.traffic_class, ip.flow_label, ip.payload_length,
           ip.next_header, ip.hop_limit);
}
void add(Line& line, const UdpHeader& udp) {
  line.add(" %u > %u len=%u sum=0x%04x", udp.source_port, udp.dest_port, udp.length, udp.checksum);
}
void add(Line& line, const Bth& bth) {
  line.add(" qp=0x%06x psn=%u", bth.dest_qpn.value, bth.psn.value());
  if (bth.ack_req) line.add(" A");
  if (bth.solicited) line.add(" SE");
  if (bth.fecn) line.add(" FECN");
  if (bth.becn) line.add(" BECN");
}

/// The text of one header: a line of its own has no leading space.
template <class Header>
std::string_view line_of(const Header& header, std::span<char> text) {
  Line line(text);
  add(line, header);
  return line.text().substr(line.text().empty() ? 0 : 1);
}

void add_extended(Line& line, const RxPacket& packet) {
  const OpcodeInfo& info = *packet.info;
  const std::byte* at = packet.bth_start;
  if (info.rdeth != 0) add(line, Rdeth::parse(at + info.rdeth));
  if (info.deth != 0) add(line, Deth::parse(at + info.deth));
  if (info.xrceth != 0) add(line, XrcEth::parse(at + info.xrceth));
  if (info.feth != 0) add(line, Feth::parse(at + info.feth));
  if (info.reth != 0) add(line, Reth::parse(at + info.reth));
  if (info.atomic_eth != 0) add(line, AtomicEth::parse(at + info.atomic_eth));
  if (info.aeth != 0) add(line, Aeth::parse(at + info.aeth));
  if (info.atomic_ack_eth != 0) add(line, AtomicAckEth::parse(at + info.atomic_ack_eth));
  if (info.immdt != 0) add(line, ImmDt::parse(at + info.immdt));
  if (info.ieth != 0) add(line, Ieth::parse(at + info.ieth));
}

void add_packet(Line& line, const RxPacket& packet) {
  line.add_address(packet.source());
  line.add(" > ");
  line.add_address(packet.destination());
  if (packet.vlan != 0) line.add(" vlan=%u", packet.vlan & 0xfffu);
  line.add(" %.*s", static_cast<int>(packet.info->name.size()), packet.info->name.data());
  add(line, packet.bth);
  if (packet.ce) line.add(" CE");
  add_extended(line, packet);
  if (packet.info->has(kHasPayload)) line.add(" len=%u", packet.payload_bytes);
}

}  // namespace

std::string_view parse_verdict_name(ParseVerdict verdict) {
  switch (verdict) {
    case ParseVerdict::kIcrcPending: return "icrc_pending";
    case ParseVerdict::kOk: return "ok";
    case ParseVerdict::kNotRoce: return "not_roce";
    case ParseVerdict::kTruncated: return "truncated";
    case ParseVerdict::kBadIpHeader: return "bad_ip_header";
    case ParseVerdict::kBadUdpLength: return "bad_udp_length";
    case ParseVerdict::kUnknownOpcode: return "unknown_opcode";
    case ParseVerdict::kBadTransportVersion: return "bad_transport_version";
    case ParseVerdict::kBadLength: return "bad_length";
    case ParseVerdict::kBadPad: return "bad_pad";
    case ParseVerdict::kBadIcrc: return "bad_icrc";
    case ParseVerdict::kCount: break;
  }
  return "unknown";
}

std::string_view to_text(const Address& address, std::span<char> text) {
  Line line(text);
  if (address.is_v4()) {
    line.add("%u.%u.%u.%u", address.bytes[12], address.bytes[13], address.bytes[14], address.bytes[15]);
  } else {
    add_v6(line, address);
  }
  return line.text();
}

std::string_view dump(const RxPacket& packet, std::span<char> text) {
  Line line(text);
  add_packet(line, packet);
  return line.text();
}

std::string_view dump(std::span<const std::byte> frame, std::span<char> text) {
  RxPacket packet;
  const ParseVerdict verdict = parse(frame, {}, packet);
  Line line(text);
  if (verdict == ParseVerdict::kOk || verdict == ParseVerdict::kBadIcrc) add_packet(line, packet);
  if (verdict != ParseVerdict::kOk) {
    const std::string_view name = parse_verdict_name(verdict);
    line.add("%s[%.*s] %zu bytes", line.text().empty() ? "" : " ", static_cast<int>(name.size()), name.data(),
             frame.size());
  }
  return line.text();
}

std::string_view to_text(const EthernetHeader& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const VlanTag& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Ipv4Header& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Ipv6Header& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const UdpHeader& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Bth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Rdeth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Deth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const XrcEth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Feth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Reth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const AtomicEth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Aeth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const AtomicAckEth& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const ImmDt& header, std::span<char> text) { return line_of(header, text); }
std::string_view to_text(const Ieth& header, std::span<char> text) { return line_of(header, text); }

}  // namespace uroce::wire
