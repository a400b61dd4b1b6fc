// Carry-less multiplication on 128-bit registers: PMULL, of the cryptographic extension of ARMv8.
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "wire/icrc_clmul.h"

namespace uroce::wire::detail {
namespace {

bool supported() { return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0; }

}  // namespace

constinit const CrcEngine kPmullEngine = {"pmull",
                                          supported,
                                          clmul::update<clmul::FourChains>,
                                          clmul::copy<clmul::FourChains>,
                                          clmul::update_masked<clmul::FourChains>,
                                          clmul::copy_after<clmul::FourChains>};

}  // namespace uroce::wire::detail
#endif
