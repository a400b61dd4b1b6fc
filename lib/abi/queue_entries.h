/* The entries of the queues that a client and the daemon share. Numbers of opcodes, flags and statuses are
 * those of rdma-core's infiniband/verbs.h, so that the shim passes them through. C-compatible: plain data,
 * fixed sizes, host byte order unless said otherwise. */
#pragma once

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#else
#include <stddef.h>
#include <stdint.h>
#endif

#define UROCE_CACHE_LINE 64

/* In addition to the numbers of ibv_qp_type: a work queue, ibv_wq. */
#define UROCE_QPT_WQ 0xf0u

/* ibv_wr_opcode. */
enum uroce_wr_opcode {
  UROCE_WR_RDMA_WRITE = 0,
  UROCE_WR_RDMA_WRITE_WITH_IMM = 1,
  UROCE_WR_SEND = 2,
  UROCE_WR_SEND_WITH_IMM = 3,
  UROCE_WR_RDMA_READ = 4,
  UROCE_WR_ATOMIC_CMP_AND_SWP = 5,
  UROCE_WR_ATOMIC_FETCH_AND_ADD = 6,
  UROCE_WR_LOCAL_INV = 7,
  UROCE_WR_BIND_MW = 8,
  UROCE_WR_SEND_WITH_INV = 9,
  UROCE_WR_TSO = 10,
  UROCE_WR_FLUSH = 14,
  UROCE_WR_ATOMIC_WRITE = 15,
  UROCE_WR_REG_MR = 32, /* ours: fast registration, uroce/dv.h */
};

/* ibv_send_flags. */
enum uroce_send_flag {
  UROCE_SEND_FENCE = 1,
  UROCE_SEND_SIGNALED = 2,
  UROCE_SEND_SOLICITED = 4,
  UROCE_SEND_INLINE = 8,
  UROCE_SEND_IP_CSUM = 16, /* raw packets: fill in the checksums of IPv4, TCP and UDP */
};

/* ibv_wc_status. */
enum uroce_wc_status {
  UROCE_WC_SUCCESS = 0,
  UROCE_WC_LOC_LEN_ERR,
  UROCE_WC_LOC_QP_OP_ERR,
  UROCE_WC_LOC_EEC_OP_ERR,
  UROCE_WC_LOC_PROT_ERR,
  UROCE_WC_WR_FLUSH_ERR,
  UROCE_WC_MW_BIND_ERR,
  UROCE_WC_BAD_RESP_ERR,
  UROCE_WC_LOC_ACCESS_ERR,
  UROCE_WC_REM_INV_REQ_ERR,
  UROCE_WC_REM_ACCESS_ERR,
  UROCE_WC_REM_OP_ERR,
  UROCE_WC_RETRY_EXC_ERR,
  UROCE_WC_RNR_RETRY_EXC_ERR,
  UROCE_WC_LOC_RDD_VIOL_ERR,
  UROCE_WC_REM_INV_RD_REQ_ERR,
  UROCE_WC_REM_ABORT_ERR,
  UROCE_WC_INV_EECN_ERR,
  UROCE_WC_INV_EEC_STATE_ERR,
  UROCE_WC_FATAL_ERR,
  UROCE_WC_RESP_TIMEOUT_ERR,
  UROCE_WC_GENERAL_ERR,
  UROCE_WC_TM_ERR,
  UROCE_WC_TM_RNDV_INCOMPLETE,
};

