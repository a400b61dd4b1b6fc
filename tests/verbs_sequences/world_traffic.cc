// How the model executes work requests: what each one does at both ends, and with which status it completes.
#include <algorithm>
#include <cstring>

#include "world.h"

namespace verbs_sequences {
namespace {

bool sends_message(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
bool is_write(ibv_wr_opcode opcode) { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool reads(ibv_wr_opcode opcode) { return opcode == IBV_WR_RDMA_READ || is_atomic(opcode); }
int access_of(ibv_wr_opcode opcode) {
  return is_write(opcode)    ? IBV_ACCESS_REMOTE_WRITE
         : is_atomic(opcode) ? IBV_ACCESS_REMOTE_ATOMIC
                             : IBV_ACCESS_REMOTE_READ;
}
std::uint32_t room(const Work& receive) {
  std::uint32_t sum = 0;
  for (const Piece& piece : receive.pieces) sum += piece.length;
  return sum;
}
Work* next_receive(Qp& to) {
  if (to.srq != nullptr) return to.srq->queue.empty() ? nullptr : &to.srq->queue.front();
  for (Work& work : to.receives) {
    if (!work.decided) return &work;
  }
  return nullptr;
}
/// What an atomic leaves where these bytes were.
std::vector<std::uint8_t> result_of(const Work& work, const std::vector<std::uint8_t>& before) {
  std::uint64_t value;
  std::memcpy(&value, before.data(), 8);
  if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    value += work.compare;
  } else if (value == work.compare) {
    value = work.swap;
  }
  std::vector<std::uint8_t> after(8);
  std::memcpy(after.data(), &value, 8);
  return after;
}
std::size_t index(int side) { return static_cast<std::size_t>(side); }

constexpr std::uint32_t kGrh = 40;

}  // namespace

void World::decide(Qp& qp, Work& work, bool receive, std::uint32_t allowed) {
  work.decided = true;
  work.allowed = allowed;
  const bool success = (allowed & bit(IBV_WC_SUCCESS)) != 0;
  work.counted = receive || work.signaled || !success;
  if (work.counted) entry(receive ? *qp.recv_cq : *qp.send_cq, !success || (receive && work.solicited), !success);
}

/// How many of the first `needed` bytes of the list may be used; what a message does not reach is not looked at.
std::uint32_t World::accessible(const Qp& qp, const Work& work, bool write, std::uint32_t needed) const {
  const bool shared = (work.id & 1) != 0 && qp.srq != nullptr;  // a receive of an SRQ, in whose domain it is
  const Pd* const pd = shared ? qp.srq->pd : qp.pd;
  std::uint32_t sum = 0;
  for (const Piece& whole : work.pieces) {
    const Piece piece{whole.begin, std::min(whole.length, needed), whole.lkey};
    needed -= piece.length;
    if (piece.length == 0) continue;
    bool good = false;
    for (const auto& mr : sides_[index(qp.side)].mrs.places) {
      if (!mr || mr->real->lkey != piece.lkey) continue;
      good = mr->pd == pd && piece.begin >= mr->begin && piece.begin + piece.length <= mr->begin + mr->length &&
             (!write || (mr->access & IBV_ACCESS_LOCAL_WRITE) != 0);
    }
    if (!good) break;
    sum += piece.length;
  }
  return sum;
}

bool World::local_access(const Qp& qp, const Work& work, bool write, std::uint32_t needed) const {
  return accessible(qp, work, write, needed) == std::min(needed, room(work));
}

bool World::remote_access(const Qp& to, const Work& work, std::uint32_t length, int access) const {
  if ((static_cast<int>(to.access) & access) == 0) return false;
  if (length == 0) return true;  // the key is not looked at (IBTA vol. 1, 9.7.4.1.4)
  const Side& side = sides_[index(to.side)];
  const auto inside = [&](std::size_t begin, std::size_t size) {
    return work.remote >= begin && work.remote + length <= begin + size;
  };
  for (const auto& mr : side.mrs.places) {
    if (mr && mr->real->rkey == work.rkey) {
      return mr->pd == to.pd && inside(mr->begin, mr->length) && (mr->access & access) != 0;
    }
  }
  for (const auto& mw : side.mws.places) {
    if (mw && mw->mr != nullptr && mw->real->rkey == work.rkey) {
      return mw->pd == to.pd && inside(mw->begin, mw->length) && (static_cast<int>(mw->access) & access) != 0;
    }
  }
  return false;
}

/// A request that was posted before and waited goes on together with those after it, and nothing can be settled
/// in between.
void World::before_failure() {
  failing_ = true;
  if (building_) settle();
}

/// Waits for what is under way if it uses the same bytes. Returns whether the result cannot be predicted, because
/// the ranges overlap among themselves, or with requests that are not waited for.
bool World::claim(const std::vector<Use>& ranges) {
  const auto collide = [](const Use& a, const Use& b) {
    return a.side == b.side && (a.write || b.write) && a.begin < b.end && b.begin < a.end;
  };
  bool wait = false, self = false;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (const Use& other : uses_) {
      if (!collide(ranges[i], other)) continue;
      wait = true;
      if (!building_ && other.write) unknown_.push_back(other);
    }
    for (std::size_t k = 0; k < i; ++k) self |= collide(ranges[i], ranges[k]);
  }
  if (building_ && (wait || uses_.size() > 100)) settle();
  uses_.insert(uses_.end(), ranges.begin(), ranges.end());
  return self || (wait && !building_);
}

std::vector<std::uint8_t> World::get(const Qp& qp, const Work& work) {
  if (work.inlined) return work.data;
  std::vector<std::uint8_t> data;
  const std::vector<std::uint8_t>& from = sides_[index(qp.side)].expected;
  for (const Piece& piece : work.pieces) {
    data.insert(data.end(), from.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                from.begin() + static_cast<std::ptrdiff_t>(piece.begin + piece.length));
  }
  return data;
}

/// Writes data to the pieces; the first `skip` bytes of these become unknown.
void World::put(int side, const std::vector<Piece>& pieces, std::size_t skip, const std::vector<std::uint8_t>& data,
                Placed placed) {
  std::vector<std::uint8_t>& memory = sides_[index(side)].expected;
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const std::size_t length = std::min<std::size_t>(piece.length, skip + data.size() - at);
    const Use range{side, piece.begin, piece.begin + length, true};
    if (length == 0) continue;
    const std::size_t hidden = placed == Placed::kUnknown ? length : std::min(length, at < skip ? skip - at : 0);
    if (hidden > 0) unknown_.push_back({side, piece.begin, piece.begin + hidden, true});
    if (hidden < length) {
      const auto from = data.begin() + static_cast<std::ptrdiff_t>(at + hidden - skip);
      const auto end = from + static_cast<std::ptrdiff_t>(length - hidden);
      if (placed == Placed::kSome) {
        partial_.push_back({side, piece.begin + hidden, {from, end}});
      } else {
        std::copy(from, end, memory.begin() + static_cast<std::ptrdiff_t>(piece.begin + hidden));
      }
    }
    at += length;
    for (auto& qp : sides_[index(side)].qps.places) {
      if (!qp) continue;
      for (Work& waiting : qp->sends) {
        if (waiting.decided) continue;
        for (const Piece& source : waiting.pieces) {
          waiting.unknown |= source.begin < range.end && range.begin < source.begin + source.length;
        }
      }
    }
  }
}

