/* Control messages between a client and the daemon: one SOCK_SEQPACKET message each way on the Unix socket
 * RUN_DIR/NAME.sock, file descriptors with SCM_RIGHTS. A request is uroce_request, then the struct of its
 * command; a response is uroce_response, then the struct of its command when status is 0. Commands of one
 * connection are answered in order. Handles are numbers that the daemon has assigned within this session. */
#pragma once

#include "abi/segment.h"

#define UROCE_MAX_MESSAGE 4096u
#define UROCE_MAX_MESSAGE_FDS 32u

enum uroce_command {
  UROCE_CMD_HELLO = 1,
  UROCE_CMD_QUERY_DEVICE,
  UROCE_CMD_QUERY_PORT,
  UROCE_CMD_QUERY_GID,
  UROCE_CMD_ALLOC_PD,
  UROCE_CMD_DEALLOC_PD,
  UROCE_CMD_REG_MR,
  UROCE_CMD_DEREG_MR,
  UROCE_CMD_CREATE_CHANNEL,
  UROCE_CMD_DESTROY_CHANNEL,
  UROCE_CMD_CREATE_CQ,
  UROCE_CMD_DESTROY_CQ,
  UROCE_CMD_CREATE_QP,
  UROCE_CMD_MODIFY_QP,
  UROCE_CMD_QUERY_QP,
  UROCE_CMD_DESTROY_QP,
  UROCE_CMD_CREATE_AH,
  UROCE_CMD_DESTROY_AH,
  UROCE_CMD_ADMIN, /* urocectl */
  UROCE_CMD_CREATE_SRQ,
  UROCE_CMD_MODIFY_SRQ,
  UROCE_CMD_QUERY_SRQ,
  UROCE_CMD_DESTROY_SRQ,
  UROCE_CMD_OPEN_XRCD,
  UROCE_CMD_CLOSE_XRCD,
  UROCE_CMD_OPEN_QP,
  UROCE_CMD_ATTACH_MCAST,
  UROCE_CMD_DETACH_MCAST,
  UROCE_CMD_ALLOC_MW,
  UROCE_CMD_DEALLOC_MW,
  UROCE_CMD_REREG_MR,
  UROCE_CMD_ALLOC_NULL_MR,
  UROCE_CMD_ALLOC_FAST_MR,
  UROCE_CMD_RESIZE_CQ,
  UROCE_CMD_MODIFY_CQ,
  UROCE_CMD_IMPORT_DEVICE,
  UROCE_CMD_IMPORT_PD,
  UROCE_CMD_IMPORT_MR,
  UROCE_CMD_RESOLVE_NEIGHBOUR,
  UROCE_CMD_ALLOC_DM,
  UROCE_CMD_FREE_DM,
  UROCE_CMD_IMPORT_DM,
  UROCE_CMD_CREATE_RSS,
  UROCE_CMD_DESTROY_RSS,
  UROCE_CMD_CREATE_FLOW,
  UROCE_CMD_DESTROY_FLOW,
  UROCE_CMD_CREATE_COUNTERS,
  UROCE_CMD_DESTROY_COUNTERS,
  UROCE_CMD_READ_COUNTERS,
  UROCE_CMD_EXPLAIN,
  UROCE_CMD_CREATE_COMP_CNTR,
  UROCE_CMD_DESTROY_COMP_CNTR,
  UROCE_CMD_ATTACH_COMP_CNTR,
  UROCE_CMD_END,
};

struct uroce_request {
  uint32_t command;
  uint32_t sequence;
};
struct uroce_response {
  uint32_t command;
  uint32_t sequence;
  int32_t status; /* 0 or a positive errno */
  uint32_t fds;   /* number of descriptors attached to the message */
};

/* Chunks that are new to the client, in the order of the descriptors attached to the response. */
struct uroce_new_chunks {
  uint32_t count;
  uint32_t first; /* number of the first; they are consecutive */
  struct {
    uint64_t bytes;
    uint32_t client_writes;
    uint32_t reserved;
  } chunk[4];
};

