// Receive WQEs: taken from the shared ring when a message needs one, completed when it ends (IBTA vol. 1, 10.2.9
// for SRQs).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

enum class FetchResult : std::uint8_t { kOk, kNone, kBad };  ///< kBad: it fails with its `failure`

/// Copies the next receive WQE and checks it; kBad: it is malformed and must fail with receive.failure.
FetchResult take_receive(Context& context, Qp& qp);

/// Completes the taken receive WQE with success. The caller has filled in opcode, byte_len, flags, immediate.
void complete_receive(Context& context, Qp& qp, uroce_cqe& cqe, bool solicited);

/// Completes the taken receive WQE with an error; the caller moves the QP to ERR.
void fail_receive(Context& context, Qp& qp, std::uint8_t failure);

/// Whether that many bytes fit into the receive WQE.
bool has_room(const ReceiveWqe& wqe, std::uint64_t bytes);

}  // namespace uroce::proto
