// Send queue entries: copied once from the shared ring to the private shadow, and checked there.
#pragma once

#include <cstdint>

#include "proto/state/context.h"
#include "proto/state/qp.h"

namespace uroce::proto {

/// How a send operation appears on the wire.
struct SendRow {
  wire::Operation first{}, middle{}, last{}, only{};
  enum class Extra : std::uint8_t { kNone, kImmediate, kInvalidate } extra = Extra::kNone;
};

/// By uroce_wr_opcode.
const SendRow& send_row(std::uint8_t opcode);

/// Copies the next entry, if there is one, to the shadow and checks it: a bad one carries the failure with which
/// it ends. False: the ring is empty.
bool fetch_wqe(Context& context, Qp& qp);

}  // namespace uroce::proto