/* HELLO. Descriptors of the answer: chunks 0 and 1, then one eventfd per worker, then the
 * event channel: the reading end of a SOCK_SEQPACKET pair, of which each message is one uroce_async_event. */
struct uroce_hello_request {
  uint32_t version; /* UROCE_ABI_VERSION */
  uint32_t pid;     /* in the client's namespace; the daemon trusts SO_PEERCRED only */
  char program[32];
};
struct uroce_hello_response {
  uint32_t version;
  uint32_t workers;
  uint32_t session;
  uint32_t reserved;
  struct uroce_new_chunks chunks;
  struct uroce_place header;    /* uroce_session_header */
  struct uroce_place doorbells; /* uroce_doorbells[workers] */
};

/* QUERY_DEVICE: no request body. */
struct uroce_device_response {
  char name[32];
  char fw_version[32];
  uint64_t node_guid;      /* big-endian */
  uint64_t sys_image_guid; /* big-endian */
  uint64_t max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_version;
  uint32_t max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd;
  uint32_t max_cq, max_cqe, max_mr, max_pd;
  uint32_t max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, atomic_cap;
  uint32_t max_srq, max_srq_wr, max_srq_sge, max_ah, max_mw;
  uint32_t max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
  uint32_t max_pkeys, phys_port_cnt, max_inline;
  uint32_t max_xrcd;
  uint64_t device_cap_flags_ex;
  uint64_t odp_general_caps;                                    /* ibv_odp_general_caps */
  uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps, xrc_odp_caps; /* ibv_odp_transport_cap_bits */
  uint64_t completion_timestamp_mask;
  uint64_t core_clock_khz;
  uint64_t max_dm_size; /* bytes, of each ibv_alloc_dm */
  uint32_t max_raw_qp;  /* raw packet QPs and WQs */
  uint32_t max_frame;   /* bytes with the Ethernet header, without the FCS */
};

/* QUERY_PORT: no request body. */
struct uroce_port_response {
  uint32_t state;   /* ibv_port_state */
  uint32_t max_mtu; /* ibv_mtu */
  uint32_t active_mtu;
  uint32_t gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t pkey_tbl_len;
  uint32_t active_speed, active_width;
  uint32_t phys_state;
  uint32_t port_cap_flags2;
  uint32_t bad_pkeys, bad_qkeys; /* packets dropped because of a wrong P_Key or Q_Key, modulo 2^32 */
  uint32_t reserved;
};

struct uroce_gid_request {
  uint32_t index;
  uint32_t reserved;
};
struct uroce_gid_response {
  uint8_t gid[16];
  uint32_t type;         /* ibv_gid_type_sysfs: 1 is RoCE v2 */
  uint32_t ndev_ifindex; /* in the network namespace of the interface `ndev`; 0: none */
  uint8_t mac[6];
  uint16_t vlan; /* 0xffff: none */
  char ndev[16];
};

struct uroce_handle { /* ALLOC_PD answer, DEALLOC_PD, DEREG_MR, DESTROY_* requests */
  uint32_t handle;
  uint32_t reserved;
};

/* REG_MR: the files that hold the memory. The pieces cover [addr, addr + length) page by page, in order; `fd` is
 * the index of an attached descriptor. The client has allocated the pages of memfds, tmpfs and hugetlbfs
 * (madvise(2), MADV_POPULATE_READ): work requests that use a hole fail, as past the end of the file. piece_count 0:
 * indirect, accessed through /proc/PID/mem. With IBV_ACCESS_ON_DEMAND an indirect region may have holes, and addr 0
 * with length 2^64 - 1 is the whole address space (implicit). */
