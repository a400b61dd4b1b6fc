// Raw packet QPs and WQs: whole Ethernet frames, which the program makes and reads. Nothing of the transport is in
// them; flows (net/flow_table.h) say who receives which.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::raw {

/// Builds the next frame of the WQE under the cursor; `last`: there is none after it. The status it fails with
/// otherwise.
std::uint8_t build(Context& context, Qp& qp, const Wqe& wqe, TxBurst& burst, bool& last);

/// Puts a frame into a receive WQE. Dropped, and counted: there is none, or it is too small and then waits for the
/// next frame.
void receive(Context& context, Qp& qp, const ReceivedFrame& frame);

}  // namespace uroce::proto::raw
