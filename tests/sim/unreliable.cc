#include "tests/sim/unreliable.h"

#include <algorithm>
#include <cstring>

#include "wire/frame_template.h"

namespace uroce::sim {
namespace {

using proto::QpType;

constexpr std::size_t kGap = 256, kSource = 96 << 10, kReceive = 256 << 10, kTarget = 96 << 10;
constexpr std::size_t kSourceAt = kGap, kReceiveAt = kSourceAt + kSource + kGap;
constexpr std::size_t kTargetAt = kReceiveAt + kReceive + kGap, kArena = kTargetAt + kTarget + kGap;
constexpr std::uint64_t kIova = 0x1000;  // of every zone, plus its place in the arena
constexpr std::uint32_t kQkey = 0x11223344, kGrh = 40;
constexpr AhId kGroupHandle{7};
constexpr std::uint32_t kMostSteps = 300'000;
constexpr PdId kPd{1};
constexpr SrqId kSrq{2};

bool is_write(std::uint8_t opcode) {
  return opcode == UROCE_WR_RDMA_WRITE || opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
}

wire::Address group_address(bool ipv6) {
  wire::Address address;
  if (ipv6) {
    address.bytes = {0xff, 0x0e};
  } else {
    address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2};
  }
  address.bytes[15] = 3;
  return address;
}

}  // namespace

UnreliableWorld::UnreliableWorld(const WorldOptions& options) : options_(options), random_(options.seed) {
  NetworkSettings network = draw_short_network(random_, 0.35);
  network.max_losses = ~0u;  // nobody sends again
  harmless_ = network.harmless();
  duplicates_ = network.duplicate != 0;
  network_ = std::make_unique<Network>(network, random_.next());
  ample_ = random_.chance(0.6);
  constexpr std::uint32_t kSizes[] = {16, 300, 1100, 2500};
  largest_ = random_.pick(kSizes);
  const bool ipv6 = random_.chance(0.3);
  for (std::uint32_t id = 0; id < 2; ++id) set_up_host(id, ipv6, random_.chance(0.4));
  for (std::uint32_t pairs = random_.below(3); pairs > 0; --pairs) {
    for (std::uint32_t host = 0; host < 2; ++host) add_endpoint(host, QpType::kUc);
    const auto last = static_cast<std::uint32_t>(ends_.size()) - 1;
    ends_[last].peer = last - 1;
    ends_[last - 1].peer = last;
  }
  const bool none = ends_.empty();
  for (std::uint32_t host = 0; host < 2; ++host) {
    for (std::uint32_t count = random_.between(none ? 1 : 0, 2); count > 0; --count) {
      add_endpoint(host, QpType::kUd);
    }
  }
  connect_all();
}

void UnreliableWorld::set_up_host(std::uint32_t id, bool ipv6, bool shared) {
  HostSettings settings;
  settings.id = id;
  settings.ipv6 = ipv6;
  settings.seed = random_.next();
  settings.cqs = random_.between(1, 3);
  settings.quantum_packets = random_.between(1, 20);
  settings.offload_ip_checksum = options_.seed % 5 == 0;
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
  side.target = insert(kTargetAt, kTarget, memory::kLocalWrite | memory::kRemoteWrite | memory::kMwBind);
  if (!shared) return;
  side.srq = std::make_unique<SimSrq>(proto::SrqCreate{.id = kSrq, .pd = kPd, .owner = 1, .max_sge = 2}, 512);
  hosts_.back()->set_srq(kSrq, side.srq->srq.get());
}

void UnreliableWorld::add_endpoint(std::uint32_t host, QpType type) {
  Endpoint& end = ends_.emplace_back();
  end.host = host;
  end.type = type;
  end.qp = std::make_unique<SimQp>();
  end.works_left = random_.between(1, ample_ ? 12 : 30);
  end.bad_due = random_.chance(0.1);
  QueueSizes queues{.sq_entries = 32, .rq_entries = 256, .max_send_sge = 2, .max_recv_sge = 2};
  queues.type = type;
  queues.signal_all = random_.chance(0.3);
  if (sides_[host].srq) queues.srq = kSrq;
  const CqId cq{random_.below(hosts_[host]->settings.cqs)};
  const Qpn qpn{0x100 * (host + 1) + static_cast<std::uint32_t>(ends_.size())};
  if (hosts_[host]->create_qp(queues, qpn, kPd, cq, cq, *end.qp) != 0) fail("no QP");
}

