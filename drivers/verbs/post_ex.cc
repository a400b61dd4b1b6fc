// ibv_wr_*: work requests that are built call by call in the ring, between ibv_wr_start and ibv_wr_complete. The
// QP's lock is held in between (ibv_wr_post(3)).
#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "client/call_log.h"
#include "objects.h"
#include "post.h"
#include "window.h"

namespace uroce::verbs {
namespace {

Qp& of(ibv_qp_ex* ex) { return *reinterpret_cast<Qp*>(ex); }

void fail(Qp& qp, int error) {
  if (qp.build_error == 0) qp.build_error = error;
  qp.building = nullptr;
}

// Reserves the next entry and fills its header; nullptr after an error.
uroce_sq_entry* begin(ibv_qp_ex* ex, uroce_wr_opcode opcode) {
  Qp& qp = of(ex);
  if (qp.build_error != 0) return nullptr;
  uroce_sq_entry* const entry = qp.queue.reserve_send();
  if (entry == nullptr) {
    fail(qp, ENOMEM);
    return nullptr;
  }
  *entry = {};
  entry->wr_id = ex->wr_id;
  entry->opcode = static_cast<std::uint8_t>(opcode);
  entry->flags = static_cast<std::uint8_t>(ex->wr_flags & qp.flags & ~unsigned{UROCE_SEND_INLINE});
  qp.queue.commit_send();
  qp.building = entry;
  return entry;
}

void begin_rdma(ibv_qp_ex* ex, uroce_wr_opcode opcode, std::uint32_t rkey, std::uint64_t addr, __be32 imm = 0) {
  if (uroce_sq_entry* const entry = begin(ex, opcode); entry != nullptr) {
    entry->rkey = rkey;
    entry->remote_addr = addr;
    entry->imm_data = imm;
  }
}

void begin_atomic(ibv_qp_ex* ex, uroce_wr_opcode opcode, std::uint32_t rkey, std::uint64_t addr,
                  std::uint64_t operand, std::uint64_t swap) {
  if (uroce_sq_entry* const entry = begin(ex, opcode); entry != nullptr) {
    entry->rkey = rkey;
    entry->remote_addr = addr;
    entry->atomic = {operand, swap};
  }
}

void wr_compare_swap(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr, std::uint64_t compare,
                     std::uint64_t swap) {
  begin_atomic(ex, UROCE_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}
void wr_fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr, std::uint64_t add) {
  begin_atomic(ex, UROCE_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}
void wr_local_inv(ibv_qp_ex* ex, std::uint32_t rkey) {
  if (uroce_sq_entry* const entry = begin(ex, UROCE_WR_LOCAL_INV); entry != nullptr) entry->imm_data = rkey;
}
void wr_read(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr) {
  begin_rdma(ex, UROCE_WR_RDMA_READ, rkey, addr);
}
void wr_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr) {
  begin_rdma(ex, UROCE_WR_RDMA_WRITE, rkey, addr);
}
void wr_write_imm(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr, __be32 imm) {
  begin_rdma(ex, UROCE_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}
void wr_send(ibv_qp_ex* ex) { begin(ex, UROCE_WR_SEND); }
void wr_send_imm(ibv_qp_ex* ex, __be32 imm) {
  if (uroce_sq_entry* const entry = begin(ex, UROCE_WR_SEND_WITH_IMM); entry != nullptr) entry->imm_data = imm;
}
void wr_send_inv(ibv_qp_ex* ex, std::uint32_t rkey) {
  if (uroce_sq_entry* const entry = begin(ex, UROCE_WR_SEND_WITH_INV); entry != nullptr) entry->imm_data = rkey;
}

void wr_send_tso(ibv_qp_ex* ex, void* header, std::uint16_t bytes, std::uint16_t mss) {
  uroce_sq_entry* const entry = begin(ex, UROCE_WR_TSO);
  if (entry != nullptr && !write_tso(of(ex), header, bytes, mss, *entry)) fail(of(ex), EINVAL);
}

void wr_bind_mw(ibv_qp_ex* ex, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  Qp& qp = of(ex);
  if (mw->type != IBV_MW_TYPE_2) return fail(qp, EINVAL);
  uroce_sq_entry* const entry = begin(ex, UROCE_WR_BIND_MW);
  if (entry == nullptr) return;
  entry->mw_handle = mw->rkey;
  entry->rkey = rkey;
  entry->remote_addr = info->addr;
  entry->bind = {info->mr != nullptr ? info->mr->lkey : 0, info->mw_access_flags, info->length};
  try {
    qp.binds.push_back({mw, mw->rkey});
  } catch (const std::bad_alloc&) {
    return fail(qp, ENOMEM);
  }
  mw->rkey = with_tag(mw->rkey, rkey);
}

void wr_atomic_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr, const void* value) {
  constexpr std::uint32_t kBytes = 8;
  uroce_sq_entry* const entry = begin(ex, UROCE_WR_ATOMIC_WRITE);
  if (entry == nullptr) return;
  entry->rkey = rkey;
  entry->remote_addr = addr;
  entry->flags |= UROCE_SEND_INLINE;
  entry->inline_length = kBytes;
  std::memcpy(queue::send_list(*entry), value, kBytes);
}

void wr_flush(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t addr, std::size_t length, std::uint8_t type,
              std::uint8_t level) {
  uroce_sq_entry* const entry = begin(ex, UROCE_WR_FLUSH);
  if (entry == nullptr) return;
  entry->rkey = rkey;
  entry->remote_addr = addr;
  entry->flush = {type, level, length};
}

uroce_sq_entry* building(Qp& qp) { return qp.build_error == 0 ? qp.building : nullptr; }

// The place of the entry's list. The TSO headers, which follow the list, are moved by `bytes`.
std::byte* list_of(uroce_sq_entry& entry, std::size_t bytes) {
  std::byte* const list = queue::send_list(entry);
  if (entry.opcode == UROCE_WR_TSO) std::memmove(list + bytes, list + list_bytes(entry), entry.tso.header_bytes);
  return list;
}

void check_packets(Qp& qp, const uroce_sq_entry& entry) {
  if (qp.packets && !packets_fit(qp, entry)) fail(qp, EINVAL);
}

void set_sge_list(ibv_qp_ex* ex, std::size_t count, const ibv_sge* list) {
  Qp& qp = of(ex);
  uroce_sq_entry* const entry = building(qp);
  if (entry == nullptr) return;
  if (count > qp.queue.made().max_send_sge) return fail(qp, EINVAL);
  std::byte* const to = list_of(*entry, count * sizeof(*list));
  entry->num_sge = static_cast<std::uint16_t>(count);
  if (count != 0) std::memcpy(to, list, count * sizeof(*list));
  check_packets(qp, *entry);
}

void set_sge(ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  const ibv_sge sge{addr, length, lkey};
  set_sge_list(ex, 1, &sge);
}

void set_inline_list(ibv_qp_ex* ex, std::size_t count, const ibv_data_buf* list) {
  Qp& qp = of(ex);
  uroce_sq_entry* const entry = building(qp);
  if (entry == nullptr) return;
  const std::size_t most = qp.queue.made().max_inline;
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].length > most - total) return fail(qp, EINVAL);
    total += list[i].length;
  }
  std::byte* to = list_of(*entry, total);
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].length != 0) std::memcpy(to, list[i].addr, list[i].length);
    to += list[i].length;
  }
  entry->flags |= UROCE_SEND_INLINE;
  entry->inline_length = static_cast<std::uint32_t>(total);
  check_packets(qp, *entry);
}

