// Receive WQEs: taken from the shared ring when a message needs one, completed when it ends.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

enum class FetchResult : std::uint8_t { kOk, kNone, kBad };  ///< kBad: it is to fail with its `status`

/// Copies the next receive WQE out and checks it; kBad: it is malformed and must fail with qp.receive.status.
FetchResult take_receive(Context& context, Qp& qp);

/// Completes the taken receive WQE with success. The caller has filled in opcode, byte_len, flags, immediate.
void complete_receive(Context& context, Qp& qp, uroce_cqe& cqe, bool solicited);

/// Completes the taken receive WQE with an error; the QP's way to ERR is the caller's.
void fail_receive(Context& context, Qp& qp, std::uint8_t status);

/// Whether so much fits into the receive WQE.
bool has_room(const ReceiveWqe& wqe, std::uint64_t bytes);

}  // namespace uroce::proto