void UnreliableWorld::connect_all() {
  constexpr std::uint32_t kMtus[] = {256, 512, 1024};
  const std::uint32_t mtu = random_.pick(kMtus);
  const wire::Address group = group_address(hosts_[0]->settings.ipv6);
  for (std::uint32_t host = 0; host < 2; ++host) {
    for (std::uint32_t to = 0; to < 2; ++to) {
      const wire::PathAddress path = hosts_[host]->path_to(*hosts_[to]);
      hosts_[host]->set_address_handle(AhId{to}, kPd, path);
    }
    wire::PathAddress path = hosts_[host]->path_to(*hosts_[1 - host]);
    path.dest = group;
    hosts_[host]->set_address_handle(kGroupHandle, kPd, path);
  }
  for (Endpoint& end : ends_) end.connection.sq_psn = Psn(static_cast<std::uint32_t>(random_.next()));
  for (Endpoint& end : ends_) {
    Connection& c = end.connection;
    Host& host = *hosts_[end.host];
    c.type = end.type;
    c.qkey = kQkey;
    c.path_mtu = mtu;
    if (end.type == QpType::kUc) {
      c.path = host.path_to(*hosts_[1 - end.host]);
      c.dest_qpn = ends_[end.peer].qp->qpn;
      c.rq_psn = ends_[end.peer].connection.sq_psn;
    }
    const auto verdict = connect(host, *end.qp, c, now_);
    if (verdict.error != 0) fail(std::string("connect: ") + verdict.what);
    end.attached = end.type == QpType::kUd && random_.chance(0.5);
    if (end.attached && host.transport(*end.qp).attach_multicast(end.qp->index, group) != 0) fail("attach");
    if (end.type == QpType::kUc && random_.chance(0.4)) ask_for_window(end);
  }
  std::uint32_t due[2] = {};
  for (const Endpoint& end : ends_) due[0] += end.works_left + 1;
  for (Endpoint& end : ends_) {
    for (std::uint32_t i = 0; ample_ && i < due[0]; ++i) add_receive(end, largest_ + kGrh);
  }
}

void UnreliableWorld::ask_for_window(Endpoint& end) {
  const auto kind = random_.chance(0.5) ? memory::Kind::kWindow1 : memory::Kind::kWindow2;
  const Key window = *hosts_[end.host]->table.allocate_window(kPd, kind);
  end.window_asked = Key{(window.value & ~0xffu) | ((window.value + 1) & 0xff)};
  uroce_sq_entry entry{};
  entry.wr_id = random_.next();
  entry.opcode = UROCE_WR_BIND_MW;
  entry.flags = UROCE_SEND_SIGNALED;
  entry.mw_handle = window.value;
  entry.rkey = end.window_asked.value;
  entry.remote_addr = kIova + kTargetAt;
  entry.bind = {sides_[end.host].target.value, memory::kRemoteWrite, kTarget};
  put(end, entry, {}, {entry.wr_id, UROCE_WC_BIND_MW, true, false, 0});
}

void UnreliableWorld::put(Endpoint& end, const uroce_sq_entry& entry, const uroce_sge& sge, const Posted& posted) {
  std::byte* const slot = end.qp->sq.next();
  // A bind has no list.
  queue::write_send(slot, entry, &sge, entry.num_sge * sizeof sge);
  end.qp->sq.advance();
  end.qp->sq.publish();
  end.posted.push_back(posted);
  hosts_[end.host]->doorbell(*end.qp);
}

void UnreliableWorld::add_receive(Endpoint& end, std::uint32_t bytes) {
  Side& side = sides_[end.host];
  queue::WorkProducer& ring = side.srq ? side.srq->producer : end.qp->rq;
  std::byte* const slot = ring.next();
  if (slot == nullptr || side.receive_used + bytes > kReceive) {
    ample_ = false;
    return;
  }
  const std::size_t at = kReceiveAt + side.receive_used;
  side.receive_used += bytes;
  // Two elements, cut anywhere.
  const std::uint32_t first = random_.below(bytes + 1);
  const uroce_sge sges[2] = {{kIova + at, first, side.receive.value},
                             {kIova + at + first, bytes - first, side.receive.value}};
  const uroce_rq_entry entry{side.receives.size(), 2, 0};
  std::memcpy(slot, &entry, sizeof entry);
  std::memcpy(slot + sizeof entry, sges, sizeof sges);
  ring.advance();
  ring.publish();
  side.receives.push_back({at});
  if (side.srq) {
    ++side.srq_posted;
  } else {
    end.receives.push_back(entry.wr_id);
  }
}