/* ibv_wc.vendor_err: the status, and what led to it. docs/verbs.md has the list. */
#define UROCE_FAIL(status, number) ((status) << 4 | (number))
/* The number of every status that a rule of `urocectl fault verbs` chose. */
#define UROCE_FAIL_INJECTED 15
enum uroce_failure {
  UROCE_FAIL_MESSAGE_LENGTH = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 1),
  UROCE_FAIL_DATAGRAM_LENGTH = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 2),
  UROCE_FAIL_FRAME_LENGTH = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 3),
  UROCE_FAIL_OPERAND_LENGTH = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 4),
  UROCE_FAIL_PORT_MTU = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 5),
  UROCE_FAIL_RECEIVE_LENGTH = UROCE_FAIL(UROCE_WC_LOC_LEN_ERR, 6),
  UROCE_FAIL_OPCODE = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 1),
  UROCE_FAIL_NO_READS = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 2),
  UROCE_FAIL_SEND_LIST = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 3),
  UROCE_FAIL_INLINE_LENGTH = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 4),
  UROCE_FAIL_INLINE_OPCODE = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 5),
  UROCE_FAIL_ADDRESS_HANDLE = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 6),
  UROCE_FAIL_TSO_HEADER = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 7),
  UROCE_FAIL_RECEIVE_LIST = UROCE_FAIL(UROCE_WC_LOC_QP_OP_ERR, 8),
  UROCE_FAIL_SEND_MEMORY = UROCE_FAIL(UROCE_WC_LOC_PROT_ERR, 1),
  UROCE_FAIL_RESULT_MEMORY = UROCE_FAIL(UROCE_WC_LOC_PROT_ERR, 2),
  UROCE_FAIL_RESPONSE_MEMORY = UROCE_FAIL(UROCE_WC_LOC_PROT_ERR, 3),
  UROCE_FAIL_RECEIVE_MEMORY = UROCE_FAIL(UROCE_WC_LOC_PROT_ERR, 4),
  UROCE_FAIL_FLUSHED = UROCE_FAIL(UROCE_WC_WR_FLUSH_ERR, 1),
  UROCE_FAIL_NO_DAEMON = UROCE_FAIL(UROCE_WC_WR_FLUSH_ERR, 2),
  UROCE_FAIL_KEY_CHANGE = UROCE_FAIL(UROCE_WC_MW_BIND_ERR, 1),
  UROCE_FAIL_RESPONSE_KIND = UROCE_FAIL(UROCE_WC_BAD_RESP_ERR, 1),
  UROCE_FAIL_RESPONSE_LENGTH = UROCE_FAIL(UROCE_WC_BAD_RESP_ERR, 2),
  UROCE_FAIL_NAK_CODE = UROCE_FAIL(UROCE_WC_BAD_RESP_ERR, 3),
  UROCE_FAIL_NAK_REQUEST = UROCE_FAIL(UROCE_WC_REM_INV_REQ_ERR, 1),
  UROCE_FAIL_INVALIDATED_KEY = UROCE_FAIL(UROCE_WC_REM_INV_REQ_ERR, 2),
  UROCE_FAIL_NAK_ACCESS = UROCE_FAIL(UROCE_WC_REM_ACCESS_ERR, 1),
  UROCE_FAIL_NAK_OPERATION = UROCE_FAIL(UROCE_WC_REM_OP_ERR, 1),
  UROCE_FAIL_NO_ACKNOWLEDGE = UROCE_FAIL(UROCE_WC_RETRY_EXC_ERR, 1),
  UROCE_FAIL_LOSS = UROCE_FAIL(UROCE_WC_RETRY_EXC_ERR, 2),
  UROCE_FAIL_NO_RECEIVE = UROCE_FAIL(UROCE_WC_RNR_RETRY_EXC_ERR, 1),
};

/* ibv_wc_opcode. */
enum uroce_wc_opcode {
  UROCE_WC_SEND = 0,
  UROCE_WC_RDMA_WRITE = 1,
  UROCE_WC_RDMA_READ = 2,
  UROCE_WC_COMP_SWAP = 3,
  UROCE_WC_FETCH_ADD = 4,
  UROCE_WC_BIND_MW = 5,
  UROCE_WC_LOCAL_INV = 6,
  UROCE_WC_TSO = 7,
  UROCE_WC_FLUSH = 8,
  UROCE_WC_ATOMIC_WRITE = 9,
  UROCE_WC_REG_MR = 16, /* ours, as UROCE_WR_REG_MR */
  UROCE_WC_RECV = 128,
  UROCE_WC_RECV_RDMA_WITH_IMM = 129,
};