#define UROCE_MAX_MR_PIECES 64u
struct uroce_mr_piece {
  uint32_t fd;
  uint32_t reserved;
  uint64_t offset; /* in the file, bytes, page-aligned */
  uint64_t bytes;  /* page-aligned */
};
struct uroce_reg_mr_request {
  uint32_t pd;
  uint32_t access; /* ibv_access_flags */
  uint64_t addr;   /* first byte, client virtual address */
  uint64_t length; /* bytes */
  uint64_t iova;
  uint32_t piece_count;
  uint32_t reserved;
  struct uroce_mr_piece piece[UROCE_MAX_MR_PIECES];
};
struct uroce_reg_mr_response {
  uint32_t handle;
  uint32_t lkey, rkey;
  uint32_t reserved;
};

/* REREG_MR (ibv_rereg_mr(3)): `mask` selects the fields of `mr` that are used. The pieces are required with
 * UROCE_REREG_TRANSLATION, and also when the new access permits writing and the old did not (addr and length as
 * registered). The keys change. After an error the region is unchanged. Answer: uroce_reg_mr_response, with the
 * same handle. */
enum uroce_rereg_mask { /* ibv_rereg_mr_flags */
                        UROCE_REREG_TRANSLATION = 1,
                        UROCE_REREG_PD = 2,
                        UROCE_REREG_ACCESS = 4,
};
struct uroce_rereg_mr_request {
  uint32_t handle;
  uint32_t mask;
  struct uroce_reg_mr_request mr;
};

/* ALLOC_NULL_MR (ibv_alloc_null_mr(3)): a region of all addresses; reads return zeroes, writes are dropped.
 * Request: uroce_handle of the PD; answer: uroce_reg_mr_response. Freed by DEREG_MR. */

/* ALLOC_FAST_MR: uroce_reg_mr_request of the memory and of all access rights that a registration may grant. The key
 * is invalid until a UROCE_WR_REG_MR work request assigns it a range of that memory; LOCAL_INV or the peer's SEND
 * with invalidate make it invalid again. Answer: uroce_reg_mr_response. Freed by DEREG_MR. */

/* ALLOC_MW. DEALLOC_MW takes uroce_handle. In the UROCE_WR_BIND_MW entry mw_handle is the current R_Key and rkey
 * the new one; they differ in the lowest byte only. */
struct uroce_alloc_mw_request {
  uint32_t pd;
  uint32_t type; /* ibv_mw_type: 1 or 2 */
};
struct uroce_alloc_mw_response {
  uint32_t handle;
  uint32_t rkey;
};

/* CREATE_CHANNEL: no request body. The descriptor is the reading end of a SOCK_SEQPACKET pair; each message is one
 * event, a uint64_t: the `cookie` of its CQ. */
enum uroce_cq_flags {
  UROCE_CQ_IGNORE_OVERRUN = 1, /* an entry that does not fit is dropped, without an error */
  UROCE_CQ_TIMESTAMPS = 2,     /* uroce_cqe::timestamp is the time of the entry, not that of the duty cycle */
};
struct uroce_create_cq_request {
  uint32_t entries; /* at least */
  uint32_t channel; /* handle; 0: none */
  uint64_t cookie;
  uint32_t flags; /* uroce_cq_flags */
  uint32_t reserved;
};
struct uroce_create_cq_response {
  uint32_t handle;
  uint32_t entries; /* a power of two */
  struct uroce_new_chunks chunks;
  struct uroce_place ring;   /* uroce_cqe[entries], daemon writes */
  struct uroce_place client; /* uroce_cq_client_block */
};

/* RESIZE_CQ: entries that were not polled yet move to the new ring and keep their indices modulo 2^32. From the
 * request until it uses the new ring, the client does not poll (it holds the CQ's lock). EINVAL: the entries that
 * were not polled yet do not fit. */
struct uroce_resize_cq_request {
  uint32_t handle;
  uint32_t entries; /* at least */
};
struct uroce_resize_cq_response {
  uint32_t entries; /* a power of two */
  uint32_t reserved;
  struct uroce_new_chunks chunks;
  struct uroce_place ring;
};