void UnreliableWorld::post_receives(Endpoint& end) {
  Side& side = sides_[end.host];
  if (!ample_) {
    for (std::uint32_t count = random_.below(4); count > 0; --count) add_receive(end, random_.below(largest_ + 80));
  }
  if (!side.srq || side.srq->srq->limit() != 0 || !random_.chance(0.2)) return;
  ++side.limits_set;
  side.limits_told += side.srq->srq->set_limit(random_.between(1, 10));
}

void UnreliableWorld::draw_datagram(Message& message, uroce_sq_entry& entry) {
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].type == QpType::kUd) others.push_back(i);
  }
  message.to = random_.chance(0.3) ? kGroup : others[random_.below(static_cast<std::uint32_t>(others.size()))];
  message.right_qkey = random_.chance(0.9);
  entry.ud.remote_qkey = !message.right_qkey   ? kQkey ^ 1
                         : random_.chance(0.3) ? 0x80000000u | random_.below(1000)
                                               : kQkey;
  if (message.to == kGroup) {
    entry.ah = kGroupHandle.value;
    entry.ud.remote_qpn = 0xffffff;
  } else {
    entry.ah = ends_[message.to].host;
    entry.ud.remote_qpn = ends_[message.to].qp->qpn.value;
  }
}

bool UnreliableWorld::draw(Endpoint& end, Message& message, uroce_sq_entry& entry, uroce_sge& sge) {
  constexpr std::uint8_t kOpcodes[] = {UROCE_WR_SEND, UROCE_WR_SEND_WITH_IMM, UROCE_WR_RDMA_WRITE,
                                       UROCE_WR_RDMA_WRITE_WITH_IMM};
  const bool datagram = end.type == QpType::kUd;
  message.opcode = kOpcodes[random_.below(datagram ? 2 : 4)];
  message.immediate = message.opcode == UROCE_WR_SEND_WITH_IMM || message.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
  const std::uint32_t least = message.opcode == UROCE_WR_SEND ? 4 : 0;
  const std::uint32_t length = random_.between(least, largest_);
  Side& side = sides_[end.host];
  if (side.source_used + length > kSource) return false;
  const std::size_t at = kSourceAt + side.source_used;
  const auto number = static_cast<std::uint32_t>(messages_.size()) + 1;
  if (length >= 4) {
    std::memcpy(&side.arena[at], &number, 4);
    std::memcpy(&side.initial[at], &number, 4);
  }
  const auto begin = side.arena.begin() + static_cast<std::ptrdiff_t>(at);
  message.payload.assign(begin, begin + length);
  entry.opcode = message.opcode;
  entry.imm_data = number;
  if (datagram) {
    draw_datagram(message, entry);
  } else {
    message.to = end.peer;
    Endpoint& peer = ends_[end.peer];
    Side& far = sides_[peer.host];
    if (is_write(message.opcode)) {
      if (far.target_used + length > kTarget) return false;
      message.target = kTargetAt + far.target_used;
      far.target_used += length;
      entry.remote_addr = kIova + message.target;
      entry.rkey = peer.window.value != 0 && random_.chance(0.7) ? peer.window.value : far.target.value;
    }
  }
  side.source_used += length;
  sge = {kIova + at, length, side.source.value};
  return true;
}

void UnreliableWorld::post_work(std::uint32_t index) {
  Endpoint& end = ends_[index];
  if (end.works_left == 0 || end.flushing || end.posted.size() >= 30) return;
  Message message;
  message.from = index;
  uroce_sq_entry entry{};
  uroce_sge sge{};
  if (!draw(end, message, entry, sge)) {
    end.works_left = 0;
    return;
  }
  --end.works_left;
  entry.wr_id = random_.next();
  entry.num_sge = 1;
  const bool bad = end.bad_due && random_.chance(0.2);
  if (bad) {
    end.bad_due = false;
    message.flushed = true;
    entry.opcode = random_.chance(0.5) ? std::uint8_t{UROCE_WR_RDMA_READ} : std::uint8_t{200};
  }
  if (end.works_left == 0 || random_.chance(0.5)) entry.flags |= UROCE_SEND_SIGNALED;
  if (random_.chance(0.2)) entry.flags |= UROCE_SEND_SOLICITED;
  const bool signaled = bad || end.qp->sizes.signal_all || (entry.flags & UROCE_SEND_SIGNALED) != 0;
  messages_.push_back(std::move(message));
  const std::uint8_t completes_as = is_write(entry.opcode) ? UROCE_WC_RDMA_WRITE : UROCE_WC_SEND;
  put(end, entry, sge, {entry.wr_id, completes_as, signaled, bad, static_cast<std::uint32_t>(messages_.size())});
}

