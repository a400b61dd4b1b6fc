// The middle packets of one WRITE or READ response, of one message after the other: they differ in the last word of
// their BTH, in the payload and in the ICRC. What was checked of the headers of one holds for the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace uroce::wire {

class HeaderPrediction {
 public:
  /// Returns what wire::parse() returns. Between calls the options may differ in check_ip_checksum only.
  ParseVerdict parse(std::span<const std::byte> frame, const ParseOptions& options, RxPacket& out) {
    if (frame.size() == frame_bytes_ && take(frame, out)) return ParseVerdict::kIcrcPending;
    const ParseVerdict verdict = wire::parse(frame, options, out);
    if (verdict == ParseVerdict::kIcrcPending) [[unlikely]]
      remember(frame, out);
    return verdict;
  }

 private:
  static constexpr std::size_t kMostHeaders = 14 + 2 * 4 + 40 + 8 + 8;  // to the BTH's last word

  std::size_t header_bytes() const { return bth_at_ + kBthBytes - 4; }
  bool take(std::span<const std::byte> frame, RxPacket& out) const;
  void remember(std::span<const std::byte> frame, const RxPacket& packet);

  RxPacket packet_;                            // the last one that was parsed in full; its pointers mean nothing
  std::size_t frame_bytes_ = ~std::size_t{0};  // no frame has so many: there is none
  std::size_t ip_at_ = 0, bth_at_ = 0;
  std::array<std::byte, kMostHeaders> headers_{};
};

}  // namespace uroce::wire