/* MODIFY_CQ: an event is delayed until there are `count` entries or `period_us` have passed since the first,
 * whichever comes first. 0 and 0: no moderation; a count without a period uses the longest period. */
struct uroce_modify_cq_request {
  uint32_t handle;
  uint32_t count;     /* at most 65535 */
  uint32_t period_us; /* at most 65535 */
  uint32_t reserved;
};

/* CREATE_SRQ. The client posts under a lock of its own: it writes an entry to the ring, then the producer index.
 * `srqn` is the number in a peer's XRC packets and in CQEs. */
struct uroce_create_srq_request {
  uint32_t pd;
  uint32_t type; /* ibv_srq_type: 0 basic, 1 XRC */
  uint32_t max_wr, max_sge;
  uint32_t limit; /* 0: no limit event */
  uint32_t xrcd;  /* handle; XRC only, else 0 */
  uint32_t cq;    /* handle; XRC only, else 0 */
  uint32_t reserved;
  uint64_t cookie; /* returned in asynchronous events */
};
struct uroce_create_srq_response {
  uint32_t handle;
  uint32_t srqn;
  uint32_t max_wr, max_sge; /* as granted */
  uint32_t entries, stride;
  struct uroce_new_chunks chunks;
  struct uroce_place client; /* uroce_producer_line */
  struct uroce_place daemon; /* uroce_srq_daemon_block */
  struct uroce_place ring;   /* uroce_rq_entry, `stride` bytes apart */
};

/* MODIFY_SRQ. With UROCE_SRQ_MAX_WR the daemon moves the posted entries to a new ring under their indices; the
 * client does not post until then (it holds the SRQ's lock). */
enum uroce_srq_mask { /* ibv_srq_attr_mask */
                      UROCE_SRQ_MAX_WR = 1,
                      UROCE_SRQ_LIMIT = 2,
};
struct uroce_modify_srq_request {
  uint32_t handle;
  uint32_t mask;
  uint32_t max_wr;
  uint32_t limit;
};
struct uroce_modify_srq_response {
  uint32_t max_wr;  /* as granted */
  uint32_t entries; /* of the new ring; 0: the ring is the same */
  struct uroce_new_chunks chunks;
  struct uroce_place ring;
};
/* QUERY_SRQ: uroce_handle. */
struct uroce_query_srq_response {
  uint32_t max_wr, max_sge;
  uint32_t limit; /* 0 once the event was raised */
  uint32_t reserved;
};

/* OPEN_XRCD (ibv_open_xrcd(3)): with a descriptor attached, the domain of that file, shared by all sessions that
 * open it; without, a private domain. Answer: uroce_handle. EAGAIN: the domain does not exist and O_CREAT is not
 * set; EINVAL: it exists and O_EXCL is set. CLOSE_XRCD: uroce_handle; EBUSY while this session has QPs or SRQs in
 * it. */
struct uroce_open_xrcd_request {
  uint32_t oflags; /* O_CREAT, O_EXCL */
  uint32_t reserved;
};

/* CREATE_QP. Fields that a type does not use are 0: a UD, UC, RC or raw packet QP has no xrcd; an XRC initiator
 * (IBV_QPT_XRC_SEND) has no recv_cq, srq, xrcd, max_recv_*; an XRC target (IBV_QPT_XRC_RECV) has only an xrcd; a
 * work queue (ibv_wq, for receives) has no send_cq, srq, xrcd, max_send_*, max_inline. EPERM: raw packet QPs, flows
 * and RSS require CAP_NET_RAW. A work queue's state is RESET, RTR (ready) or ERR. */