void UnreliableWorld::act() {
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    Endpoint& end = ends_[i];
    if (end.flushing && end.posted.empty()) {
      if (change_state(*hosts_[end.host], *end.qp, proto::QpState::kRts, now_).error != 0) fail("SQE to RTS");
      end.flushing = false;
    }
    if (random_.chance(0.5)) post_receives(end);
    for (std::uint32_t count = random_.below(4); count > 0; --count) post_work(i);
  }
}

void UnreliableWorld::send(std::uint32_t from, std::span<const std::byte> frame) {
  const bool group = dest_qpn_of(frame) == 0xffffff;
  if (group) network_->send(from, frame, now_);
  // A frame for a QP of the same host comes back.
  const std::uint32_t host = (dest_qpn_of(frame) & 0xfffff) >> 8;
  network_->send(group || (host != 1 && host != 2) ? 1 - from : host - 1, frame, now_);
}

bool UnreliableWorld::quiet() const {
  if (network_->next_arrival() != kNever) return false;
  for (const auto& host : hosts_) {
    if (host->has_work()) return false;
  }
  return std::ranges::all_of(ends_, [](const Endpoint& end) { return end.works_left == 0 && !end.flushing; });
}

void UnreliableWorld::step() {
  if (++steps_ > kMostSteps) fail("no end");
  now_ += random_.chance(0.3) && network_->next_arrival() != kNever
              ? std::max(network_->next_arrival(), now_) - now_
              : random_.below(1'000);
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    may_be_refused_ += arrival.damaged;
    hosts_[arrival.to]->arrive(frame);
  };
  for (std::uint32_t i = random_.between(1, 40); i > 0 && network_->receive(now_, take); --i) {
  }
  if (random_.chance(0.5)) act();
  for (std::uint32_t id = 0; id < 2; ++id) {
    hosts_[id]->step(now_, [&](std::span<const std::byte> frame) { send(id, frame); });
  }
  if (hosts_[0]->frames_refused() + hosts_[1]->frames_refused() > may_be_refused_) fail("a good frame was refused");
  if (random_.chance(0.4)) poll();
  take_events();
}

void UnreliableWorld::poll() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (auto& cq : hosts_[id]->cqs) {
      for (const uroce_cqe* cqe = cq->consumer.peek(); cqe != nullptr; cqe = cq->consumer.peek()) {
        const uroce_cqe copy = *cqe;
        cq->consumer.pop();
        cq->consumer.publish();
        ++completions_;
        const auto end =
            std::ranges::find_if(ends_, [&](const Endpoint& each) { return each.qp->qpn.value == copy.qpn; });
        if (end == ends_.end() || end->host != id) fail("a completion for no QP: " + text(copy));
        if ((copy.opcode & 0x80) != 0) {
          hand_on(static_cast<std::uint32_t>(end - ends_.begin()), copy);
        } else {
          on_send(*end, copy);
        }
      }
    }
  }
}

void UnreliableWorld::hand_on(std::uint32_t index, const uroce_cqe& cqe) {
  if (options_.mutation == Mutation::kNone || mutated_ || random_.chance(0.5)) return on_receive(index, cqe);
  mutated_ = true;
  if (options_.mutation == Mutation::kDropCompletion) return;
  if (options_.mutation == Mutation::kStrayByte) sides_[0].arena[kSourceAt - 1] ^= std::byte{1};
  on_receive(index, cqe);
  if (options_.mutation == Mutation::kDoubleCompletion) on_receive(index, cqe);
}

void UnreliableWorld::take_events() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (const proto::Event& event : hosts_[id]->take_events()) {
      switch (event.type) {
        case proto::AsyncEvent::kSrqLimitReached: ++sides_[id].limits_told; break;
        case proto::AsyncEvent::kQpLastWqeReached:
          if (!ending_ || !sides_[id].srq) fail("last WQE reached of a QP that is well");
          break;
        default: fail("unexpected event " + std::to_string(static_cast<int>(event.type)));
      }
    }
  }
}

