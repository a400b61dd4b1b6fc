#include "fake_verbs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "fake_rdma.h"

namespace uroce::fake {
namespace {

std::map<std::uint32_t, Qp*> qps;
std::uint32_t next_number = 17;

void complete(Cq& cq, const ibv_wc& wc) {
  cq.completions.push_back(wc);
  if (!cq.armed) return;
  cq.armed = false;
  auto* channel = static_cast<Channel*>(cq.channel);
  channel->events.push_back(&cq);
  const char byte = 0;
  if (write(channel->pipe_end, &byte, 1) != 1) std::abort();
}

ibv_wc completion(std::uint64_t wr_id, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  return wc;
}

// By words, so that a concurrent reader sees each one completely or not at all.
void copy(void* to, const std::vector<std::byte>& data) {
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 8 != 0 || data.size() % 8 != 0 || data.size() > 64) {
    std::memcpy(to, data.data(), data.size());
    return;
  }
  for (std::size_t i = 0; i < data.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data() + i, 8);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(address + i), word, __ATOMIC_RELAXED);
  }
}

void scatter(const ReceiveWork& work, const std::vector<std::byte>& data) {
  std::size_t done = 0;
  for (const ibv_sge& sge : work.sges) {
    const std::size_t part = std::min<std::size_t>(sge.length, data.size() - done);
    if (part > 0) std::memcpy(reinterpret_cast<void*>(sge.addr), data.data() + done, part);
    done += part;
  }
}

void receive(Qp& qp, const SendWork& work, std::uint32_t bytes) {
  const ReceiveWork r = std::move(qp.receives.front());
  qp.receives.pop_front();
  ibv_wc wc = completion(r.wr_id, IBV_WC_SUCCESS);
  wc.byte_len = bytes;
  if (work.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = work.wr.imm_data;
  } else {
    scatter(r, work.data);
  }
  complete(*static_cast<Cq*>(qp.recv_cq), wc);
}

void run_datagram(Qp& qp, SendWork& work) {
  const auto to = qps.find(work.wr.wr.ud.remote_qpn);
  if (to != qps.end() && !to->second->receives.empty()) {
    work.data.insert(work.data.begin(), 40, std::byte{0});  // the GRH
    receive(*to->second, work, static_cast<std::uint32_t>(work.data.size()));
  }
  complete(*static_cast<Cq*>(qp.send_cq), completion(work.wr.wr_id, IBV_WC_SUCCESS));
}

// Executes the entries of a send queue. One whose peer has no receive stays in the queue.
void run(Qp& qp) {
  while (!qp.sends.empty()) {
    SendWork& work = qp.sends.front();
    auto& cq = *static_cast<Cq*>(qp.send_cq);
    const bool with_imm = work.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (qp.error) {
      complete(cq, completion(work.wr.wr_id, IBV_WC_WR_FLUSH_ERR));
    } else if (qp.qp_type == IBV_QPT_UD) {
      run_datagram(qp, work);
    } else if (qp.peer == nullptr || qp.peer->error) {
      complete(cq, completion(work.wr.wr_id, IBV_WC_RETRY_EXC_ERR));
      qp.error = true;
    } else if (with_imm && qp.peer->receives.empty()) {
      return;
    } else {
      copy(reinterpret_cast<void*>(work.wr.wr.rdma.remote_addr), work.data);
      if (with_imm) receive(*qp.peer, work, static_cast<std::uint32_t>(work.data.size()));
      complete(cq, completion(work.wr.wr_id, IBV_WC_SUCCESS));
    }
    qp.sends.pop_front();
  }
}

int post_send(ibv_qp* to, ibv_send_wr* wr, ibv_send_wr**) {
  const std::lock_guard lock(mutex());
  auto& qp = *static_cast<Qp*>(to);
  for (; wr != nullptr; wr = wr->next) {
    SendWork work{*wr, {}};
    for (int i = 0; i < wr->num_sge; ++i) {
      const auto* data = reinterpret_cast<const std::byte*>(wr->sg_list[i].addr);
      work.data.insert(work.data.end(), data, data + wr->sg_list[i].length);
    }
    qp.sends.push_back(std::move(work));
  }
  run(qp);
  return 0;
}

int post_receive(ibv_qp* to, ibv_recv_wr* wr, ibv_recv_wr**) {
  const std::lock_guard lock(mutex());
  auto& qp = *static_cast<Qp*>(to);
  for (; wr != nullptr; wr = wr->next) {
    if (qp.error) {
      complete(*static_cast<Cq*>(qp.recv_cq), completion(wr->wr_id, IBV_WC_WR_FLUSH_ERR));
    } else {
      qp.receives.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
    }
  }
  if (qp.peer != nullptr) run(*qp.peer);
  return 0;
}

