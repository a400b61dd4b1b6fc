// The hash of receive-side scaling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::wire {

/// Toeplitz hash: for each set bit of `data`, from its first byte's highest on, the 32 bits of the key that begin
/// at that bit's place (Microsoft, "RSS hashing functions"). The key repeats after its end, which 36 bytes of
/// data (two IPv6 addresses and two ports) just reach.
std::uint32_t toeplitz(std::span<const std::uint8_t, 40> key, std::span<const std::byte> data);

}  // namespace uroce::wire
