// What a client of a connection that suffers may see, and what its memory may hold.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "tests/sim/fault_link.h"

namespace uroce::sim {
namespace {

constexpr const char* kNames[kFaults] = {"none",     "deregister", "window",    "memory", "to ERR",
                                         "to RESET", "destroy",    "partition", "hostile"};
constexpr const char* kZoneNames[kZones] = {"source", "target", "landing", "receive"};
constexpr std::uint64_t kIsReceive = 1ull << 63;

bool is_write(const FaultWork& work) {
  return work.entry.opcode == UROCE_WR_RDMA_WRITE || work.entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
}
bool lands(const FaultWork& work) {
  return work.entry.opcode == UROCE_WR_RDMA_READ || work.entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD;
}

bool holds(const std::vector<std::byte>& arena, std::size_t at, const std::vector<std::byte>& bytes) {
  return bytes.empty() || std::memcmp(&arena[at], bytes.data(), bytes.size()) == 0;
}

void copy(std::vector<std::byte>& to, const std::vector<std::byte>& from, std::size_t at, std::size_t bytes) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), bytes, to.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

/// Status bits that the first failed work of `side` may have.
std::uint32_t FaultLink::allowed_errors(int side) const {
  if (!disturbed_) return 0;
  if (is_hostile()) return ~status_bit(UROCE_WC_SUCCESS);
  std::uint32_t allowed = 0;
  if (in_error(ends_[side])) allowed |= status_bit(UROCE_WC_WR_FLUSH_ERR);
  if (silent(ends_[1 - side])) allowed |= status_bit(UROCE_WC_RETRY_EXC_ERR);
  constexpr std::uint32_t kRemote = status_bit(UROCE_WC_REM_ACCESS_ERR) | status_bit(UROCE_WC_REM_OP_ERR);
  const bool own = side == fault_side_;
  // A READ whose answer was lost is not answered again once its memory is gone, and the responder goes on.
  constexpr std::uint32_t kLostAnswer = status_bit(UROCE_WC_RETRY_EXC_ERR);
  if (fault_ == Fault::kWindow && !own) allowed |= status_bit(UROCE_WC_REM_ACCESS_ERR) | kLostAnswer;
  if (fault_ != Fault::kDeregister && fault_ != Fault::kMemory) return allowed;
  if (own) {
    const bool local = fault_zone_ == kSourceZone || fault_zone_ == kLandingZone;
    return local ? allowed | status_bit(UROCE_WC_LOC_PROT_ERR) : allowed;
  }
  if (fault_zone_ == kSourceZone) allowed |= kLostAnswer;
  return fault_zone_ == kLandingZone ? allowed : allowed | kRemote;
}

std::uint32_t FaultLink::allowed_receive_errors(int side) const {
  if (!disturbed_ && !ending_) return 0;
  if (is_hostile()) return ~status_bit(UROCE_WC_SUCCESS);
  const bool zone =
      (fault_ == Fault::kDeregister || fault_ == Fault::kMemory) && fault_zone_ == kReceiveZone && disturbed_;
  std::uint32_t allowed = in_error(ends_[side]) ? status_bit(UROCE_WC_WR_FLUSH_ERR) : 0;
  if (zone && side == fault_side_) allowed |= status_bit(UROCE_WC_LOC_PROT_ERR);
  return allowed;
}

bool FaultLink::on_completion(std::uint32_t at, CqId cq, const uroce_cqe& cqe) {
  if (closed_) return false;
  const std::uint32_t index = static_cast<std::uint32_t>(cqe.wr_id >> 36) & 15;
  if (index != index_) return false;
  FaultEnd& end = ends_[at];
  if ((cqe.wr_id >> 40 & 0xffff) != life_) fail("a completion of an earlier life: " + text(cqe));
  if (!end.connected || end.qp->qpn.value != cqe.qpn) fail("a completion after destruction or reset: " + text(cqe));
  const bool receive = (cqe.wr_id & kIsReceive) != 0;
  if (cq != (receive ? end.recv_cq : end.send_cq)) fail("a completion in another CQ: " + text(cqe));
  ++completions_;
  if (receive)
    on_receive(static_cast<int>(at), cqe);
  else
    on_send(static_cast<int>(at), cqe);
  return true;
}

FaultWork& FaultLink::work_of(int side, const uroce_cqe& cqe) {
  FaultEnd& end = ends_[side];
  while (end.completed < end.works.size() && end.works[end.completed].entry.wr_id != cqe.wr_id) {
    FaultWork& before = end.works[end.completed];
    if (before.signaled || end.failed) fail("completion out of order or lost: " + text(cqe) + describe());
    check_success(side, before);
    end.succeeded = ++end.completed;
  }
  if (end.completed == end.works.size()) fail("a completion of no work: " + text(cqe));
  return end.works[end.completed++];
}

void FaultLink::on_send(int side, const uroce_cqe& cqe) {
  FaultEnd& end = ends_[side];
  const FaultWork& work = work_of(side, cqe);
  if (cqe.status == UROCE_WC_SUCCESS) {
    if (end.failed) fail("success after an error: " + text(cqe));
    if (!work.signaled) fail("an unsignaled work completes: " + text(cqe));
    check_success(side, work);
    end.succeeded = end.completed;
    return;
  }
  const std::uint32_t allowed = end.failed ? status_bit(UROCE_WC_WR_FLUSH_ERR) : allowed_errors(side);
  if ((allowed & status_bit(cqe.status)) == 0) fail("unexpected error: " + text(cqe) + '\n' + describe());
  end.failed = true;
}

/// A success means that the bytes are there now.
void FaultLink::check_success(int side, const FaultWork& work) const {
  if (is_hostile()) return;
  const FaultEnd& end = ends_[side];
  const FaultEnd& peer = ends_[1 - side];
  if (work.must_fail) fail("a work succeeds though nobody answers: " + describe());
  if (lands(work) && !holds(end.arena, work.local, work.payload)) fail("wrong data at a completion: " + describe());
  if (is_write(work) && !holds(peer.arena, work.target, work.payload)) fail("a WRITE is not there: " + describe());
}

void FaultLink::on_receive(int side, const uroce_cqe& cqe) {
  FaultEnd& end = ends_[side];
  const FaultEnd& peer = ends_[1 - side];
  if (end.received == end.receives.size()) fail("a completion of no receive: " + text(cqe));
  FaultReceive& receive = end.receives[end.received++];
  if (receive.wr_id != cqe.wr_id) fail("receive out of order or lost: " + text(cqe) + '\n' + describe());
  if (cqe.status != UROCE_WC_SUCCESS) {
    const std::uint32_t allowed =
        end.receive_failed ? status_bit(UROCE_WC_WR_FLUSH_ERR) : allowed_receive_errors(side);
    if ((allowed & status_bit(cqe.status)) == 0) fail("unexpected receive error: " + text(cqe) + '\n' + describe());
    end.receive_failed = true;
    return;
  }
  if (end.receive_failed) fail("a receive succeeds after an error: " + text(cqe));
  const std::size_t number = end.received_ok++;
  if (is_hostile()) return;
  if (number >= peer.consuming.size()) fail("a message that nobody sent: " + text(cqe));
  const FaultWork& work = peer.works[peer.consuming[number]];
  const bool write = is_write(work);
  const bool immediate = work.entry.opcode != UROCE_WR_SEND;
  if (cqe.opcode != (write ? UROCE_WC_RECV_RDMA_WITH_IMM : UROCE_WC_RECV)) fail("wrong opcode: " + text(cqe));
  if (cqe.byte_len != work.length || (cqe.wc_flags & UROCE_WC_WITH_IMM) != (immediate ? UROCE_WC_WITH_IMM : 0) ||
      (immediate && cqe.imm_data != work.entry.imm_data)) {
    fail("wrong receive: " + text(cqe) + '\n' + describe());
  }
  if (write) return;
  if (!holds(end.arena, receive.at, work.payload)) fail("wrong data received: " + text(cqe));
  receive.filled = true;
}

/// The arena: bytes that no request of this life names are as they were.
void FaultLink::check_memory(int side) const {
  const FaultEnd& end = ends_[side];
  const FaultEnd& peer = ends_[1 - side];
  for (std::size_t i = 0; i < kZones; ++i) {
    const FaultZone& zone = end.zones[i];
    if (!zone.frozen.empty() && !holds(end.arena, zone.at, zone.frozen)) {
      fail(std::string("memory changed after its deregistration: ") + kZoneNames[i] + '\n' + describe());
    }
  }
  std::vector<std::byte> expected = end.initial;
  if (is_hostile()) {
    for (const ZoneKind kind : {kTargetZone, kLandingZone, kReceiveZone})
      copy(expected, end.arena, end.zones[kind].at, end.zones[kind].size);
  } else {
    for (std::size_t i = 0; i < peer.works.size(); ++i) {
      const FaultWork& work = peer.works[i];
      if (!is_write(work) || work.length == 0) continue;
      copy(expected, end.arena, work.target, work.length);
      if (i < peer.succeeded && !holds(end.arena, work.target, work.payload)) fail("a WRITE went: " + describe());
    }
    for (std::size_t i = 0; i < end.works.size(); ++i) {
      const FaultWork& work = end.works[i];
      if (!lands(work)) continue;
      copy(expected, end.arena, work.local, work.length);
      if (i < end.succeeded && !holds(end.arena, work.local, work.payload)) fail("a READ went: " + describe());
    }
    for (std::size_t i = 0; i < end.receives.size(); ++i) {
      const FaultReceive& receive = end.receives[i];
      const bool may_be_harmed = i >= end.received_ok;
      if (may_be_harmed) copy(expected, end.arena, receive.at, receive.capacity);
      if (!receive.filled) continue;
      const FaultWork& work = peer.works[peer.consuming[i]];
      std::copy(work.payload.begin(), work.payload.end(),
                expected.begin() + static_cast<std::ptrdiff_t>(receive.at));
    }
    copy(expected, end.arena, end.zones[kTargetZone].at, 8);  // check_counter()
  }
  if (std::memcmp(expected.data(), end.arena.data(), expected.size()) == 0) return;
  const auto wrong = std::mismatch(expected.begin(), expected.end(), end.arena.begin());
  fail("stray write at byte " + std::to_string(wrong.first - expected.begin()) + " of the arena of side " +
       std::to_string(side) + '\n' + describe());
}

/// Atomics are executed in order and once: the word holds the sum of some first ones, all that succeeded among
/// them.
void FaultLink::check_counter(int side) const {
  const FaultEnd& end = ends_[side];
  const FaultEnd& peer = ends_[1 - side];
  std::uint64_t word = 0, sum = 0;
  const std::size_t at = end.zones[kTargetZone].at;
  std::memcpy(&word, &end.arena[at], 8);
  std::memcpy(&sum, &end.initial[at], 8);
  bool fits = false;
  for (std::size_t i = 0; i < peer.works.size(); ++i) {
    if (peer.works[i].entry.opcode != UROCE_WR_ATOMIC_FETCH_AND_ADD) continue;
    fits |= i >= peer.succeeded && word == sum;
    sum += peer.works[i].entry.atomic.compare_add;
  }
  // An access that fails may have written a part of the word.
  const bool harmed = disturbed_ && fault_ == Fault::kMemory && fault_zone_ == kTargetZone && side == fault_side_;
  if (!fits && !harmed && word != sum) fail("an atomic was executed twice, or not: " + describe());
}

void FaultLink::check_end(int side) const {
  const FaultEnd& end = ends_[side];
  const FaultEnd& peer = ends_[1 - side];
  const std::size_t posted = end.srq ? end.srq->srq->posted() : 0;  // an SRQ is not flushed
  if (end.connected && end.received + posted != end.receives.size())
    fail("receives were not flushed, or lost: " + describe());
  if (is_hostile()) return;
  if (!disturbed_ && (end.failed || end.succeeded != end.works.size())) fail("a work failed: " + describe());
  check_counter(side);
  // What the requester saw succeed, the receiver saw too.
  std::size_t due = 0;
  for (const std::size_t index : peer.consuming) due += index < peer.succeeded;
  const bool complete = end.connected && !restarted_;
  if (complete && end.received_ok < due) fail("an acknowledged message was not received: " + describe());
}

void FaultLink::finish(Nanos now, const std::function<void()>& poll) {
  for (int side = 0; side < 2; ++side) {
    FaultEnd& end = ends_[side];
    if (!end.connected) continue;
    for (; !end.failed && end.completed < end.works.size(); end.succeeded = ++end.completed) {
      check_success(side, end.works[end.completed]);
    }
    if (in_error(end) && !disturbed_) fail("a QP is in ERR without a cause: " + describe());
    if (!in_error(end) && (end.failed || end.receive_failed)) fail("an error, and the QP goes on: " + describe());
  }
  for (FaultEnd& end : ends_) {
    if (!end.connected) continue;
    ending_ = true;
    if (!in_error(end) && change_state(host(end), *end.qp, proto::QpState::kErr, now).error != 0) fail("to ERR");
  }
  poll();
  for (int side = 0; side < 2; ++side) {
    check_end(side);
    check_memory(side);
  }
  ending_ = false;
  for (FaultEnd& end : ends_) unregister_zones(end);
  if (lives_left_-- > 1) {
    ++life_;
    return begin(now);
  }
  for (FaultEnd& end : ends_) {
    if (end.qp) destroy(end, now);
    if (end.srq) host(end).set_srq(srq_of(end), nullptr);
  }
  poll();
  closed_ = true;
}

std::string FaultLink::describe() const {
  std::ostringstream out;
  out << "link " << index_ << " life " << life_ << ": " << kNames[static_cast<int>(fault_)] << " ("
      << kZoneNames[fault_zone_] << ") at side " << fault_side_ << " after " << fault_after_ << " completions"
      << (disturbed_ ? ", applied" : "") << (restarted_ ? ", restarted" : "") << ", mtu " << mtu_
      << (shared_ ? ", SRQs" : "");
  for (const FaultEnd& end : ends_) {
    proto::QpSnapshot snapshot;
    if (end.qp) host(end).query(*end.qp, snapshot);
    out << "\n  QPN " << (end.qp ? end.qp->qpn.value : 0) << " state "
        << (end.qp ? static_cast<int>(snapshot.state) : -1) << (end.connected ? "" : " not connected") << " psn "
        << end.psn.value() << ", works " << end.works.size() << " (+" << end.works_left << ") completed "
        << end.completed << " succeeded " << end.succeeded << (end.failed ? " failed" : "") << ", receives "
        << end.receives.size() << " received " << end.received << " good " << end.received_ok << " outstanding "
        << snapshot.sq_outstanding << " in flight " << snapshot.psns_in_flight;
  }
  return out.str();
}

}  // namespace uroce::sim
