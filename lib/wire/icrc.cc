#include "wire/icrc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/icrc_engines.h"

namespace uroce::wire {
namespace {

using Ones = std::array<std::byte, CrcEngine::kOnesBytes>;
constexpr std::size_t kMaskedAfterIp = 8 + 8;  // UDP, and the part of the BTH with masked fields

// The variant fields, which count as ones (annex A17.3.3), by their place in IP, UDP and BTH.
constexpr Ones ones_of_v4(std::size_t ip_bytes) {
  Ones ones{};
  const std::byte all{0xff};
  ones[1] = ones[8] = ones[10] = ones[11] = all;  // type of service, time to live, header checksum
  ones[ip_bytes + 6] = ones[ip_bytes + 7] = all;  // UDP checksum
  ones[ip_bytes + 8 + 4] = all;                   // BTH: FECN, BECN, reserved
  return ones;
}
constexpr Ones ones_of_v6() {
  Ones ones{};
  const std::byte all{0xff};
  ones[0] = std::byte{0x0f};
  ones[1] = ones[2] = ones[3] = ones[7] = all;  // traffic class, flow label, hop limit
  ones[40 + 6] = ones[40 + 7] = all;
  ones[40 + 8 + 4] = all;
  return ones;
}
alignas(64) constexpr Ones kOnesV4 = ones_of_v4(20);
alignas(64) constexpr Ones kOnesV6 = ones_of_v6();

bool is_v6(const std::byte* ip) { return (static_cast<unsigned>(*ip) >> 4) == 6; }

// IPv4 with options: the masked fields may lie past the first 64 bytes.
std::uint32_t begin_with_options(const std::byte* ip, std::size_t ip_bytes) {
  std::array<std::byte, 60 + kMaskedAfterIp> header;
  const std::size_t bytes = std::min(ip_bytes, std::size_t{60}) + kMaskedAfterIp;
  const Ones ones = ones_of_v4(bytes - kMaskedAfterIp);
  for (std::size_t i = 0; i < bytes; ++i) header[i] = ip[i] | ones[i];
  return crc_engine().update(detail::kSeed, header.data(), bytes);
}

const CrcEngine* const kAll[] = {
    &detail::kPortableEngine,
#if defined(__x86_64__)
    &detail::kPclmulEngine,   &detail::kVpclmul256Engine, &detail::kVpclmulEngine, &detail::kGfniEngine,
#elif defined(__aarch64__)
    &detail::kPmullEngine,
#endif
};

const std::byte* ones_of(const std::byte* ip) { return is_v6(ip) ? kOnesV6.data() : kOnesV4.data(); }

}  // namespace

// Engines are constant tables of functions: any thread may choose, and the first choice counts.
std::atomic<const CrcEngine*> detail::chosen_engine{nullptr};

const CrcEngine& detail::choose_engine() {
  const CrcEngine* best = &detail::kPortableEngine;
  for (const CrcEngine* engine : kAll) {
    if (engine->supported()) best = engine;
  }
  const CrcEngine* chosen = nullptr;
  return chosen_engine.compare_exchange_strong(chosen, best) ? *best : *chosen;
}

std::span<const CrcEngine* const> crc_engines() { return kAll; }

bool force_crc_engine(std::string_view name) {
  for (const CrcEngine* engine : kAll) {
    if (engine->name != name || !engine->supported()) continue;
    detail::chosen_engine.store(engine, std::memory_order_relaxed);
    return true;
  }
  return false;
}

std::uint32_t icrc_begin(const std::byte* ip, std::size_t ip_bytes, std::size_t headers) {
  if (!is_v6(ip) && ip_bytes != 20) {
    return crc_engine().update(begin_with_options(ip, ip_bytes), ip + ip_bytes + kMaskedAfterIp, headers - 8);
  }
  return crc_engine().update_masked(detail::kSeed, ip, ip_bytes + 8 + headers, ones_of(ip));
}

std::uint32_t icrc_of(const std::byte* ip, std::size_t ip_bytes, std::size_t covered) {
  return icrc_finish(icrc_begin(ip, ip_bytes, covered));
}

}  // namespace uroce::wire
