// Scatter/gather lists: copies local memory into packets and packets into local memory. Each access to an element
// is checked.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// The position `offset` bytes into the list.
inline SgeCursor locate(const uroce_sge* sges, std::uint32_t count, std::uint32_t offset) {
  SgeCursor at;
  while (at.index < count && offset >= sges[at.index].length) offset -= sges[at.index++].length;
  at.offset = offset;
  return at;
}

/// Moves `bytes` from a checked span into the packet. False: they cannot be reached.
template <class Builder>
inline bool copy_out(Context& context, const memory::Span& span, std::uint32_t bytes, Builder& builder) {
  if (span.data != nullptr) {
    builder.payload(span.data, bytes);
    return span.reached(0, bytes);
  }
  for (std::uint32_t at = 0, n = 0; at < bytes; at += n) {
    n = std::min<std::uint32_t>(bytes - at, sizeof context.staging);
    if (!span.read(at, context.staging, n)) return false;
    builder.payload(context.staging, n);
  }
  return true;
}

/// Appends the next `bytes` (at most a packet) of the list to the packet. False: an element is not accessible.
template <class Builder>
inline bool gather(Context& context, PdId pd, const uroce_sge* sges, std::uint32_t count, SgeCursor& at,
                   std::uint32_t bytes, Builder& builder) {
  while (bytes != 0) {
    if (at.index >= count) return false;
    const uroce_sge& sge = sges[at.index];
    const std::uint32_t n = std::min(bytes, sge.length - at.offset);
    if (n != 0) {
      memory::Span span;
      if (context.resolve(Key{sge.lkey}, pd, sge.addr + at.offset, n, 0, span) != memory::Verdict::kOk) {
        return false;
      }
      if (!copy_out(context, span, n, builder)) return false;
    }
    bytes -= n;
    at.offset += n;
    if (at.offset == sge.length) at = {at.index + 1, 0};
  }
  return true;
}

enum class ScatterResult : std::uint8_t { kOk, kNoAccess, kNoRoom };

/// Writes `bytes` at the position in the list.
ScatterResult scatter(Context& context, PdId pd, const uroce_sge* sges, std::uint32_t count, SgeCursor& at,
                      const std::byte* from, std::uint32_t bytes);

/// Whether the whole list may be written to now.
bool writable(Context& context, PdId pd, const uroce_sge* sges, std::uint32_t count);

}  // namespace uroce::proto
