// Send queue entries: copied once from the shared ring to the private shadow, and checked there.
#pragma once

#include <cstdint>

#include "proto/state/context.h"
#include "proto/state/qp.h"

namespace uroce::proto {

/// How a send opcode appears on the wire and in its completion.
struct SendRow {
  Kind kind = Kind::kInvalid;
  wire::Operation first{}, middle{}, last{}, only{};
  enum class Extra : std::uint8_t { kNone, kImmediate, kInvalidate } extra = Extra::kNone;
  std::uint8_t wc_opcode = 0;
};

/// By uroce_wr_opcode; opcodes without a row are invalid.
const SendRow& send_row(std::uint8_t opcode);

/// Copies the next entry, if there is one, to the shadow and checks it: a bad one carries the failure with which
/// it ends. False: the ring is empty.
bool fetch_wqe(Context& context, Qp& qp);

}  // namespace uroce::proto