void UnreliableWorld::on_send(Endpoint& end, const uroce_cqe& cqe) {
  while (!end.posted.empty() && !end.posted.front().signaled && end.posted.front().wr_id != cqe.wr_id) {
    if (end.flushing) fail("a flushed work did not complete: " + text(cqe));
    end.posted.pop_front();
  }
  if (end.posted.empty() || end.posted.front().wr_id != cqe.wr_id) fail("send out of order or lost: " + text(cqe));
  const Posted posted = end.posted.front();
  end.posted.pop_front();
  if (posted.completes_as == UROCE_WC_BIND_MW && cqe.status == UROCE_WC_SUCCESS) end.window = end.window_asked;
  if (end.flushing) {
    if (cqe.status != UROCE_WC_WR_FLUSH_ERR) fail("not flushed after an error: " + text(cqe));
    messages_[posted.message - 1].flushed = true;
    return;
  }
  if (posted.bad) {
    if (cqe.status != UROCE_WC_LOC_QP_OP_ERR) fail("a bad work passed: " + text(cqe));
    end.flushing = true;
    return;
  }
  if (cqe.status != UROCE_WC_SUCCESS || cqe.opcode != posted.completes_as) {
    fail("wrong send completion: " + text(cqe));
  }
  if (!posted.signaled) fail("completion of an unsignaled request: " + text(cqe));
}

void UnreliableWorld::on_receive(std::uint32_t index, const uroce_cqe& cqe) {
  Endpoint& end = ends_[index];
  Side& side = sides_[end.host];
  if (cqe.wr_id >= side.receives.size()) fail("completion of no receive: " + text(cqe));
  Receive& receive = side.receives[cqe.wr_id];
  if (receive.done) fail("a receive completes twice: " + text(cqe));
  receive.done = true;
  if (side.srq) {
    ++side.srq_taken;
  } else {
    if (end.receives.empty() || end.receives.front() != cqe.wr_id) fail("receive out of order: " + text(cqe));
    end.receives.pop_front();
  }
  if (ending_ && cqe.status == UROCE_WC_WR_FLUSH_ERR) return;
  if (cqe.status != UROCE_WC_SUCCESS) fail("unexpected receive error: " + text(cqe));
  check_message(index, cqe, receive);
}

UnreliableWorld::Message& UnreliableWorld::identify(const uroce_cqe& cqe, const std::byte* payload) {
  std::uint32_t number = cqe.imm_data;
  if ((cqe.wc_flags & UROCE_WC_WITH_IMM) == 0) std::memcpy(&number, payload, 4);
  if (number == 0 || number > messages_.size()) fail("a message that nobody sent: " + text(cqe));
  Message& message = messages_[number - 1];
  if (message.immediate != ((cqe.wc_flags & UROCE_WC_WITH_IMM) != 0)) fail("wrong flags: " + text(cqe));
  if (harmless_) {
    // Two flows: a group's frames may arrive at another worker than those for the QP itself.
    std::uint32_t& newest = ends_[message.from].newest[cqe.qpn | std::uint32_t{message.to == kGroup} << 24];
    if (number <= newest) fail("messages out of order: " + text(cqe));
    newest = number;
  }
  return message;
}

void UnreliableWorld::check_message(std::uint32_t index, const uroce_cqe& cqe, const Receive& receive) {
  const Endpoint& end = ends_[index];
  const Side& side = sides_[end.host];
  const bool datagram = end.type == QpType::kUd;
  const std::size_t at = receive.at + (datagram ? kGrh : 0);
  Message& message = identify(cqe, &side.arena[at]);
  if (message.flushed || !message.right_qkey) fail("a message that may not arrive: " + text(cqe));
  const bool meant = message.to == index || (message.to == kGroup && end.attached);
  if (!meant || cqe.src_qp != ends_[message.from].qp->qpn.value) fail("a message for another: " + text(cqe));
  if (cqe.byte_len != message.payload.size() + (datagram ? kGrh : 0)) fail("wrong length: " + text(cqe));
  if (((cqe.wc_flags & UROCE_WC_GRH) != 0) != datagram) fail("wrong GRH flag: " + text(cqe));
  const bool write = is_write(message.opcode);
  if ((cqe.opcode == UROCE_WC_RECV_RDMA_WITH_IMM) != write) fail("wrong opcode: " + text(cqe));
  const std::byte* const landed = &side.arena[write ? message.target : at];
  if (!message.payload.empty() && std::memcmp(landed, message.payload.data(), message.payload.size()) != 0) {
    fail("wrong data: " + text(cqe));
  }
  if (datagram) {
    const bool ipv6 = hosts_[end.host]->settings.ipv6;
    const auto version = std::to_integer<int>(side.arena[receive.at + (ipv6 ? 0 : 20)]) >> 4;
    if (version != (ipv6 ? 6 : 4)) fail("no IP header before the payload: " + text(cqe));
  }
  ++message.deliveries;
}

