// Frames that no correct peer sends, with an ICRC and lengths that are right: what is wrong about them must be
// found by the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "tests/sim/random.h"

namespace uroce::sim {

/// What an attacker knows of its victim's memory.
struct VictimMemory {
  Key key;
  std::uint64_t iova = 0;
  std::uint32_t length = 0;
};

/// Changes a frame that was sent to the victim: opcode, PSN, flags, extended headers, length.
std::vector<std::byte> forge(std::span<const std::byte> frame, const VictimMemory& memory, Random& random);
/// The same frame from another address of the network.
std::vector<std::byte> from_elsewhere(std::span<const std::byte> frame);
/// Makes lengths, IP checksum and ICRC good. Frames without a whole BTH are left as they are.
void seal(std::vector<std::byte>& frame);

}  // namespace uroce::sim
