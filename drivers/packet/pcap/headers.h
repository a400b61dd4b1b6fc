// The RoCE headers of a captured frame, of which only the first bytes may be there.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "wire/address.h"
#include "wire/bth.h"
#include "wire/opcode.h"

namespace uroce::pcap {

struct Headers {
  wire::Address source, destination;
  std::optional<wire::Bth> bth;  ///< nullopt: not a RoCE packet
  std::span<const std::byte> after_bth;

  const wire::OpcodeInfo& info() const { return wire::kOpcodes[bth->opcode]; }
};

/// nullopt: not an IP packet. Nothing is checked, so that a corrupted packet keeps its headers.
std::optional<Headers> headers_of(std::span<const std::byte> frame);

}  // namespace uroce::pcap
