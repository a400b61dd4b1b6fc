// rpma_exchange server ADDRESS PORT FILE
// rpma_exchange client ADDRESS PORT
// Reads, writes, atomic writes, flushes and messages of librpma over one connection. The server's memory is the
// file, mapped as persistent memory is; the client compares all data, and the server the file.
#include <arpa/inet.h>
#include <fcntl.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (1 << 20)
#define IMMEDIATE 0x12345678
#define MESSAGE "flushed"
#define TRY(call)                                                               \
  do {                                                                          \
    const int error_ = (call);                                                  \
    if (error_ != 0) {                                                          \
      fprintf(stderr, "rpma_exchange: %s: %s\n", #call, rpma_err_2str(error_)); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)
#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "rpma_exchange: not so: %s\n", #condition); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

// What the server hands to a client: its memory, and that writes to it need no cache flush.
struct hello {
  unsigned char memory[64], peer[16];
  size_t memory_size, peer_size;
};

static struct rpma_peer* peer;

static void open_device(const char* address, enum rpma_util_ibv_context_type type) {
  struct ibv_context* context;
  int on_demand;
  TRY(rpma_utils_get_ibv_context(address, type, &context));
  TRY(rpma_utils_ibv_context_is_odp_capable(context, &on_demand));
  TRY(rpma_peer_new(context, &peer));
  printf("device %s, on-demand paging: %d\n", ibv_get_device_name(context->device), on_demand);
}

static void expect_event(struct rpma_conn* connection, enum rpma_conn_event expected) {
  enum rpma_conn_event event;
  TRY(rpma_conn_next_event(connection, &event));
  if (event == expected) return;
  fprintf(stderr, "rpma_exchange: %s, expected %s\n", rpma_utils_conn_event_2str(event),
          rpma_utils_conn_event_2str(expected));
  exit(1);
}

// Of the CQ for sends, or (receives) of the other one.
static struct ibv_wc completion(struct rpma_conn* connection, int receives) {
  struct rpma_cq* cq;
  struct ibv_wc wc;
  TRY(receives ? rpma_conn_get_rcq(connection, &cq) : rpma_conn_get_cq(connection, &cq));
  int error;
  while ((error = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) TRY(rpma_cq_wait(cq));
  TRY(error);
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "rpma_exchange: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
  return wc;
}

static struct rpma_conn_cfg* queues(void) {
  struct rpma_conn_cfg* config;
  TRY(rpma_conn_cfg_new(&config));
  TRY(rpma_conn_cfg_set_rcq_size(config, 16));
  TRY(rpma_conn_cfg_set_rq_size(config, 16));
  TRY(rpma_conn_cfg_set_sq_size(config, 16));
  TRY(rpma_conn_cfg_set_cq_size(config, 16));
  return config;
}

static void serve(const char* address, const char* port, const char* path) {
  const int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
  EXPECT(file >= 0 && ftruncate(file, SIZE) == 0);
  unsigned char* memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  char* message = aligned_alloc(4096, 4096);
  EXPECT(memory != MAP_FAILED && message);
  struct rpma_mr_local *region, *messages;
  TRY(rpma_mr_reg(peer, memory, SIZE,
                  RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT |
                      RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                  &region));
  TRY(rpma_mr_reg(peer, message, 4096, RPMA_MR_USAGE_RECV, &messages));
  struct hello hello;
  struct rpma_peer_cfg* config;
  TRY(rpma_peer_cfg_new(&config));
  TRY(rpma_peer_cfg_set_direct_write_to_pmem(config, true));
  TRY(rpma_peer_cfg_get_descriptor_size(config, &hello.peer_size));
  TRY(rpma_mr_get_descriptor_size(region, &hello.memory_size));
  EXPECT(hello.peer_size <= sizeof hello.peer && hello.memory_size <= sizeof hello.memory);
  TRY(rpma_peer_cfg_get_descriptor(config, hello.peer));
  TRY(rpma_mr_get_descriptor(region, hello.memory));
  const struct rpma_conn_private_data private_data = {&hello, sizeof hello};

  struct rpma_ep* endpoint;
  struct rpma_conn_cfg* cfg = queues();
  struct rpma_conn_req* request;
  struct rpma_conn* connection;
  TRY(rpma_ep_listen(peer, address, port, &endpoint));
  TRY(rpma_ep_next_conn_req(endpoint, cfg, &request));
  // Before the connection is accepted.
  TRY(rpma_conn_req_recv(request, messages, 0, 64, message));
  TRY(rpma_conn_req_recv(request, messages, 64, 64, message + 64));
  TRY(rpma_conn_req_connect(&request, &private_data, &connection));
  expect_event(connection, RPMA_CONN_ESTABLISHED);
  struct ibv_wc wc = completion(connection, 1);
  EXPECT(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM &&
         ntohl(wc.imm_data) == IMMEDIATE);
  wc = completion(connection, 1);
  const char* arrived = (const char*)(uintptr_t)wc.wr_id;
  EXPECT(wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof MESSAGE && strcmp(arrived, MESSAGE) == 0);
  expect_event(connection, RPMA_CONN_CLOSED);
  // What the client has flushed is in the file.
  unsigned char* in_file = malloc(SIZE);
  EXPECT(in_file && pread(file, in_file, SIZE, 0) == SIZE && in_file[0] == 'a' &&
         in_file[SIZE - 1] == (SIZE - 1) % 251);
  TRY(rpma_conn_disconnect(connection));
  TRY(rpma_conn_delete(&connection));
  TRY(rpma_ep_shutdown(&endpoint));
  TRY(rpma_mr_dereg(&region));
  TRY(rpma_mr_dereg(&messages));
  TRY(rpma_conn_cfg_delete(&cfg));
  TRY(rpma_peer_cfg_delete(&config));
}

static void exchange(const char* address, const char* port) {
  unsigned char* memory = aligned_alloc(4096, 2 * SIZE);
  EXPECT(memory);
  for (int i = 0; i < SIZE; ++i) memory[i] = (unsigned char)(i % 251);
  struct rpma_mr_local* region;
  TRY(rpma_mr_reg(peer, memory, 2 * SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_SEND,
                  &region));
  struct rpma_conn_cfg* cfg = queues();
  struct rpma_conn_req* request;
  struct rpma_conn* connection;
  TRY(rpma_conn_req_new(peer, address, port, cfg, &request));
  TRY(rpma_conn_req_connect(&request, NULL, &connection));
  expect_event(connection, RPMA_CONN_ESTABLISHED);
  struct rpma_conn_private_data private_data;
  TRY(rpma_conn_get_private_data(connection, &private_data));
  struct hello hello;
  EXPECT(private_data.len >= sizeof hello);
  memcpy(&hello, private_data.ptr, sizeof hello);
  struct rpma_peer_cfg* config;
  struct rpma_mr_remote* remote;
  TRY(rpma_peer_cfg_from_descriptor(hello.peer, hello.peer_size, &config));
  TRY(rpma_conn_apply_remote_peer_cfg(connection, config));
  TRY(rpma_mr_remote_from_descriptor(hello.memory, hello.memory_size, &remote));
  size_t remote_size;
  TRY(rpma_mr_remote_get_size(remote, &remote_size));
  EXPECT(remote_size == SIZE);

  TRY(rpma_write(connection, remote, 0, region, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
  TRY(rpma_atomic_write(connection, remote, 0, "abcdefgh", RPMA_F_COMPLETION_ON_ERROR, NULL));
  TRY(rpma_flush(connection, remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, remote));
  EXPECT(completion(connection, 0).wr_id == (uintptr_t)remote);
  TRY(rpma_flush(connection, remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, region));
  EXPECT(completion(connection, 0).wr_id == (uintptr_t)region);
  TRY(rpma_read(connection, region, SIZE, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, memory));
  EXPECT(completion(connection, 0).opcode == IBV_WC_RDMA_READ);
  EXPECT(memcmp(memory + SIZE, "abcdefgh", 8) == 0 && memcmp(memory + SIZE + 8, memory + 8, SIZE - 8) == 0);
  TRY(rpma_write_with_imm(connection, remote, 8, region, 8, 8, RPMA_F_COMPLETION_ALWAYS, IMMEDIATE, NULL));
  EXPECT(completion(connection, 0).opcode == IBV_WC_RDMA_WRITE);
  strcpy((char*)memory, MESSAGE);
  TRY(rpma_send(connection, region, 0, sizeof MESSAGE, RPMA_F_COMPLETION_ALWAYS, NULL));
  EXPECT(completion(connection, 0).opcode == IBV_WC_SEND);
  TRY(rpma_conn_disconnect(connection));
  expect_event(connection, RPMA_CONN_CLOSED);
  TRY(rpma_conn_delete(&connection));
  TRY(rpma_mr_remote_delete(&remote));
  TRY(rpma_mr_dereg(&region));
  TRY(rpma_conn_cfg_delete(&cfg));
  TRY(rpma_peer_cfg_delete(&config));
}

int main(int argc, char** argv) {
  const int server = argc == 5 && strcmp(argv[1], "server") == 0;
  if (!server && (argc != 4 || strcmp(argv[1], "client") != 0)) return 2;
  open_device(argv[2], server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE);
  if (server)
    serve(argv[2], argv[3], argv[4]);
  else
    exchange(argv[2], argv[3]);
  TRY(rpma_peer_delete(&peer));
  printf("rpma_exchange: all data is right\n");
  return 0;
}