enum uroce_qp_flags {
  UROCE_QP_SIGNAL_ALL = 1,
  UROCE_QP_BLOCK_OWN_MULTICAST = 2, /* UD, raw packets: what it sends to a group is not looped back to it */
  UROCE_QP_STRIP_VLAN = 4,          /* raw packets, WQ: a received tag moves to uroce_cqe::vlan_id, all 16 bits */
};
struct uroce_create_qp_request {
  uint32_t type; /* ibv_qp_type, or UROCE_QPT_WQ */
  uint32_t pd, send_cq, recv_cq;
  uint32_t srq; /* handle; 0: none */
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  uint32_t flags; /* uroce_qp_flags */
  uint32_t xrcd;
  uint32_t max_tso_header; /* bytes, raw packets only: at most UROCE_MAX_TSO_HEADER; 0: no UROCE_WR_TSO */
  uint32_t reserved;
  uint64_t cookie; /* returned in asynchronous events */
};
/* A queue that the QP does not have (the receive queue of a QP with an SRQ, both queues of an XRC target) has 0
 * entries, and its place is undefined, as are `client` and `daemon` of an XRC target. */
struct uroce_create_qp_response {
  uint32_t handle;
  uint32_t qpn;
  uint32_t worker;
  uint32_t doorbell_bit;
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline; /* as granted */
  uint32_t sq_entries, sq_stride, rq_entries, rq_stride;
  uint32_t reserved;
  struct uroce_new_chunks chunks;
  struct uroce_place client; /* uroce_qp_client_block */
  struct uroce_place daemon; /* uroce_qp_daemon_block */
  struct uroce_place sq, rq; /* rings */
};

/* OPEN_QP (ibv_open_qp(3)): opens an XRC target of this domain, which another session of the same tenant may have
 * created; EINVAL for a target of another tenant. It exists until all its users have destroyed it or ended. Answer:
 * uroce_create_qp_response. */
struct uroce_open_qp_request {
  uint32_t xrcd;
  uint32_t qpn;
  uint64_t cookie;
};

/* ATTACH_MCAST, DETACH_MCAST: a UD QP and a group (IPv4 as ::ffff:a.b.c.d). No answer body. */
struct uroce_mcast_request {
  uint32_t qp;
  uint32_t lid; /* ignored: RoCE has none */
  uint8_t gid[16];
};

/* An address vector, as ibv_ah_attr. */
struct uroce_av {
  uint8_t dgid[16];
  uint32_t flow_label; /* the low 20 bits count */
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t is_global;
  uint16_t dlid;
  uint8_t sl;
  uint8_t port_num;
  uint8_t static_rate;   /* only returned by a query; rate_limit paces the QP */
  uint8_t src_path_bits; /* only returned by a query: RoCE has no LIDs */
  uint16_t reserved;
};
#define UROCE_MAX_RATE_KBPS 400000000u
struct uroce_qp_attr {
  uint32_t state, cur_state; /* ibv_qp_state */
  uint32_t path_mtu;         /* ibv_mtu */
  uint32_t qkey, rq_psn, sq_psn, dest_qpn, access_flags;
  uint32_t sqd_notify, pkey_index, port, timeout, retry_cnt, rnr_retry, min_rnr_timer;
  uint32_t max_rd_atomic, max_dest_rd_atomic, path_mig_state;
  uint32_t rate_limit; /* kbit/s of all packets sent, with headers: 0 (no limit) or up to UROCE_MAX_RATE_KBPS */
  uint32_t rate_burst; /* bytes that may leave back to back; 0: 1 ms of the rate */
  struct uroce_av av;
};
struct uroce_modify_qp_request {
  uint32_t handle;
  uint32_t mask; /* ibv_qp_attr_mask */
  struct uroce_qp_attr attr;
};
struct uroce_query_qp_response {
  struct uroce_qp_attr attr;
  uint32_t sq_draining;
  uint32_t reserved;
};

/* CREATE_AH. uroce_sq_entry::ah takes the handle in the answer. */
struct uroce_create_ah_request {
  uint32_t pd;
  uint32_t reserved;
  struct uroce_av av;
};

/* RESOLVE_NEIGHBOUR: the link-layer address of the next hop to a destination: the neighbour itself, or the gateway.
 * Like CREATE_AH, it waits for ARP or neighbour discovery. */
