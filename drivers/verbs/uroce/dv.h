/** @file
 * Work requests that a uroce device has and infiniband/verbs.h of rdma-core 44 has no call for: fast registration,
 * atomic write, flush. All go through the public ibv_post_send and ibv_reg_mr_iova2, so a program that uses this
 * header links with nothing else; another vendor's device answers EINVAL or EOPNOTSUPP. C and C++.
 *
 * A fast registration opens a range of memory that was shared beforehand under another key, in order with the other
 * work requests of the send queue:
 *
 *   struct ibv_mr *fast = uroce_dv_reg_fast_mr(pd, memory, 1 << 20, IBV_ACCESS_REMOTE_READ);
 *   uint32_t key = ibv_inc_rkey(fast->rkey);
 *   uroce_dv_post_reg_mr(qp, wr_id, IBV_SEND_SIGNALED, fast, key, memory + 4096, 100, IBV_ACCESS_REMOTE_READ);
 *   ... the peer uses `key`, then invalidates it by SEND with invalidate (or we do, by IBV_WR_LOCAL_INV) ...
 *   ibv_dereg_mr(fast);
 */
#ifndef UROCE_DV_H
#define UROCE_DV_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Numbers of ibv_wr_opcode; the first two are those of later rdma-core. */
#define UROCE_DV_WR_FLUSH 14u
#define UROCE_DV_WR_ATOMIC_WRITE 15u
#define UROCE_DV_WR_REG_MR 32u

/** Access of an MR (ibv_access_flags of later rdma-core): peers may flush it. */
#define UROCE_DV_ACCESS_FLUSH_GLOBAL (1u << 8)
#define UROCE_DV_ACCESS_FLUSH_PERSISTENT (1u << 9)
/** Given to ibv_reg_mr_iova2: the key opens nothing yet. */
#define UROCE_DV_ACCESS_FAST (1u << 30)

enum uroce_dv_flush_type { UROCE_DV_FLUSH_GLOBAL = 1, UROCE_DV_FLUSH_PERSISTENT = 2 };
enum uroce_dv_flush_level { UROCE_DV_FLUSH_RANGE = 0, UROCE_DV_FLUSH_MR = 1 };

/** How a flush travels in bind_info.mw_access_flags of an ibv_send_wr. */
#define UROCE_DV_FLUSH_FLAGS(type, level) ((uint32_t)(type) | (uint32_t)(level) << 8)
#define UROCE_DV_FLUSH_TYPE(flags) ((uint32_t)(flags)&0xffu)
#define UROCE_DV_FLUSH_LEVEL(flags) ((uint32_t)(flags) >> 8)

/** A key for fast registrations within [addr, addr + length), with at most this access; ibv_dereg_mr frees it. NULL
 * and errno: as ibv_reg_mr. */
static inline struct ibv_mr* uroce_dv_reg_fast_mr(struct ibv_pd* pd, void* addr, size_t length,
                                                  unsigned int access) {
  return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access | UROCE_DV_ACCESS_FAST);
}

static inline int uroce_dv_post_one(struct ibv_qp* qp, struct ibv_send_wr* wr, uint32_t opcode) {
  struct ibv_send_wr* bad;
  memcpy(&wr->opcode, &opcode, sizeof(opcode)); /* no enumerator has this number */
  return ibv_post_send(qp, wr, &bad);
}

/** Opens [addr, addr + length) of `fast`, whose key becomes `key` (its old one with another low byte).
 * Completes with IBV_WC_SUCCESS, or IBV_WC_MW_BIND_ERR and the QP in error. The key is fast->rkey and ->lkey from
 * the post on. errno values as ibv_post_send. */
static inline int uroce_dv_post_reg_mr(struct ibv_qp* qp, uint64_t wr_id, unsigned int send_flags,
                                       struct ibv_mr* fast, uint32_t key, void* addr, uint64_t length,
                                       unsigned int access) {
  struct ibv_send_wr wr;
  int error;
  memset(&wr, 0, sizeof(wr));
  wr.wr_id = wr_id;
  wr.send_flags = send_flags;
  wr.wr.rdma.rkey = fast->rkey;
  wr.bind_mw.rkey = key;
  wr.bind_mw.bind_info.addr = (uintptr_t)addr;
  wr.bind_mw.bind_info.length = length;
  wr.bind_mw.bind_info.mw_access_flags = access;
  error = uroce_dv_post_one(qp, &wr, UROCE_DV_WR_REG_MR);
  if (error == 0) fast->lkey = fast->rkey = key;
  return error;
}

/** Writes 8 bytes, in one piece and after everything posted before, to an address that is a multiple of 8. */
static inline int uroce_dv_post_atomic_write(struct ibv_qp* qp, uint64_t wr_id, unsigned int send_flags,
                                             const void* value, uint64_t remote_addr, uint32_t rkey) {
  struct ibv_send_wr wr;
  struct ibv_sge sge;
  memset(&wr, 0, sizeof(wr));
  sge.addr = (uintptr_t)value;
  sge.length = 8;
  sge.lkey = 0;
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = send_flags | IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
  return uroce_dv_post_one(qp, &wr, UROCE_DV_WR_ATOMIC_WRITE);
}

/** Completes when what earlier WRITEs and atomics put into the range can be seen by all there (global), or
 * survives loss of power (persistent). The MR and the peer's QP allow it by UROCE_DV_ACCESS_FLUSH_*; a uroce device
 * has no memory that is persistent, and refuses that right with EINVAL. */
static inline int uroce_dv_post_flush(struct ibv_qp* qp, uint64_t wr_id, unsigned int send_flags,
                                      uint64_t remote_addr, uint32_t rkey, uint64_t length, unsigned int type,
                                      enum uroce_dv_flush_level level) {
  struct ibv_send_wr wr;
  memset(&wr, 0, sizeof(wr));
  wr.wr_id = wr_id;
  wr.send_flags = send_flags;
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
  wr.bind_mw.bind_info.length = length;
  wr.bind_mw.bind_info.mw_access_flags = UROCE_DV_FLUSH_FLAGS(type, level);
  return uroce_dv_post_one(qp, &wr, UROCE_DV_WR_FLUSH);
}

#ifdef __cplusplus
}
#endif

#endif
