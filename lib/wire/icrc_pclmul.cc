// Carry-less multiplication on 128-bit registers: PCLMULQDQ.
#if defined(__x86_64__)
#include "wire/icrc_clmul.h"

namespace uroce::wire::detail {
namespace {

bool supported() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"); }

}  // namespace

constinit const CrcEngine kPclmulEngine = {"pclmulqdq",
                                           supported,
                                           clmul::update<clmul::FourChains>,
                                           clmul::copy<clmul::FourChains>,
                                           clmul::update_masked<clmul::FourChains>,
                                           clmul::copy_after<clmul::FourChains>};

}  // namespace uroce::wire::detail
#endif
