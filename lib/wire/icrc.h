// The invariant CRC of RoCEv2 (annex A17.3.3), separate or fused with the copy of the payload. The last
// implementation that the CPU supports is chosen at the first use, unless the program has chosen one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace uroce::wire {

inline constexpr std::size_t kIcrcBytes = 4;

/// One implementation. CRC states are inverted only by icrc_begin() and icrc_finish().
struct CrcEngine {
  std::string_view name;  ///< "portable", "pclmulqdq", "vpclmulqdq256", "vpclmulqdq", "gfni"; "pmull"
  bool (*supported)();
  /// State after `bytes` more.
  std::uint32_t (*update)(std::uint32_t state, const std::byte* data, std::size_t bytes);
  /// update(), which also copies the bytes to `to` (no overlap).
  std::uint32_t (*copy)(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes);
  /// update() with `ones` ORed into the first 64 bytes: kOnesBytes bytes, zero from the 64th on.
  std::uint32_t (*update_masked)(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                 const std::byte* ones);
  static constexpr std::size_t kOnesBytes = 128;
  /// update() over `word`, 4 bytes in memory order, and then copy().
  std::uint32_t (*copy_after)(std::uint32_t state, std::uint32_t word, std::byte* to, const std::byte* from,
                              std::size_t bytes);
};

namespace detail {
extern std::atomic<const CrcEngine*> chosen_engine;  // nullptr: not chosen yet
const CrcEngine& choose_engine();
}  // namespace detail

/// The engines of this build, slowest first; the portable one is always present. Of the last two either can be the
/// faster one: no feature bit names the rate of 512-bit VPCLMULQDQ (control/machine/icrc_choice.h).
std::span<const CrcEngine* const> crc_engines();
/// The last that this CPU supports, or the one that was forced.
inline const CrcEngine& crc_engine() {
  const CrcEngine* engine = detail::chosen_engine.load(std::memory_order_relaxed);
  return engine != nullptr ? *engine : detail::choose_engine();
}

/// Makes crc_engine() return the engine of this name, before transports are created.
/// False, and no change, if there is no such engine or the CPU does not support it.
bool force_crc_engine(std::string_view name);

/// State after the masked pseudo-LRH, IP header, UDP header and BTH: `ip` is the start of the IP header,
/// `ip_bytes` its length (20 or more for IPv4, 40 for IPv6); 8 bytes of UDP and 12 of BTH follow it. The bytes
/// are masked in registers, not in memory. `headers`, 8 or more: bytes of BTH and extended headers to include,
/// which is cheaper than a separate update, since headers that were just written are slow to load twice.
std::uint32_t icrc_begin(const std::byte* ip, std::size_t ip_bytes, std::size_t headers = 12);

/// The value on the wire, little-endian, after payload and pad.
constexpr std::uint32_t icrc_finish(std::uint32_t state) { return ~state; }

/// The ICRC of a whole packet: from the IP header at `ip` through `covered` bytes of BTH, headers, payload
/// and pad after the UDP header.
std::uint32_t icrc_of(const std::byte* ip, std::size_t ip_bytes, std::size_t covered);

}  // namespace uroce::wire