void set_inline(ibv_qp_ex* ex, void* addr, std::size_t length) {
  const ibv_data_buf buffer{addr, length};
  set_inline_list(ex, 1, &buffer);
}

void set_ud_addr(ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
  if (uroce_sq_entry* const entry = building(of(ex)); entry != nullptr) {
    entry->ah = ah->handle;
    entry->ud = {qpn, qkey};
  }
}

void set_xrc_srqn(ibv_qp_ex* ex, std::uint32_t srqn) {
  if (uroce_sq_entry* const entry = building(of(ex)); entry != nullptr) entry->remote_srqn = srqn;
}

void wr_start(ibv_qp_ex* ex) {
  Qp& qp = of(ex);
  qp.queue.sq_lock.lock();
  qp.building = nullptr;
  qp.build_error = 0;
  qp.binds.clear();
  if (qp.queue.session().lost()) {
    qp.build_error = lost_error(qp.queue.session());
  } else if (!may_send(qp)) {
    qp.build_error = EINVAL;
  }
}

// Nothing that was built is posted. Windows get their previous keys back.
void discard(Qp& qp) {
  qp.queue.abort_sends();
  for (auto bind = qp.binds.rbegin(); bind != qp.binds.rend(); ++bind) bind->mw->rkey = bind->key_before;
}