/* ibv_wc_flags. */
enum uroce_wc_flag {
  UROCE_WC_GRH = 1,
  UROCE_WC_WITH_IMM = 2,
  UROCE_WC_IP_CSUM_OK = 4,
  UROCE_WC_WITH_INV = 8,
};

/* ibv_sge. */
struct uroce_sge {
  uint64_t addr;
  uint32_t length; /* bytes; here 0 means 0 bytes */
  uint32_t lkey;
};

struct uroce_wr_atomic {
  uint64_t compare_add;
  uint64_t swap;
};
struct uroce_wr_ud {
  uint32_t remote_qpn;
  uint32_t remote_qkey;
};
/* BIND_MW: mw_handle is the window's current R_Key, rkey the new one (with another low byte), remote_addr the first
 * address. REG_MR: mw_handle and rkey are those of an MR for fast registration, remote_addr is in the client's
 * memory; with IBV_ACCESS_ZERO_BASED the MR's own addresses begin at 0. */
struct uroce_wr_bind {
  uint32_t lkey;   /* MR that the window is bound to */
  uint32_t access; /* ibv_access_flags */
  uint64_t length; /* bytes */
};
struct uroce_wr_flush {
  uint32_t type;   /* 1: global visibility, 2: persistence */
  uint32_t level;  /* 0: the range, 1: the whole MR */
  uint64_t length; /* bytes, from remote_addr on */
};

/* A TCP segment of any length (raw packets), sent as several frames: header_bytes of headers from Ethernet to TCP,
 * which are stored after the list (num_sge scatter elements, or inline_length bytes), then at most `mss` bytes of
 * payload. */
#define UROCE_MAX_TSO_HEADER 512u /* no header needs as much, but rdma-core's tests ask for UROCE_MAX_TSO / 800 */
#define UROCE_MAX_TSO 262144u     /* bytes of payload */
struct uroce_wr_tso {
  uint16_t mss;          /* bytes of payload */
  uint16_t header_bytes; /* at most the QP's max_tso_header */
  uint32_t reserved[3];
};

/* A send queue entry: a header, then a list: num_sge scatter elements, or inline_length bytes of payload when
 * UROCE_SEND_INLINE is set. Atomics, FLUSH, BIND_MW, REG_MR and TSO have a struct of their own before the list; in
 * all others the list begins in its place, so that an entry with one element is one cache line (operations.h,
 * list_at). Entries are `stride` bytes apart (a multiple of 64, set when the QP is created). */
struct uroce_sq_entry {
  uint64_t wr_id;
  uint8_t opcode; /* uroce_wr_opcode */
  uint8_t flags;  /* uroce_send_flag */
  uint16_t num_sge;
  uint32_t inline_length; /* bytes */
  uint32_t imm_data;      /* big-endian as in ibv_send_wr; or the R_Key to invalidate, host order */
  union {
    uint32_t rkey; /* remote key; new key of a bind or a fast registration */
    uint32_t ah;   /* UD: address handle, of this session */
  };
  union {
    uint64_t remote_addr; /* remote virtual address; first address of a bind or a fast registration */
    struct uroce_wr_ud ud;
  };
  uint32_t remote_srqn; /* XRC */
  uint32_t mw_handle;
  uint64_t reserved;
  union { /* or the start of the list */
    struct uroce_wr_atomic atomic;
    struct uroce_wr_bind bind;
    struct uroce_wr_flush flush;
    struct uroce_wr_tso tso;
  };
};

/* A receive queue entry: this header, then num_sge scatter elements; `stride` bytes apart. */
struct uroce_rq_entry {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;
};

