#include "tests/sim/shared_receive.h"

#include <algorithm>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr std::size_t kGap = 256, kSource = 160 << 10, kReceive = 448 << 10, kTarget = 160 << 10;
constexpr std::size_t kSourceAt = kGap, kReceiveAt = kSourceAt + kSource + kGap;
constexpr std::size_t kTargetAt = kReceiveAt + kReceive + kGap, kArena = kTargetAt + kTarget + kGap;
constexpr std::uint64_t kIova = 0x1000;  // of every zone, plus its place in the arena
constexpr std::uint64_t kIsReceive = 1ull << 63;
constexpr std::uint32_t kMostSteps = 300'000;
constexpr PdId kPd{1};

void copy_bytes(std::vector<std::byte>& to, const std::vector<std::byte>& from, std::size_t at, std::size_t bytes) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), bytes, to.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

SharedReceiveWorld::SharedReceiveWorld(const WorldOptions& options) : options_(options), random_(options.seed) {
  const NetworkSettings network = draw_short_network(random_, 0.25);
  longest_trip_ = network.latency + network.jitter + network.reorder_by + 100'000;
  network_ = std::make_unique<Network>(network, random_.next());
  by_event_ = random_.chance(0.5);
  harsh_ = random_.chance(0.3) && options.mutation == Mutation::kNone;
  constexpr std::uint32_t kSizes[] = {16, 300, 1100, 2500};
  constexpr std::uint32_t kMtus[] = {256, 512, 1024};
  largest_ = random_.pick(kSizes);
  mtu_ = random_.pick(kMtus);
  const bool ipv6 = random_.chance(0.3);
  for (std::uint32_t id = 0; id < 2; ++id) set_up_host(id, ipv6);
  for (std::uint32_t pairs = random_.between(2, 4); pairs > 0; --pairs) add_pair();
  connect_all();
}

void SharedReceiveWorld::set_up_host(std::uint32_t id, bool ipv6) {
  HostSettings settings;
  settings.id = id;
  settings.ipv6 = ipv6;
  settings.seed = random_.next();
  settings.cqs = random_.between(1, 3);
  settings.cq_entries = 1024;
  settings.quantum_packets = random_.between(1, 20);
  settings.workers = 1 + static_cast<std::uint32_t>(options_.seed % 3 == 0);
  settings.busy_port = options_.seed % 5 == 1;
  hosts_.push_back(std::make_unique<Host>(settings));
  Side& side = sides_.emplace_back();
  side.arena.resize(kArena);
  random_.fill(side.arena.data(), side.arena.size());
  side.initial = side.arena;
  const auto insert = [&](std::size_t at, std::size_t bytes, std::uint32_t access) {
    return *hosts_.back()->table.insert(
        {.pd = kPd, .access = access, .iova = kIova + at, .length = bytes, .base = side.arena.data() + at});
  };
  side.source = insert(kSourceAt, kSource, 0);
  side.receive = insert(kReceiveAt, kReceive, memory::kLocalWrite);
  side.target = insert(kTargetAt, kTarget, memory::kLocalWrite | memory::kRemoteWrite);
  side.queues.resize(random_.between(1, 2));
  std::uint32_t number = 1;
  for (Queue& queue : side.queues) {
    const SrqId srq{number++};
    queue.srq = std::make_unique<SimSrq>(proto::SrqCreate{.id = srq, .pd = kPd, .owner = 1, .max_sge = 2}, 16);
    hosts_.back()->set_srq(srq, queue.srq->srq.get());
    queue.to_post = by_event_ ? random_.between(1, 16) : 0;
    post_receives(id, queue);
    if (by_event_) set_limit(queue);
  }
}

void SharedReceiveWorld::add_pair() {
  const auto first = static_cast<std::uint32_t>(ends_.size());
  for (std::uint32_t host = 0; host < 2; ++host) {
    Endpoint& end = ends_.emplace_back();
    end.host = host;
    end.peer = first + 1 - host;
    end.queue = random_.below(static_cast<std::uint32_t>(sides_[host].queues.size()));
    ++sides_[host].queues[end.queue].users;
    end.works_left = random_.between(1, 15);
    if (harsh_ && random_.chance(0.2)) end.moves_at = random_.between(1, end.works_left);
    QueueSizes queues{.sq_entries = random_.chance(0.5) ? 4u : 32u, .max_send_sge = 2, .max_recv_sge = 2};
    queues.srq = sides_[host].queues[end.queue].srq->srq->id;
    end.qp = std::make_unique<SimQp>();
    const CqId send_cq{random_.below(hosts_[host]->settings.cqs)},
        recv_cq{random_.below(hosts_[host]->settings.cqs)};
    const Qpn qpn{0x100 * (host + 1) + first};
    if (hosts_[host]->create_qp(queues, qpn, kPd, send_cq, recv_cq, *end.qp) != 0) fail("no QP");
  }
}

