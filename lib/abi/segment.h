/* The memory that one session (one opened device context of one client) shares with the daemon.
 *
 *   chunk 0 (client writes)                    chunk 1 (daemon writes, client maps it read-only)
 *   +--------------------------------+         +--------------------------------+
 *   | uroce_doorbells per worker     |         | uroce_session_header           |
 *   | QP client blocks, SQ, RQ rings |         | uroce_worker_line per worker   |
 *   | CQ client blocks, counters     |         | QP daemon blocks, CQ rings     |
 *   +--------------------------------+         +--------------------------------+
 *   chunks 2, 3, ...: more of either kind, passed with the object that first needs them.
 *
 * Each chunk is a memfd that the daemon creates (in hugepages if it can) and seals against shrinking; those that
 * the daemon writes also have F_SEAL_FUTURE_WRITE, so that a client cannot map them writable. No pointers are
 * exchanged: a place is a chunk number and an offset. */
#pragma once

#include "abi/queue_entries.h"

#define UROCE_ABI_VERSION 3u
#define UROCE_ABI_MAGIC 0x65636f7275ull /* "uroce" */

#define UROCE_MAX_WORKERS 16u
#define UROCE_DOORBELL_GROUPS 4u /* summary words per worker */
#define UROCE_MAX_SESSION_QPS (UROCE_DOORBELL_GROUPS * 64u * 64u)

/* A place in shared memory. */
struct uroce_place {
  uint32_t chunk;
  uint32_t reserved;
  uint64_t offset; /* bytes */
};

/* Doorbells of one session at one worker: one bit per QP, and a summary bit for each non-zero leaf word.
 * The client sets the leaf bit, then the summary bit (both fetch_or); the worker exchanges the summary word
 * with zero, then each leaf word that it names. */
struct uroce_doorbells {
  uint64_t summary[UROCE_DOORBELL_GROUPS];
  uint32_t polls; /* by the client: + 2 for each empty poll that yielded; odd while the last poll was empty */
  uint32_t pad0;
  /* By the client, while UROCE_STAMP_DOORBELLS is set: CLOCK_MONOTONIC after the last doorbell, and before the last
   * write to the worker's eventfd. */
  uint64_t rung_ns, woken_ns;
  uint64_t pad[5 - UROCE_DOORBELL_GROUPS];
  uint64_t leaf[UROCE_DOORBELL_GROUPS * 64];
};

/* In uroce_worker_line::sleeping: the worker measures latencies, and wants to know when doorbells were rung. */
#define UROCE_STAMP_DOORBELLS (1u << 31)

/* What a worker publishes to the clients of one session. */
struct uroce_worker_line {
  /* The lower bits are non-zero while the worker sleeps, with a new value each time: after ringing, the client
   * writes the worker's eventfd once for each value. */
  uint32_t sleeping;
  uint32_t pad[15];
};

struct uroce_session_header {
  uint32_t version; /* UROCE_ABI_VERSION; published last, with release */
  uint32_t workers;
  uint64_t magic;
  uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the conductor's last round */
  uint32_t yield;        /* non-zero: fewer cores than pollers, yield on an empty poll */
  uint32_t dead;         /* non-zero: the device is gone for good */
  uint32_t packet_bytes; /* payload of the largest packet, and of a datagram; follows the port's MTU */
  uint32_t pad0[7];
  struct uroce_worker_line worker[UROCE_MAX_WORKERS];
};

#ifdef __cplusplus
static_assert(sizeof(uroce_doorbells) == 64 + UROCE_DOORBELL_GROUPS * 512);
static_assert(sizeof(uroce_worker_line) == UROCE_CACHE_LINE);
static_assert(sizeof(uroce_session_header) == 64 + UROCE_MAX_WORKERS * UROCE_CACHE_LINE);
#endif
