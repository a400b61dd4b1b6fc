#include "tests/sim/pair.h"

#include <algorithm>
#include <sstream>

namespace uroce::sim {
namespace {

constexpr std::uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};
constexpr const char* kEndings[] = {"normal", "bad remote", "bad local", "bad receive", "to error", "no receives"};

Ending draw_ending(Random& random) {
  if (random.chance(0.6)) return Ending::kNormal;
  constexpr Ending kBad[] = {Ending::kBadRemote,  Ending::kBadRemote, Ending::kBadLocal,
                             Ending::kBadReceive, Ending::kToError,   Ending::kNoReceives};
  return random.pick(kBad);
}

Psn draw_psn(Random& random) {
  const auto value = static_cast<std::uint32_t>(random.next());
  return random.chance(0.3) ? Psn(0) - random.below(300) : Psn(value);
}

/// Shortest ACK timeout code (4.096 us << code) that is well beyond a round trip.
std::uint8_t timeout_code(Nanos longest_trip, Random& random) {
  std::uint32_t code = 6;
  while ((4096ull << code) < longest_trip * 12) ++code;
  return static_cast<std::uint8_t>(code + random.below(3));
}

}  // namespace

Pair::Pair(const Setting& setting, std::uint32_t index, std::uint64_t seed)
    : setting_(setting), index_(index), random_(seed) {
  set_up_ends();
  lives_left_ = random_.chance(0.3) ? random_.below(3) : 0;
}

Pair::~Pair() = default;

void Pair::set_up_ends() {
  ZoneSizes zones;
  zones.source = setting_.largest_message;
  zones.target = setting_.largest_message + 64;
  zones.landing = zones.receive = std::max(16384u, setting_.largest_message * 6);
  constexpr std::uint32_t kEntries[] = {2, 4, 16, 64, 128};
  const bool xrc = random_.chance(0.15), shared = random_.chance(0.2);
  const Qpn base{0x100 + random_.below(0x700000) * 2};
  for (int side = 0; side < 2; ++side) {
    QueueSizes queues;
    queues.sq_entries = random_.pick(kEntries);
    queues.rq_entries = random_.pick(kEntries);
    queues.max_send_sge = random_.between(1, 6);
    queues.max_recv_sge = random_.between(1, 6);
    queues.max_inline = random_.chance(0.3) ? 0 : random_.between(1, 256);
    queues.signal_all = random_.chance(0.2);
    if (xrc) queues.type = side == 0 ? proto::QpType::kXrcSend : proto::QpType::kXrcRecv;
    if (xrc ? side == 1 : shared) queues.srq = SrqId{index_ * 2 + static_cast<std::uint32_t>(side) + 1};
    sim::set_up(ends_[side], *setting_.host[side], random_, zones, queues,
                Qpn{base.value + static_cast<std::uint32_t>(side)}, PdId{index_ * 2 + 1});
  }
}

