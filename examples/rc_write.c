/* rc_write: one process writes a line of text into the memory of another by RDMA WRITE over a reliable connection
 * (RC).
 *
 *   rc_write [-p PORT] [-g GID_INDEX]                 the server: registers memory, waits, prints what it finds
 * there rc_write [-p PORT] [-g GID_INDEX] HOST [TEXT]     the client: writes TEXT into the server's memory
 *
 * HOST is the server's address for a TCP connection, over which the two ends exchange the numbers of their queue
 * pairs and the place of the memory, as ibv_rc_pingpong(1) does. The first device of ibv_get_device_list(3) is
 * used. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4096, PORT_NUMBER = 1 };

/* What one end must know of the other. */
struct endpoint {
  unsigned int qpn, psn, rkey;
  uint64_t address;
  union ibv_gid gid;
};

static void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "rc_write: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* Connects to `host`, or accepts one connection if it is NULL. */
static int open_tcp(const char* host, const char* port) {
  const struct addrinfo hints = {
      .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host != NULL ? 0 : AI_PASSIVE};
  struct addrinfo* found;
  int s, reuse = 1, connection;
  check(getaddrinfo(host, port, &hints, &found) == 0, "getaddrinfo");
  s = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  check(s >= 0, "socket");
  if (host != NULL) {
    check(connect(s, found->ai_addr, found->ai_addrlen) == 0, "connect");
    connection = s;
  } else {
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    check(bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, 1) == 0, "listen");
    connection = accept(s, NULL, NULL);
    check(connection >= 0, "accept");
    close(s);
  }
  freeaddrinfo(found);
  return connection;
}

static void send_endpoint(int tcp, const struct endpoint* e) {
  char gid[INET6_ADDRSTRLEN]; /* a GID is written as an IPv6 address */
  inet_ntop(AF_INET6, &e->gid, gid, sizeof(gid));
  check(dprintf(tcp, "%x %x %x %" PRIx64 " %s\n", e->qpn, e->psn, e->rkey, e->address, gid) > 0, "send");
}

static struct endpoint receive_endpoint(FILE* from) {
  struct endpoint e;
  char gid[INET6_ADDRSTRLEN];
  const int fields = fscanf(from, "%x %x %x %" SCNx64 " %45s", &e.qpn, &e.psn, &e.rkey, &e.address, gid);
  check(fields == 5 && inet_pton(AF_INET6, gid, &e.gid) == 1, "the peer's endpoint");
  return e;
}

/* RESET to RTS, ibv_modify_qp(3). Each timeout is 4.096 us * 2^timeout: 67 ms. */
static void connect_qp(struct ibv_qp* qp, const struct endpoint* local, const struct endpoint* remote,
                       int gid_index) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = PORT_NUMBER, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = remote->qpn,
                            .rq_psn = remote->psn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = local->psn,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = 1};
  rtr.ah_attr.is_global = 1; /* RoCE addresses by GID, and never by LID alone */
  rtr.ah_attr.port_num = PORT_NUMBER;
  rtr.ah_attr.grh.dgid = remote->gid;
  rtr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
  rtr.ah_attr.grh.hop_limit = 64;
  errno = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  check(errno == 0, "INIT");
  errno = ibv_modify_qp(qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  check(errno == 0, "RTR");
  errno = ibv_modify_qp(qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  check(errno == 0, "RTS");
}

/* Writes `bytes` of the region's memory to the beginning of the peer's, and waits until the peer has acknowledged
 * it. */
static void write_remote(struct ibv_qp* qp, struct ibv_cq* cq, const struct ibv_mr* mr, uint32_t bytes,
                         const struct endpoint* remote) {
  struct ibv_sge list = {.addr = (uintptr_t)mr->addr, .length = bytes, .lkey = mr->lkey};
  struct ibv_send_wr wr = {
      .wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  struct ibv_wc completion;
  int polled;
  wr.wr.rdma.remote_addr = remote->address;
  wr.wr.rdma.rkey = remote->rkey;
  errno = ibv_post_send(qp, &wr, &bad);
  check(errno == 0, "ibv_post_send");
  while ((polled = ibv_poll_cq(cq, 1, &completion)) == 0) continue;
  check(polled == 1, "ibv_poll_cq");
  if (completion.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "rc_write: RDMA WRITE: %s\n", ibv_wc_status_str(completion.status));
    exit(1);
  }
}

static void run(struct ibv_context* device, const char* host, const char* port, const char* text, int gid_index) {
  static char buffer[BUFFER_BYTES];
  struct ibv_pd* pd = ibv_alloc_pd(device);
  struct ibv_cq* cq = ibv_create_cq(device, 16, NULL, NULL, 0);
  struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_qp_init_attr attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = pd != NULL && cq != NULL && mr != NULL ? ibv_create_qp(pd, &attr) : NULL;
  struct endpoint local = {0}, remote;
  check(qp != NULL, "PD, CQ, MR and QP");
  local.qpn = qp->qp_num;
  local.psn = (uint32_t)getpid() & 0xffffff;
  local.rkey = mr->rkey;
  local.address = (uintptr_t)buffer;
  check(ibv_query_gid(device, PORT_NUMBER, gid_index, &local.gid) == 0, "ibv_query_gid");

  const int tcp = open_tcp(host, port);
  FILE* from = fdopen(tcp, "r");
  if (host != NULL) { /* the server answers once its QP can receive */
    send_endpoint(tcp, &local);
    remote = receive_endpoint(from);
    connect_qp(qp, &local, &remote, gid_index);
    snprintf(buffer, sizeof(buffer), "%s", text);
    write_remote(qp, cq, mr, (uint32_t)strlen(buffer) + 1, &remote);
    check(dprintf(tcp, "written\n") > 0, "send");
    printf("wrote %zu bytes to QP 0x%06x\n", strlen(buffer) + 1, remote.qpn);
  } else {
    char word[8];
    remote = receive_endpoint(from);
    connect_qp(qp, &local, &remote, gid_index);
    send_endpoint(tcp, &local);
    check(fscanf(from, "%7s", word) == 1, "the client ended early"); /* "written": the server's CPU sees no WRITE */
    printf("QP 0x%06x wrote: %s\n", remote.qpn, buffer);
  }
  fclose(from);
  check(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0,
        "cleanup");
}

int main(int argc, char* argv[]) {
  const char* port = "18515";
  int gid_index = 0;
  for (int option; (option = getopt(argc, argv, "p:g:")) != -1;) {
    if (option == 'p') port = optarg;
    if (option == 'g') gid_index = atoi(optarg);
    if (option == '?') return 2;
  }
  int devices;
  struct ibv_device** list = ibv_get_device_list(&devices);
  check(list != NULL && devices > 0, "no RDMA device");
  struct ibv_context* device = ibv_open_device(list[0]);
  check(device != NULL, "ibv_open_device");
  ibv_free_device_list(list);
  run(device, argv[optind], port, optind + 1 < argc ? argv[optind + 1] : "hello over RDMA", gid_index);
  return ibv_close_device(device);
}
