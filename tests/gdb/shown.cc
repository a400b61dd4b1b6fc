// What tests/gdb/printers.py prints with tools/gdb/uroce.py: one object of each kind, and a function to stop in.
#include <array>
#include <cstdio>
#include <cstring>

#include "proto/state/qp.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"

namespace {

using namespace uroce;

constexpr std::uint32_t kEntries = 4;
alignas(64) std::array<std::byte, kEntries * 64> send_ring, receive_ring;
std::array<uroce_cqe, kEntries> completions;
uroce_qp_client_block client_indices;
uroce_qp_daemon_block daemon_indices;
uroce_cq_client_block polled;

void post_send(queue::WorkProducer& to, std::uint64_t wr_id, std::uint8_t opcode, std::uint8_t flags) {
  uroce_sq_entry entry{};
  entry.wr_id = wr_id;
  entry.opcode = opcode;
  entry.flags = flags;
  entry.num_sge = (flags & UROCE_SEND_INLINE) != 0 ? 0 : 1;
  entry.inline_length = (flags & UROCE_SEND_INLINE) != 0 ? 24 : 0;
  queue::write_send(to.next(), entry, nullptr, 0);
  to.advance();
  to.publish();
}

void post_receive(queue::WorkProducer& to, std::uint64_t wr_id) {
  const uroce_rq_entry entry{wr_id, 2, 0};
  std::memcpy(to.next(), &entry, sizeof(entry));
  to.advance();
  to.publish();
}

void push(queue::CqProducer& to, std::uint64_t wr_id, std::uint8_t opcode, std::uint8_t status) {
  uroce_cqe entry{};
  entry.wr_id = wr_id;
  entry.opcode = opcode;
  entry.status = status;
  entry.qpn = 0x10;
  entry.byte_len = 64;
  to.push(entry, false);
}

/// The debugger stops here and looks one frame up.
[[gnu::noinline]] void stop(const proto::Qp& qp) { std::printf("%u\n", qp.common.qpn.value); }

}  // namespace

int main() {
  const Psn psn(0x1fffffe);
  const Key key{0x1234};
  const PdId pd{7};
  wire::Address v4, v6;
  v4.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  v6.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const wire::Mac mac{2, 0, 0, 0xab, 0xcd, 0xef};

  const queue::RingShape send_shape{send_ring.data(), kEntries, 64},
      receive_shape{receive_ring.data(), kEntries, 64};
  queue::WorkProducer producer(send_shape, &client_indices.sq.index, &daemon_indices.sq_consumer);
  for (std::uint64_t i = 0; i < 2; ++i) post_send(producer, i, UROCE_WR_SEND, 0);
  proto::Qp qp;
  qp.common.qpn = Qpn{0x10};
  qp.common.dest_qpn = Qpn{0x11};
  qp.common.state = proto::QpState::kRts;
  qp.requester.ring = queue::WorkConsumer(send_shape, &client_indices.sq.index, &daemon_indices.sq_consumer);
  qp.receives.ring = queue::WorkConsumer(receive_shape, &client_indices.rq.index, &daemon_indices.rq_consumer);
  for (std::uint64_t i = 0; i < 2; ++i) {
    uroce_sq_entry copy;
    qp.requester.ring.copy_next(&copy, sizeof(copy));
  }
  qp.requester.ring.publish_consumed(2);
  // Indices 2, 3 and 4: around the end of the ring.
  post_send(producer, 0xa2, UROCE_WR_RDMA_WRITE, UROCE_SEND_SIGNALED);
  post_send(producer, 0xa3, UROCE_WR_SEND, UROCE_SEND_SIGNALED | UROCE_SEND_INLINE);
  post_send(producer, 0xa4, UROCE_WR_REG_MR, 0);
  queue::WorkProducer receives(receive_shape, &client_indices.rq.index, &daemon_indices.rq_consumer);
  for (std::uint64_t i = 0; i < kEntries; ++i) post_receive(receives, 0xb0 + i);
  client_indices.rq.index = 0xffff;  // a client may write anything: no more than a ring is shown

  queue::CqProducer cq_producer(completions.data(), kEntries, &polled);
  queue::CqConsumer cq_consumer(completions.data(), kEntries, &polled);
  const queue::WorkConsumer no_ring;
  push(cq_producer, 1, UROCE_WC_SEND, UROCE_WC_SUCCESS);
  push(cq_producer, 2, UROCE_WC_RECV, UROCE_WC_SUCCESS);
  push(cq_producer, 3, UROCE_WC_RDMA_WRITE, UROCE_WC_REM_ACCESS_ERR);
  cq_consumer.pop();
  cq_consumer.publish();
  cq_consumer.arm(false);
  stop(qp);
  return psn.value() + key.value + pd.value + v4.bytes[0] + v6.bytes[0] + mac[0] + no_ring.count() == 0 ? 1 : 0;
}