void Pair::begin(Nanos now) {
  ending_ = setting_.mortal || setting_.only_normal ? Ending::kNormal : draw_ending(random_);
  bad_side_ = static_cast<int>(random_.below(2));
  bad_at_ = random_.below(30);
  eager_receives_ = ending_ != Ending::kNoReceives && random_.chance(0.3);
  mtu_ = random_.pick(kMtus);
  drain_ = ending_ == Ending::kNormal && !setting_.mortal && random_.chance(0.2) ? Drain::kPlanned : Drain::kNone;
  drain_side_ = static_cast<int>(random_.below(2));
  if (is_xrc()) {
    drain_side_ = 0;
    bad_side_ = ending_ == Ending::kBadReceive || ending_ == Ending::kNoReceives ? 1 : 0;
  }
  for (int side = 0; side < 2; ++side) {
    End& end = ends_[side];
    begin_connection(end, random_);
    end.works_left = random_.chance(0.1) || (is_xrc() && side == 1) ? 0 : random_.between(1, 60);
    end.extra_receives = random_.below(5);
    limits_[side].max_message =
        random_.chance(0.5) ? std::min(setting_.largest_message, mtu_ * 3) : setting_.largest_message;
    end.next_action = now + random_.below(20'000);
    end.pause = 4'000;
  }
  if (ending_ != Ending::kNormal) {
    End& bad = ends_[is_xrc() ? 0 : ending_ == Ending::kNoReceives ? 1 - bad_side_ : bad_side_];
    bad.works_left = std::max<std::uint32_t>(bad.works_left, static_cast<std::uint32_t>(bad_at_) + 3);
  }
  connect_ends(now);
  trace(describe());
}

void Pair::connect_ends(Nanos now) {
  const Psn psn[2] = {draw_psn(random_), draw_psn(random_)};
  const bool may_lose = !setting_.harmless || setting_.mortal;
  const bool timer_optional = !may_lose && ending_ == Ending::kNormal;
  for (int side = 0; side < 2; ++side) {
    End& end = ends_[side];
    const End& peer = ends_[1 - side];
    Connection& c = end.connection;
    c.path = end.host->path_to(*peer.host);
    c.path.flow_label = random_.chance(0.3) ? random_.below(1u << 20) : 0;
    c.dest_qpn = peer.qp->qpn;
    c.sq_psn = psn[side];
    // One in eight is limited; its PSN is random enough.
    c.rate_kbps = psn[side].value() % 8 == 0 ? 20'000 + psn[side].value() % 1'000'000 : 0;
    c.rq_psn = psn[1 - side];
    c.path_mtu = mtu_;
    // Half of the connections between sleepy hosts have none: nothing makes up for an answer that is ignored.
    const bool no_timer =
        timer_optional && (random_.chance(0.1) || (setting_.sleepy && psn[side].value() % 2 == 0));
    c.timeout = no_timer ? std::uint8_t{0} : timeout_code(setting_.longest_trip, random_);
    c.retry_cnt = may_lose ? 7 : static_cast<std::uint8_t>(random_.below(8));
    if (setting_.mortal) c.retry_cnt = static_cast<std::uint8_t>(setting_.harmless ? random_.below(8) : 7);
    c.rnr_retry = eager_receives_ && setting_.harmless ? static_cast<std::uint8_t>(random_.below(8)) : 7;
    if (ending_ == Ending::kNoReceives && side != bad_side_)
      c.rnr_retry = static_cast<std::uint8_t>(random_.below(4));
    c.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 12));
    c.max_dest_rd_atomic = static_cast<std::uint8_t>(random_.between(1, 16));
  }
  for (int side = 0; side < 2; ++side) {
    Connection& c = ends_[side].connection;
    const std::uint8_t most = ends_[1 - side].connection.max_dest_rd_atomic;
    c.max_rd_atomic = static_cast<std::uint8_t>(random_.chance(0.5) ? most : random_.between(0, most));
    limits_[side].max_rd_atomic = c.max_rd_atomic;
  }
  for (End& end : ends_) {
    end.connection.type = end.qp->sizes.type;
    const proto::ModifyVerdict verdict = connect(*end.host, *end.qp, end.connection, now);
    if (verdict.error != 0) throw Violation(std::string("connect: ") + verdict.what);
  }
}

Nanos Pair::next_action() const { return closed_ ? kNever : std::min(ends_[0].next_action, ends_[1].next_action); }

void Pair::act(Nanos now) {
  if (closed_) return;
  for (int side = 0; side < 2; ++side) {
    End& end = ends_[side];
    if (end.next_action > now) continue;
    if (end.out.failed || end.in_error()) end.works_left = std::min(end.works_left, random_.below(4));
    if (ends_[1 - side].out.failed || ends_[1 - side].in_error()) end.works_left = std::min(end.works_left, 2u);
    change_states(side, now);
    bool posted = false;
    if (random_.chance(0.6)) posted |= post_receives(side);
    if (random_.chance(0.7)) posted |= post_works(side);
    const bool idle = side_done(side) && side_done(1 - side);
    end.pause = posted ? 4'000 : std::min<Nanos>(end.pause * 3 / 2, 1'000'000);
    end.next_action = idle ? kNever : now + 200 + end.pause + random_.below(random_.chance(0.1) ? 400'000 : 4'000);
  }
}

