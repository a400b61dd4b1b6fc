// Engines leave the upper halves of the vector registers clear. Otherwise each change between AVX and legacy SSE
// instructions, of which the rest of the program consists, stalls for about 100 ns on Intel CPUs (Intel 64 and
// IA-32 Architectures Optimization Reference Manual, "Mixing Intel AVX and Intel SSE Code").
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/icrc.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

namespace uroce::wire {
namespace {

constexpr std::uint64_t kYmmUpper = 1 << 2, kZmmUpper = 1 << 6;  // SDM vol. 1, 13.5: state components

/// Which of them are not in their initial state; XGETBV with ECX = 1 (SDM vol. 1, 13.6).
__attribute__((target("xsave"))) std::uint64_t upper_halves_in_use() {
  return _xgetbv(1) & (kYmmUpper | kZmmUpper);
}

/// Whether this CPU has XGETBV with ECX = 1 and tracks the state (SDM vol. 1, 13.6: it need not).
bool tracks_upper_halves() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d) == 0 || (a & 1 << 2) == 0 || !__builtin_cpu_supports("avx"))
    return false;
  std::uint32_t used = 0;
  asm volatile(
      "vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n\t"
      "vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0\n\t"
      "xgetbv\n\t"
      "vzeroupper"
      : "=a"(used)
      : "c"(1)
      : "edx", "xmm0");
  return (used & kYmmUpper) != 0 && upper_halves_in_use() == 0;
}

class IcrcRegisters : public ::testing::TestWithParam<const CrcEngine*> {};

TEST_P(IcrcRegisters, UpperHalvesAreClearAfterEachCall) {
  const CrcEngine& engine = *GetParam();
  if (!engine.supported()) GTEST_SKIP() << "this CPU has no " << engine.name;
  if (!tracks_upper_halves()) GTEST_SKIP() << "this CPU does not tell whether upper halves are in use";
  static std::array<std::byte, 8192> from, to;
  static std::array<std::byte, CrcEngine::kOnesBytes> ones;
  for (const std::size_t bytes : {4u, 16u, 60u, 64u, 100u, 512u, 1020u, 1024u, 1500u, 2048u, 4092u, 4096u, 8192u}) {
    engine.update(0, from.data(), bytes);
    EXPECT_EQ(upper_halves_in_use(), 0u) << "update, " << bytes << " bytes";
    engine.copy(0, to.data(), from.data(), bytes);
    EXPECT_EQ(upper_halves_in_use(), 0u) << "copy, " << bytes << " bytes";
    engine.copy_after(0, 1, to.data(), from.data(), bytes);
    EXPECT_EQ(upper_halves_in_use(), 0u) << "copy_after, " << bytes << " bytes";
    if (bytes < 64) continue;
    engine.update_masked(0, from.data(), bytes, ones.data());
    EXPECT_EQ(upper_halves_in_use(), 0u) << "update_masked, " << bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, IcrcRegisters, ::testing::ValuesIn(crc_engines().begin(), crc_engines().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace uroce::wire

#endif
