#include "proto/work/gather.h"

namespace uroce::proto {

Scattered scatter(Core& core, PdId pd, const uroce_sge* sges, std::uint32_t count, SgeCursor& at,
                  const std::byte* from, std::uint32_t bytes) {
  while (bytes != 0) {
    if (at.index >= count) return Scattered::kNoRoom;
    const uroce_sge& sge = sges[at.index];
    const std::uint32_t n = std::min(bytes, sge.length - at.offset);
    if (n != 0) {
      memory::Span span;
      const memory::Verdict verdict =
          core.resolve(Key{sge.lkey}, pd, sge.addr + at.offset, n, memory::kLocalWrite, span);
      if (verdict != memory::Verdict::kOk || !span.write(0, from, n)) return Scattered::kNoAccess;
    }
    from += n;
    bytes -= n;
    at.offset += n;
    if (at.offset == sge.length) at = {at.index + 1, 0};
  }
  return Scattered::kOk;
}

bool writable(Core& core, PdId pd, const uroce_sge* sges, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    memory::Span span;
    if (core.resolve(Key{sges[i].lkey}, pd, sges[i].addr, sges[i].length, memory::kLocalWrite, span) !=
        memory::Verdict::kOk) {
      return false;
    }
  }
  return true;
}

}  // namespace uroce::proto
