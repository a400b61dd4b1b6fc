#include "tests/sim/cm_world.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr std::uint64_t kService = cm::service_id(cm::PortSpace::kTcp, 7174);
constexpr std::uint64_t kIova = 0x10000, kIsReceive = 1ull << 63;
constexpr std::uint64_t kMostSteps = 400'000;
constexpr Nanos kLongestRun = 300 * kSecond;
constexpr PdId kPd{1};

}  // namespace

CmWorld::CmWorld(const WorldOptions& options) : options_(options), random_(options.seed) {
  network_settings_ = draw_short_network(random_, 0.3);
  network_ = std::make_unique<Network>(network_settings_, random_.next());
  longest_trip_ =
      network_settings_.latency + network_settings_.jitter + network_settings_.reorder_by + 100 * kMicrosecond;
  constexpr double kRates[] = {0, 0.1, 0.3, 0.5};
  loss_ = random_.pick(kRates);
  duplicate_ = random_.pick(kRates) / 2;
  ghosts_ = random_.chance(0.5) ? 0.05 : 0;
  delay_ = random_.chance(0.5) ? 100 * kMicrosecond : 8 * kMillisecond;
  manager_config_.max_connections = 64;
  manager_config_.max_listeners = 4;
  manager_config_.max_pending_events = 256;
  manager_config_.response_timeout = 5 * kMillisecond;
  manager_config_.timewait = 20 * kMillisecond;
  manager_config_.max_retries = static_cast<std::uint8_t>(random_.chance(0.5) ? 15 : random_.between(1, 4));
  HostSettings settings;
  settings.workers = random_.chance(0.6) ? 1 : 2;
  settings.busy_port = random_.chance(0.2);
  settings.max_qps = 64;
  settings.cqs = 2;
  settings.cq_entries = 256;
  for (std::uint32_t id = 0; id < 2; ++id) {
    host_settings_[id] = settings;
    host_settings_[id].id = id;
    make_host(id);
  }
  const std::uint32_t count = random_.between(1, 5);
  for (std::uint32_t i = 0; i < count; ++i) begins_.push_back(random_.below(20'000'000));
  if (options.mutation == Mutation::kNone && random_.chance(0.25)) restart_at_ = random_.below(40'000'000);
}

void CmWorld::make_host(std::uint32_t id) {
  host_settings_[id].seed = random_.next();
  hosts_[id] = std::make_unique<Host>(host_settings_[id]);
  manager_config_.seed = random_.next();
  manager_config_.ca_guid = 0x0200'0000'0000'0000 + id;
  managers_[id] = std::make_unique<cm::Manager>(manager_config_);
  if (managers_[id]->listen(kService, 8, 99) != 0) fail("cannot listen");
}

cm::Peer CmWorld::peer_of(std::uint32_t host) const {
  const wire::PathAddress path = hosts_[host]->path_to(*hosts_[1 - host]);
  return {path.source, path.dest};
}

void CmWorld::trace(const std::string& text) const {
  if (options_.trace) std::printf("%12.3f us  %s\n", static_cast<double>(now_) / 1e3, text.c_str());
}

// ---------------------------------------------------------------- programs

CmWorld::Party& CmWorld::add_party(std::uint32_t connection, std::uint32_t host, bool active) {
  Party& party = parties_.emplace_back();
  party.connection = connection;
  party.host = host;
  party.active = active;
  party.psn = Psn(static_cast<std::uint32_t>(random_.next()));
  party.arena.resize(kMessageBytes * (kMessages + 1));
  party.key = *hosts_[host]->table.insert({.pd = kPd,
                                           .access = memory::kLocalWrite,
                                           .iova = kIova,
                                           .length = party.arena.size(),
                                           .base = party.arena.data()});
  const QueueSizes sizes{.sq_entries = 16, .rq_entries = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
  party.qp = std::make_unique<SimQp>();
  const CqId cq{random_.below(2)};
  if (hosts_[host]->create_qp(sizes, Qpn{next_qpn_++}, kPd, cq, cq, *party.qp) != 0) fail("no QP");
  party.to_send = random_.between(1, kMessages - 2);
  if (random_.chance(0.2)) party.leaves_at = now_ + random_.below(60'000'000);
  return party;
}

void CmWorld::connect(std::uint32_t connection) {
  const std::uint32_t host = random_.below(2);
  Party& party = add_party(connection, host, true);
  cm::Req req;
  req.service_id = kService;
  req.local_qpn = party.qp->qpn;
  req.starting_psn = party.psn;
  req.responder_resources = req.initiator_depth = 1;
  std::memcpy(req.private_data.data(), &connection, sizeof connection);
  const auto id = managers_[host]->connect(peer_of(host), req, connection, now_);
  if (!id) fail("the connection manager is full");
  party.id = *id;
}

void CmWorld::post_receives(Party& party) {
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    std::byte* const slot = party.qp->rq.next();
    const uroce_rq_entry entry{kIsReceive | i, 1, 0};
    const uroce_sge sge{kIova + std::uint64_t{kMessageBytes} * i, kMessageBytes, party.key.value};
    std::memcpy(slot, &entry, sizeof entry);
    std::memcpy(slot + sizeof entry, &sge, sizeof sge);
    party.qp->rq.advance();
    ++party.posted;
  }
  party.qp->rq.publish();
}