/* A completion queue entry. `phase` is written last, with release; the client reads it with acquire. In lap
 * n (from 0) of the ring a valid entry has phase (n + 1) & 1 (a fresh ring is all zero). */
struct uroce_cqe {
  uint64_t wr_id;
  uint32_t qpn;
  uint8_t status; /* uroce_wc_status */
  uint8_t opcode; /* uroce_wc_opcode */
  uint8_t wc_flags;
  uint8_t pad0;
  uint32_t byte_len;
  uint32_t imm_data; /* as in ibv_wc: big-endian immediate, or invalidated R_Key */
  uint32_t src_qp;
  uint32_t vendor_err; /* uroce_failure; 0 after success */
  uint64_t timestamp;  /* CLOCK_MONOTONIC ns; see UROCE_CQ_TIMESTAMPS */
  uint32_t pkey_index;
  uint32_t srqn;
  uint8_t sl; /* UD: the priority of the VLAN tag; without a tag UROCE_SL_ bits */
  uint8_t vlan_sl;
  uint16_t vlan_id;
  uint32_t flow_tag; /* raw packets: of the flow */
  uint32_t reserved;
  uint8_t pad1[3];
  uint8_t phase;
};

/* The kind of a RoCE packet, as mlx5 reports it in place of a service level. */
enum { UROCE_SL_IPV6 = 1, UROCE_SL_IPV4 = 2, UROCE_SL_UDP = 8 };

/* Indices count entries since the queue was created, modulo 2^32; the slot is index & (entries - 1), so the
 * number of entries is a power of two. A queue is empty when both are equal. */
struct uroce_producer_line { /* client writes, daemon reads */
  uint32_t index;
  uint32_t pad[15];
};
struct uroce_qp_client_block {
  struct uroce_producer_line sq;
  struct uroce_producer_line rq;
};
struct uroce_qp_daemon_block { /* daemon writes, client reads */
  uint32_t sq_consumer;        /* every SQ entry before this one may be overwritten */
  uint32_t rq_consumer;
  uint32_t pad[14];
};
struct uroce_srq_daemon_block { /* daemon writes, client reads */
  uint32_t consumer;            /* every entry before this one may be overwritten */
  uint32_t pad[15];
};
enum {
  UROCE_CQ_ARM_SOLICITED = 1, /* only for solicited entries */
  UROCE_CQ_ARM_TAKEN = 2, /* set by compare and swap; the side that succeeds, daemon or client, reports the event */
  /* The request before this one has entries, and its event is due: the daemon reports it, and takes the bit out. */
  UROCE_CQ_ARM_OWED = 4,
  UROCE_CQ_ARM_OWED_SOLICITED = 8, /* if one of those entries was solicited */
};
struct uroce_cq_client_block { /* client writes; in `arm` the daemon sets TAKEN, and clears OWED, OWED_SOLICITED */
  uint32_t consumer;           /* CQEs polled so far */
  uint32_t pad0[15];
  /* 0, or (entry index when armed << 32) | (serial number << 4) | UROCE_CQ_ARM_...: each value stands for one
   * event. The daemon delivers it for an entry at or after that index, which counts like `consumer`. */
  uint64_t arm;
  uint32_t pad1[14];
};

#ifdef __cplusplus
static_assert(sizeof(uroce_sge) == 16);
static_assert(sizeof(uroce_sq_entry) == 64);
static_assert(sizeof(uroce_rq_entry) == 16);
static_assert(sizeof(uroce_cqe) == 64);
static_assert(offsetof(uroce_cqe, phase) == 63);
static_assert(sizeof(uroce_qp_client_block) == 2 * UROCE_CACHE_LINE);
static_assert(sizeof(uroce_qp_daemon_block) == UROCE_CACHE_LINE);
static_assert(sizeof(uroce_cq_client_block) == 2 * UROCE_CACHE_LINE);
#endif