void Pair::change_states(int side, Nanos now) {
  End& end = ends_[side];
  if (ending_ == Ending::kToError && side == bad_side_ && !end.moved_to_error && end.out.works.size() >= bad_at_) {
    trace("client moves QP " + std::to_string(end.qp->qpn.value) + " to ERR");
    end.moved_to_error = true;
    if (change_state(*end.host, *end.qp, proto::QpState::kErr, now).error != 0) throw Violation("to ERR");
  }
  if (side != drain_side_) return;
  if (drain_ == Drain::kPlanned && !end.out.works.empty() && random_.chance(0.3)) {
    trace("client drains QP " + std::to_string(end.qp->qpn.value));
    drain_ = Drain::kRequested;
    if (change_state(*end.host, *end.qp, proto::QpState::kSqd, now, true).error != 0) throw Violation("to SQD");
  } else if (drain_ == Drain::kDrained && now >= drain_until_) {
    if (end.out.completed != drained_at_) throw Violation("a work completed while the send queue was drained");
    drain_ = Drain::kOver;
    if (change_state(*end.host, *end.qp, proto::QpState::kRts, now).error != 0) throw Violation("SQD to RTS");
    trace("client takes QP " + std::to_string(end.qp->qpn.value) + " back to RTS");
  }
}

void Pair::on_event(const Host& host, const proto::Event& event, Nanos now) {
  const int side = side_of(host, event.object);
  if (side < 0 || event.type != proto::AsyncEvent::kSqDrained) return;
  if (drain_ != Drain::kRequested || side != drain_side_) throw Violation("SQ drained without a request");
  const End& end = ends_[side];
  proto::QpSnapshot snapshot;
  end.host->query(*end.qp, snapshot);
  if (snapshot.sq_draining || snapshot.psns_in_flight != 0) throw Violation("drained with packets in flight");
  drain_ = Drain::kDrained;
  drained_at_ = end.out.completed;
  drain_until_ = now + random_.below(2'000'000);
}

bool Pair::post_works(int side) {
  End& end = ends_[side];
  End& peer = ends_[1 - side];
  std::uint32_t burst = random_.chance(0.2) ? 100 : random_.between(1, 6);
  bool posted = false;
  for (; burst > 0 && end.works_left > 0; --burst) {
    if (end.qp->sq.next() == nullptr) break;
    WorkLimits limits = limits_[side];
    if (eager_receives_) {
      post_receives(1 - side);
      limits.may_consume = end.out.receives.size() > end.out.consuming.size();
    }
    const bool bad_now = side == bad_side_ && end.out.works.size() == bad_at_;
    draw_work(end, peer, random_, limits, bad_now ? ending_ : Ending::kNormal);
    if (!post(end, end.out.works.back())) throw Violation("the send queue had a slot and has none");
    trace("post " + sim::describe(end.out.works.back()));
    --end.works_left;
    posted = true;
  }
  if (!posted) return false;
  end.qp->sq.publish();
  end.host->doorbell(*end.qp);
  return true;
}

bool Pair::post_receives(int side) {
  if (is_xrc() && side == 0) return false;
  End& end = ends_[side];
  Flow& in = ends_[1 - side].out;
  bool posted = false;
  std::size_t wanted = in.consuming.size() + end.extra_receives + (eager_receives_ ? 8 : 0);
  if (ending_ == Ending::kNoReceives && side == bad_side_) wanted = std::min(wanted, bad_at_);
  while (in.receives.size() < wanted && end.receive_ring().next() != nullptr) {
    const bool bad = ending_ == Ending::kBadReceive && side == bad_side_ && in.receives.size() == bad_at_ / 4;
    draw_receive(end, ends_[1 - side], random_, limits_[1 - side], bad);
    if (!post(end, in.receives.back())) throw Violation("the receive queue had a slot and has none");
    posted = true;
    if (!eager_receives_ && random_.chance(0.3)) break;
  }
  if (posted) end.receive_ring().publish();
  return posted;
}