void CmWorld::on_request(std::uint32_t host, const cm::Event& event) {
  std::uint32_t connection = 0;
  std::memcpy(&connection, event.req.private_data.data(), sizeof connection);
  // A REQ may come again after the end of what it began, or after a restart: the active end then refuses the REP.
  for (const Party& party : parties_) {
    const bool same = party.connection == connection && !party.active && party.host == host && !party.closed;
    if (same && party.stage != Stage::kEnded) fail("one REQ makes two connections: " + describe());
  }
  Party& party = add_party(connection, host, false);
  party.id = event.id;
  party.peer_qpn = event.req.local_qpn;
  if (random_.chance(0.1)) {
    if (!managers_[host]->reject(event.id, cm::RejReason::kConsumerDefined, {}, now_)) fail("no rejection");
    return end(party, false);
  }
  post_receives(party);
  Connection c;
  c.dest_qpn = party.peer_qpn;
  c.sq_psn = party.psn;
  c.rq_psn = event.req.starting_psn;
  connect_qp(party, c);
  cm::Rep rep;
  rep.local_qpn = party.qp->qpn;
  rep.starting_psn = party.psn;
  if (!managers_[host]->accept(event.id, rep, connection, now_)) fail("a request cannot be accepted");
}

void CmWorld::connect_qp(Party& party, Connection c) {
  c.path = hosts_[party.host]->path_to(*hosts_[1 - party.host]);
  c.path_mtu = 256;
  c.timeout = 6;
  while ((4096ull << c.timeout) < longest_trip_ * 12) ++c.timeout;
  const auto verdict = sim::connect(*hosts_[party.host], *party.qp, c, now_);
  if (verdict.error != 0) fail(std::string("connect: ") + verdict.what);
  party.connected = true;
}

void CmWorld::on_response(Party& party, const cm::Event& event) {
  if (party.stage != Stage::kConnecting) fail("a REP for a connection that is not connecting");
  party.peer_qpn = event.rep.local_qpn;
  if (random_.chance(0.1)) {
    if (!managers_[party.host]->reject(party.id, cm::RejReason::kConsumerDefined, {}, now_)) fail("no rejection");
    return end(party, false);
  }
  post_receives(party);
  Connection c;
  c.dest_qpn = party.peer_qpn;
  c.sq_psn = party.psn;
  c.rq_psn = event.rep.starting_psn;
  connect_qp(party, c);
  if (!managers_[party.host]->establish(party.id, {}, now_)) fail("a response cannot be confirmed");
  party.stage = Stage::kOpen;
  party.next = now_;
}

CmWorld::Party* CmWorld::party_of(std::uint32_t host, cm::ConnectionId id) {
  for (Party& party : parties_) {
    if (party.host == host && !party.closed && party.id == id) return &party;
  }
  return nullptr;
}

