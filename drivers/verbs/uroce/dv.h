/** @file
 * Work requests of a uroce device for which infiniband/verbs.h of rdma-core 44 has no function: fast registration,
 * atomic write and flush (IBTA annex A19). They use the public ibv_post_send(3) and ibv_reg_mr_iova2, so a program
 * that includes this header needs no other library. Other vendors' devices return EINVAL or EOPNOTSUPP. For C and
 * C++.
 *
 * A fast registration gives a key access to a part of memory that was registered beforehand. It is a work request,
 * executed in order with the others of the send queue:
 *
 *   struct ibv_mr *fast = uroce_dv_reg_fast_mr(pd, memory, 1 << 20, IBV_ACCESS_REMOTE_READ);
 *   uint32_t key = ibv_inc_rkey(fast->rkey);
 *   uroce_dv_post_reg_mr(qp, wr_id, IBV_SEND_SIGNALED, fast, key, memory + 4096, 100, IBV_ACCESS_REMOTE_READ);
 *   ... the peer uses `key`; then it sends a SEND with invalidate, or we post IBV_WR_LOCAL_INV ...
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

/** Values of ibv_wr_opcode; the first two are those of later versions of rdma-core. */
#define UROCE_DV_WR_FLUSH 14u
#define UROCE_DV_WR_ATOMIC_WRITE 15u
#define UROCE_DV_WR_REG_MR 32u

/** Access flags that permit a peer to flush a region (ibv_access_flags of later versions of rdma-core). */
#define UROCE_DV_ACCESS_FLUSH_GLOBAL (1u << 8)
#define UROCE_DV_ACCESS_FLUSH_PERSISTENT (1u << 9)
/** For ibv_reg_mr_iova2: a region for fast registrations, whose key gives no access yet. */
#define UROCE_DV_ACCESS_FAST (1u << 30)

enum uroce_dv_flush_type { UROCE_DV_FLUSH_GLOBAL = 1, UROCE_DV_FLUSH_PERSISTENT = 2 };
enum uroce_dv_flush_level { UROCE_DV_FLUSH_RANGE = 0, UROCE_DV_FLUSH_MR = 1 };

/** Type and level of a flush, encoded in bind_info.mw_access_flags of an ibv_send_wr. */
#define UROCE_DV_FLUSH_FLAGS(type, level) ((uint32_t)(type) | (uint32_t)(level) << 8)
#define UROCE_DV_FLUSH_TYPE(flags) ((uint32_t)(flags)&0xffu)
#define UROCE_DV_FLUSH_LEVEL(flags) ((uint32_t)(flags) >> 8)

/** Registers [addr, addr + length) for fast registrations with at most `access`. Freed by ibv_dereg_mr(3). Returns
 * NULL and sets errno as ibv_reg_mr(3) does. */
static inline struct ibv_mr* uroce_dv_reg_fast_mr(struct ibv_pd* pd, void* addr, size_t length,
                                                  unsigned int access) {
  return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access | UROCE_DV_ACCESS_FAST);
}

static inline int uroce_dv_post_one(struct ibv_qp* qp, struct ibv_send_wr* wr, uint32_t opcode) {
  struct ibv_send_wr* bad;
  memcpy(&wr->opcode, &opcode, sizeof(opcode)); /* not an enumerator of rdma-core 44 */
  return ibv_post_send(qp, wr, &bad);
}

/** Gives `key`, the old key of `fast` with another low byte, access to [addr, addr + length) of its memory.
 * Completes with IBV_WC_SUCCESS, or with IBV_WC_MW_BIND_ERR, which moves the QP to the error state. Sets fast->rkey
 * and fast->lkey when posted. Returns an errno as ibv_post_send(3) does. */
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

/** Writes 8 bytes atomically, after all earlier work requests, to an address that is a multiple of 8. */
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

/** Completes when the data of earlier WRITEs and atomics in the range is globally visible at the peer (global), or
 * survives a loss of power (persistent). The region and the peer's QP must permit it by UROCE_DV_ACCESS_FLUSH_*. A
 * uroce device has no persistent memory: registration with UROCE_DV_ACCESS_FLUSH_PERSISTENT fails with EINVAL. */
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