int wr_complete(ibv_qp_ex* ex) {
  Qp& qp = of(ex);
  const int error = qp.build_error;
  if (error != 0) {
    client::call_log::failed_post("ibv_wr_complete", error);
    discard(qp);
  } else if (qp.building != nullptr) {
    qp.queue.ring_doorbell();
  }
  qp.queue.sq_lock.unlock();
  return error;
}

void wr_abort(ibv_qp_ex* ex) {
  discard(of(ex));
  of(ex).queue.sq_lock.unlock();
}

// The opcode for each bit of ibv_qp_create_send_ops_flags, in the order of the bits.
constexpr std::uint8_t kOpcodeOfBit[] = {UROCE_WR_RDMA_WRITE,
                                         UROCE_WR_RDMA_WRITE_WITH_IMM,
                                         UROCE_WR_SEND,
                                         UROCE_WR_SEND_WITH_IMM,
                                         UROCE_WR_RDMA_READ,
                                         UROCE_WR_ATOMIC_CMP_AND_SWP,
                                         UROCE_WR_ATOMIC_FETCH_AND_ADD,
                                         UROCE_WR_LOCAL_INV,
                                         UROCE_WR_BIND_MW,
                                         UROCE_WR_SEND_WITH_INV,
                                         UROCE_WR_TSO,
                                         UROCE_WR_FLUSH,
                                         UROCE_WR_ATOMIC_WRITE};

bool has_all(ibv_qp_type type, std::uint64_t operations) {
  if (operations >> std::size(kOpcodeOfBit) != 0) return false;
  for (; operations != 0; operations &= operations - 1) {
    if (!abi::operation_of(kOpcodeOfBit[std::countr_zero(operations)]).of_type(type)) return false;
  }
  return true;
}

}  // namespace

int fill_work_requests(Qp& qp, std::uint64_t operations) {
  if (!has_all(qp.qp.qp_type, operations)) return EOPNOTSUPP;
  ibv_qp_ex& ex = qp.ex;
  ex.wr_atomic_cmp_swp = wr_compare_swap;
  ex.wr_atomic_fetch_add = wr_fetch_add;
  ex.wr_bind_mw = wr_bind_mw;
  ex.wr_local_inv = wr_local_inv;
  ex.wr_rdma_read = wr_read;
  ex.wr_rdma_write = wr_write;
  ex.wr_rdma_write_imm = wr_write_imm;
  ex.wr_send = wr_send;
  ex.wr_send_imm = wr_send_imm;
  ex.wr_send_inv = wr_send_inv;
  ex.wr_send_tso = wr_send_tso;
  ex.wr_set_ud_addr = set_ud_addr;
  ex.wr_set_xrc_srqn = set_xrc_srqn;
  ex.wr_set_inline_data = set_inline;
  ex.wr_set_inline_data_list = set_inline_list;
  ex.wr_set_sge = set_sge;
  ex.wr_set_sge_list = set_sge_list;
  ex.wr_start = wr_start;
  ex.wr_complete = wr_complete;
  ex.wr_abort = wr_abort;
  ex.wr_atomic_write = wr_atomic_write;
  qp.operations.wr_flush = wr_flush;
  return 0;
}

}  // namespace uroce::verbs