/// Of a request that fails, the first bytes may be placed: the packets or responses before the failure.
void World::put_first(Qp& qp, Work& work, int side, const std::vector<Piece>& pieces,
                      std::vector<std::uint8_t> data, std::uint32_t most) {
  data.resize(std::min<std::size_t>(data.size(), most));
  std::vector<Use> ranges;
  std::size_t left = data.size();
  for (const Piece& piece : pieces) {
    const std::size_t length = std::min<std::size_t>(piece.length, left);
    if (length > 0) ranges.push_back({side, piece.begin, piece.begin + length, true});
    left -= length;
  }
  if (ranges.empty()) return;
  if (!reads(work.opcode) && !work.inlined) {
    for (const Piece& piece : work.pieces)
      ranges.push_back({qp.side, piece.begin, piece.begin + piece.length, false});
  }
  const bool unknown = claim(ranges) || work.unknown;
  put(side, pieces, 0, data, unknown ? Placed::kUnknown : Placed::kSome);
  unreliable_[index(qp.side)][index(side)] = true;  // nobody acknowledges it
}

/// What a request whose own list is wrong does before it fails: packets that are complete may have been sent, and
/// the responses to a READ placed where the list is right.
void World::place_before_failure(Qp& qp, Work& work) {
  Qp* const to = qp.peer;
  if (qp.type == IBV_QPT_UD || to == nullptr) return;
  const std::uint32_t good = accessible(qp, work, reads(work.opcode), work.length);
  if (sends_message(work.opcode)) {
    const Work* const one = next_receive(*to);
    if (one != nullptr) put_first(qp, work, to->side, one->pieces, get(qp, work), good / qp.mtu * qp.mtu);
    return;
  }
  if (!remote_access(*to, work, work.length, access_of(work.opcode))) return;
  const std::vector<Piece> there{{work.remote, work.length, 0}};
  const auto source = sides_[index(to->side)].expected.begin() + static_cast<std::ptrdiff_t>(work.remote);
  const std::vector<std::uint8_t> data(source, source + work.length);
  if (is_atomic(work.opcode)) {
    put_first(qp, work, to->side, there, result_of(work, data), work.length);
  } else if (reads(work.opcode)) {
    put_first(qp, work, qp.side, work.pieces, data, good);
  } else {
    put_first(qp, work, to->side, there, get(qp, work), good / qp.mtu * qp.mtu);
  }
}

