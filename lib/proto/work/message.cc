#include "proto/work/message.h"

#include "proto/work/receive_queue.h"
#include "wire/extended_headers.h"

namespace uroce::proto {

void deliver(Context& context, Qp& qp, const wire::RxPacket& packet, std::uint8_t opcode, std::uint32_t bytes) {
  uroce_cqe cqe = context.make_cqe(qp, qp.receive.wr_id);
  cqe.opcode = opcode;
  cqe.byte_len = bytes;
  if (packet.info->has(wire::kHasImmDt)) {
    cqe.wc_flags = UROCE_WC_WITH_IMM;
    cqe.imm_data = wire::ImmDt::parse(packet.bth_start + packet.info->immdt).value;
  } else if (packet.info->has(wire::kHasIeth)) {
    cqe.wc_flags = UROCE_WC_WITH_INV;
    cqe.imm_data = wire::Ieth::parse(packet.bth_start + packet.info->ieth).rkey.value;
  }
  complete_receive(context, qp, cqe, packet.bth.solicited);
}

}  // namespace uroce::proto