void CmWorld::on_event(std::uint32_t host, const cm::Event& event) {
  if (event.type == cm::EventType::kRequest) return on_request(host, event);
  Party* const party = party_of(host, event.id);
  if (party == nullptr) fail("an event for no connection");
  trace("host " + std::to_string(host) + " connection " + std::to_string(party->connection) + " event " +
        std::to_string(static_cast<int>(event.type)));
  switch (event.type) {
    case cm::EventType::kResponse: return on_response(*party, event);
    case cm::EventType::kEstablished:
      if (party->stage == Stage::kEnded) return;
      if (party->stage != Stage::kConnecting) fail("established twice");
      party->stage = Stage::kOpen;
      party->next = now_;
      return;
    case cm::EventType::kRejected:
    case cm::EventType::kUnreachable:
    case cm::EventType::kDisconnected: return end(*party, false);
    case cm::EventType::kClosed:
      if (party->stage != Stage::kEnded) fail("closed before its end: " + describe());
      party->closed = true;
      return;
    default: fail("an event of another service");
  }
}

void CmWorld::end(Party& party, bool disconnect) {
  if (party.stage == Stage::kEnded) return;
  trace("host " + std::to_string(party.host) + " ends connection " + std::to_string(party.connection));
  party.stage = Stage::kEnded;
  Host& host = *hosts_[party.host];
  if (disconnect && !managers_[party.host]->disconnect(party.id, now_)) {
    managers_[party.host]->abandon(party.id, now_);
    if (managers_[party.host]->state(party.id) == cm::State::kFree) party.closed = true;
    party.abandoned = true;
  }
  if (change_state(host, *party.qp, proto::QpState::kErr, now_).error != 0 && party.connected) fail("to ERR");
  poll();
  if (party.acked != party.sent || (party.connected && party.received != party.posted)) {
    fail("work requests were not flushed: " + describe());
  }
  host.destroy_qp(*party.qp, now_);
  party.qp.reset();
  if (!host.table.retire(party.key)) fail("an MR can't be retired");
  host.table.release(party.key);
}

std::byte CmWorld::byte_of(const Party& sender, std::uint32_t message, std::uint32_t at) const {
  return static_cast<std::byte>(sender.connection * 31 + message * 7 + at + (sender.active ? 128 : 0));
}

void CmWorld::send_one(Party& party) {
  const std::uint32_t at = kMessageBytes * kMessages;
  if (party.sent != party.acked) return;  // one at a time: they share a buffer
  for (std::uint32_t i = 0; i < kMessageBytes; ++i) party.arena[at + i] = byte_of(party, party.sent, i);
  uroce_sq_entry entry{};
  entry.wr_id = party.sent++;
  entry.opcode = UROCE_WR_SEND;
  entry.flags = UROCE_SEND_SIGNALED;
  entry.num_sge = 1;
  const uroce_sge sge{kIova + at, kMessageBytes, party.key.value};
  queue::write_send(party.qp->sq.next(), entry, &sge, sizeof sge);
  party.qp->sq.advance();
  party.qp->sq.publish();
  hosts_[party.host]->doorbell(*party.qp);
}

void CmWorld::act(Party& party) {
  if (party.stage == Stage::kEnded) return;
  if (now_ >= party.leaves_at) return end(party, true);
  if (party.stage != Stage::kOpen || now_ < party.next) return;
  party.next = now_ + 10'000 + random_.below(2'000'000);
  if (party.failed) return end(party, true);
  if (party.sent < party.to_send) send_one(party);
}

void CmWorld::poll() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (auto& cq : hosts_[id]->cqs) {
      for (const uroce_cqe* cqe = cq->consumer.peek(); cqe != nullptr; cqe = cq->consumer.peek()) {
        const uroce_cqe copy = *cqe;
        cq->consumer.pop();
        cq->consumer.publish();
        ++completions_;
        const auto party = std::find_if(parties_.begin(), parties_.end(), [&](const Party& each) {
          return each.host == id && each.qp && each.qp->qpn.value == copy.qpn;
        });
        if (party == parties_.end()) fail("a completion for no QP: " + text(copy));
        const bool strikes = options_.mutation != Mutation::kNone && !mutated_ && copy.status == UROCE_WC_SUCCESS;
        mutated_ |= strikes;
        if (strikes && options_.mutation == Mutation::kDropCompletion) continue;
        if (strikes && options_.mutation == Mutation::kStrayByte)
          party->arena[party->received * kMessageBytes] ^= std::byte{1};
        on_completion(*party, copy);
        if (strikes && options_.mutation == Mutation::kDoubleCompletion) on_completion(*party, copy);
      }
    }
    hosts_[id]->take_events();
  }
}

