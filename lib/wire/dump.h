// Packets as text, and the names of verdicts. No allocation: the text goes into the caller's buffer.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "wire/address.h"
#include "wire/bth.h"
#include "wire/extended_headers.h"
#include "wire/network_headers.h"
#include "wire/packet.h"

namespace uroce::wire {

/// "ok", "not_roce", "bad_icrc", ...: also the names of the counters.
std::string_view parse_verdict_name(ParseVerdict verdict);

/// Enough for any line of dump().
inline constexpr std::size_t kDumpBytes = 384;

/// One line without a newline: addresses, opcode, QPN, PSN, flags, extended headers, payload length. For a frame
/// that is not a valid RoCE packet it names the verdict. Text that does not fit is cut off. The result lies in
/// `text`.
std::string_view dump(std::span<const std::byte> frame, std::span<char> text);
std::string_view dump(const RxPacket& packet, std::span<char> text);

/// "192.0.2.1" or "2001:db8::1" (RFC 5952).
inline constexpr std::size_t kAddressTextBytes = 46;
std::string_view to_text(const Address& address, std::span<char> text);

/// One header, field by field.
std::string_view to_text(const EthernetHeader& header, std::span<char> text);
std::string_view to_text(const VlanTag& header, std::span<char> text);
std::string_view to_text(const Ipv4Header& header, std::span<char> text);
std::string_view to_text(const Ipv6Header& header, std::span<char> text);
std::string_view to_text(const UdpHeader& header, std::span<char> text);
std::string_view to_text(const Bth& header, std::span<char> text);
std::string_view to_text(const Rdeth& header, std::span<char> text);
std::string_view to_text(const Deth& header, std::span<char> text);
std::string_view to_text(const XrcEth& header, std::span<char> text);
std::string_view to_text(const Feth& header, std::span<char> text);
std::string_view to_text(const Reth& header, std::span<char> text);
std::string_view to_text(const AtomicEth& header, std::span<char> text);
std::string_view to_text(const Aeth& header, std::span<char> text);
std::string_view to_text(const AtomicAckEth& header, std::span<char> text);
std::string_view to_text(const ImmDt& header, std::span<char> text);
std::string_view to_text(const Ieth& header, std::span<char> text);

}  // namespace uroce::wire