void World::fail_locally(Qp& qp, Work& work) {
  before_failure();
  place_before_failure(qp, work);
  const bool otherwise = ground_.differs(Rxe::kQpErrorStatus);
  decide(qp, work, false, bit(IBV_WC_LOC_PROT_ERR) | (otherwise ? bit(IBV_WC_LOC_QP_OP_ERR) : 0));
}

void World::end_both(Qp& qp, Work& work, std::uint32_t allowed) {
  Qp& to = *qp.peer;
  decide(qp, work, false, allowed);
  enter_error(qp);
  to.may_event = true;
  enter_error(to);
}

/// Which of two QPs takes a receive of their SRQ first is open as long as both are under way.
void World::wait_for_turn(Qp& to) {
  if (to.srq == nullptr || to.srq->last == &to) return;
  if (building_) settle();
  to.srq->last = &to;
}

/// The message arrives at a receive. `place`: its data goes there, too.
bool World::receive(Qp& qp, Work& work, Qp& to, bool place) {
  const std::uint32_t header = qp.type == IBV_QPT_UD ? kGrh : 0;
  const std::uint32_t needed = place ? work.length + header : 0;
  wait_for_turn(to);
  Work* one = next_receive(to);
  const bool too_short = needed > room(*one), denied = !local_access(to, *one, true, needed);
  if (too_short || denied) before_failure();
  if (to.srq != nullptr) {
    to.receives.push_back(std::move(to.srq->queue.front()));
    to.srq->queue.pop_front();
    ++to.srq->taken;
    one = &to.receives.back();
    limit_reached(*to.srq);
  }
  if (too_short || denied) {
    const bool otherwise = ground_.differs(Rxe::kQpErrorStatus);
    std::uint32_t here = otherwise ? bit(IBV_WC_LOC_QP_OP_ERR) : 0;
    std::uint32_t there = otherwise ? bit(IBV_WC_REM_OP_ERR) : 0;
    if (too_short) here |= bit(IBV_WC_LOC_LEN_ERR), there |= bit(IBV_WC_REM_INV_REQ_ERR);
    if (denied) here |= bit(IBV_WC_LOC_PROT_ERR), there |= bit(IBV_WC_REM_OP_ERR);
    put_first(qp, work, to.side, one->pieces, get(qp, work), accessible(to, *one, true, needed));
    decide(to, *one, true, here);
    end_both(qp, work, there);
    return true;
  }
  one->length = work.length + header;
  one->has_imm = work.has_imm;
  one->imm = work.imm;
  one->solicited = work.solicited;
  one->source_qp = qp.type == IBV_QPT_UD ? qp.real->qp_num : 0;
  one->done_as = place ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  if (place) {
    std::vector<Use> ranges;
    if (!work.inlined) {
      for (const Piece& piece : work.pieces)
        ranges.push_back({qp.side, piece.begin, piece.begin + piece.length, false});
    }
    std::uint32_t left = needed;
    for (const Piece& piece : one->pieces) {
      const std::uint32_t length = std::min(left, piece.length);
      if (length > 0) ranges.push_back({to.side, piece.begin, piece.begin + length, true});
      left -= length;
    }
    const bool unknown = claim(ranges) || work.unknown;
    put(to.side, one->pieces, header, get(qp, work), unknown ? Placed::kUnknown : Placed::kAll);
  }
  decide(to, *one, true, bit(IBV_WC_SUCCESS));
  return false;
}

