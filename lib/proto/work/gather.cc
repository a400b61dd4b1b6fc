#include "proto/work/gather.h"

namespace uroce::proto {

ScatterResult scatter(Context& context, PdId pd, const uroce_sge* sges, std::uint32_t count, SgeCursor& at,
                      const std::byte* from, std::uint32_t bytes) {
  while (bytes != 0) {
    if (at.index >= count) return ScatterResult::kNoRoom;
    const uroce_sge& sge = sges[at.index];
    const std::uint32_t n = std::min(bytes, sge.length - at.offset);
    if (n != 0) {
      memory::Span span;
      const memory::Verdict verdict =
          context.resolve(Key{sge.lkey}, pd, sge.addr + at.offset, n, memory::kLocalWrite, span);
      if (verdict != memory::Verdict::kOk || !span.write(0, from, n)) return ScatterResult::kNoAccess;
    }
    from += n;
    bytes -= n;
    at.offset += n;
    if (at.offset == sge.length) at = {at.index + 1, 0};
  }
  return ScatterResult::kOk;
}

bool writable(Context& context, PdId pd, const uroce_sge* sges, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    memory::Span span;
    if (context.resolve(Key{sges[i].lkey}, pd, sges[i].addr, sges[i].length, memory::kLocalWrite, span) !=
        memory::Verdict::kOk) {
      return false;
    }
  }
  return true;
}

}  // namespace uroce::proto