void SharedReceiveWorld::connect_all() {
  for (Endpoint& end : ends_) end.connection.sq_psn = Psn(static_cast<std::uint32_t>(random_.next()));
  std::uint8_t timeout = 6;
  while ((4096ull << timeout) < longest_trip_ * 12) ++timeout;
  for (Endpoint& end : ends_) {
    Connection& c = end.connection;
    c.path = hosts_[end.host]->path_to(*hosts_[1 - end.host]);
    c.dest_qpn = ends_[end.peer].qp->qpn;
    c.rq_psn = ends_[end.peer].connection.sq_psn;
    c.path_mtu = mtu_;
    c.timeout = timeout;
    c.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 12));
    const auto verdict = connect(*hosts_[end.host], *end.qp, c, now_);
    if (verdict.error != 0) fail(std::string("connect: ") + verdict.what);
  }
}

void SharedReceiveWorld::add_receive(std::uint32_t host, Queue& queue) {
  Side& side = sides_[host];
  std::byte* const slot = queue.srq->producer.next();
  const bool scant = harsh_ && random_.chance(0.02);
  const std::uint32_t bytes = scant ? random_.below(largest_) : largest_;
  if (slot == nullptr || side.receive_used + bytes > kReceive) fail("the harness has no room for a receive");
  const std::size_t at = kReceiveAt + side.receive_used;
  side.receive_used += bytes;
  const std::uint32_t first = random_.below(bytes + 1);
  const uroce_sge sges[2] = {{kIova + at, first, side.receive.value},
                             {kIova + at + first, bytes - first, side.receive.value}};
  const uroce_rq_entry entry{kIsReceive | queue.receives.size(), 2, 0};
  std::memcpy(slot, &entry, sizeof entry);
  std::memcpy(slot + sizeof entry, sges, sizeof sges);
  queue.srq->producer.advance();
  queue.srq->producer.publish();
  queue.receives.push_back({at, bytes});
}

void SharedReceiveWorld::set_limit(Queue& queue) {
  proto::Srq& srq = *queue.srq->srq;
  const std::uint32_t limit = random_.between(1, 8);
  const bool already = srq.posted() < limit;
  if (srq.set_limit(limit) != already) fail("set_limit errs about what is posted");
  queue.armed = already ? 0 : limit;
  if (already) queue.to_post = random_.between(1, 8);
}

void SharedReceiveWorld::post_receives(std::uint32_t host, Queue& queue) {
  const std::uint32_t room = 16 - queue.srq->srq->posted();
  std::uint32_t count = std::min(queue.to_post, room);
  if (!by_event_) count = queue.srq->srq->posted() < 4 ? random_.below(3) : 0;
  for (; count > 0; --count) add_receive(host, queue);
  queue.to_post = 0;
}

void SharedReceiveWorld::post_work(Endpoint& end) {
  if (end.works_left == 0 || end.qp->sq.next() == nullptr) return;
  Side& side = sides_[end.host];
  Side& far = sides_[1 - end.host];
  const std::uint32_t length = random_.below(largest_ + 1);
  constexpr std::uint8_t kOpcodes[] = {UROCE_WR_SEND, UROCE_WR_SEND_WITH_IMM, UROCE_WR_RDMA_WRITE_WITH_IMM};
  Message message;
  message.opcode = random_.pick(kOpcodes);
  message.immediate = static_cast<std::uint32_t>(random_.next());
  const std::size_t at = kSourceAt + side.source_used;
  side.source_used += length;
  message.target = kTargetAt + far.target_used;
  if (message.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM) far.target_used += length;
  if (side.source_used > kSource || far.target_used > kTarget) fail("the harness has no room for a message");
  const auto begin = side.arena.begin() + static_cast<std::ptrdiff_t>(at);
  message.payload.assign(begin, begin + length);
  uroce_sq_entry entry{};
  entry.wr_id = random_.next() & ~kIsReceive;
  entry.opcode = message.opcode;
  entry.imm_data = message.immediate;
  entry.remote_addr = kIova + message.target;
  entry.rkey = far.target.value;
  entry.num_sge = 1;
  --end.works_left;
  const bool signaled = end.works_left == 0 || end.posted.size() % 4 == 3 || random_.chance(0.5);
  if (signaled) entry.flags |= UROCE_SEND_SIGNALED;
  const uroce_sge sge{kIova + at, length, side.source.value};
  queue::write_send(end.qp->sq.next(), entry, &sge, sizeof sge);
  end.qp->sq.advance();
  end.qp->sq.publish();
  end.posted.push_back({entry.wr_id, signaled, messages_.size()});
  ends_[end.peer].due.push_back(messages_.size());
  messages_.push_back(std::move(message));
  hosts_[end.host]->doorbell(*end.qp);
}