/// A SEND that invalidates a region or window of type 1, or no key at all: the receive fails, and nobody answers
/// (IBTA vol. 1, 9.9.6.3, class J).
void World::invalidate(Qp& qp, Work& work, Qp& to) {
  before_failure();
  Work& one = *next_receive(to);
  put_first(qp, work, to.side, one.pieces, get(qp, work), work.length);
  decide(to, one, true, bit(IBV_WC_REM_INV_REQ_ERR));
  enter_error(to);
}

/// Returns false if the request cannot complete yet.
bool World::execute_rc(Qp& qp, Work& work) {
  if (qp.nowhere || qp.peer == nullptr) return false;
  Qp& to = *qp.peer;
  const bool reading = reads(work.opcode);
  const bool consumes = work.opcode != IBV_WR_RDMA_WRITE && !reading;
  if (!work.inlined && !local_access(qp, work, reading, work.length)) {
    fail_locally(qp, work);
    enter_error(qp);
    return true;
  }
  if (!sends_message(work.opcode) && !remote_access(to, work, work.length, access_of(work.opcode))) {
    before_failure();
    end_both(qp, work, bit(IBV_WC_REM_ACCESS_ERR) | bit(IBV_WC_REM_INV_REQ_ERR));
    return true;
  }
  if (consumes && next_receive(to) == nullptr) {
    if (qp.rnr_retry == 7) return false;
    before_failure();
    decide(qp, work, false, bit(IBV_WC_RNR_RETRY_EXC_ERR));
    enter_error(qp);
    return true;
  }
  if (work.opcode == IBV_WR_SEND_WITH_INV) {
    invalidate(qp, work, to);
    if (!ground_.differs(Rxe::kInvalidateAcknowledged)) return false;
    decide(qp, work, false, bit(IBV_WC_SUCCESS));
    breaks_.push_back(&qp);
    return true;
  }
  if (consumes) wait_for_turn(to);  // before what is expected changes
  if (!sends_message(work.opcode)) {
    std::vector<Use> ranges;
    for (const Piece& piece : work.pieces)
      ranges.push_back({qp.side, piece.begin, piece.begin + piece.length, reading});
    ranges.push_back({to.side, work.remote, work.remote + work.length, !reading || is_atomic(work.opcode)});
    if (work.inlined) ranges.erase(ranges.begin(), ranges.end() - 1);
    const Placed placed = claim(ranges) || work.unknown ? Placed::kUnknown : Placed::kAll;
    const std::vector<Piece> there{{work.remote, work.length, 0}};
    if (reading) {
      std::uint8_t* const source = sides_[index(to.side)].expected.data() + work.remote;
      const std::vector<std::uint8_t> data(source, source + work.length);
      put(qp.side, work.pieces, 0, data, placed);
      if (is_atomic(work.opcode)) put(to.side, there, 0, result_of(work, data), placed);
    } else {
      put(to.side, there, 0, get(qp, work), placed);
    }
  }
  if (consumes && receive(qp, work, to, sends_message(work.opcode))) return true;
  decide(qp, work, false, bit(IBV_WC_SUCCESS));
  return true;
}

bool World::execute(Qp& qp, Work& work) {
  if (qp.type == IBV_QPT_RC) return execute_rc(qp, work);
  if (!work.inlined && !local_access(qp, work, false, work.length)) {
    // UC and UD: only the send queue stops (SQE). Devices that go to ERR are common, so the state is looked up.
    fail_locally(qp, work);
    qp.state = IBV_QPS_SQE;
    return true;
  }
  Qp* const to = qp.type == IBV_QPT_UD ? work.target : qp.peer;
  if (to != nullptr) {
    const bool message = work.opcode != IBV_WR_RDMA_WRITE;
    if (!sends_message(work.opcode)) {
      std::vector<Use> ranges{{to->side, work.remote, work.remote + work.length, true}};
      for (const Piece& piece : work.pieces) {
        if (!work.inlined) ranges.push_back({qp.side, piece.begin, piece.begin + piece.length, false});
      }
      const Placed placed = claim(ranges) ? Placed::kUnknown : Placed::kAll;
      put(to->side, {{work.remote, work.length, 0}}, 0, get(qp, work), placed);
    }
    if (message && next_receive(*to) != nullptr) {
      receive(qp, work, *to, sends_message(work.opcode));
    } else if (message) {
      dropped_ = true;
    }
    unreliable_[index(qp.side)][index(to->side)] = true;  // after what was settled above, which did not include it
  } else if (qp.type == IBV_QPT_UD) {
    for (bool& one : unreliable_[index(qp.side)]) one = true;  // its receiver may become ready before it arrives
  }
  decide(qp, work, false, bit(IBV_WC_SUCCESS));
  return true;
}

