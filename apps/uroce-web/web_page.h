// The page of `urocectl web`, made from apps/uroce-web/page by embed.py.
#pragma once

#include <cstddef>

namespace uroce::ctl {

extern const char kPagePolicy[];  ///< its Content-Security-Policy, with the hashes of its style and its script
extern const unsigned char kPageText[];
extern const std::size_t kPageBytes;

}  // namespace uroce::ctl
