#include "tests/sim/incast.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tests/sim/model.h"

namespace uroce::sim {
namespace {

constexpr std::uint64_t kIova = 0x10000;
constexpr std::uint32_t kFirstQpn = 0x100;
constexpr Nanos kCycle = 300;  // of a worker that has work

void require(bool condition, const char* what) {
  if (!condition) throw Violation(what);
}

}  // namespace

Incast::Incast(const Load& load, std::uint64_t seed)
    : load_(load),
      random_(seed),
      switch_(load.network, load.senders + 1, seed),
      memory_(load.bytes),
      due_(load.senders + 1) {
  for (std::uint32_t id = 0; id <= load.senders; ++id) {
    HostSettings settings;
    settings.id = id;
    settings.cqs = 1;
    settings.offload_ip_checksum = true;  // the switch marks frames and leaves the checksum
    settings.max_qps = id == 0 ? load.senders : 1;
    settings.seed = random_.next();
    hosts_.push_back(std::make_unique<Host>(settings));
    keys_.push_back(*hosts_[id]->table.insert(
        {.pd = PdId{1}, .access = 15, .iova = kIova, .length = load.bytes, .base = memory_.data()}));
    order_.push_back(id);
  }
  for (std::uint32_t id = 1; id <= load.senders; ++id) {
    add_qp(0, id);
    add_qp(id, 0);
    if (load.opcode != UROCE_WR_SEND) continue;
    for (std::uint32_t i = 0; i < 2 * load.posted; ++i) post_receive(id);
  }
}

void Incast::add_qp(std::uint32_t id, std::uint32_t peer) {
  const std::uint32_t sender = std::max(id, peer);
  auto& qps = id == 0 ? receiving_ : sending_;
  qps.push_back(std::make_unique<SimQp>());
  const QueueSizes sizes{.sq_entries = 2 * load_.posted,
                         .rq_entries = 2 * load_.posted,
                         .max_send_sge = 1,
                         .max_recv_sge = 1,
                         .max_inline = 0};
  const int error = hosts_[id]->create_qp(sizes, Qpn{kFirstQpn + sender}, PdId{1}, CqId{0}, CqId{0}, *qps.back());
  require(error == 0, "no QP");
  Connection c;
  c.path = hosts_[id]->path_to(*hosts_[peer]);
  c.dest_qpn = Qpn{kFirstQpn + sender};
  c.path_mtu = kMtu;
  c.timeout = load_.timeout;
  c.max_rd_atomic = c.max_dest_rd_atomic = 16;
  require(connect(*hosts_[id], *qps.back(), c, 0).error == 0, "no connection");
}

Nanos Incast::round() {
  const Nanos began = now_;
  for (std::uint32_t sender = 1; sender <= load_.senders; ++sender) post(sender);
  const std::uint64_t due = done_ + load_.senders;
  while (done_ < due) step();
  return now_ - began;
}

void Incast::keep_busy(std::uint64_t packets) {
  repeat_ = true;
  for (std::uint32_t sender = 1; sender <= load_.senders; ++sender) {
    for (std::uint32_t i = 0; i < load_.posted; ++i) post(sender);
  }
  for (std::uint64_t done = 0; done < packets;) {
    for (int i = 0; i < 64; ++i) step();  // to count takes longer
    done = 0;
    for (const std::uint64_t each : acknowledged()) done += each;
  }
}

proto::Counters Incast::counters() const {
  proto::Counters sum;
  for (const auto& host : hosts_) {
    const proto::Counters each = host->counters();
    sum.retransmitted_pkts += each.retransmitted_pkts;
    sum.roce_adp_retrans += each.roce_adp_retrans;
    sum.local_ack_timeout_err += each.local_ack_timeout_err;
  }
  return sum;
}

std::vector<std::uint64_t> Incast::acknowledged() const {
  std::vector<std::uint64_t> packets;
  for (std::uint32_t sender = 1; sender <= load_.senders; ++sender) {
    const SimQp& qp = *(load_.reads() ? receiving_ : sending_)[sender - 1];
    proto::QpSnapshot snapshot;
    require(hosts_[requester_of(sender)]->query(qp, snapshot), "the QP is gone");
    packets.push_back(snapshot.attr.sq_psn.value() - snapshot.psns_in_flight);  // the first PSN is 0
  }
  return packets;
}

void Incast::post(std::uint32_t sender) {
  const std::uint32_t from = requester_of(sender), to = load_.reads() ? sender : 0;
  SimQp& qp = requesting(sender);
  std::byte* const slot = qp.sq.next();
  require(slot != nullptr, "the send queue is full");
  uroce_sq_entry entry{};
  entry.opcode = load_.opcode;
  entry.flags = UROCE_SEND_SIGNALED;
  entry.num_sge = 1;
  entry.rkey = keys_[to].value;
  entry.remote_addr = kIova;
  const uroce_sge sge{kIova, load_.bytes, keys_[from].value};
  queue::write_send(slot, entry, &sge, sizeof(sge));
  qp.sq.advance();
  qp.sq.publish();
  hosts_[from]->doorbell(qp);
  due_[from].rung = true;
}

void Incast::post_receive(std::uint32_t sender) {
  SimQp& qp = *receiving_[sender - 1];
  std::byte* const slot = qp.rq.next();
  require(slot != nullptr, "the receive queue is full");
  const uroce_rq_entry entry{0, 1, 0};
  const uroce_sge sge{kIova, load_.bytes, keys_[0].value};
  std::memcpy(slot, &entry, sizeof(entry));
  std::memcpy(slot + sizeof(entry), &sge, sizeof(sge));
  qp.rq.advance();
  qp.rq.publish();
}

void Incast::step() {
  Nanos next = switch_.next_moment();
  for (const Due& due : due_) {
    next = std::min(next, due.rung ? now_ : due.works ? now_ + kCycle : due.timeout);
  }
  require(next != kNever, "nothing will ever happen");
  now_ = std::max(now_, next);
  switch_.receive(now_, [&](std::uint32_t to, std::span<const std::byte> frame) {
    hosts_[to]->arrive(frame);
    due_[to].works = true;
  });
  // No order of the hosts is always the same.
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random_.below(static_cast<std::uint32_t>(i + 1))]);
  }
  for (const std::uint32_t id : order_) {
    if (due_[id].rung || due_[id].works || due_[id].timeout <= now_) run(id);
  }
}

void Incast::run(std::uint32_t id) {
  Host& host = *hosts_[id];
  host.step(now_, [&](std::span<const std::byte> frame) {
    switch_.send(id, id == 0 ? dest_qpn_of(frame) - kFirstQpn : 0, frame, now_);
  });
  due_[id] = {.works = host.has_work(), .timeout = host.next_timeout()};
  take_completions(id);
}

void Incast::take_completions(std::uint32_t id) {
  SimCq& cq = *hosts_[id]->cqs[0];
  while (const uroce_cqe* cqe = cq.consumer.peek()) {
    if (cqe->status != UROCE_WC_SUCCESS) throw Violation("a completion with status " + std::to_string(cqe->status));
    const std::uint32_t sender = cqe->qpn - kFirstQpn;
    cq.consumer.pop();
    cq.consumer.publish();
    if (id != requester_of(sender)) {
      post_receive(sender);
      continue;
    }
    ++done_;
    if (repeat_) post(sender);
  }
}

}  // namespace uroce::sim