void UnreliableWorld::check_deliveries() const {
  const auto attached = static_cast<std::uint32_t>(std::ranges::count_if(ends_, &Endpoint::attached));
  for (const Message& message : messages_) {
    const std::uint32_t most = message.to == kGroup ? attached : 1;
    if (!duplicates_ && message.deliveries > most) fail("a message came more than once");
    const bool due = harmless_ && !message.flushed && message.right_qkey;
    if (!due || !ample_) continue;
    const std::uint32_t want = message.opcode == UROCE_WR_RDMA_WRITE ? 0 : most;
    if (message.deliveries != want) fail("a message was lost though nothing was harmed");
  }
}

void UnreliableWorld::check_memory(std::uint32_t host) const {
  const Side& side = sides_[host];
  std::vector<std::byte> expected = side.initial;
  const auto copy = [&](std::size_t at, std::size_t bytes) {
    std::copy_n(side.arena.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
  };
  copy(kReceiveAt, side.receive_used);
  for (const Message& message : messages_) {
    if (message.to == kGroup || ends_[message.to].host != host || !is_write(message.opcode)) continue;
    // Each byte is the old one or the new one, and where nothing was harmed the new one.
    for (std::size_t i = 0; i < message.payload.size(); ++i) {
      const std::size_t at = message.target + i;
      const bool written = side.arena[at] == message.payload[i];
      const bool may_be_old = !harmless_ || message.flushed || (message.immediate && !ample_);
      if (!written && (!may_be_old || side.arena[at] != side.initial[at])) fail("wrong byte of a WRITE");
    }
    copy(message.target, message.payload.size());
  }
  if (expected != side.arena) fail("memory changed that nobody had the right to change");
}

void UnreliableWorld::finish() {
  for (const Endpoint& end : ends_) {
    for (const Posted& posted : end.posted) {
      if (posted.signaled) fail("a send never completed");
    }
    proto::QpSnapshot snapshot;
    hosts_[end.host]->query(*end.qp, snapshot);
    if (snapshot.sq_outstanding != 0 || snapshot.state != proto::QpState::kRts) fail("a QP isn't well at the end");
  }
  check_deliveries();
  ending_ = true;
  for (Endpoint& end : ends_) {
    if (change_state(*hosts_[end.host], *end.qp, proto::QpState::kErr, now_).error != 0) fail("to ERR");
  }
  poll();
  take_events();
  for (const Endpoint& end : ends_) {
    if (!end.receives.empty()) fail("receives were not flushed");
  }
  for (std::uint32_t id = 0; id < 2; ++id) {
    const Side& side = sides_[id];
    check_memory(id);
    if (!side.srq) continue;
    const proto::Srq& srq = *side.srq->srq;
    if (srq.posted() + side.srq_taken != side.srq_posted) fail("receives of the shared queue were lost");
    if (side.limits_told + (srq.limit() != 0 ? 1 : 0) != side.limits_set) fail("limit events told wrongly");
  }
}

void UnreliableWorld::run() {
  for (bool again = true; again;) {
    while (!quiet()) step();
    poll();
    // A bad work among the last ones: its queue is restarted before the end.
    again = std::ranges::any_of(ends_, &Endpoint::flushing);
  }
  finish();
}

WorldReport UnreliableWorld::report() const {
  WorldReport report = count_frames(hosts_, *network_);
  report.completions = completions_;
  report.virtual_time = now_;
  report.mutated = mutated_;
  return report;
}

WorldReport run_unreliable_world(const WorldOptions& options) { return run_one<UnreliableWorld>(options); }

}  // namespace uroce::sim
