// Header prediction (as in TCP): consecutive middle packets of a WRITE or READ response differ only in the last
// word of the BTH, the payload and the ICRC. A packet whose other header bytes equal those of a packet parsed
// before needs no further checks of its headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace uroce::wire {

class HeaderPrediction {
 public:
  /// Returns what wire::parse() returns. Between calls the options may differ in what is checked.
  ParseVerdict parse(std::span<const std::byte> frame, const ParseOptions& options, RxPacket& out) {
    if (frame.size() == frame_bytes_ && take(frame, out)) {
      if (options.check_icrc) return ParseVerdict::kIcrcPending;
      out.state = PacketState::kVerified;
      return ParseVerdict::kOk;
    }
    const ParseVerdict verdict = wire::parse(frame, options, out);
    if (accepted(verdict) && out.info->has(kMiddle) && may_defer_icrc(out)) [[unlikely]]
      remember(frame, out);
    return verdict;
  }

 private:
  static constexpr std::size_t kMostHeaders = 14 + 2 * 4 + 40 + 8 + 8;  // to the BTH's last word

  std::size_t header_bytes() const { return bth_at_ + kBthBytes - 4; }
  bool take(std::span<const std::byte> frame, RxPacket& out) const;
  void remember(std::span<const std::byte> frame, const RxPacket& packet);

  RxPacket packet_;                            // the last one parsed in full; its pointers are stale
  std::size_t frame_bytes_ = ~std::size_t{0};  // initially a size that no frame has
  std::size_t ip_at_ = 0, bth_at_ = 0;
  std::array<std::byte, kMostHeaders> headers_{};
};

}  // namespace uroce::wire
