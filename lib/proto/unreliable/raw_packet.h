// Raw packet QPs and WQs: whole Ethernet frames that the program builds and reads (ibv_create_qp(3):
// IBV_QPT_RAW_PACKET). No transport header; flow rules (net/flow_table.h) select the receiver.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::raw {

/// Builds the next frame of the WQE under the cursor; `last`: none follows it. Returns its
/// failure, or 0.
std::uint8_t build(Context& context, Qp& qp, const Wqe& wqe, TxBurst& burst, bool& last);

/// Stores a frame in a receive WQE. Dropped and counted if there is none, or if it is too small; that one stays for
/// the next frame.
void receive(Context& context, Qp& qp, const ReceivedFrame& frame);

}  // namespace uroce::proto::raw
