#include "endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace uroce::verify {
namespace {

std::string with_errno(const std::string& what) { return what + ": " + std::strerror(errno); }

ibv_mtu mtu_code(std::uint32_t bytes) {
  int code = IBV_MTU_256;
  for (std::uint32_t size = 256; size < bytes; size *= 2) ++code;
  return static_cast<ibv_mtu>(code);
}

std::uint32_t random_psn() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) fail(with_errno("getrandom"));
  return value & 0xffffff;
}

int temporary_file(std::size_t bytes) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr || ftruncate(fileno(file), static_cast<off_t>(bytes)) != 0) fail(with_errno("tmpfile"));
  return fileno(file);
}

/// Memory of one kind. "read-only" has a second mapping without write access.
void* map_memory(const std::string& kind, std::size_t bytes, void*& read_only) {
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  constexpr std::size_t kHuge = 2u << 20;
  const std::size_t whole = (bytes + kHuge - 1) / kHuge * kHuge;
  void* memory = MAP_FAILED;
  if (kind == "heap") {
    memory = std::malloc(bytes);
  } else if (kind == "shared") {
    memory = mmap(nullptr, bytes, kBoth, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  } else if (kind == "file") {
    // A private file mapping can't be moved: the daemon uses indirect access.
    memory = mmap(nullptr, bytes, kBoth, MAP_PRIVATE, temporary_file(bytes), 0);
  } else if (kind == "hugetlb") {
    memory = mmap(nullptr, whole, kBoth, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  } else if (kind == "shared-hugetlb") {
    memory = mmap(nullptr, whole, kBoth, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  } else if (kind == "read-only") {
    const int file = temporary_file(bytes);
    memory = mmap(nullptr, bytes, kBoth, MAP_SHARED, file, 0);
    read_only = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  } else {
    fail("memory " + kind + ": give heap, stack, shared, file, hugetlb, shared-hugetlb or read-only");
  }
  if (memory == MAP_FAILED || memory == nullptr || read_only == MAP_FAILED) fail(with_errno("memory"));
  return memory;
}

}  // namespace

void fail(const std::string& what) {
  std::fprintf(stderr, "verify: %s\n", what.c_str());
  std::exit(1);
}

Endpoint::Endpoint(const Options& options) : limits_(options.limits), events_(options.events) {
  open_device(options);
  make_memory(options);
  make_qp();
  connect_tcp(options);
  connect_qp(options);
}

void Endpoint::open_device(const Options& options) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) fail("no RDMA device; start a daemon");
  for (int i = 0; i < count && context_ == nullptr; ++i) {
    if (options.device.empty() || options.device == ibv_get_device_name(list[i]))
      context_ = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (context_ == nullptr) fail("cannot open device " + options.device);
  ibv_gid gid{};
  if (ibv_query_gid(context_, 1, options.gid_index, &gid) != 0) fail(with_errno("ibv_query_gid"));
  std::memcpy(self_.gid, &gid, sizeof(gid));
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr) fail(with_errno("ibv_alloc_pd"));
}

void Endpoint::make_memory(const Options& options) {
  const std::size_t bytes = memory_bytes(limits_);
  void* read_only = nullptr;
  void* const memory = options.stack != nullptr ? options.stack : map_memory(options.memory, bytes, read_only);
  memory_ = static_cast<std::byte*>(memory);
  std::memset(memory_, 0xa5, bytes);
  constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  source_mr_ = mr_ = ibv_reg_mr(pd_, memory_, bytes, kAccess);
  source_ = memory_;
  if (read_only != nullptr) {
    source_ = static_cast<std::byte*>(read_only);
    if (ibv_reg_mr(pd_, source_, bytes, kAccess) != nullptr) fail("a read-only mapping is registered for writing");
    source_mr_ = ibv_reg_mr(pd_, source_, bytes, 0);
  }
  if (mr_ == nullptr || source_mr_ == nullptr) fail(with_errno("ibv_reg_mr"));
}

void Endpoint::make_qp() {
  channel_ = ibv_create_comp_channel(context_);
  cq_ = ibv_create_cq(context_, 256, nullptr, channel_, 0);
  if (channel_ == nullptr || cq_ == nullptr) fail(with_errno("ibv_create_cq"));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {64, 64, 4, 1, 64};
  qp_ = ibv_create_qp(pd_, &init);
  if (qp_ == nullptr) fail(with_errno("ibv_create_qp"));
  max_inline_ = init.cap.max_inline_data;
  if (events_ && ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
}

void Endpoint::connect_tcp(const Options& options) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(options.port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (options.host.empty()) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    address.sin_addr.s_addr = htonl(options.any_address ? INADDR_ANY : INADDR_LOOPBACK);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail(with_errno("bind"));
    if (listen(fd, 1) != 0) fail(with_errno("listen"));
    tcp_ = accept(fd, nullptr, nullptr);
    close(fd);
  } else {
    if (inet_pton(AF_INET, options.host.c_str(), &address.sin_addr) != 1)
      fail(options.host + ": give an IPv4 address");
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail(with_errno("connect"));
    tcp_ = fd;
  }
  if (tcp_ < 0) fail(with_errno("accept"));
}

void Endpoint::connect_qp(const Options& options) {
  self_.qpn = qp_->qp_num;
  self_.psn = options.psn >= 0 ? static_cast<std::uint32_t>(options.psn) & 0xffffff : random_psn();
  self_.rkey = mr_->rkey;
  self_.address = reinterpret_cast<std::uint64_t>(memory_);
  if (send(tcp_, &self_, sizeof(self_), MSG_NOSIGNAL) != sizeof(self_)) fail(with_errno("send"));
  if (recv(tcp_, &peer_, sizeof(peer_), MSG_WAITALL) != sizeof(peer_)) fail("the other end is gone");

  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    fail(with_errno("modify to INIT"));
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_code(limits_.mtu);
  attr.dest_qp_num = peer_.qpn;
  attr.rq_psn = peer_.psn;
  attr.max_dest_rd_atomic = 8;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  std::memcpy(&attr.ah_attr.grh.dgid, peer_.gid, sizeof(peer_.gid));
  attr.ah_attr.grh.hop_limit = options.hop_limit;
  attr.ah_attr.grh.flow_label = options.flow_label;
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(options.gid_index);
  if (ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    fail(with_errno("modify to RTR"));
  }
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = self_.psn;
  attr.timeout = options.timeout;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 8;
  if (ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    fail(with_errno("modify to RTS"));
  }
}

ibv_wc Endpoint::wait_completion(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  ibv_wc wc{};
  while (std::chrono::steady_clock::now() < end) {
    const int n = ibv_poll_cq(cq_, 1, &wc);
    if (n < 0) fail("ibv_poll_cq");
    if (n == 1) return wc;
    if (!events_) continue;
    pollfd waiting{channel_->fd, POLLIN, 0};
    if (poll(&waiting, 1, 100) != 1) continue;
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &cq_context) != 0) fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    if (ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
  }
  fail("no completion within " + std::to_string(seconds) + " s");
}

void Endpoint::tell(char letter) {
  if (send(tcp_, &letter, 1, MSG_NOSIGNAL) != 1) fail(with_errno("the other end is gone"));
}

void Endpoint::await(char letter) {
  char got = 0;
  if (recv(tcp_, &got, 1, 0) != 1 || got != letter) fail("the other end is gone");
}

}  // namespace uroce::verify
