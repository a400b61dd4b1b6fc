// Packets as text, and the names of verdicts. No allocation: the text goes into the caller's buffer.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "wire/address.h"
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

}  // namespace uroce::wire