bool SharedReceiveWorld::in_error(const Endpoint& end) const {
  proto::QpSnapshot snapshot;
  return hosts_[end.host]->query(*end.qp, snapshot) && snapshot.state == proto::QpState::kErr;
}

void SharedReceiveWorld::act() {
  for (std::uint32_t host = 0; host < 2; ++host) {
    for (Queue& queue : sides_[host].queues) {
      if (random_.chance(0.5)) post_receives(host, queue);
      if (queue.armed == 0 && random_.chance(by_event_ ? 1 : 0.1)) set_limit(queue);
    }
  }
  for (Endpoint& end : ends_) {
    if (end.send_failed || end.too_short || end.moved) end.works_left = 0;
    for (std::uint32_t count = random_.below(4); count > 0; --count) post_work(end);
    if (end.moves_at == 0 || end.works_left >= end.moves_at || !random_.chance(0.3)) continue;
    end.moves_at = 0;
    end.moved = true;
    if (change_state(*hosts_[end.host], *end.qp, proto::QpState::kErr, now_).error != 0) fail("to ERR");
  }
}

bool SharedReceiveWorld::quiet() const {
  if (network_->next_arrival() != kNever) return false;
  for (const auto& host : hosts_) {
    if (host->has_work()) return false;
  }
  return std::ranges::all_of(ends_, [](const Endpoint& end) {
    return end.works_left == 0 && std::ranges::none_of(end.posted, &Posted::signaled);
  });
}

void SharedReceiveWorld::step() {
  if (++steps_ > kMostSteps) fail("no end");
  Nanos next = network_->next_arrival();
  for (const auto& host : hosts_) next = std::min(next, host->next_timeout());
  now_ = next != kNever && random_.chance(0.5) ? std::max(now_, next) : now_ + random_.below(1'000);
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    may_be_refused_ += arrival.damaged;
    hosts_[arrival.to]->arrive(frame);
  };
  for (std::uint32_t i = random_.between(1, 40); i > 0 && network_->receive(now_, take); --i) {
  }
  take_events();
  if (random_.chance(0.5)) act();
  for (std::uint32_t id = 0; id < 2; ++id) {
    hosts_[id]->step(now_, [&](std::span<const std::byte> frame) { network_->send(1 - id, frame, now_); });
  }
  if (hosts_[0]->frames_refused() + hosts_[1]->frames_refused() > may_be_refused_) fail("a good frame was refused");
  if (random_.chance(0.4)) poll();
}

void SharedReceiveWorld::poll() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (auto& cq : hosts_[id]->cqs) {
      for (const uroce_cqe* cqe = cq->consumer.peek(); cqe != nullptr; cqe = cq->consumer.peek()) {
        const uroce_cqe copy = *cqe;
        cq->consumer.pop();
        cq->consumer.publish();
        ++completions_;
        const auto end =
            std::ranges::find_if(ends_, [&](const Endpoint& e) { return e.qp->qpn.value == copy.qpn; });
        if (end == ends_.end() || end->host != id) fail("a completion for no QP: " + text(copy));
        if ((copy.wr_id & kIsReceive) != 0)
          hand_on(*end, copy);
        else
          on_send(*end, copy);
      }
    }
    for (Queue& queue : sides_[id].queues) check_order(queue);
  }
}

void SharedReceiveWorld::check_order(Queue& queue) {
  while (queue.first_open < queue.past_done && queue.receives[queue.first_open].done) ++queue.first_open;
  std::uint32_t open = 0;
  for (std::size_t i = queue.first_open; i < queue.past_done; ++i) open += !queue.receives[i].done;
  // Each QP but the one that has the newest may be amid a message.
  if (open != 0 && open >= queue.users) fail("a receive was passed over");
}

void SharedReceiveWorld::hand_on(Endpoint& end, const uroce_cqe& cqe) {
  if (options_.mutation == Mutation::kNone || mutated_ || random_.chance(0.5)) return on_receive(end, cqe);
  mutated_ = true;
  if (options_.mutation == Mutation::kDropCompletion) return;
  if (options_.mutation == Mutation::kStrayByte) sides_[0].arena[kSourceAt - 1] ^= std::byte{1};
  on_receive(end, cqe);
  if (options_.mutation == Mutation::kDoubleCompletion) on_receive(end, cqe);
}