int poll(ibv_cq* of, int count, ibv_wc* wcs) {
  const std::lock_guard lock(mutex());
  auto& cq = *static_cast<Cq*>(of);
  int n = 0;
  for (; n < count && !cq.completions.empty(); ++n) {
    wcs[n] = cq.completions.front();
    cq.completions.pop_front();
  }
  return n;
}

int notify(ibv_cq* of, int) {
  const std::lock_guard lock(mutex());
  static_cast<Cq*>(of)->armed = true;
  return 0;
}

}  // namespace

std::mutex& mutex() {
  static std::mutex one;
  return one;
}

int& live() {
  static int count = 0;
  return count;
}

int objects() {
  const std::lock_guard lock(mutex());
  return live();
}

ibv_context* context() {
  static ibv_context* const made = [] {
    static ibv_device device{};
    static ibv_context c{};
    c.device = &device;
    c.ops.post_send = post_send;
    c.ops.post_recv = post_receive;
    c.ops.poll_cq = poll;
    c.ops.req_notify_cq = notify;
    return &c;
  }();
  return made;
}

ibv_qp* make_qp(ibv_pd* pd, const ibv_qp_init_attr& attr) {
  auto* qp = new Qp;
  static_cast<ibv_qp&>(*qp) = {};
  qp->context = context();
  qp->pd = pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->qp_type = attr.qp_type;
  qp->qp_num = next_number++;
  qps[qp->qp_num] = qp;
  ++live();
  return qp;
}

void destroy_qp(ibv_qp* of) {
  auto* qp = static_cast<Qp*>(of);
  if (qp->peer != nullptr) qp->peer->peer = nullptr;
  qps.erase(qp->qp_num);
  delete qp;
  --live();
}

void fail_qp(Qp& qp) {
  if (qp.error) return;
  qp.error = true;
  run(qp);
  for (; !qp.receives.empty(); qp.receives.pop_front()) {
    complete(*static_cast<Cq*>(qp.recv_cq), completion(qp.receives.front().wr_id, IBV_WC_WR_FLUSH_ERR));
  }
}

void link(Qp& a, Qp& b) {
  a.peer = &b;
  b.peer = &a;
}

void break_connections() {
  const std::lock_guard lock(mutex());
  for (auto& [number, qp] : qps) qp->peer = nullptr;
}

}  // namespace uroce::fake

using namespace uroce::fake;

extern "C" {

int ibv_query_device(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  attr->max_qp_wr = 4096;
  return 0;
}

#undef ibv_query_port
int ibv_query_gid(ibv_context*, std::uint8_t, int index, union ibv_gid* gid) {
  if (index > 0) return -1;
  *gid = {};
  const std::uint8_t local[] = {0xff, 0xff, 127, 0, 0, 1};
  std::memcpy(gid->raw + 10, local, sizeof(local));
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* c) {
  const std::lock_guard lock(mutex());
  ++live();
  return new ibv_pd{c, 0};
}
int ibv_dealloc_pd(ibv_pd* pd) {
  const std::lock_guard lock(mutex());
  --live();
  delete pd;
  return 0;
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int) {
  const std::lock_guard lock(mutex());
  ++live();
  return new ibv_mr{pd->context, pd, addr, length, 0, 1, 1};
}
#undef ibv_reg_mr_iova
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, std::uint64_t, unsigned int) {
  return ibv_reg_mr(pd, addr, length, 0);
}
int ibv_dereg_mr(ibv_mr* mr) {
  const std::lock_guard lock(mutex());
  --live();
  delete mr;
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr*) {
  const std::lock_guard lock(mutex());
  ++live();
  return new ibv_ah{pd->context, pd, 0};
}
int ibv_destroy_ah(ibv_ah* ah) {
  const std::lock_guard lock(mutex());
  --live();
  delete ah;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* c) {
  const std::lock_guard lock(mutex());
  int fds[2];
  if (pipe(fds) != 0) return nullptr;
  auto* channel = new Channel;
  static_cast<ibv_comp_channel&>(*channel) = {c, fds[0], 0};
  channel->pipe_end = fds[1];
  ++live();
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* of) {
  const std::lock_guard lock(mutex());
  auto* channel = static_cast<Channel*>(of);
  close(channel->fd);
  close(channel->pipe_end);
  delete channel;
  --live();
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* c, int, void*, ibv_comp_channel* channel, int) {
  const std::lock_guard lock(mutex());
  auto* cq = new Cq;
  static_cast<ibv_cq&>(*cq) = {};
  cq->context = c;
  cq->channel = channel;
  ++live();
  return cq;
}
int ibv_destroy_cq(ibv_cq* cq) {
  const std::lock_guard lock(mutex());
  delete static_cast<Cq*>(cq);
  --live();
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* of, ibv_cq** cq, void** context) {
  char byte;
  if (read(of->fd, &byte, 1) != 1) return -1;
  const std::lock_guard lock(mutex());
  auto* channel = static_cast<Channel*>(of);
  *cq = channel->events.front();
  *context = nullptr;
  channel->events.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned int) {}

}  // extern "C"