void World::progress(Qp& qp) {
  for (Work& work : qp.sends) {
    if (work.decided) continue;
    if (qp.state == IBV_QPS_ERR || qp.state == IBV_QPS_SQE) {
      decide(qp, work, false, bit(IBV_WC_WR_FLUSH_ERR));
    } else if (qp.state != IBV_QPS_RTS || !execute(qp, work)) {
      return;
    }
  }
}

void World::submit() {
  if (chain_.empty()) return;
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    Prepared& one = chain_[i];
    one.wr.sg_list = one.list.data();
    one.wr.next = i + 1 < chain_.size() ? &chain_[i + 1].wr : nullptr;
  }
  // The last one that completes by itself tells when all before it have.
  for (auto one = chain_.rbegin(); one != chain_.rend(); ++one) {
    Work& work = *std::find_if(chain_qp_->sends.begin(), chain_qp_->sends.end(),
                               [&](const Work& w) { return w.id == one->wr.wr_id; });
    if (!work.decided) continue;
    if (!work.counted) {
      signal(work, *one);
      decide(*chain_qp_, work, false, work.allowed);
    }
    break;
  }
  ibv_send_wr* bad = nullptr;
  ground_.posted += chain_.size();
  expect(ibv_post_send(chain_qp_->real, &chain_[0].wr, &bad), {0}, "ibv_post_send");
  chain_.clear();
}

void World::settle() {
  submit();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (under_way_ > 0) {
    bool some = false;
    for (Side& side : sides_) {
      for (auto& cq : side.cqs.places) {
        while (cq && cq->entries > 0 && poll_one(side, *cq)) some = true;
      }
    }
    if (some || under_way_ == 0) continue;
    if (std::chrono::steady_clock::now() > end) {
      std::string text = "these have not completed:";
      for (Side& side : sides_) {
        for (auto& qp : side.qps.places) {
          if (!qp) continue;
          for (const auto* queue : {&qp->sends, &qp->receives}) {
            for (const Work& work : *queue) {
              if (work.counted)
                text += " " + std::to_string(work.id) + " of QP " + std::to_string(qp->real->qp_num);
            }
          }
        }
      }
      fail(text);
    }
    sched_yield();
  }
  let_arrive();
  compare_memory();
}

void World::compare_memory() {
  if (uses_.empty() && unknown_.empty()) return;
  uses_.clear();
  for (const Use& range : unknown_) {
    Side& side = sides_[index(range.side)];
    std::memcpy(&side.expected[range.begin], side.memory + range.begin, range.end - range.begin);
  }
  unknown_.clear();
  for (const Partial& range : partial_) {
    Side& side = sides_[index(range.side)];
    for (std::size_t i = 0; i < range.data.size(); ++i) {
      const std::uint8_t found = side.memory[range.begin + i];
      if (found == range.data[i]) side.expected[range.begin + i] = found;
    }
  }
  partial_.clear();
  for (Side& side : sides_) {
    if (std::memcmp(side.expected.data(), side.memory, kArena) == 0) continue;
    std::size_t at = 0;
    while (side.expected[at] == side.memory[at]) ++at;
    fail("memory of side " + std::to_string(side_of(side)) + " differs from what was written, first at " +
         std::to_string(at));
  }
}

/// A datagram in each direction of interest, behind all that was sent before.
void World::let_arrive() {
  for (std::size_t from = 0; from < 2; ++from) {
    for (std::size_t to = 0; to < 2; ++to) {
      if (!unreliable_[from][to]) continue;
      unreliable_[from][to] = false;
      ground_.marker(from, to);
    }
  }
}

}  // namespace verbs_sequences