void SharedReceiveWorld::take_events() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    // Receives only go while frames arrive: the remaining number is the lowest since the limit was set.
    for (Queue& queue : sides_[id].queues) {
      if (queue.armed == 0 || queue.srq->srq->posted() >= queue.armed) continue;
      queue.armed = 0;
      ++queue.limits_due;
      queue.to_post = random_.between(1, 8);
    }
    for (const proto::Event& event : hosts_[id]->take_events()) {
      const auto end =
          std::ranges::find_if(ends_, [&](const Endpoint& e) { return e.qp->qpn.value == event.object; });
      if (event.type == proto::AsyncEvent::kSrqLimitReached) {
        if (event.object == 0 || event.object > sides_[id].queues.size()) fail("a limit event of no SRQ");
        ++sides_[id].queues[event.object - 1].limits_told;
      } else if (event.type == proto::AsyncEvent::kQpLastWqeReached && end != ends_.end() && end->host == id) {
        ++end->last_wqes;
      } else if (!harsh_) {
        fail("unexpected event " + std::to_string(static_cast<int>(event.type)));
      }
    }
    for (const Queue& queue : sides_[id].queues) {
      if (queue.limits_told != queue.limits_due) fail("a limit event is missing, or one too many");
    }
  }
}

void SharedReceiveWorld::on_send(Endpoint& end, const uroce_cqe& cqe) {
  while (!end.posted.empty() && !end.posted.front().signaled && end.posted.front().wr_id != cqe.wr_id) {
    if (end.send_failed) fail("a flushed work did not complete: " + text(cqe));
    messages_[end.posted.front().message].acknowledged = true;
    end.posted.pop_front();
  }
  if (end.posted.empty() || end.posted.front().wr_id != cqe.wr_id) fail("send out of order or lost: " + text(cqe));
  const Posted posted = end.posted.front();
  end.posted.pop_front();
  if (cqe.status == UROCE_WC_SUCCESS) {
    if (end.send_failed) fail("success after a failure: " + text(cqe));
    messages_[posted.message].acknowledged = true;
    return;
  }
  const bool first = !end.send_failed;
  end.send_failed = true;
  if (cqe.status == UROCE_WC_WR_FLUSH_ERR) {
    end.flushed |= first;
  } else if (first && cqe.status == UROCE_WC_REM_INV_REQ_ERR) {
    end.blames_peer = true;
  } else if (!first || cqe.status != UROCE_WC_RETRY_EXC_ERR || !in_error(ends_[end.peer])) {
    fail("unexpected send error: " + text(cqe));
  }
}

void SharedReceiveWorld::on_receive(Endpoint& end, const uroce_cqe& cqe) {
  Queue& queue = sides_[end.host].queues[end.queue];
  const std::size_t index = cqe.wr_id & ~kIsReceive;
  if (index >= queue.receives.size()) fail("completion of no receive: " + text(cqe));
  Receive& receive = queue.receives[index];
  if (receive.done) fail("a receive completes twice: " + text(cqe));
  receive.done = true;
  if (index < end.next_receive) fail("receives of a QP out of order: " + text(cqe));
  end.next_receive = index + 1;
  queue.past_done = std::max(queue.past_done, index + 1);
  if (cqe.status == UROCE_WC_SUCCESS) {
    if (end.due.empty()) fail("a message that nobody sent: " + text(cqe));
    Message& message = messages_[end.due.front()];
    end.due.pop_front();
    return check_message(end, cqe, receive, message);
  }
  receive.harmed = true;
  // The QP enters ERR when its NAK leaves, which waits for the port.
  const bool ended = in_error(end) || cqe.status == UROCE_WC_LOC_LEN_ERR;
  if (!ended || end.flushed_receive || end.too_short) fail("unexpected receive error: " + text(cqe));
  if (cqe.status == UROCE_WC_WR_FLUSH_ERR) {
    end.flushed_receive = true;
    return;
  }
  end.too_short = true;
  const bool right = cqe.status == UROCE_WC_LOC_LEN_ERR && !end.due.empty() &&
                     messages_[end.due.front()].opcode != UROCE_WR_RDMA_WRITE_WITH_IMM &&
                     messages_[end.due.front()].payload.size() > receive.capacity;
  if (!right) fail("a receive fails that fits: " + text(cqe));
}

