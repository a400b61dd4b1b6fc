// The common header of a management datagram (IBTA vol. 1, 13.4.3): the first 24 of its 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/bytes.h"

namespace uroce::wire {

inline constexpr std::size_t kMadBytes = 256;
inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kMadClassCm = 0x07;
inline constexpr std::uint8_t kMadCmClassVersion = 2;
inline constexpr std::uint8_t kMadMethodSend = 0x03;
inline constexpr std::uint32_t kGsiQpn = 1;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;

struct MadHeader {
  static constexpr std::size_t kBytes = 24;
  std::uint8_t base_version = kMadBaseVersion;
  std::uint8_t management_class = kMadClassCm;
  std::uint8_t class_version = kMadCmClassVersion;
  std::uint8_t method = kMadMethodSend;  ///< bit 7: response
  std::uint16_t status = 0;
  std::uint16_t class_specific = 0;
  std::uint64_t transaction = 0;
  std::uint16_t attribute = 0;
  std::uint16_t reserved = 0;
  std::uint32_t modifier = 0;

  static MadHeader parse(const std::byte* from) {
    return {load8(from),      load8(from + 1),  load8(from + 2),   load8(from + 3),   load16(from + 4),
            load16(from + 6), load64(from + 8), load16(from + 16), load16(from + 18), load32(from + 20)};
  }
  void emit(std::byte* to) const {
    store8(to, base_version);
    store8(to + 1, management_class);
    store8(to + 2, class_version);
    store8(to + 3, method);
    store16(to + 4, status);
    store16(to + 6, class_specific);
    store64(to + 8, transaction);
    store16(to + 16, attribute);
    store16(to + 18, reserved);
    store32(to + 20, modifier);
  }
  bool operator==(const MadHeader&) const = default;
};

}  // namespace uroce::wire
