// Random work that is predictable: hazards that verbs leave undefined (a WRITE into bytes that an earlier,
// unfinished READ may read again, a SEND out of bytes that a READ is landing in) get a fence.
#include <algorithm>
#include <cstring>

#include "tests/sim/end.h"

namespace uroce::sim {
namespace {

std::uint32_t draw_length(Random& random, std::uint32_t most) {
  if (most == 0 || random.chance(0.05)) return 0;
  switch (random.below(4)) {
    case 0: return random.between(1, std::min(most, 64u));
    case 1: return random.between(1, std::min(most, 2048u));
    case 2: return most;
    default: return random.between(1, most);
  }
}

/// Cuts [offset, offset + length) into 1..most scatter elements, some of them empty.
void cut(const Zone& zone, std::size_t offset, std::uint32_t length, std::uint32_t most, Random& random,
         std::vector<uroce_sge>& sges, std::vector<Piece>& pieces) {
  const std::uint32_t count = std::max(1u, random.between(1, std::max(1u, most)));
  std::uint32_t left = length;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t bytes = i + 1 == count ? left : random.between(0, left);
    sges.push_back({zone.address(offset), bytes, zone.key.value});
    pieces.push_back({offset, bytes});
    offset += bytes;
    left -= bytes;
  }
}

bool overlap(const Piece& a, const Piece& b) {
  return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

/// Payload that leaves: out of the source zones, in pieces, or (fenced) what an earlier READ brought.
void draw_source(End& end, Random& random, Work& work) {
  const std::uint32_t max_inline = end.qp->sizes.max_inline;
  if (work.length <= max_inline && random.chance(0.4)) {
    work.entry.flags |= UROCE_SEND_INLINE;
    work.entry.inline_length = work.length;
    work.payload.resize(work.length);
    random.fill(work.payload.data(), work.length);
    return;
  }
  if (end.landing.used >= work.length && work.length != 0 && random.chance(0.1)) {
    work.entry.flags |= UROCE_SEND_FENCE;
    const std::size_t from =
        end.landing.piece.offset + random.below(static_cast<std::uint32_t>(end.landing.used - work.length + 1));
    cut(end.landing, from, work.length, end.qp->sizes.max_send_sge, random, work.sges, work.local);
  } else {
    const std::uint32_t most = end.qp->sizes.max_send_sge;
    const std::uint32_t first = most > 1 ? random.below(work.length + 1) : work.length;
    std::uint32_t split = most > 1 ? random.between(1, most - 1) : 1;
    for (std::uint32_t part : {first, work.length - first}) {
      const Zone& zone = end.source[random.below(2)];
      if (part == 0 && !work.sges.empty()) continue;
      const std::size_t from = zone.piece.offset + random.below(zone.piece.length - part + 1);
      cut(zone, from, part, split, random, work.sges, work.local);
      split = most - std::min<std::uint32_t>(most - 1, static_cast<std::uint32_t>(work.sges.size()));
    }
  }
  for (const Piece& piece : work.local) {
    const auto at = end.image.begin() + static_cast<std::ptrdiff_t>(piece.offset);
    work.payload.insert(work.payload.end(), at, at + piece.length);
  }
}

/// A target range in the peer, and the key and address that name it.
void draw_target(End& peer, Random& random, Work& work, std::uint32_t align) {
  const Zone& zone = peer.target;
  const std::uint32_t room = zone.piece.length - work.length;
  work.target = zone.piece.offset + (random.below(room + 1) & ~(align - 1));
  work.entry.rkey = random.chance(0.2) ? peer.window.value : zone.key.value;
  // A key that a fenced SEND invalidates later: late duplicates of the READ find it gone.
  if (work.entry.opcode == UROCE_WR_RDMA_READ && !peer.perishable.empty() && work.entry.wr_id % 4 == 0) {
    work.entry.rkey = peer.perishable.back().value;
    peer.read_keys.push_back(peer.perishable.back());
  }
  work.entry.remote_addr = zone.address(work.target);
}

/// Room for what comes back. False: the landing zone is used up.
bool draw_landing(End& end, Random& random, Work& work) {
  Zone& zone = end.landing;
  if (zone.used + work.length > zone.piece.length) return false;
  cut(zone, zone.piece.offset + zone.used, work.length, end.qp->sizes.max_send_sge, random, work.sges, work.local);
  zone.used += work.length;
  work.lands = true;
  return true;
}

void draw_fence(End& end, Work& work) {
  if (work.modifies_target) {
    for (std::size_t index : end.open_reads) {
      const Work& read = end.out.works[index];
      if (overlap({work.target, work.length}, {read.target, read.length})) work.entry.flags |= UROCE_SEND_FENCE;
    }
  }
  if ((work.entry.flags & UROCE_SEND_FENCE) != 0) end.open_reads.clear();
}

/// Whether the peer may have READs with this key under way.
bool is_read(const End& end, Key key) { return std::ranges::find(end.read_keys, key) != end.read_keys.end(); }

std::uint8_t draw_opcode(const End& end, const End& peer, Random& random, const WorkLimits& limits) {
  constexpr std::uint8_t kPlain[] = {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_WRITE_WITH_IMM,
                                     UROCE_WR_SEND,       UROCE_WR_SEND,       UROCE_WR_SEND_WITH_IMM};
  constexpr std::uint8_t kReads[] = {UROCE_WR_RDMA_READ, UROCE_WR_RDMA_READ, UROCE_WR_ATOMIC_CMP_AND_SWP,
                                     UROCE_WR_ATOMIC_FETCH_AND_ADD};
  constexpr std::uint8_t kYoung[] = {UROCE_WR_ATOMIC_WRITE, UROCE_WR_FLUSH};
  if (end.reliable_plain() && limits.max_rd_atomic != 0 && random.chance(0.1)) return random.pick(kYoung);
  if (!end.unbound.empty() && random.chance(0.03)) return UROCE_WR_BIND_MW;
  if (!limits.may_consume) {
    return limits.max_rd_atomic != 0 && random.chance(0.4) ? random.pick(kReads)
                                                           : std::uint8_t{UROCE_WR_RDMA_WRITE};
  }
  if (!peer.perishable.empty() && random.chance(0.05)) return UROCE_WR_SEND_WITH_INV;
  const bool unread = !end.perishable.empty() && !is_read(end, end.perishable.back());
  if (unread && random.chance(0.03)) return UROCE_WR_LOCAL_INV;
  if (limits.max_rd_atomic != 0 && random.chance(0.4)) return random.pick(kReads);
  return random.pick(kPlain);
}

bool is_send(std::uint8_t opcode) {
  return opcode == UROCE_WR_SEND || opcode == UROCE_WR_SEND_WITH_IMM || opcode == UROCE_WR_SEND_WITH_INV;
}

/// What receives may still take of the zone, beyond the messages that wait for one.
std::uint32_t receive_room(const End& end) {
  return static_cast<std::uint32_t>(end.receive.piece.length - end.receive.used - end.receive_owed);
}

/// A bind or fast registration of the whole target zone.
void draw_key_work(End& end, Work& work) {
  const Key key = end.unbound.back();
  end.unbound.pop_back();
  const auto region = end.host->table.describe(key);
  const bool fast = region->kind == memory::Kind::kFast;
  const std::uint32_t window_access = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;
  work.entry.opcode = fast ? UROCE_WR_REG_MR : UROCE_WR_BIND_MW;
  work.entry.flags |= UROCE_SEND_SIGNALED;
  work.entry.mw_handle = key.value;
  work.entry.rkey = (key.value & ~0xffu) | ((key.value + 1) & 0xff);
  work.entry.remote_addr = end.target.iova;
  work.entry.bind = {end.target.key.value, window_access | (fast ? memory::kLocalWrite : memory::kLocalRead),
                     end.target.piece.length};
}

/// Eight bytes at once, or nothing but a confirmation.
void draw_confirmed(End& end, End& peer, Random& random, Work& work) {
  if (work.entry.opcode == UROCE_WR_FLUSH) {
    const bool whole = random.chance(0.3);
    work.entry.rkey = peer.target.key.value;
    work.entry.remote_addr = peer.target.iova;
    work.entry.flush = {1, whole, random.below(peer.target.piece.length + 1)};
    return;
  }
  work.length = 8;
  draw_source(end, random, work);
  draw_target(peer, random, work, 8);
  work.modifies_target = true;
}

/// Fills in a good work of this opcode. False: no room for it.
bool draw_good(End& end, End& peer, Random& random, const WorkLimits& limits, Work& work) {
  const std::uint8_t opcode = work.entry.opcode;
  if (opcode == UROCE_WR_LOCAL_INV) {
    work.entry.imm_data = end.perishable.back().value;
    end.perishable.pop_back();
    return true;
  }
  if (opcode == UROCE_WR_BIND_MW) {
    draw_key_work(end, work);
    return true;
  }
  if (opcode == UROCE_WR_ATOMIC_WRITE || opcode == UROCE_WR_FLUSH) {
    draw_confirmed(end, peer, random, work);
    return true;
  }
  if (opcode == UROCE_WR_ATOMIC_CMP_AND_SWP || opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD) {
    work.length = 8;
    work.modifies_target = true;
    draw_target(peer, random, work, 8);
    work.entry.atomic.compare_add = random.next();
    work.entry.atomic.swap = random.next();
    if (opcode == UROCE_WR_ATOMIC_CMP_AND_SWP && random.chance(0.7)) {
      std::memcpy(&work.entry.atomic.compare_add, &peer.image[work.target], 8);
    }
    return draw_landing(end, random, work);
  }
  std::uint32_t most = limits.max_message;
  if (is_send(opcode) && end.out.consuming.size() < end.out.receives.size()) {
    most = std::min(most, end.out.receives[end.out.consuming.size()].capacity);
  } else if (is_send(opcode)) {
    most = std::min(most, receive_room(peer));
  }
  work.length = draw_length(random, most);
  if (opcode == UROCE_WR_RDMA_READ) {
    draw_target(peer, random, work, 1);
    return draw_landing(end, random, work);
  }
  draw_source(end, random, work);
  work.consumes = opcode != UROCE_WR_RDMA_WRITE;
  if (is_send(opcode)) {
    work.entry.imm_data = static_cast<std::uint32_t>(random.next());
    if (opcode == UROCE_WR_SEND_WITH_INV) {
      work.entry.imm_data = peer.perishable.back().value;
      if (is_read(peer, peer.perishable.back())) work.entry.flags |= UROCE_SEND_FENCE;
      peer.perished.push_back(peer.perishable.back());
      peer.perishable.pop_back();
    }
    return true;
  }
  work.modifies_target = true;
  draw_target(peer, random, work, 1);
  if (opcode == UROCE_WR_RDMA_WRITE_WITH_IMM) work.entry.imm_data = static_cast<std::uint32_t>(random.next());
  return true;
}

/// Turns a good work into one that the responder must refuse.
void spoil_remote(End& peer, Random& random, Work& work) {
  work.must_fail = status_bit(UROCE_WC_REM_ACCESS_ERR);
  if (is_send(work.entry.opcode)) {
    // Only a bad key to invalidate makes a SEND bad without the receiver's help.
    work.entry.opcode = UROCE_WR_SEND_WITH_INV;
    work.entry.imm_data = peer.target.key.value;          // registered memory can't be invalidated
    work.must_fail = status_bit(UROCE_WC_RETRY_EXC_ERR);  // no NAK reports it
    work.must_fail_receiver = ~status_bit(UROCE_WC_SUCCESS);
    return;
  }
  const bool atomic =
      work.entry.opcode == UROCE_WR_ATOMIC_CMP_AND_SWP || work.entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD;
  if (!peer.perished.empty() && work.length != 0 && random.chance(0.5)) {
    work.entry.rkey = peer.perished.back().value;
    return;
  }
  if (work.length == 0) {  // no key is checked for these
    work.must_fail = 0;
    return;
  }
  switch (random.below(atomic ? 6 : 5)) {
    case 0: work.entry.rkey ^= random.between(1, 0xffffff); break;
    case 1: work.entry.remote_addr = peer.target.iova + peer.target.piece.length - work.length + 8; break;
    case 2: work.entry.remote_addr = ~std::uint64_t{7}; break;
    case 3: work.entry.rkey = peer.foreign.value; break;
    case 4:
      work.entry.rkey = peer.source[0].key.value;
      work.entry.remote_addr = peer.source[0].iova;
      break;
    default:
      work.entry.remote_addr += random.between(1, 7);
      work.must_fail = status_bit(UROCE_WC_REM_INV_REQ_ERR) | status_bit(UROCE_WC_REM_ACCESS_ERR);
  }
}

/// Turns a good work into one that the requester must refuse before anything goes out.
void spoil_local(End& end, Random& random, Work& work) {
  const bool has_sge = (work.entry.flags & UROCE_SEND_INLINE) == 0 && work.length != 0;
  if (work.entry.opcode == UROCE_WR_LOCAL_INV) {
    work.entry.imm_data = end.target.key.value;  // registered memory can't be invalidated
    work.must_fail = status_bit(UROCE_WC_LOC_QP_OP_ERR) | status_bit(UROCE_WC_LOC_PROT_ERR) |
                     status_bit(UROCE_WC_MW_BIND_ERR) | status_bit(UROCE_WC_LOC_ACCESS_ERR);
    return;
  }
  switch (random.below(has_sge ? 5 : 2)) {
    case 0:
      work.entry.opcode = static_cast<std::uint8_t>(random.between(40, 255));
      work.must_fail = status_bit(UROCE_WC_LOC_QP_OP_ERR);
      break;
    case 1:
      work.entry.flags &= static_cast<std::uint8_t>(~UROCE_SEND_INLINE);
      work.entry.num_sge = static_cast<std::uint16_t>(random.between(end.qp->sizes.max_send_sge + 1, 65535));
      work.must_fail = status_bit(UROCE_WC_LOC_QP_OP_ERR) | status_bit(UROCE_WC_LOC_LEN_ERR);
      break;
    case 2:
      for (uroce_sge& sge : work.sges) sge.lkey ^= 0x5a5a00;
      work.must_fail = status_bit(UROCE_WC_LOC_PROT_ERR);
      break;
    case 3:
      for (uroce_sge& sge : work.sges) sge.addr += std::uint64_t{1} << 40;
      work.must_fail = status_bit(UROCE_WC_LOC_PROT_ERR);
      break;
    default:
      for (uroce_sge& sge : work.sges) sge.lkey = end.foreign.value, sge.addr = end.target.iova;
      work.must_fail = status_bit(UROCE_WC_LOC_PROT_ERR);
  }
}

}  // namespace

void draw_work(End& end, End& peer, Random& random, const WorkLimits& limits, Ending bad) {
  Work work;
  for (;;) {
    work = Work{};
    work.entry.wr_id = random.next();
    work.entry.opcode = draw_opcode(end, peer, random, limits);
    if (random.chance(0.1)) work.entry.flags |= UROCE_SEND_FENCE;
    if (random.chance(0.2)) work.entry.flags |= UROCE_SEND_SOLICITED;
    if (draw_good(end, peer, random, limits, work)) break;
  }
  if (peer.srq_id) work.entry.remote_srqn = peer.srq_id->value;
  const bool last = end.works_left <= 1;
  if (last || random.chance(0.6)) work.entry.flags |= UROCE_SEND_SIGNALED;
  work.signaled = end.qp->sizes.signal_all || (work.entry.flags & UROCE_SEND_SIGNALED) != 0;
  work.entry.num_sge = static_cast<std::uint16_t>(work.sges.size());
  draw_fence(end, work);
  if (bad == Ending::kBadRemote) spoil_remote(peer, random, work);
  if (bad == Ending::kBadLocal) spoil_local(end, random, work);
  if (work.must_fail == 0) {
    apply(work, end.image, peer.image);
    if (work.lands) end.open_reads.push_back(end.out.works.size());
  } else {
    work.modifies_target = work.lands = false;
    if (bad == Ending::kBadLocal) work.consumes = false;
  }
  if (work.consumes) {
    if (is_send(work.entry.opcode) && end.out.consuming.size() >= end.out.receives.size()) {
      peer.receive_owed += work.length;
    }
    end.out.consuming.push_back(end.out.works.size());
  }
  end.out.works.push_back(std::move(work));
  settle(end.out);
}

void draw_receive(End& end, End& peer, Random& random, const WorkLimits& limits, bool bad) {
  Flow& flow = peer.out;
  Receive receive;
  receive.wr_id = random.next();
  receive.capacity = random.chance(0.3) ? limits.max_message : random.below(limits.max_message + 1);
  const bool known = flow.receives.size() < flow.consuming.size();
  if (known) {
    const Work& work = flow.works[flow.consuming[flow.receives.size()]];
    const std::uint32_t need = is_send(work.entry.opcode) ? work.length : 0;
    end.receive_owed -= need;
    const std::uint32_t most = receive_room(end);
    receive.capacity = random.chance(0.5) ? need : std::max(need, std::min(receive.capacity, most));
    if (bad && need != 0 && work.must_fail == 0 && random.chance(0.5)) {
      receive.capacity = random.below(need);
    } else {
      receive.bad_key = bad;
    }
  } else {
    receive.bad_key = bad;
    receive.capacity = std::min(receive.capacity, receive_room(end));
  }
  Zone& zone = end.receive;
  cut(zone, zone.piece.offset + zone.used, receive.capacity, end.qp->sizes.max_recv_sge, random, receive.sges,
      receive.local);
  zone.used += receive.capacity;
  if (receive.bad_key) {
    for (uroce_sge& sge : receive.sges) sge.lkey ^= 0x5a5a00;
  }
  flow.receives.push_back(std::move(receive));
  settle(flow);
}

}  // namespace uroce::sim