void SharedReceiveWorld::check_message(const Endpoint& end, const uroce_cqe& cqe, const Receive& receive,
                                       Message& message) {
  const bool write = message.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
  const Side& side = sides_[end.host];
  if (cqe.byte_len != message.payload.size()) fail("wrong length: " + text(cqe));
  if ((cqe.opcode == UROCE_WC_RECV_RDMA_WITH_IMM) != write) fail("wrong opcode: " + text(cqe));
  const bool immediate = (cqe.wc_flags & UROCE_WC_WITH_IMM) != 0;
  if (immediate != (message.opcode != UROCE_WR_SEND)) fail("wrong flags: " + text(cqe));
  if (immediate && cqe.imm_data != message.immediate) fail("wrong immediate data: " + text(cqe));
  if (!write && message.payload.size() > receive.capacity) fail("more than its receive has room for: " + text(cqe));
  const std::byte* const landed = side.arena.data() + (write ? message.target : receive.at);
  if (!std::equal(message.payload.begin(), message.payload.end(), landed)) fail("wrong data: " + text(cqe));
  // After it, and in the buffer that a WRITE leaves alone, all is as it was.
  const std::size_t filled = write ? 0 : message.payload.size();
  const std::byte* const buffer = side.arena.data() + receive.at;
  if (!std::equal(buffer + filled, buffer + receive.capacity, side.initial.data() + receive.at + filled)) {
    fail("more changed than the message fills: " + text(cqe));
  }
  message.delivered = true;
}

void SharedReceiveWorld::check_end(const Endpoint& end) const {
  const Endpoint& peer = ends_[end.peer];
  if (end.blames_peer && !peer.too_short) fail("a send failed for a receive that fits");
  if (end.flushed && !end.moved && !end.too_short) fail("sends were flushed without a cause");
  const bool well = !end.moved && !end.too_short && !end.send_failed;
  if (in_error(end) == well) fail("a QP is in ERR without a cause, or with one isn't");
  if (end.flushed_receive && well) fail("a receive of a QP that is well was flushed");
  if (end.last_wqes != (well ? 0u : 1u)) fail("last WQE reached: told wrongly");
  const bool pair_well = well && !peer.moved && !peer.too_short && !peer.send_failed;
  if (pair_well && !end.due.empty()) fail("a message was lost");
}

void SharedReceiveWorld::check_memory(std::uint32_t host) const {
  const Side& side = sides_[host];
  std::vector<std::byte> expected = side.initial;
  copy_bytes(expected, side.arena, kTargetAt, side.target_used);
  // What arrived whole was looked at when it did.
  for (const Queue& queue : side.queues) {
    for (const Receive& receive : queue.receives) {
      if (receive.done) copy_bytes(expected, side.arena, receive.at, receive.capacity);
    }
  }
  if (expected != side.arena) fail("memory changed that nobody had the right to change");
}

void SharedReceiveWorld::finish() {
  for (const Endpoint& end : ends_) check_end(end);
  for (const Message& message : messages_) {
    if (message.acknowledged && !message.delivered) fail("a message was acknowledged that did not arrive");
  }
  for (Endpoint& end : ends_) {
    end.moved = true;
    if (change_state(*hosts_[end.host], *end.qp, proto::QpState::kErr, now_).error != 0) fail("to ERR");
  }
  poll();
  take_events();
  for (const Endpoint& end : ends_) {
    if (end.last_wqes != 1) fail("last WQE reached: not told once");
    // Nothing reports an unsignaled work that succeeds; one that fails is flushed.
    for (const Posted& posted : end.posted) {
      if (!messages_[posted.message].delivered) fail("a work that failed did not complete");
    }
  }
  for (std::uint32_t id = 0; id < 2; ++id) {
    check_memory(id);
    for (const Queue& queue : sides_[id].queues) {
      const auto done = static_cast<std::size_t>(std::ranges::count_if(queue.receives, &Receive::done));
      if (done + queue.srq->srq->posted() != queue.receives.size()) fail("receives of a shared queue were lost");
      for (std::size_t i = 0; i < done; ++i) {
        if (!queue.receives[i].done) fail("a receive of a shared queue was skipped");
      }
      if (queue.srq->srq->limit() != queue.armed) fail("the limit isn't what was set");
    }
  }
}

void SharedReceiveWorld::run() {
  while (!quiet()) step();
  poll();
  take_events();
  finish();
}

WorldReport SharedReceiveWorld::report() const {
  WorldReport report = count_frames(hosts_, *network_);
  report.completions = completions_;
  report.virtual_time = now_;
  report.mutated = mutated_;
  return report;
}

WorldReport run_shared_receive_world(const WorldOptions& options) { return run_one<SharedReceiveWorld>(options); }

}  // namespace uroce::sim
