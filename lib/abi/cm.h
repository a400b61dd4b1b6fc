/* Control messages of connection management (drivers/rdmacm), on the same socket as abi/control.h. A CM id in the
 * daemon is one rdma_cm_id on one device; a session never gets the same handle twice. Its events are reported in
 * order, as uroce_cm_event records on the socket of its channel. */
#pragma once

#include "abi/control.h"

#define UROCE_CMD_CM_FIRST 64u
#define UROCE_CM_MAX_PRIVATE_DATA 224u

enum uroce_cm_command {
  UROCE_CMD_CM_OPEN_CHANNEL = UROCE_CMD_CM_FIRST,
  UROCE_CMD_CM_CLOSE_CHANNEL, /* uroce_handle */
  UROCE_CMD_CM_CREATE_ID,
  UROCE_CMD_CM_DESTROY_ID, /* uroce_handle */
  UROCE_CMD_CM_RESOLVE_ADDRESS,
  UROCE_CMD_CM_RESOLVE_ROUTE, /* uroce_handle */
  UROCE_CMD_CM_LISTEN,
  UROCE_CMD_CM_CONNECT,
  UROCE_CMD_CM_ACCEPT,
  UROCE_CMD_CM_REJECT,
  UROCE_CMD_CM_ESTABLISH,  /* uroce_handle: send the RTU, or the first packet arrived before the peer's RTU */
  UROCE_CMD_CM_DISCONNECT, /* uroce_handle */
  UROCE_CMD_CM_MIGRATE,
  UROCE_CMD_CM_JOIN,
  UROCE_CMD_CM_POST,
  UROCE_CMD_CM_END,
};

/* IP address and port of the client's sockaddr. family 0: none. */
struct uroce_cm_address {
  uint8_t gid[16]; /* IPv4 as ::ffff:a.b.c.d; all zero, or ::ffff:0.0.0.0: any */
  uint16_t family; /* AF_INET or AF_INET6 */
  uint16_t port;   /* host order */
  uint32_t scope;
};

/* OPEN_CHANNEL. Answer: uroce_handle, with one descriptor: the reading end of a SOCK_SEQPACKET pair, of which each
 * message is one uroce_cm_event. */
struct uroce_cm_channel_request {
  uint32_t device; /* returned in every event */
  uint32_t reserved;
};

enum uroce_cm_id_flags {
  UROCE_CM_REUSE_ADDRESS = 1,
  UROCE_CM_ONLY_FAMILY = 2, /* an IPv6 wildcard that does not include IPv4 */
};
/* CREATE_ID creates an id and binds it. EADDRINUSE; ENODEV: the port has no such address; EADDRNOTAVAIL: all port
 * numbers are in use, or this one is, by an id at another address, and one of the two is bound to any; EACCES: the
 * port is below net.ipv4.ip_unprivileged_port_start, which needs CAP_NET_BIND_SERVICE. */
struct uroce_cm_create_id_request {
  uint32_t channel;
  uint32_t port_space; /* rdma_port_space */
  uint32_t flags;
  uint32_t qp_type;               /* ibv_qp_type */
  struct uroce_cm_address source; /* port 0: any */
};
/* The address that an id is bound to. Also the answer to RESOLVE_ADDRESS and LISTEN. */
struct uroce_cm_bound_response {
  uint32_t handle;
  uint32_t sgid_index; /* ~0: any address */
  struct uroce_cm_address source;
  uint8_t gid[16];
};

/* RESOLVE_ADDRESS: ENETUNREACH without a route to the destination; otherwise an ADDR_RESOLVED or ADDR_ERROR event
 * follows. */
struct uroce_cm_resolve_request {
  uint32_t handle;
  uint32_t timeout_ms;
  struct uroce_cm_address source; /* family 0: the bound address, or the one that the route selects */
  struct uroce_cm_address destination;
};

struct uroce_cm_listen_request {
  uint32_t handle;
  uint32_t backlog;
};

/* CONNECT and ACCEPT. */
struct uroce_cm_parameters {
  uint32_t qpn;                     /* of a connection: a QP of this session's tenant, or EINVAL */
  uint32_t qkey;                    /* datagram ids */
  uint32_t ece_vendor, ece_options; /* 24 bits and 32; 0: none */
  uint8_t responder_resources, initiator_depth;
  uint8_t flow_control, retry_count, rnr_retry_count;
  uint8_t srq;
  uint8_t traffic_class;
  uint8_t ack_timeout; /* 4.096 us * 2^n; 0: the daemon's choice */
  uint8_t qp_type;     /* ibv_qp_type */
  uint8_t private_data_bytes;
  uint8_t reserved[6];
  uint8_t private_data[UROCE_CM_MAX_PRIVATE_DATA];
};
struct uroce_cm_connect_request {
  uint32_t handle;
  uint32_t reserved;
  struct uroce_cm_parameters parameters;
};

struct uroce_cm_reject_request {
  uint32_t handle;
  uint16_t reason; /* 0: consumer defined */
  uint8_t private_data_bytes;
  uint8_t reserved;
  uint8_t private_data[UROCE_CM_MAX_PRIVATE_DATA];
};

struct uroce_cm_migrate_request {
  uint32_t handle;
  uint32_t channel;
};

/* JOIN: a MULTICAST_JOIN event with `context` follows. ATTACH_MCAST attaches the QP. */
struct uroce_cm_join_request {
  uint32_t handle;
  uint8_t traffic_class; /* of packets to the group */
  uint8_t reserved[3];
  uint64_t context;
  struct uroce_cm_address group;
};

/* Attributes of the path and the peer that the QP of an id needs (rdma_init_qp_attr). */
struct uroce_cm_path {
  uint8_t gid[16]; /* of the peer */
  uint32_t sgid_index;
  uint32_t local_psn, remote_psn; /* the first PSN that we expect, and that the peer expects */
  uint32_t remote_qpn;
  uint8_t path_mtu; /* ibv_mtu */
  uint8_t ack_timeout, retry_count, rnr_retry_count;
  uint8_t responder_resources, initiator_depth; /* ours */
  uint8_t hop_limit, traffic_class;
  uint32_t flow_label;
  uint32_t qkey;
};

/* One message on a channel's socket. */
struct uroce_cm_event {
  uint32_t type;     /* rdma_cm_event_type */
  int32_t status;    /* 0, a negative errno, or the reason of a REJ */
  uint32_t device;   /* of the channel */
  uint32_t handle;   /* of the id; for CONNECT_REQUEST the new id */
  uint32_t listener; /* handle; CONNECT_REQUEST */
  uint32_t qp_type;
  uint64_t context;                            /* MULTICAST_* */
  struct uroce_cm_address source, destination; /* CONNECT_REQUEST */
  struct uroce_cm_path path;
  struct uroce_cm_parameters parameters; /* the peer's */
};

/* POST: writes a record to a channel of this session; used for an event that was read from another channel. */
struct uroce_cm_post_request {
  uint32_t channel;
  uint32_t reserved;
  struct uroce_cm_event event;
};

#ifdef __cplusplus
static_assert(sizeof(uroce_cm_event) % 8 == 0 && sizeof(uroce_cm_event) <= 512);
static_assert(sizeof(uroce_cm_create_id_request) % 8 == 0 && sizeof(uroce_cm_bound_response) % 8 == 0);
static_assert(sizeof(uroce_cm_connect_request) % 8 == 0 && sizeof(uroce_cm_reject_request) % 8 == 0);
#endif