int Pair::side_of(const Host& host, std::uint32_t qpn) const {
  for (int side = 0; side < 2; ++side) {
    if (ends_[side].host == &host && ends_[side].qp->qpn.value == qpn) return side;
  }
  return -1;
}

Surroundings Pair::surroundings(int side) const {
  const End& peer = ends_[1 - side];
  Surroundings around;
  around.own_in_error = ends_[side].in_error();
  around.peer_in_error = peer.in_error();
  around.network_dead = setting_.network->dead();
  around.network_harmless = setting_.harmless;
  around.rnr_may_exhaust = ending_ == Ending::kNoReceives && side != bad_side_;
  around.nak_must_arrive = setting_.harmless && !around.network_dead &&
                           (ending_ == Ending::kBadRemote || ending_ == Ending::kBadReceive);
  around.mtu = mtu_;
  return around;
}

bool Pair::on_completion(const Host& host, CqId cq, const uroce_cqe& cqe) {
  const int side = side_of(host, cqe.qpn);
  if (side < 0) return false;
  End& end = ends_[side];
  Flow& in = ends_[1 - side].out;
  ++completions_;
  // Only wr_id, status and QPN are good in an error completion.
  const bool receive = cqe.status == UROCE_WC_SUCCESS
                           ? (cqe.opcode & 0x80) != 0
                           : in.received < in.receives.size() && in.receives[in.received].wr_id == cqe.wr_id;
  if (cq != (receive ? end.recv_cq : end.send_cq)) throw Violation("a completion in another CQ");
  if (receive) {
    on_receive_completion(in, cqe, surroundings(side), end.arena,
                          cqe.status == 0 ? ends_[1 - side].qp->qpn : Qpn{});
    if (cqe.status == 0 && (cqe.wc_flags & UROCE_WC_WITH_INV) != 0) {
      memory::Span span;
      if (end.host->table.resolve(Key{cqe.imm_data}, end.pd, end.target.iova, 1, memory::kRemoteRead, span,
                                  end.qp->qpn) == memory::Verdict::kOk) {
        throw Violation("an invalidated key still resolves");
      }
    }
  } else {
    const std::size_t from = end.out.completed;
    on_send_completion(end.out, cqe, surroundings(side), end.arena);
    if (cqe.status == UROCE_WC_SUCCESS) take_new_keys(end, from);
    std::erase_if(end.open_reads, [&](std::size_t index) { return index < end.out.completed; });
  }
  return true;
}

void Pair::take_new_keys(End& end, std::size_t from) {
  for (std::size_t i = from; i < end.out.completed; ++i) {
    const uroce_sq_entry& entry = end.out.works[i].entry;
    if (entry.opcode != UROCE_WR_BIND_MW && entry.opcode != UROCE_WR_REG_MR) continue;
    end.perishable.push_back(Key{entry.rkey});
  }
}

bool Pair::works_done(const End& end) const {
  if (end.works_left != 0) return false;
  if (end.out.works_done()) return true;
  // The last works were unsignaled: no completion reports their success.
  proto::QpSnapshot snapshot;
  return silent_rest(end.out) && end.host->query(*end.qp, snapshot) && snapshot.sq_outstanding == 0;
}

bool Pair::side_done(int side) const {
  const End& end = ends_[side];
  const Flow& in = ends_[1 - side].out;
  if (!works_done(end)) return false;
  if (side == drain_side_ && (drain_ == Drain::kRequested || drain_ == Drain::kDrained)) return false;
  if (ending_ == Ending::kToError && side == bad_side_ && !end.moved_to_error) return false;
  if (end.in_error()) return end.srq || in.received == in.receives.size();
  return in.failed || in.received == in.consuming.size();
}

