// ibv_post_send and ibv_post_recv: entries into the ring, one publication, one doorbell.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "objects.h"

namespace uroce::verbs {
namespace {

constexpr unsigned kSendFlags = UROCE_SEND_FENCE | UROCE_SEND_SIGNALED | UROCE_SEND_SOLICITED | UROCE_SEND_INLINE;

int lost_error(const client::Session& session) {
  return session.presence() == client::Presence::kForked ? ENODEV : EIO;
}

bool known(ibv_wr_opcode opcode) { return opcode <= IBV_WR_SEND_WITH_INV && opcode != IBV_WR_BIND_MW; }

bool carries_data_out(ibv_wr_opcode opcode) {
  return opcode <= IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

// Payload goes into the entry now: the program may reuse its buffers at once.
int copy_inline(const ibv_send_wr& wr, std::uint32_t most, uroce_sq_entry& entry) {
  auto* to = reinterpret_cast<std::byte*>(&entry + 1);
  std::uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    total += sge.length;
    if (total > most) return EINVAL;
    std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(sge.addr)), sge.length);
    to += sge.length;
  }
  entry.num_sge = 0;
  entry.inline_length = static_cast<std::uint32_t>(total);
  return 0;
}

void write_operation(const ibv_send_wr& wr, uroce_sq_entry& entry) {
  entry.remote_addr = 0;
  entry.rkey = 0;
  entry.atomic = {};
  switch (wr.opcode) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      entry.remote_addr = wr.wr.atomic.remote_addr;
      entry.rkey = wr.wr.atomic.rkey;
      entry.atomic = {wr.wr.atomic.compare_add, wr.wr.atomic.swap};
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      entry.remote_addr = wr.wr.rdma.remote_addr;
      entry.rkey = wr.wr.rdma.rkey;
      break;
    default:
      break;
  }
}

int write_entry(const Qp& qp, const ibv_send_wr& wr, uroce_sq_entry& entry) {
  const uroce_create_qp_response& made = qp.queue.made();
  if (!known(wr.opcode)) return EOPNOTSUPP;
  if (wr.num_sge < 0) return EINVAL;
  const unsigned flags = wr.send_flags & kSendFlags;
  entry.wr_id = wr.wr_id;
  entry.opcode = static_cast<std::uint8_t>(wr.opcode);
  entry.flags = static_cast<std::uint8_t>(flags);
  entry.imm_data = wr.imm_data;  // invalidate_rkey shares its place
  entry.remote_srqn = 0;
  entry.mw_handle = 0;
  entry.reserved = 0;
  write_operation(wr, entry);
  if ((flags & UROCE_SEND_INLINE) != 0) {
    return carries_data_out(wr.opcode) ? copy_inline(wr, made.max_inline, entry) : EINVAL;
  }
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  if (count > made.max_send_sge) return EINVAL;
  entry.num_sge = static_cast<std::uint16_t>(count);
  entry.inline_length = 0;
  static_assert(sizeof(ibv_sge) == sizeof(uroce_sge));
  if (count != 0) std::memcpy(reinterpret_cast<std::byte*>(&entry + 1), wr.sg_list, count * sizeof(uroce_sge));
  return 0;
}

}  // namespace

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = *as_qp(ibv);
  int error = 0;
  if (qp.queue.session().lost()) [[unlikely]] {
    error = lost_error(qp.queue.session());
  } else if (ibv->state < IBV_QPS_RTS) [[unlikely]] {
    error = EINVAL;
  }
  if (error != 0) {
    *bad_wr = wr;
    return error;
  }
  const std::lock_guard lock(qp.queue.sq_lock);
  bool posted = false;
  for (; wr != nullptr; wr = wr->next) {
    uroce_sq_entry* const entry = qp.queue.next_send();
    error = entry != nullptr ? write_entry(qp, *wr, *entry) : ENOMEM;
    if (error != 0) {
      *bad_wr = wr;
      break;
    }
    qp.queue.keep_send();
    posted = true;
  }
  if (posted) qp.queue.kick_send();
  return error;
}

int post_recv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = *as_qp(ibv);
  const uroce_create_qp_response& made = qp.queue.made();
  int error = 0;
  if (qp.queue.session().lost()) [[unlikely]] {
    error = lost_error(qp.queue.session());
  } else if (ibv->state == IBV_QPS_RESET || made.rq_entries == 0) [[unlikely]] {
    error = EINVAL;
  }
  if (error != 0) {
    *bad_wr = wr;
    return error;
  }
  const std::lock_guard lock(qp.queue.rq_lock);
  for (; wr != nullptr; wr = wr->next) {
    uroce_rq_entry* const entry = qp.queue.next_receive();
    const auto count = static_cast<std::uint32_t>(wr->num_sge);
    error = entry == nullptr ? ENOMEM : wr->num_sge < 0 || count > made.max_recv_sge ? EINVAL : 0;
    if (error != 0) {
      *bad_wr = wr;
      break;
    }
    entry->wr_id = wr->wr_id;
    entry->num_sge = count;
    entry->reserved = 0;
    if (count != 0) std::memcpy(reinterpret_cast<std::byte*>(entry + 1), wr->sg_list, count * sizeof(uroce_sge));
    qp.queue.keep_receive();
  }
  qp.queue.publish_receives();
  return error;
}

}  // namespace uroce::verbs
