#include "fixtures.h"

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>

namespace conformance {
namespace {

std::chrono::seconds timeout{5};

std::string& leaks() {
  static std::string text;
  return text;
}

/// Whether the end has a RoCE v2 GID of that address family; if so, it is used from now on.
bool find_address(End& end, bool ipv4) {
  for (int i = 0; i < end.port.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(end.context, 1, static_cast<std::uint32_t>(i), &entry, 0) != 0) continue;
    const bool mapped = entry.gid.raw[10] == 0xff && entry.gid.raw[11] == 0xff && entry.gid.raw[0] == 0;
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || mapped != ipv4) continue;
    end.gid_index = i;
    end.gid = entry.gid;
    return true;
  }
  return false;
}

End open_end(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  End end;
  for (int i = 0; i < count && end.context == nullptr; ++i) {
    if (name == ibv_get_device_name(list[i])) end.context = ibv_open_device(list[i]);
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (end.context == nullptr) throw Failed{"no device " + name};
  CHECK_OK(ibv_query_device(end.context, &end.attr));
  if (ibv_query_device_ex(end.context, nullptr, &end.extended) != 0) end.extended = {};
  CHECK_OK(ibv_query_port(end.context, 1, &end.port));
  if (!find_address(end, true)) throw Failed{name + " has no RoCE v2 GID of an IPv4 address"};
  return end;
}

}  // namespace

void* find_function(const char* name, const char* node) {
  void* const symbol = dlvsym(RTLD_DEFAULT, name, node);
  if (symbol == nullptr) throw Skipped{std::string("the library has no ") + name + "@" + node};
  return symbol;
}

Bench::Bench(const std::string& l, const std::string& r) : left(open_end(l)), right(open_end(r)) {}
Bench::~Bench() {
  ibv_close_device(right.context);
  ibv_close_device(left.context);
}

OverIpv6::OverIpv6(Bench& b) : bench(b), left(b.left), right(b.right) {
  if (find_address(bench.left, false) && find_address(bench.right, false)) return;
  throw Skipped{"no RoCE v2 GID of an IPv6 address"};
}
OverIpv6::~OverIpv6() {
  bench.left = left;
  bench.right = right;
}

void set_timeout(std::chrono::seconds time) { timeout = time; }

void add_leak(const char* what) {
  leaks() += std::string(what) + ": could not be destroyed: " + std::strerror(errno) + "; ";
}
std::string take_leaks() { return std::exchange(leaks(), {}); }

Pd make_pd(const End& end) { return Pd(CHECK_MADE(ibv_alloc_pd(end.context))); }

Cq make_cq(const End& end, int entries, ibv_comp_channel* channel, void* context) {
  return Cq(CHECK_MADE(ibv_create_cq(end.context, entries, context, channel, 0)));
}

Buffer::Buffer(ibv_pd* pd, std::size_t bytes, int access)
    : memory_(bytes), mr_(CHECK_MADE(ibv_reg_mr(pd, memory_.data(), bytes, access))) {}

void Buffer::fill(std::uint8_t seed) {
  for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8));
}

bool Buffer::holds(std::uint8_t seed, std::size_t offset, std::size_t length, std::size_t from) const {
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t at = from + i;
    if (memory_[offset + i] != static_cast<std::uint8_t>(seed + at * 7 + (at >> 8))) return false;
  }
  return true;
}

QpObject make_qp(const End& end, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_qp_type type,
                 const QpOptions& options) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.srq = options.srq;
  init.cap = {options.send_wr, options.srq != nullptr ? 0 : options.recv_wr, options.send_sge,
              options.srq != nullptr ? 0 : options.recv_sge, options.inline_bytes};
  init.qp_type = type;
  init.sq_sig_all = options.signal_all;
  if (options.operations == 0 && options.create_flags == 0) {
    ibv_qp_init_attr plain{};
    std::memcpy(static_cast<void*>(&plain), &init, sizeof(plain));
    return QpObject(CHECK_MADE(ibv_create_qp(pd, &plain)));
  }
  init.pd = pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (options.operations != 0) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (options.create_flags != 0) init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.send_ops_flags = options.operations;
  init.create_flags = options.create_flags;
  return QpObject(CHECK_MADE(ibv_create_qp_ex(end.context, &init)));
}

