/* Completion counters (ibv_create_comp_cntr(3), rdma-core 65): the commands of control.h, and the memory. */
#pragma once

#include "abi/control.h"

/* A counter. Both sides write: workers add to it, the client adds and sets. */
struct uroce_comp_cntr {
  uint64_t done;   /* work requests or bytes, as the counter's type says */
  uint64_t failed; /* work requests */
};

/* CREATE_COMP_CNTR (ibv_create_comp_cntr(3)): zero at first. DESTROY_COMP_CNTR: uroce_handle; EBUSY while a QP has
 * the counter. */
enum uroce_comp_cntr_type { /* ibv_comp_cntr_type */
                            UROCE_COMP_CNTR_WRS = 0,
                            UROCE_COMP_CNTR_BYTES = 1,
};
struct uroce_create_comp_cntr_request {
  uint32_t type; /* uroce_comp_cntr_type */
  uint32_t reserved;
};
struct uroce_create_comp_cntr_response {
  uint32_t handle;
  uint32_t reserved;
  struct uroce_place place; /* uroce_comp_cntr, writable for the client */
  struct uroce_new_chunks chunks;
};

/* ATTACH_COMP_CNTR: a QP in RESET or INIT, not an XRC target, has the counter for these operations until it is
 * destroyed. EBUSY: it has a counter for one of them. EOPNOTSUPP for the READs of the peer unless the type is
 * BYTES: one READ may come as several requests, as uroce's requester sends them. */
enum uroce_counted_operation { /* ibv_qp_attach_comp_cntr_op, as a set */
                               UROCE_COUNTED_SEND = 1,
                               UROCE_COUNTED_RECV = 2,
                               UROCE_COUNTED_READ = 4,
                               UROCE_COUNTED_REMOTE_READ = 8,
                               UROCE_COUNTED_WRITE = 16,
                               UROCE_COUNTED_REMOTE_WRITE = 32,
};
#define UROCE_COUNTED_OPERATIONS 6u
#define UROCE_ALL_COUNTED 63u
struct uroce_attach_comp_cntr_request {
  uint32_t qp;         /* handle */
  uint32_t counter;    /* handle */
  uint32_t operations; /* uroce_counted_operation */
  uint32_t reserved;
};
