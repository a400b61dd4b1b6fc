#include "tests/sim/hostile_frames.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/network.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace uroce::sim {
namespace {

constexpr std::size_t kBthBytes = 12, kUdpBytes = 8;

void put(std::vector<std::byte>& frame, std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes && at + i < frame.size(); ++i) {
    frame[at + i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
  }
}

std::uint32_t psn_of(const std::vector<std::byte>& frame, std::size_t bth) {
  std::uint32_t psn = 0;
  for (std::size_t i = 9; i < 12; ++i) psn = psn << 8 | std::to_integer<std::uint32_t>(frame[bth + i]);
  return psn;
}

/// A RETH that is good but for one field, perhaps.
void put_reth(std::vector<std::byte>& frame, std::size_t at, const VictimMemory& memory, Random& random) {
  std::uint64_t address = memory.iova + random.below(memory.length);
  std::uint32_t key = memory.key.value, length = random.below(memory.length);
  switch (random.below(6)) {
    case 0: address = random.next(); break;
    case 1: address = ~std::uint64_t{0} - random.below(64); break;
    case 2: length = ~0u - random.below(64); break;
    case 3: key ^= 1u << random.below(32); break;
    default: break;
  }
  put(frame, at, address, 8);
  put(frame, at + 8, key, 4);
  put(frame, at + 12, length, 4);
}

void change(std::vector<std::byte>& frame, std::size_t bth, const VictimMemory& memory, Random& random) {
  const auto random_byte = [&] { return static_cast<std::byte>(random.below(256)); };
  switch (random.below(9)) {
    case 0: frame[bth] = random_byte(); break;  // any service
    case 1:
    case 2: frame[bth] = static_cast<std::byte>(random.below(0x20)); break;  // RC
    case 3: put(frame, bth + 9, psn_of(frame, bth) + random.below(24) - 4, 3); break;
    case 4: frame[bth + 1] = random_byte(); break;  // solicited, migration, pad count, version
    case 5: frame[bth + 8] = random_byte(); break;  // AckReq
    case 6: put_reth(frame, bth + kBthBytes, memory, random); break;
    case 7: {
      const std::uint32_t extra = random.chance(0.5) ? random.below(80) : random.below(1200) & ~3u;
      frame.resize(bth + kBthBytes + extra + wire::kIcrcBytes);
      for (std::size_t i = bth + kBthBytes; i < frame.size(); ++i) frame[i] = random_byte();
      if (random.chance(0.7)) put_reth(frame, bth + kBthBytes, memory, random);
      break;
    }
    default:
      if (frame.size() > bth + kBthBytes) frame[bth + kBthBytes] = random_byte();  // syndrome
  }
}

}  // namespace

void seal(std::vector<std::byte>& frame) {
  const std::size_t bth = bth_offset(frame);
  if (bth + kBthBytes + wire::kIcrcBytes > frame.size()) return;
  const std::size_t ip = frame[12] == std::byte{0x81} ? 18 : 14, ip_bytes = bth - kUdpBytes - ip;
  const auto udp_length = static_cast<std::uint32_t>(frame.size() - bth + kUdpBytes);
  put(frame, bth - 4, udp_length, 2);
  if (ip_bytes == 40) {
    put(frame, ip + 4, udp_length, 2);
  } else {
    put(frame, ip + 2, udp_length + ip_bytes, 2);
    put(frame, ip + 10, 0, 2);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < ip_bytes; i += 2) {
      sum += std::to_integer<std::uint32_t>(frame[ip + i]) << 8 | std::to_integer<std::uint32_t>(frame[ip + i + 1]);
    }
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    put(frame, ip + 10, ~sum & 0xffff, 2);
  }
  const std::size_t covered = frame.size() - bth - wire::kIcrcBytes;
  const std::uint32_t icrc = wire::icrc_of(frame.data() + ip, ip_bytes, covered);
  std::memcpy(frame.data() + bth + covered, &icrc, sizeof icrc);
}

std::vector<std::byte> forge(std::span<const std::byte> frame, const VictimMemory& memory, Random& random) {
  std::vector<std::byte> forged(frame.begin(), frame.end());
  const std::size_t bth = bth_offset(frame);
  if (bth + kBthBytes + wire::kIcrcBytes > frame.size()) return forged;
  for (std::uint32_t changes = random.between(1, 3); changes > 0; --changes) change(forged, bth, memory, random);
  seal(forged);
  return forged;
}

std::vector<std::byte> from_elsewhere(std::span<const std::byte> frame) {
  std::vector<std::byte> moved(frame.begin(), frame.end());
  const std::size_t bth = bth_offset(frame);
  if (bth + kBthBytes + wire::kIcrcBytes > frame.size()) return moved;
  const std::size_t ip = frame[12] == std::byte{0x81} ? 18 : 14;
  moved[bth - kUdpBytes - ip == 40 ? ip + 23 : ip + 15] ^= std::byte{0x40};
  seal(moved);
  return moved;
}

}  // namespace uroce::sim