struct uroce_resolve_request {
  struct uroce_av av;
};
struct uroce_resolve_response {
  uint8_t mac[6];
  uint16_t vlan; /* 0xffff: none */
};

/* IMPORT_DEVICE (ibv_import_device(3)): the attached descriptor is the memfd of another session's chunk 0. After
 * that, this session may import the other session's PDs, MRs and device memory. No bodies. An imported object
 * exists until the session that created it ends; the importing session has its own socket, queues and events.
 * ENOENT: the descriptor does not belong to a session of this daemon. */

/* IMPORT_PD: uroce_handle of the other session's PD; answer: uroce_handle of this session, freed by DEALLOC_PD. */

/* IMPORT_MR: an MR of the other session in the imported PD. It is not freed. */
struct uroce_import_mr_request {
  uint32_t pd; /* of this session, imported */
  uint32_t mr; /* of the other session */
};
struct uroce_import_mr_response {
  uint32_t lkey, rkey;
  uint64_t addr; /* as registered */
  uint64_t length;
};

/* ALLOC_DM: device memory is a memfd that the client has created and sealed against shrinking. The daemon keeps the
 * attached descriptor for sessions that import the memory. Answer: uroce_handle. FREE_DM: uroce_handle. IMPORT_DM:
 * uroce_handle of the other session; the descriptor is attached to the answer, and the import is not freed. */
struct uroce_alloc_dm_request {
  uint64_t length; /* bytes, page-aligned or not */
};
struct uroce_import_dm_response {
  uint64_t length; /* as allocated */
};

/* CREATE_RSS: spreads the frames of flows over WQs (UROCE_QPT_WQ) by a Toeplitz hash: entry `hash & (count - 1)` of
 * the table, where the hash of a frame with none of the fields is 0. Answer: uroce_create_rss_response.
 * DESTROY_RSS: uroce_handle; EBUSY while a flow uses it, as for QPs. */
#define UROCE_MAX_RSS_ENTRIES 128u
#define UROCE_RSS_KEY_BYTES 40u
enum uroce_rss_field { /* ibv_rx_hash_fields */
                       UROCE_RSS_SRC_IPV4 = 1,
                       UROCE_RSS_DST_IPV4 = 2,
                       UROCE_RSS_SRC_IPV6 = 4,
                       UROCE_RSS_DST_IPV6 = 8,
                       UROCE_RSS_SRC_PORT_TCP = 16,
                       UROCE_RSS_DST_PORT_TCP = 32,
                       UROCE_RSS_SRC_PORT_UDP = 64,
                       UROCE_RSS_DST_PORT_UDP = 128,
};
struct uroce_create_rss_request {
  uint32_t count;  /* a power of two */
  uint32_t fields; /* uroce_rss_field */
  uint8_t key[UROCE_RSS_KEY_BYTES];
  uint32_t wq[UROCE_MAX_RSS_ENTRIES]; /* handles, which may repeat */
};
struct uroce_create_rss_response {
  uint32_t handle;
  uint32_t qpn;
};

/* The fields of a frame that flows match, in network byte order. Fields that a frame lacks are 0. */
enum uroce_frame_layer {
  UROCE_LAYER_VLAN = 1,
  UROCE_LAYER_IPV4 = 2,
  UROCE_LAYER_IPV6 = 4,
  UROCE_LAYER_TCP = 8,
  UROCE_LAYER_UDP = 16,
};
struct uroce_frame_key {
  uint8_t dst_mac[6], src_mac[6];
  uint16_t ether_type;             /* after the VLAN tags, if there are any */
  uint16_t vlan_tag;               /* priority, DEI, VLAN */
  uint8_t dst_ip[16], src_ip[16];  /* IPv4 in the first 4 */
  uint16_t dst_port, src_port;     /* TCP, UDP; 0 in later fragments */
  uint8_t protocol, traffic_class; /* IPv6: of the last header; TOS */
  uint8_t hop_limit, fragment;     /* TTL; IPv4: bits reserved, DF, MF in bits 0, 1, 2 */
  uint32_t flow_label;             /* IPv6, 20 bits */
  uint8_t layers;                  /* uroce_frame_layer */
  uint8_t reserved[3];
};

