// Carry-less multiplication on 512-bit registers.
#if defined(__x86_64__)
#include "wire/icrc_avx512.h"

namespace uroce::wire::detail {
namespace {

UROCE_AVX512 std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  return avx512::Pass<false, false, avx512::FourChains>{nullptr, data, nullptr}.run(state, bytes);
}
UROCE_AVX512 std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  return avx512::Pass<true, false, avx512::FourChains>{to, from, nullptr}.run(state, bytes);
}
UROCE_AVX512 std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                         const std::byte* ones) {
  return avx512::Pass<false, true, avx512::FourChains>{nullptr, data, ones}.run(state, bytes);
}

}  // namespace

constinit const CrcEngine kVpclmulEngine = {"vpclmulqdq", avx512::supported, update,
                                            copy,         update_masked,     copy_after<copy>};

}  // namespace uroce::wire::detail
#endif
