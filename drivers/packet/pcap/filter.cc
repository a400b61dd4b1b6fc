#include "drivers/packet/pcap/filter.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "drivers/packet/pcap/headers.h"
#include "wire/bytes.h"

namespace uroce::pcap {
namespace {

struct ClassName {
  std::string_view name;
  std::uint32_t bit;
};
// Attributes of the communication management class (IBTA vol. 1, 12.6): messages in the order of their bits.
constexpr std::uint16_t kFirstCmAttribute = 0x0010, kLastCmAttribute = 0x001a;
constexpr std::uint32_t cm(unsigned attribute) { return Filter::kCmFirst << (attribute - kFirstCmAttribute); }

constexpr ClassName kClasses[] = {
    {"SEND", Filter::kSend},   {"WRITE", Filter::kWrite}, {"READ", Filter::kRead}, {"ATOMIC", Filter::kAtomic},
    {"FLUSH", Filter::kFlush}, {"ACK", Filter::kAck},     {"CNP", Filter::kCnp},   {"CM", Filter::kCm},
    {"OTHER", Filter::kOther}, {"REQ", cm(0x10)},         {"MRA", cm(0x11)},       {"REJ", cm(0x12)},
    {"REP", cm(0x13)},         {"RTU", cm(0x14)},         {"DREQ", cm(0x15)},      {"DREP", cm(0x16)},
    {"SIDR_REQ", cm(0x17)},    {"SIDR_REP", cm(0x18)},    {"LAP", cm(0x19)},       {"APR", cm(0x1a)}};
constexpr std::uint32_t kCmQpn = 1;

bool parse_number(std::string_view text, std::uint32_t least, std::uint32_t most, std::uint32_t& value) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
}

bool parse_address(std::string_view text, std::optional<wire::Address>& out) {
  const std::string host(text);
  std::byte bytes[16];
  if (::inet_pton(AF_INET, host.c_str(), bytes) == 1) {
    out = wire::load_ipv4(bytes);
  } else if (::inet_pton(AF_INET6, host.c_str(), bytes) == 1) {
    out = wire::load_ipv6(bytes);
  } else {
    return false;
  }
  return true;
}

/// "SEND|ACK".
bool parse_classes(std::string_view text, std::uint32_t& classes) {
  classes = 0;
  while (true) {
    const std::string_view word = text.substr(0, text.find('|'));
    const auto* const found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                           [&](const ClassName& each) { return each.name == word; });
    if (found == std::end(kClasses)) return false;
    classes |= found->bit;
    if (word.size() == text.size()) return true;
    text.remove_prefix(word.size() + 1);
  }
}

/// Empty: done. Else what is allowed.
std::string set_one(Filter& filter, std::string_view key, std::string_view value) {
  if (key == "qp") {
    filter.qpn.emplace();
    return parse_number(value, 0, 0xffffff, *filter.qpn) ? "" : "a QPN of this device, 0 to 0xffffff";
  }
  if (key == "peer") return parse_address(value, filter.peer) ? "" : "an IPv4 or IPv6 address";
  if (key == "op") {
    return parse_classes(value, filter.classes)
               ? ""
               : "one or several of SEND|WRITE|READ|ATOMIC|FLUSH|ACK|CNP|CM|OTHER, or of the messages of CM: "
                 "REQ|MRA|REJ|REP|RTU|DREQ|DREP|SIDR_REQ|SIDR_REP|LAP|APR";
  }
  if (key == "snaplen") {
    return parse_number(value, Filter::kLeastSnaplen, Filter::kMostSnaplen, filter.snaplen)
               ? ""
               : "64 to 262144 bytes of each frame";
  }
  return "one of qp, peer, op, snaplen";
}

/// Of a packet to QP 1.
std::uint32_t message_of(const Headers& headers) {
  constexpr std::size_t kDeth = 8, kMadClass = kDeth + 1, kMadAttribute = kDeth + 16;
  constexpr std::byte kCommunicationManagement{0x07};
  const std::span<const std::byte> bytes = headers.after_bth;
  if (bytes.size() < kMadAttribute + 2 || bytes[kMadClass] != kCommunicationManagement) return Filter::kCmOther;
  const std::uint16_t attribute = wire::load16(bytes.data() + kMadAttribute);
  const bool known = attribute >= kFirstCmAttribute && attribute <= kLastCmAttribute;
  return known ? cm(attribute) : std::uint32_t{Filter::kCmOther};
}

std::uint32_t class_of(const Headers& headers) {
  const wire::Bth& bth = *headers.bth;
  if (bth.opcode == wire::kCnpOpcode) return Filter::kCnp;
  if (bth.dest_qpn.value == kCmQpn) return message_of(headers);
  const wire::OpcodeInfo& info = wire::kOpcodes[bth.opcode];
  if (info.has(wire::kSend)) return Filter::kSend;
  if (info.has(wire::kWrite)) return Filter::kWrite;
  if (info.has(wire::kRead)) return Filter::kRead;
  if (info.has(wire::kAtomic)) return Filter::kAtomic;
  if (info.has(wire::kHasFeth)) return Filter::kFlush;
  return info.known() ? Filter::kAck : Filter::kOther;
}

}  // namespace

std::string Filter::parse(std::string_view text, Filter& out) {
  Filter filter;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string allowed =
        set_one(filter, part.substr(0, equals), part.substr(std::min(equals + 1, part.size())));
    if (!allowed.empty()) {
      return "filter \"" + std::string(part) + "\": it must be " + allowed +
             "; for example qp=0x12,peer=192.0.2.7,op=SEND|ACK,snaplen=96";
    }
  }
  out = filter;
  return {};
}

bool Filter::matches(const base::Frame& frame, Direction direction) const {
  if (all()) return true;
  const std::optional<Headers> headers = headers_of(frame.bytes());
  const bool sent = direction == Direction::kOutbound;
  if (peer && (!headers || *peer != (sent ? headers->destination : headers->source))) return false;
  const bool roce = headers && headers->bth;
  if (qpn && (!roce || *qpn != (sent ? frame.sender & 0xffffff : headers->bth->dest_qpn.value))) return false;
  return ((roce ? class_of(*headers) : std::uint32_t{kOther}) & classes) != 0;
}

}  // namespace uroce::pcap