int to_init(ibv_qp* qp, int access) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (qp->qp_type == IBV_QPT_UD) {
    attr.qkey = kQkey;
    mask |= IBV_QP_QKEY;
  } else {
    // A UC responder supports neither READs nor atomics.
    attr.qp_access_flags =
        static_cast<unsigned>(qp->qp_type == IBV_QPT_UC ? access & IBV_ACCESS_REMOTE_WRITE : access);
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int to_rtr(const End& end, ibv_qp* qp, const End& peer, std::uint32_t peer_qpn, ibv_mtu mtu,
           const QpOptions& options) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int mask = IBV_QP_STATE;
  if (qp->qp_type != IBV_QPT_UD) {
    attr.path_mtu = mtu;
    attr.dest_qp_num = peer_qpn;
    attr.rq_psn = options.psn;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(end.gid_index);
    attr.ah_attr.grh.hop_limit = 64;
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV) {
    attr.max_dest_rd_atomic = options.reads;
    attr.min_rnr_timer = 1;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int to_rts(ibv_qp* qp, const QpOptions& options) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = options.psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND) {
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retries;
    attr.rnr_retry = options.rnr_retries;
    attr.max_rd_atomic = options.reads;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  } else if (qp->qp_type == IBV_QPT_XRC_RECV) {
    attr.timeout = options.timeout;
    mask |= IBV_QP_TIMEOUT;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int to_error(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge) {
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

Side::Side(const End& e, ibv_qp_type type, std::size_t bytes, const QpOptions& options, ibv_pd* domain,
           ibv_comp_channel* channel)
    : end(e),
      own_pd(domain == nullptr ? make_pd(e) : Pd()),
      pd(domain == nullptr ? own_pd.get() : domain),
      cq(make_cq(e, 256, channel)),
      buffer(pd, bytes),
      qp(make_qp(e, pd, cq.get(), cq.get(), type, options)) {}

int Side::post_recv(std::size_t offset, std::size_t length, std::uint64_t id) {
  ibv_sge sge = buffer.sge(offset, length);
  ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
  return ibv_post_recv(qp.get(), &wr, &bad);
}

int Side::post(ibv_send_wr& wr) {
  ibv_send_wr* bad;
  return ibv_post_send(qp.get(), &wr, &bad);
}

int Side::post(ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t id, unsigned flags, std::uint64_t remote,
               std::uint32_t rkey) {
  ibv_send_wr wr = request(opcode, sge);
  wr.wr_id = id;
  wr.send_flags = flags;
  wr.wr.rdma = {remote, rkey};
  return post(wr);
}

int Side::send(std::size_t offset, std::size_t length, std::uint64_t id, unsigned flags) {
  return post(IBV_WR_SEND, buffer.sge(offset, length), id, flags, 0, 0);
}

int Side::write(std::size_t offset, std::size_t length, std::uint64_t remote, std::uint32_t rkey, std::uint64_t id,
                unsigned flags) {
  return post(IBV_WR_RDMA_WRITE, buffer.sge(offset, length), id, flags, remote, rkey);
}

int Side::read(std::size_t offset, std::size_t length, std::uint64_t remote, std::uint32_t rkey, std::uint64_t id) {
  return post(IBV_WR_RDMA_READ, buffer.sge(offset, length), id, IBV_SEND_SIGNALED, remote, rkey);
}

namespace {
QpOptions deep_send_queue() {
  QpOptions options;
  options.send_wr = 256;
  return options;
}
}  // namespace

OverrunCq::OverrunCq(Bench& bench)
    : pd(make_pd(bench.left)),
      cq(make_cq(bench.left, 4)),
      buffer(pd.get(), 64),
      qp(make_qp(bench.left, pd.get(), cq.get(), cq.get(), IBV_QPT_RC, deep_send_queue())),
      peer(bench.right, IBV_QPT_RC, 64, {}) {
  CHECK_OK(to_init(qp.get(), kAll));
  CHECK_OK(to_init(peer.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.left, qp.get(), bench.right, peer.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rtr(bench.right, peer.qp.get(), bench.left, qp->qp_num, bench.mtu()));
  CHECK_OK(to_rts(qp.get()));
  for (int i = 0; i < 250; ++i) {
    ibv_sge sge = buffer.sge(0, 8);
    ibv_send_wr *bad, wr = request(IBV_WR_RDMA_WRITE, sge);
    wr.wr.rdma = {peer.buffer.address(), peer.buffer.rkey()};
    if (ibv_post_send(qp.get(), &wr, &bad) != 0) break;
  }
}

void connect(Bench& bench, Side& left, Side& right, const QpOptions& options) {
  for (Side* side : {&left, &right}) {
    Side& peer = side == &left ? right : left;
    CHECK_OK(to_init(side->qp.get(), options.access));
    CHECK_OK(to_rtr(side->end, side->qp.get(), peer.end, peer.qp->qp_num, bench.mtu(), options));
    CHECK_OK(to_rts(side->qp.get(), options));
  }
}

Pair::Pair(Bench& bench, ibv_qp_type type, std::size_t bytes, const QpOptions& options)
    : left(bench.left, type, bytes, options), right(bench.right, type, bytes, options) {
  connect(bench, left, right, options);
  if (type == IBV_QPT_UD) ah_to_right = make_ah(bench.left, left.pd, bench.right);
}

Ah make_ah(const End& from, ibv_pd* pd, const End& to) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = to.gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(from.gid_index);
  attr.grh.hop_limit = 64;
  return Ah(CHECK_MADE(ibv_create_ah(pd, &attr)));
}

int post_srq_recv(ibv_srq* srq, const Buffer& buffer, std::size_t offset, std::size_t length, std::uint64_t id) {
  ibv_sge sge = buffer.sge(offset, length);
  ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

Xrcd make_xrcd(const End& end, int fd, int flags) {
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = fd;
  init.oflags = flags;
  return Xrcd(CHECK_MADE(ibv_open_xrcd(end.context, &init)));
}

Srq make_xrc_srq(const End& end, ibv_pd* pd, ibv_xrcd* xrcd, ibv_cq* cq) {
  ibv_srq_init_attr_ex init{};
  init.attr.max_wr = 16;
  init.attr.max_sge = 1;
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = pd;
  init.xrcd = xrcd;
  init.cq = cq;
  return Srq(CHECK_MADE(ibv_create_srq_ex(end.context, &init)));
}

QpObject make_target(const End& end, ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd;
  return QpObject(CHECK_MADE(ibv_create_qp_ex(end.context, &init)));
}

QpObject make_initiator(const End& end, ibv_pd* pd, ibv_cq* cq, std::uint64_t operations) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd;
  init.send_cq = cq;
  init.cap = {16, 0, 1, 0, 64};
  if (operations != 0) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = operations;
  return QpObject(CHECK_MADE(ibv_create_qp_ex(end.context, &init)));
}

void let_arrive(Bench& bench) {
  Pair marker(bench, IBV_QPT_UD, 4096);
  ibv_sge sge = marker.left.buffer.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  wr.wr.ud = {marker.ah_to_right.get(), marker.right.qp->qp_num, kQkey};
  CHECK_OK(marker.right.post_recv(0, 64));
  CHECK_OK(marker.left.post(wr));
  wait_success(marker.left.cq.get(), IBV_WC_SEND);
  wait_success(marker.right.cq.get(), IBV_WC_RECV);
}

ibv_wc wait(ibv_cq* cq) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  ibv_wc wc{};
  for (;;) {
    const int got = ibv_poll_cq(cq, 1, &wc);
    if (got == 1) return wc;
    if (got < 0) throw Failed{"ibv_poll_cq: " + std::to_string(got)};
    if (std::chrono::steady_clock::now() > end)
      throw Failed{"no completion within " + std::to_string(timeout.count()) + " s"};
    sched_yield();
  }
}

ibv_wc wait_status(ibv_cq* cq, ibv_wc_status status) {
  const ibv_wc wc = wait(cq);
  if (wc.status != status) {
    throw Failed{std::string("completed with '") + ibv_wc_status_str(wc.status) + "', not '" +
                 ibv_wc_status_str(status) + "', wr_id " + std::to_string(wc.wr_id)};
  }
  return wc;
}

ibv_wc wait_success(ibv_cq* cq, ibv_wc_opcode opcode) {
  const ibv_wc wc = wait_status(cq, IBV_WC_SUCCESS);
  CHECK_EQ(static_cast<int>(wc.opcode), static_cast<int>(opcode));
  return wc;
}

int poll_write(Pair& pair, std::uint64_t remote, std::uint32_t rkey, std::size_t bytes) {
  CHECK_OK(pair.left.write(0, bytes, remote, rkey));
  return wait(pair.left.cq.get()).status;
}

bool refused(Side& side, ibv_send_wr& wr) {
  return side.post(wr) != 0 || wait(side.cq.get()).status != IBV_WC_SUCCESS;
}

bool stays_empty(ibv_cq* cq, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  ibv_wc wc;
  while (std::chrono::steady_clock::now() < end) {
    if (ibv_poll_cq(cq, 1, &wc) != 0) return false;
    sched_yield();
  }
  return true;
}

bool readable(int fd, int milliseconds) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, milliseconds) == 1;
}

ibv_async_event wait_event(ibv_context* context) {
  if (!readable(context->async_fd, static_cast<int>(timeout.count()) * 1000)) {
    throw Failed{"no asynchronous event within " + std::to_string(timeout.count()) + " s"};
  }
  ibv_async_event event{};
  CHECK_OK(ibv_get_async_event(context, &event));
  ibv_ack_async_event(&event);
  return event;
}

}  // namespace conformance
