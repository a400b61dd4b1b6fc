#include "wire/header_prediction.h"

#include <cstring>

#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::wire {

bool HeaderPrediction::take(std::span<const std::byte> frame, RxPacket& out) const {
  const auto difference = [&](std::size_t at) {
    return load_raw<std::uint64_t>(frame.data() + at) ^ load_raw<std::uint64_t>(headers_.data() + at);
  };
  const std::size_t last = header_bytes() - 8;
  std::uint64_t sum = difference(last);
  for (std::size_t at = 0; at < last; at += 8) sum |= difference(at);
  if (sum != 0) return false;
  out = packet_;
  out.ip = frame.data() + ip_at_;
  out.bth_start = frame.data() + bth_at_;
  out.payload = out.bth_start + kBthBytes;
  const std::uint32_t word = load32(frame.data() + header_bytes());
  out.bth.ack_req = (word & 0x80000000) != 0;
  out.bth.psn = Psn(word);
  return true;
}

void HeaderPrediction::remember(std::span<const std::byte> frame, const RxPacket& packet) {
  packet_ = packet;
  packet_.crc_before_psn = icrc_begin(packet.ip, packet.ip_bytes, kBthBytes - 4);
  packet_.state = PacketState::kIcrcResumable;
  frame_bytes_ = frame.size();
  ip_at_ = static_cast<std::size_t>(packet.ip - frame.data());
  bth_at_ = static_cast<std::size_t>(packet.bth_start - frame.data());
  std::memcpy(headers_.data(), frame.data(), header_bytes());
}

}  // namespace uroce::wire