void CmWorld::on_completion(Party& party, const uroce_cqe& cqe) {
  const bool receive = (cqe.wr_id & kIsReceive) != 0;
  const std::uint32_t due = receive ? party.received : party.acked;
  if ((cqe.wr_id & ~kIsReceive) != due) fail("completion out of order or lost: " + text(cqe));
  ++(receive ? party.received : party.acked);
  if (cqe.status == UROCE_WC_SUCCESS) {
    if (!receive) return;
    const auto peer = std::find_if(parties_.begin(), parties_.end(), [&](const Party& each) {
      return each.connection == party.connection && each.active != party.active;
    });
    if (peer == parties_.end() || cqe.byte_len != kMessageBytes) fail("a wrong message: " + text(cqe));
    for (std::uint32_t i = 0; i < kMessageBytes; ++i) {
      if (party.arena[due * kMessageBytes + i] != byte_of(*peer, due, i)) fail("wrong data: " + text(cqe));
    }
    return;
  }
  party.failed = true;
  if (party.stage == Stage::kEnded && cqe.status == UROCE_WC_WR_FLUSH_ERR) return;
  // While its peer is well, no message fails.
  const bool peer_well = std::any_of(parties_.begin(), parties_.end(), [&](const Party& each) {
    return each.connection == party.connection && each.active != party.active && each.stage != Stage::kEnded &&
           each.connected && each.qp->qpn == party.peer_qpn && !each.failed;
  });
  if (peer_well || (cqe.status != UROCE_WC_RETRY_EXC_ERR && cqe.status != UROCE_WC_WR_FLUSH_ERR)) {
    fail("unexpected error: " + text(cqe) + '\n' + describe());
  }
}

/// All programs on it are gone, and its connection manager knows nothing.
void CmWorld::restart(std::uint32_t id) {
  trace("host " + std::to_string(id) + " restarts");
  restart_at_ = kNever;
  poll();
  for (Party& party : parties_) {
    if (party.host != id) continue;
    party.stage = Stage::kEnded;
    party.closed = true;
    party.connected = false;
    party.qp.reset();
  }
  hosts_[id].reset();
  make_host(id);
}

// ---------------------------------------------------------------- the world

void CmWorld::carry_messages() {
  while (!messages_.empty() && messages_.begin()->first <= now_) {
    const auto [to, message] = messages_.begin()->second;
    messages_.erase(messages_.begin());
    managers_[to]->receive(message, now_);
  }
  for (std::uint32_t id = 0; id < 2; ++id) {
    managers_[id]->advance(now_);
    cm::Event event;
    while (managers_[id]->take_event(event)) on_event(id, event);
    cm::Message message;
    while (managers_[id]->take_message(message)) {
      std::swap(message.peer.local, message.peer.remote);
      for (int copies = random_.chance(loss_) ? 0 : random_.chance(duplicate_) ? 2 : 1; copies > 0; --copies) {
        messages_.emplace(now_ + 1'000 + random_.below(static_cast<std::uint32_t>(delay_)),
                          std::pair(1 - id, message));
      }
      // A second copy, when the connection may be over and its TIMEWAIT too.
      if (random_.chance(ghosts_)) {
        messages_.emplace(now_ + random_.below(500'000'000), std::pair(1 - id, message));
      }
    }
  }
}

Nanos CmWorld::next_moment() const {
  Nanos next = std::min(network_->next_arrival(), restart_at_);
  if (!messages_.empty()) next = std::min(next, messages_.begin()->first);
  for (std::uint32_t id = 0; id < 2; ++id) {
    next = std::min({next, hosts_[id]->next_timeout(), managers_[id]->next_timeout()});
    if (hosts_[id]->has_work()) next = std::min(next, now_ + 300);
  }
  for (const Nanos begin : begins_) next = std::min(next, begin);
  for (const Party& party : parties_) {
    if (party.stage == Stage::kEnded) continue;
    next = std::min(next, party.leaves_at);
    if (party.stage == Stage::kOpen && (party.failed || party.sent < party.to_send))
      next = std::min(next, party.next);
  }
  return next;
}

