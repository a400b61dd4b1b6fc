// CM messages as management datagrams: the 256 bytes of a packet to QP 1 (IBTA vol. 1, 13.4.3 and 16.7).
#pragma once

#include <cstddef>
#include <span>

#include "cm/manager.h"
#include "wire/mad.h"

namespace uroce::cm {

using Mad = std::span<const std::byte, wire::kMadBytes>;

/// True when `mad` holds a CM message; fills all of `out` except its peer. The status and class-specific fields
/// have no meaning in CM and are ignored. Of another class version only requests are accepted: they get an answer.
bool parse_mad(Mad mad, Message& out);
void emit_mad(const Message& message, std::span<std::byte, wire::kMadBytes> to);

}  // namespace uroce::cm