/* CREATE_FLOW (ibv_create_flow(3)): frames with `frame & mask == value & mask` go to a raw packet QP or RSS, except
 * RoCE packets for this port, which the transport receives. Flows are compared by priority, the lowest number
 * first, then by age, the oldest first. The first match keeps the frame; flows of its priority with the same value
 * and mask get a copy. The port's own ARP, neighbour discovery, ICMP and group protocols also receive their frames.
 * Answer: uroce_handle. DESTROY_FLOW: uroce_handle. */
enum uroce_flow_type { /* ibv_flow_attr_type */
                       UROCE_FLOW_NORMAL = 0,
                       UROCE_FLOW_ALL_DEFAULT = 1, /* frames that no NORMAL flow keeps; value and mask are 0 */
                       UROCE_FLOW_MC_DEFAULT =
                           2,                  /* multicast frames that no NORMAL flow keeps, before ALL_DEFAULT */
                       UROCE_FLOW_SNIFFER = 3, /* a copy of all frames received and sent, RoCE included */
};
enum uroce_flow_flags {
  UROCE_FLOW_DONT_TRAP = 1, /* takes a copy: later flows see the frame, too */
  UROCE_FLOW_DROP = 2,      /* frames that it keeps are dropped */
  UROCE_FLOW_TAG = 4,       /* `tag` is stored in uroce_cqe::flow_tag */
  UROCE_FLOW_TO_RSS = 8,    /* `qp` is a handle of CREATE_RSS */
};
#define UROCE_MAX_FLOW_PRIORITY 65535u
struct uroce_create_flow_request {
  uint32_t qp;       /* handle */
  uint32_t type;     /* uroce_flow_type */
  uint32_t flags;    /* uroce_flow_flags */
  uint32_t priority; /* 0 to UROCE_MAX_FLOW_PRIORITY */
  uint32_t tag;
  uint32_t counters; /* handle; 0: none */
  struct uroce_frame_key value, mask;
};

/* CREATE_COUNTERS: no request body; answer: uroce_handle. They count the frames that their flows kept, copied or
 * dropped. READ_COUNTERS, DESTROY_COUNTERS: uroce_handle; EBUSY while a flow uses them. */
struct uroce_read_counters_response {
  uint64_t packets, bytes; /* bytes of whole frames, without the FCS */
};

/* ADMIN (lib/admin/query.h): the request body is a JSON object {"command": "show", ...} as text; the answer's
 * descriptor is a memfd with the JSON answer of `bytes` bytes. */
struct uroce_admin_response {
  uint64_t bytes;
};

/* EXPLAIN: why the daemon refused the latest request of this connection that it refused. No request body; allowed
 * before HELLO. An older daemon answers EOPNOTSUPP. */
#define UROCE_MAX_REASON 240u
struct uroce_explain_response {
  uint32_t command;  /* of the refused request; 0: none was refused */
  uint32_t sequence; /* of the refused request */
  int32_t status;    /* errno */
  uint32_t reserved;
  char text[UROCE_MAX_REASON]; /* ends with a NUL character */
};

/* A record of the event channel. */
struct uroce_async_event {
  uint32_t type;   /* ibv_event_type */
  uint32_t object; /* port number for port events */
  uint64_t cookie;
};

#ifdef __cplusplus
static_assert(sizeof(uroce_request) + sizeof(uroce_rereg_mr_request) <= UROCE_MAX_MESSAGE);
static_assert(sizeof(uroce_mcast_request) == 24);
static_assert(sizeof(uroce_frame_key) == 64);
static_assert(sizeof(uroce_create_srq_request) == 40);
static_assert(sizeof(uroce_async_event) == 16);
#endif