bool Pair::done() const { return side_done(0) && side_done(1); }

bool Pair::finish(Nanos now, const std::function<void()>& poll) {
  for (End& end : ends_) complete_rest(end.out, end.arena);
  for (int side = 0; side < 2; ++side) {
    check_memory(ends_[side].memory, ends_[side].out, ends_[1 - side].out, mtu_);
  }
  for (int side = 0; side < 2; ++side) {
    const End& end = ends_[side];
    const bool cause =
        end.out.failed || ends_[1 - side].out.receive_failed || end.moved_to_error || ending_ == Ending::kBadRemote;
    if (end.in_error() && !cause) throw Violation("a QP is in ERR without a cause");
    if (!end.in_error() && (end.out.failed || ends_[1 - side].out.receive_failed)) {
      throw Violation("a QP completed in error and isn't in ERR");
    }
    if (end.in_error()) continue;
    proto::QpSnapshot snapshot;
    end.host->query(*end.qp, snapshot);
    if (snapshot.sq_outstanding != 0 || snapshot.psns_in_flight != 0)
      throw Violation("done, but works outstanding");
    // The remaining receives are flushed, in order, and the one that a message had begun too.
    if (change_state(*end.host, *end.qp, proto::QpState::kErr, now).error != 0) throw Violation("to ERR");
  }
  poll();
  for (int side = 0; side < 2; ++side) {
    const Flow& in = ends_[1 - side].out;
    const std::size_t left = ends_[side].srq ? ends_[side].srq->srq->posted() : 0;
    if (in.received + left != in.receives.size()) throw Violation("receives were not flushed, or lost");
  }
  const bool again = lives_left_ > 0 && !setting_.mortal;
  for (End& end : ends_) {
    setting_.network->forget(end.qp->qpn);
    if (again) {
      if (change_state(*end.host, *end.qp, proto::QpState::kReset, now).error != 0) throw Violation("to RESET");
      end.qp->sq.reset();
      end.qp->rq.reset();
    } else {
      tear_down(end);
      end.next_action = kNever;
    }
  }
  if (!again) {
    closed_ = true;
    return false;
  }
  --lives_left_;
  begin(now);
  return true;
}

std::string Pair::describe() const {
  std::ostringstream out;
  out << "pair " << index_ << ": " << kEndings[static_cast<int>(ending_)] << " at side " << bad_side_ << " after "
      << bad_at_ << ", mtu " << mtu_ << (eager_receives_ ? ", eager receives" : "");
  for (int side = 0; side < 2; ++side) {
    const End& end = ends_[side];
    const Flow& in = ends_[1 - side].out;
    proto::QpSnapshot snapshot;
    if (!closed_) end.host->query(*end.qp, snapshot);
    out << "\n  side " << side << ": QPN " << end.qp->qpn.value << " state " << static_cast<int>(snapshot.state)
        << " sq_psn " << end.connection.sq_psn.value() << " works " << end.out.works.size() << " (+"
        << end.works_left << " to post) completed " << end.out.completed << (end.out.failed ? " failed" : "")
        << ", receives " << in.receives.size() << " of " << in.consuming.size() << " messages, received "
        << in.received << ", sq_entries " << end.qp->sizes.sq_entries << " rd_atomic "
        << int{end.connection.max_rd_atomic} << " timeout " << int{end.connection.timeout} << " retry_cnt "
        << int{end.connection.retry_cnt} << " rnr_retry " << int{end.connection.rnr_retry} << " outstanding "
        << snapshot.sq_outstanding << " psns_in_flight " << snapshot.psns_in_flight << " drain "
        << static_cast<int>(drain_) << (end.srq_id ? " SRQ" : "") << (is_xrc() ? " XRC" : "");
  }
  return out.str();
}

}  // namespace uroce::sim
