// ibv_post_send(3), ibv_post_recv(3), ibv_post_wq_recv and ibv_post_srq_recv(3): write entries into the ring,
// publish them together, ring the doorbell once.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "client/call_log.h"
#include "domain.h"
#include "objects.h"
#include "post.h"
#include "uroce/dv.h"
#include "window.h"

namespace uroce::verbs {
namespace {

constexpr std::uint32_t kEthernetHeader = 14;  // bytes

using abi::Operation;
using abi::OperationKind;

int check_operation(const Qp& qp, const ibv_send_wr& wr, const Operation& operation, bool by_bind_mw) {
  if (!operation.of_type(qp.qp.qp_type)) {
    const bool unknown = operation.kind == OperationKind::kInvalid || operation.kind == OperationKind::kSegments;
    return unknown ? EOPNOTSUPP : EINVAL;
  }
  // Type 1 windows are bound only by ibv_bind_mw(3).
  if (operation.kind == OperationKind::kBind && wr.bind_mw.mw->type != (by_bind_mw ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2))
    return EINVAL;
  return 0;
}

// Inline data is copied into the entry, so that the program can reuse its buffers at once.
int copy_inline(const ibv_send_wr& wr, std::uint32_t most, uroce_sq_entry& entry) {
  std::byte* to = queue::send_list(entry);
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

void write_bind(const ibv_send_wr& wr, std::uint32_t current_key, uroce_sq_entry& entry) {
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  entry.mw_handle = current_key;
  entry.rkey = wr.bind_mw.rkey;
  entry.remote_addr = info.addr;
  entry.bind = {info.mr != nullptr ? info.mr->lkey : 0, info.mw_access_flags, info.length};
}

// Fills the fields that depend on the operation, except for the payload.
void write_operation(const Qp& qp, const ibv_send_wr& wr, OperationKind kind, uroce_sq_entry& entry) {
  entry.remote_addr = 0;
  entry.rkey = 0;
  using enum OperationKind;
  switch (kind) {
    case kAtomic:
      entry.remote_addr = wr.wr.atomic.remote_addr;
      entry.rkey = wr.wr.atomic.rkey;
      entry.atomic = {wr.wr.atomic.compare_add, wr.wr.atomic.swap};
      return;
    case kWrite:
    case kRead:
    case kAtomicWrite:
      entry.remote_addr = wr.wr.rdma.remote_addr;
      entry.rkey = wr.wr.rdma.rkey;
      return;
    case kFlush:
      entry.remote_addr = wr.wr.rdma.remote_addr;
      entry.rkey = wr.wr.rdma.rkey;
      entry.flush = {UROCE_DV_FLUSH_TYPE(wr.bind_mw.bind_info.mw_access_flags),
                     UROCE_DV_FLUSH_LEVEL(wr.bind_mw.bind_info.mw_access_flags), wr.bind_mw.bind_info.length};
      return;
    case kBind: return write_bind(wr, wr.bind_mw.mw->rkey, entry);
    case kRegister:
      // A fast registration names no other region.
      return write_bind(wr, wr.wr.rdma.rkey, entry);
    default:
      if (qp.qp.qp_type != IBV_QPT_UD) return;
      entry.ah = wr.wr.ud.ah->handle;
      entry.ud = {wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey};
  }
}

int write_list(const Qp& qp, const ibv_send_wr& wr, const Operation& operation, uroce_sq_entry& entry) {
  entry.num_sge = 0;
  entry.inline_length = 0;
  // Operations without a list ignore wr's: the program need not initialize it.
  if (!operation.has(abi::kTakesList)) return 0;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.queue.made().max_send_sge) return EINVAL;
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  entry.num_sge = static_cast<std::uint16_t>(count);
  static_assert(sizeof(ibv_sge) == sizeof(uroce_sge));
  if (count != 0) std::memcpy(queue::send_list(entry), wr.sg_list, count * sizeof(uroce_sge));
  return 0;
}

int write_entry(const Qp& qp, const ibv_send_wr& wr, bool by_bind_mw, uroce_sq_entry& entry) {
  const Operation& operation = abi::operation_of(wr.opcode);
  if (const int error = check_operation(qp, wr, operation, by_bind_mw); error != 0) return error;
  unsigned flags = wr.send_flags & qp.flags;
  entry.wr_id = wr.wr_id;
  entry.opcode = static_cast<std::uint8_t>(wr.opcode);
  entry.imm_data = wr.imm_data;  // a union with invalidated_rkey
  entry.remote_srqn = qp.qp.qp_type == IBV_QPT_XRC_SEND ? wr.qp_type.xrc.remote_srqn : 0;
  entry.mw_handle = 0;
  entry.reserved = 0;
  write_operation(qp, wr, operation.kind, entry);
  if (!operation.has(abi::kTakesList)) flags &= ~unsigned{UROCE_SEND_INLINE};
  entry.flags = static_cast<std::uint8_t>(flags);
  const bool inlined = (flags & UROCE_SEND_INLINE) != 0;
  if (inlined && !operation.has(abi::kPayload)) return EINVAL;
  const int error =
      inlined ? copy_inline(wr, qp.queue.made().max_inline, entry) : write_list(qp, wr, operation, entry);
  if (error != 0 || !qp.packets) return error;
  if (wr.opcode == IBV_WR_TSO && !write_tso(qp, wr.tso.hdr, wr.tso.hdr_sz, wr.tso.mss, entry)) return EINVAL;
  return packets_fit(qp, entry) ? 0 : EINVAL;
}

// For UROCE_LOG.
[[gnu::cold]] void report_send(Qp& qp, const ibv_send_wr* wr, int error) {
  if (!client::call_log::on()) return;
  const uroce_create_qp_response& made = qp.queue.made();
  if (state_of(qp.qp) < IBV_QPS_RTS) {
    client::call_log::set_reason(error, "QP 0x%06x is not in RTS yet, or has no send queue", qp.qp.qp_num);
  } else if (wr != nullptr && error != EIO && error != ENODEV) {
    client::call_log::set_reason(
        error,
        "QP 0x%06x, wr_id %llu: opcode %u, num_sge %d (at most %u), send_flags 0x%x, inline "
        "data at most %u bytes; a datagram fits into one packet",
        qp.qp.qp_num, static_cast<unsigned long long>(wr->wr_id), static_cast<unsigned>(wr->opcode), wr->num_sge,
        made.max_send_sge, wr->send_flags, made.max_inline);
  }
  client::call_log::failed_post("ibv_post_send", error);
}

[[gnu::cold]] void report_receive(const ibv_recv_wr* wr, std::uint32_t max_sge, int error) {
  if (!client::call_log::on()) return;
  if (error == EINVAL && wr != nullptr) {
    client::call_log::set_reason(error, "wr_id %llu: num_sge %d (at most %u), or the queue takes no receives now",
                                 static_cast<unsigned long long>(wr->wr_id), wr->num_sge, max_sge);
  }
  client::call_log::failed_post("ibv_post_recv", error);
}

int post_chain(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad_wr, bool by_bind_mw) {
  Qp& qp = *as_qp(ibv);
  int error = 0;
  if (qp.queue.session().lost()) [[unlikely]] {
    error = lost_error(qp.queue.session());
  } else if (!may_send(qp) || qp.queue.made().sq_entries == 0) [[unlikely]] {
    error = EINVAL;
  }
  if (error != 0) {
    *bad_wr = wr;
    report_send(qp, wr, error);
    return error;
  }
  const std::lock_guard lock(qp.queue.sq_lock);
  bool posted = false;
  for (; wr != nullptr; wr = wr->next) {
    uroce_sq_entry* const entry = qp.queue.reserve_send();
    error = entry != nullptr ? write_entry(qp, *wr, by_bind_mw, *entry) : ENOMEM;
    if (error != 0) {
      *bad_wr = wr;
      report_send(qp, wr, error);
      break;
    }
    qp.queue.commit_send();
    posted = true;
    if (wr->opcode == IBV_WR_BIND_MW) [[unlikely]]
      wr->bind_mw.mw->rkey = with_tag(wr->bind_mw.mw->rkey, wr->bind_mw.rkey);
  }
  if (posted) qp.queue.ring_doorbell();
  return error;
}

void write_receive(const ibv_recv_wr& wr, uroce_rq_entry& entry) {
  const auto count = static_cast<std::uint32_t>(wr.num_sge);
  entry.wr_id = wr.wr_id;
  entry.num_sge = count;
  entry.reserved = 0;
  if (count != 0) std::memcpy(reinterpret_cast<std::byte*>(&entry + 1), wr.sg_list, count * sizeof(uroce_sge));
}

bool too_many(const ibv_recv_wr& wr, std::uint32_t most) {
  return wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > most;
}

int post_receives(client::QueuePair& queue, bool ready, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const uroce_create_qp_response& made = queue.made();
  int error = 0;
  if (queue.session().lost()) [[unlikely]] {
    error = lost_error(queue.session());
  } else if (!ready || made.rq_entries == 0) [[unlikely]] {
    error = EINVAL;
  }
  if (error != 0) {
    *bad_wr = wr;
    report_receive(wr, made.max_recv_sge, error);
    return error;
  }
  const std::lock_guard lock(queue.rq_lock);
  for (; wr != nullptr; wr = wr->next) {
    uroce_rq_entry* const entry = queue.reserve_receive();
    error = entry == nullptr ? ENOMEM : too_many(*wr, made.max_recv_sge) ? EINVAL : 0;
    if (error != 0) {
      *bad_wr = wr;
      report_receive(wr, made.max_recv_sge, error);
      break;
    }
    write_receive(*wr, *entry);
    queue.commit_receive();
  }
  queue.publish_receives();
  return error;
}

}  // namespace

bool packets_fit(const Qp& qp, const uroce_sq_entry& entry) {
  std::uint64_t total = entry.inline_length;
  const auto* const list = reinterpret_cast<const uroce_sge*>(queue::send_list(entry));
  for (std::uint32_t i = 0; i < entry.num_sge; ++i) total += list[i].length;
  if (qp.qp.qp_type == IBV_QPT_UD) return total <= qp.queue.session().packet_bytes();
  return entry.opcode == UROCE_WR_TSO ? total <= UROCE_MAX_TSO : total >= kEthernetHeader && total <= qp.max_frame;
}

bool write_tso(const Qp& qp, const void* header, std::uint16_t bytes, std::uint16_t mss, uroce_sq_entry& entry) {
  if (bytes < kEthernetHeader || bytes > qp.max_tso_header || mss == 0 || bytes + mss > qp.max_frame) return false;
  entry.tso = {mss, bytes, {}};
  std::memcpy(queue::send_list(entry) + list_bytes(entry), header, bytes);
  return true;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) { return post_chain(qp, wr, bad_wr, false); }

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  // The kernel returns EPERM, too: QP and window in different PDs, or the region in another PD.
  const ibv_mr* const mr = bind->bind_info.mr;
  if (!same_domain(mw->pd, qp->pd) || (mr != nullptr && !same_domain(mr->pd, mw->pd))) return EPERM;
  ibv_send_wr wr{};
  ibv_send_wr* bad;
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  return post_chain(qp, &wr, &bad, true);
}

// In RESET, too, as on adapters: programs fill the queue before they set the QP up.
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return post_receives(as_qp(qp)->queue, true, wr, bad_wr);
}

int post_wq_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const bool ready = std::atomic_ref(wq->state).load(std::memory_order_relaxed) != IBV_WQS_RESET;
  return post_receives(as_wq(wq)->queue, ready, wr, bad_wr);
}

int post_srq_recv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  client::SharedReceiveQueue& srq = as_srq(ibv)->queue;
  if (srq.session().lost()) [[unlikely]] {
    *bad_wr = wr;
    return lost_error(srq.session());
  }
  int error = 0;
  const std::lock_guard lock(srq.lock);
  for (; wr != nullptr; wr = wr->next) {
    uroce_rq_entry* const entry = srq.reserve();
    error = entry == nullptr ? ENOMEM : too_many(*wr, srq.made().max_sge) ? EINVAL : 0;
    if (error != 0) {
      *bad_wr = wr;
      report_receive(wr, srq.made().max_sge, error);
      break;
    }
    write_receive(*wr, *entry);
    srq.commit();
  }
  srq.publish();
  return error;
}

}  // namespace uroce::verbs