void CmWorld::step() {
  if (++steps_ > kMostSteps || now_ > kLongestRun) fail("no end: " + describe());
  const Nanos next = next_moment();
  now_ = std::max(now_, next == kNever ? now_ + kMillisecond : next);
  if (now_ >= restart_at_) restart(random_.below(2));
  std::erase_if(begins_, [this](Nanos begin) {
    if (begin > now_) return false;
    connect(connections_++);
    return true;
  });
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    hosts_[arrival.to]->arrive(frame);
  };
  for (std::uint32_t i = 32; i > 0 && network_->receive(now_, take); --i) {
  }
  carry_messages();
  for (std::size_t i = 0; i < parties_.size(); ++i) act(parties_[i]);
  for (std::uint32_t id = 0; id < 2; ++id) {
    hosts_[id]->step(now_, [&](std::span<const std::byte> frame) { network_->send(1 - id, frame, now_); });
  }
  poll();
}

/// Nothing is under way that could change the state of a connection.
bool CmWorld::quiet() const {
  if (!begins_.empty() || !messages_.empty() || restart_at_ != kNever) return false;
  return std::all_of(parties_.begin(), parties_.end(), [](const Party& party) {
    if (party.stage == Stage::kEnded) return true;
    return party.stage == Stage::kOpen && !party.failed && party.leaves_at == kNever &&
           party.sent == party.to_send && party.acked == party.sent;
  });
}

void CmWorld::check_pairs() {
  for (const Party& party : parties_) {
    if (party.stage != Stage::kOpen) continue;
    const auto peer = std::find_if(parties_.begin(), parties_.end(), [&](const Party& each) {
      return each.connection == party.connection && each.active != party.active && each.stage == Stage::kOpen;
    });
    if (peer == parties_.end()) fail("a half-open connection stays: " + describe());
    if (peer->qp->qpn != party.peer_qpn) fail("two ends of different connections: " + describe());
    if (party.received != peer->sent) fail("messages were lost: " + describe());
  }
}

void CmWorld::take_down() {
  for (std::size_t i = 0; i < parties_.size(); ++i) {
    if (parties_[i].stage == Stage::kOpen && random_.chance(0.7)) end(parties_[i], true);
  }
  const auto over = [this] {
    return std::all_of(parties_.begin(), parties_.end(),
                       [](const Party& party) { return party.stage == Stage::kEnded; }) &&
           managers_[0]->connections() == 0 && managers_[1]->connections() == 0 && messages_.empty();
  };
  while (!over()) {
    step();
    // The one that was left alone receives a DREQ, or notices it by its next message.
    for (Party& party : parties_) {
      if (party.stage == Stage::kOpen && party.sent == party.to_send && party.sent < kMessages) ++party.to_send;
      if (party.stage == Stage::kOpen && party.sent == kMessages && party.acked == party.sent) party.failed = true;
    }
  }
}

void CmWorld::run() {
  while (!quiet()) step();
  // A last message of each shows whether its peer is still there.
  for (Party& party : parties_) {
    if (party.stage == Stage::kOpen) ++party.to_send;
  }
  step();
  while (!quiet()) step();
  check_pairs();
  take_down();
  for (int i = 0; i < 8; ++i) step();
  for (const auto& host : hosts_) {
    if (host->next_timeout() != kNever) fail("a timer runs though there is no QP");
    if (host->table.size() != 0) fail("keys remain");
  }
}

std::string CmWorld::describe() const {
  std::string out = "  at " + std::to_string(now_) + " ns, CM loss " + std::to_string(loss_);
  for (const Party& party : parties_) {
    const cm::State state = party.closed ? cm::State::kFree : managers_[party.host]->state(party.id);
    out += "\n  connection " + std::to_string(party.connection) + (party.active ? " active" : " passive") +
           " host " + std::to_string(party.host) + " stage " + std::to_string(static_cast<int>(party.stage)) + ' ' +
           std::string(cm::name(state)) + (party.failed ? " failed" : "") + " sent " + std::to_string(party.sent) +
           " of " + std::to_string(party.to_send) + " acked " + std::to_string(party.acked) + " received " +
           std::to_string(party.received) + " peer QPN " + std::to_string(party.peer_qpn.value);
  }
  return out;
}

WorldReport CmWorld::report() const {
  WorldReport report;
  for (const auto& host : hosts_) report.frames += host->frames_sent();
  report.harmed = network_->harmed();
  report.damaged = network_->damaged();
  report.completions = completions_;
  report.virtual_time = now_;
  report.mutated = mutated_;
  return report;
}

WorldReport run_cm_world(const WorldOptions& options) { return run_one<CmWorld>(options); }

}  // namespace uroce::sim
