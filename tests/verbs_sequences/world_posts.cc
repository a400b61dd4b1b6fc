// Draws work requests and posts them, legal ones and others.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "world.h"

namespace verbs_sequences {
namespace {

constexpr std::uint32_t kLongest = 6000;

bool in_use(ibv_qp_state state) {
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

const Work* next_receive(const Qp& to) {
  if (to.srq != nullptr) return to.srq->queue.empty() ? nullptr : &to.srq->queue.front();
  const auto at = std::find_if(to.receives.begin(), to.receives.end(), [](const Work& w) { return !w.decided; });
  return at == to.receives.end() ? nullptr : &*at;
}

std::uint32_t room(const Work& receive) {
  std::uint32_t sum = 0;
  for (const Piece& piece : receive.pieces) sum += piece.length;
  return sum;
}

ibv_wc_opcode completed_as(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    default: return IBV_WC_SEND;
  }
}

}  // namespace

/// A list of ranges of regions of the domain. False if the domain has no region.
bool World::draw_pieces(Side& side, Pd* pd, Random& random, std::uint32_t most, bool bad_key, Work& work) {
  const std::uint32_t count = random.below(most + 1);
  std::uint32_t left = random.below(4) == 0 ? kLongest : 600;
  for (std::uint32_t i = 0; i < count && left > 0; ++i) {
    const Mr* mr = side.mrs.find(random.below(8));
    if (mr == nullptr || mr->pd != pd) continue;
    const std::uint32_t length = 1 + random.below(std::min(left, static_cast<std::uint32_t>(mr->length)));
    const std::size_t begin = mr->begin + random.below(static_cast<std::uint32_t>(mr->length - length) + 1);
    work.pieces.push_back({begin, length, mr->real->lkey});
    left -= length;
  }
  if (bad_key && !work.pieces.empty()) work.pieces.back().lkey += 0x100 * (1 + random.below(100));
  for (const Piece& piece : work.pieces) work.length += piece.length;
  return !work.pieces.empty();
}

/// Memory of the peer: mostly in one of its regions or windows that allow it.
void World::draw_remote(Qp& qp, Random& random, Work& work) {
  if (qp.peer == nullptr) return;
  Side& there = sides_[static_cast<std::size_t>(qp.peer->side)];
  work.remote = random.below(static_cast<std::uint32_t>(kArena - kLongest));
  const Mw* mw = there.mws.find(random.below(3));
  if (mw != nullptr && random.below(3) == 0) {
    work.rkey = mw->real->rkey;
    if (mw->mr != nullptr && mw->length >= work.length) work.remote = mw->begin;
  } else if (const Mr* mr = there.mrs.find(random.below(8)); mr != nullptr) {
    work.rkey = mr->real->rkey;
    if (mr->length >= work.length) {
      work.remote = mr->begin + random.below(static_cast<std::uint32_t>(mr->length - work.length) + 1);
    }
  }
  if (random.below(40) == 0) work.rkey += 0x100 * (1 + random.below(100));
}

/// Whether the device does what the model says with a request whose own list is wrong.
bool World::local_error_is_predictable(Qp& qp, const Work& work, bool reachable) {
  const bool reads = work.opcode == IBV_WR_RDMA_READ;
  const bool atomic = work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (qp.undecided() > 0 && ground_.differs(Rxe::kErrorBehindRnr)) return false;
  if (reads && work.length > qp.mtu && ground_.differs(Rxe::kReadOutlivesReset)) return false;
  return reachable || !(reads || atomic) || !ground_.differs(Rxe::kRemoteErrorFirst);
}

/// Whether the model can say what comes of the request. Lacks of resources at UC and UD peers, and combinations of
/// errors whose order is left to the device, are left out.
bool World::predictable(Qp& qp, Work& work) {
  const bool atomic = work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const bool with_imm = work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool invalidates = work.opcode == IBV_WR_SEND_WITH_INV;
  const bool message = work.opcode == IBV_WR_SEND || work.opcode == IBV_WR_SEND_WITH_IMM || invalidates;
  if (atomic && (work.length != 8 || work.remote % 8 != 0 || work.pieces.size() != 1)) return false;
  Qp* const to = qp.type == IBV_QPT_UD ? work.target : qp.peer;
  const bool here = work.inlined || local_access(qp, work, work.opcode == IBV_WR_RDMA_READ || atomic, work.length);
  // With a peer that never answers, a wrong list is found before its packet is sent, or after the last retry.
  if (to == nullptr) return here || qp.type != IBV_QPT_RC;
  const bool consumes = message || with_imm;
  if (qp.state == IBV_QPS_SQD && (consumes || qp.type != IBV_QPT_RC)) return false;
  const Work* const next = next_receive(*to);
  if (consumes && to->srq != nullptr && next == nullptr) return false;
  if (with_imm && (next == nullptr || qp.undecided() > 0)) return false;
  const int access = work.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                     : atomic                        ? IBV_ACCESS_REMOTE_ATOMIC
                                                     : IBV_ACCESS_REMOTE_WRITE;
  const bool reachable = message || remote_access(*to, work, work.length, access);
  if (with_imm && !(reachable && here)) return false;
  if (!here && !local_error_is_predictable(qp, work, reachable)) return false;
  if (invalidates &&
      (!here || qp.state != IBV_QPS_RTS || qp.undecided() > 0 || to->srq != nullptr || next == nullptr ||
       room(*next) < work.length || !local_access(*to, *next, true, work.length))) {
    return false;
  }
  const std::uint32_t good = accessible(qp, work, false, work.length);
  if (!here && !atomic && work.opcode != IBV_WR_RDMA_READ && good >= qp.mtu && qp.type != IBV_QPT_UD) {
    // The packets before the wrong element arrive: nothing but it may fail. An SRQ's receive would be taken, or
    // not.
    if (qp.state != IBV_QPS_RTS || qp.undecided() > 0 || !reachable) return false;
    if (message && (to->srq != nullptr || next == nullptr || room(*next) < work.length ||
                    !local_access(*to, *next, true, work.length))) {
      return false;
    }
  }
  if (qp.type == IBV_QPT_RC) return true;
  const std::uint32_t header = qp.type == IBV_QPT_UD ? 40 : 0;
  if (!reachable) return false;
  return !message || next == nullptr ||
         (room(*next) >= work.length + header && local_access(*to, *next, true, work.length + header));
}

bool World::draw_work(Side& side, Qp& qp, Random& random, Work& work) {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                               IBV_WR_SEND,
                                               IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,
                                               IBV_WR_ATOMIC_CMP_AND_SWP,
                                               IBV_WR_ATOMIC_FETCH_AND_ADD};
  const std::uint32_t kinds = qp.type == IBV_QPT_RC ? 9 : qp.type == IBV_QPT_UC ? 6 : 3;
  work.opcode = kOpcodes[random.below(kinds)];
  if (work.opcode == IBV_WR_SEND && qp.type == IBV_QPT_RC && random.below(5) == 0)
    work.opcode = IBV_WR_SEND_WITH_INV;
  work.id = next_id_++ << 1;
  work.signaled = qp.signal_all || random.below(3) != 0;
  work.solicited = random.below(2) == 0;
  work.imm = static_cast<std::uint32_t>(random.next());
  work.has_imm = work.opcode == IBV_WR_SEND_WITH_IMM || work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool atomic = work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  work.done_as = completed_as(work.opcode);
  draw_pieces(side, qp.pd, random, qp.cap.max_send_sge, random.below(60) == 0, work);
  if (atomic && !work.pieces.empty()) {
    work.pieces.erase(work.pieces.begin() + 1, work.pieces.end());
    if (work.pieces[0].length < 8) return false;
    work.pieces[0].length = work.length = 8;
  }
  if (qp.type == IBV_QPT_UD && work.length > 1000) return false;
  if (!atomic && work.opcode != IBV_WR_RDMA_READ && work.length <= qp.cap.max_inline_data && random.below(3) == 0) {
    work.inlined = true;
    // What is under way may still write to the source of inline data.
    for (const Piece& piece : work.pieces) claim({{qp.side, piece.begin, piece.begin + piece.length, false}});
    for (const Piece& piece : work.pieces) {
      work.data.insert(work.data.end(), &side.expected[piece.begin], &side.expected[piece.begin] + piece.length);
    }
  }
  draw_remote(qp, random, work);
  if (atomic) {
    work.remote &= ~std::size_t{7};
    work.swap = random.next();
    std::memcpy(&work.compare,
                &sides_[qp.peer == nullptr ? 0 : static_cast<std::size_t>(qp.peer->side)].expected[work.remote], 8);
    if (random.below(2) == 0) work.compare = random.next();
  }
  if (qp.type == IBV_QPT_UD) {
    Side& other = sides_[random.below(2)];
    Qp* const to = other.qps.find(random.below(8));
    for (auto& ah : side.ahs.places) {
      if (ah && ah->pd == qp.pd && ah->to == side_of(other)) work.ah = ah->real;
    }
    if (work.ah == nullptr || qp.state == IBV_QPS_SQD) return false;
    work.rkey = 0xfff000;  // the QPN of nobody
    if (to != nullptr && to->type == IBV_QPT_UD) {
      work.rkey = to->real->qp_num;
      if (to->accepts()) work.target = to;
    }
    work.swap = kQkey;
    if (random.below(10) == 0) {
      work.swap = kQkey + 1;  // the receiver drops it
      work.target = nullptr;
    }
  }
  return predictable(qp, work);
}

void World::show(const Qp& qp, const Work& work, bool receive) const {
  if (!ground_.trace) return;
  std::printf("    %s %llu of QP %u:", receive ? "receive" : "send", static_cast<unsigned long long>(work.id),
              qp.real->qp_num);
  if (!receive) {
    std::printf(" opcode %d%s%s to %zu, rkey 0x%x,", work.opcode, work.inlined ? ", inline" : "",
                work.signaled ? "" : ", unsignaled", work.remote, work.rkey);
  }
  for (const Piece& piece : work.pieces) std::printf(" %zu+%u (0x%x)", piece.begin, piece.length, piece.lkey);
  std::printf("\n");
}

World::Prepared World::prepare(const Qp& qp, const Work& work) const {
  Prepared out{};
  const Side& side = sides_[static_cast<std::size_t>(qp.side)];
  for (const Piece& piece : work.pieces) {
    out.list.push_back({reinterpret_cast<std::uintptr_t>(side.memory + piece.begin), piece.length, piece.lkey});
  }
  ibv_send_wr& wr = out.wr;
  wr.wr_id = work.id;
  wr.num_sge = static_cast<int>(out.list.size());
  wr.opcode = work.opcode;
  wr.imm_data = work.imm;
  if (work.opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = work.rkey;
  wr.send_flags = (work.signaled ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                  (work.solicited ? unsigned{IBV_SEND_SOLICITED} : 0u) |
                  (work.inlined ? unsigned{IBV_SEND_INLINE} : 0u);
  if (qp.type == IBV_QPT_UD) {
    wr.wr.ud = {work.ah, work.rkey, static_cast<std::uint32_t>(work.swap)};
    return out;
  }
  const int there = qp.peer == nullptr ? qp.side : qp.peer->side;
  const std::uint64_t remote =
      reinterpret_cast<std::uintptr_t>(sides_[static_cast<std::size_t>(there)].memory + work.remote);
  if (work.done_as == IBV_WC_COMP_SWAP || work.done_as == IBV_WC_FETCH_ADD) {
    wr.wr.atomic = {remote, work.compare, work.swap, work.rkey};
  } else {
    wr.wr.rdma = {remote, work.rkey};
  }
  return out;
}

void World::signal(Work& work, Prepared& prepared) {
  work.signaled = true;
  prepared.wr.send_flags |= IBV_SEND_SIGNALED;
}

void World::post_to_full_queue(Qp& qp) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = nullptr;
  expect(ibv_post_send(qp.real, &wr, &bad), {ENOMEM}, "ibv_post_send to a full queue");
  if (bad != &wr) fail("ibv_post_send to a full queue: bad_wr is another one");
}

void World::post_send(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  if (!in_use(qp->state)) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    // IBTA vol. 1, 10.3.1: an immediate error before RTS. A UD QP needs a handle first.
    if (qp->type == IBV_QPT_UD || ground_.differs(Rxe::kRefusedStays)) return;
    expect(ibv_post_send(qp->real, &wr, &bad), {EINVAL}, "ibv_post_send before RTS");
    if (bad != &wr) fail("ibv_post_send before RTS: bad_wr is another one");
    return;
  }
  if (qp->state == IBV_QPS_ERR && random.below(8) != 0) return;  // it only flushes
  if (qp->state == IBV_QPS_SQD && ground_.differs(Rxe::kSqdWaits)) return;
  if (qp->state == IBV_QPS_ERR && ground_.differs(Rxe::kPostsInError)) return;
  const bool alive = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
  if (alive && qp->type != IBV_QPT_UD && qp->peer == nullptr && !qp->nowhere) return;  // its peer has gone
  if (qp->nowhere && qp->type == IBV_QPT_UC && qp->state == IBV_QPS_SQD) return;
  if (qp->send_cq->entries + qp->recv_cq->entries > 300) settle();
  chain_qp_ = qp;
  building_ = true;
  for (std::uint32_t count = 1 + random.below(4); count > 0; --count) {
    Work work;
    if (!draw_work(side, *qp, random, work)) continue;
    if (qp->sends.size() >= qp->cap.max_send_wr) {
      settle();
      if (qp->undecided() >= qp->cap.max_send_wr && qp->type != IBV_QPT_UD) post_to_full_queue(*qp);
      if (qp->sends.size() >= qp->cap.max_send_wr) break;
    }
    Prepared one = prepare(*qp, work);
    show(*qp, work, false);
    qp->sends.push_back(std::move(work));
    progress(*qp);
    // What waits tells when it has completed: an error that comes before its acknowledge would flush it.
    if (!qp->sends.back().decided) signal(qp->sends.back(), one);
    chain_.push_back(std::move(one));
  }
  submit();
  building_ = false;
  after_traffic(*qp);
}

/// Before anything else happens, what fails or finds no receive must have arrived.
void World::after_traffic(Qp& qp) {
  if (failing_ || dropped_) settle();
  failing_ = dropped_ = false;
  if (qp.state == IBV_QPS_SQE) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    expect(ibv_query_qp(qp.real, &attr, IBV_QP_STATE, &init), {0}, "ibv_query_qp");
    if (attr.qp_state == IBV_QPS_ERR) {
      enter_error(qp);
    } else if (attr.qp_state != IBV_QPS_SQE) {
      fail("a QP whose send queue failed is in state " + std::to_string(attr.qp_state));
    }
  }
  finish_breaks();
}

void World::post_bad_send(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr || qp->state != IBV_QPS_RTS || qp->type == IBV_QPT_UD || qp->peer == nullptr ||
      (qp->peer->access & IBV_ACCESS_REMOTE_WRITE) == 0) {
    return;
  }
  settle();
  const Mr* mr = side.mrs.find(op.b);
  if (qp->undecided() > 0 || mr == nullptr || qp->sends.size() + 4 > qp->cap.max_send_wr) return;
  ibv_sge list[64];
  std::fill(std::begin(list), std::end(list),
            ibv_sge{reinterpret_cast<std::uintptr_t>(side.memory + mr->begin), 1, mr->real->lkey});
  ibv_send_wr wrs[3] = {}, *bad = nullptr;
  const std::uint32_t good = random.below(3);
  for (std::uint32_t i = 0; i <= good; ++i) {
    wrs[i].wr_id = next_id_++ << 1;
    wrs[i].opcode = IBV_WR_RDMA_WRITE;  // of no bytes
    wrs[i].send_flags = IBV_SEND_SIGNALED;
    wrs[i].next = i < good ? &wrs[i + 1] : nullptr;
    if (i == good) break;
    Work work;
    work.id = wrs[i].wr_id;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.done_as = IBV_WC_RDMA_WRITE;
    qp->sends.push_back(std::move(work));
    decide(*qp, qp->sends.back(), false, bit(IBV_WC_SUCCESS));
  }
  ibv_send_wr& wrong = wrs[good];
  const char* what = nullptr;
  std::uint32_t kind = random.below(4);
  if (qp->cap.max_inline_data >= 16384 && kind == 1) kind = 0;
  if (kind > 1 && ground_.differs(Rxe::kOpcodesUnchecked)) kind = 0;
  switch (kind) {
    case 0:
      wrong.sg_list = list;
      wrong.num_sge = static_cast<int>(qp->cap.max_send_sge) + 1;
      what = "ibv_post_send of too many elements";
      break;
    case 1:
      wrong.sg_list = list;
      wrong.num_sge = 1;
      list[0].length = qp->cap.max_inline_data + 1;
      wrong.send_flags |= IBV_SEND_INLINE;
      what = "ibv_post_send of too much inline data";
      break;
    case 2:
      if (qp->type == IBV_QPT_UC) {
        wrong.opcode = random.below(2) == 0 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD;
        what = "ibv_post_send of an opcode that the type lacks";
      } else {
        wrong.opcode = IBV_WR_TSO;
        what = "ibv_post_send of TSO on an RC QP";
      }
      break;
    default:
      wrong.opcode = static_cast<ibv_wr_opcode>(100 + random.below(1000));
      what = "ibv_post_send of an unknown opcode";
      break;
  }
  // Drivers answer a list or inline data that is too long with EINVAL or ENOMEM, an opcode with EINVAL or
  // EOPNOTSUPP.
  expect(ibv_post_send(qp->real, wrs, &bad), {EINVAL, kind < 2 ? ENOMEM : EOPNOTSUPP}, what);
  if (bad != &wrong) fail(std::string(what) + ": bad_wr is another one");
  settle();
}

void World::post_recv(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  ibv_recv_wr wrs[4] = {}, *bad = nullptr;
  if (qp->srq != nullptr) {
    expect(ibv_post_recv(qp->real, wrs, &bad), {EINVAL}, "ibv_post_recv to a QP with an SRQ");
    return;
  }
  if (qp->state == IBV_QPS_ERR && random.below(8) != 0) return;  // it only flushes
  const bool waits = qp->peer != nullptr && qp->peer->undecided() > 0;
  if (waits || qp->recv_cq->entries > 300) settle();
  if (qp->state == IBV_QPS_ERR && ground_.differs(Rxe::kPostsInError)) return;
  std::vector<ibv_sge> lists[4];
  std::vector<Work> works;
  std::uint32_t count = 1 + random.below(4);
  if (qp->receives.size() + count > qp->cap.max_recv_wr) {
    settle();
    const auto waiting = static_cast<std::uint32_t>(qp->receives.size());
    if (waiting >= qp->cap.max_recv_wr) {
      expect(ibv_post_recv(qp->real, wrs, &bad), {ENOMEM}, "ibv_post_recv to a full queue");
      if (bad != wrs) fail("ibv_post_recv to a full queue: bad_wr is another one");
      return;
    }
    count = std::min(count, qp->cap.max_recv_wr - waiting);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Work work;
    work.id = next_id_++ << 1 | 1;
    draw_receive(side, *qp, random, !waits, work);
    for (const Piece& piece : work.pieces) {
      lists[i].push_back({reinterpret_cast<std::uintptr_t>(side.memory + piece.begin), piece.length, piece.lkey});
    }
    show(*qp, work, true);
    wrs[i] = {work.id, i + 1 < count ? &wrs[i + 1] : nullptr, lists[i].data(), static_cast<int>(lists[i].size())};
    works.push_back(std::move(work));
  }
  // RESET: refused by the kernel's drivers, accepted by mlx5.
  const int answer = ibv_post_recv(qp->real, wrs, &bad);
  if (qp->state == IBV_QPS_RESET) {
    if (expect(answer, {0, EINVAL}, "ibv_post_recv in RESET") != 0) return;
  } else {
    expect(answer, {0}, "ibv_post_recv");
  }
  for (Work& work : works) {
    qp->receives.push_back(std::move(work));
    if (qp->state == IBV_QPS_ERR) decide(*qp, qp->receives.back(), true, bit(IBV_WC_WR_FLUSH_ERR));
  }
  if (!waits) return;
  Qp& peer = *qp->peer;
  progress(peer);
  after_traffic(peer);
}

/// UC and UD receives are such that every message fits.
void World::draw_receive(Side& side, const Qp& qp, Random& random, bool may_be_bad, Work& work) {
  if (qp.type == IBV_QPT_RC) {
    draw_pieces(side, qp.pd, random, qp.cap.max_recv_sge, may_be_bad && random.below(60) == 0, work);
    return;
  }
  for (const auto& mr : side.mrs.places) {
    if (!mr || mr->pd != qp.pd || mr->length < kLongest || (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) continue;
    const std::size_t begin = mr->begin + random.below(static_cast<std::uint32_t>(mr->length - kLongest) + 1);
    work.pieces.assign(1, Piece{begin, kLongest, mr->real->lkey});
  }
}

void World::post_srq_recv(Side& side, const Operation& op, Random& random) {
  Srq* const srq = side.srqs.find(op.a);
  if (srq == nullptr) return;
  ibv_recv_wr wr{}, *bad = nullptr;
  if (srq->queue.size() + srq->taken >= srq->capacity) settle();
  if (srq->queue.size() >= srq->capacity) {
    expect(ibv_post_srq_recv(srq->real, &wr, &bad), {ENOMEM}, "ibv_post_srq_recv to a full queue");
    if (bad != &wr) fail("ibv_post_srq_recv to a full queue: bad_wr is another one");
    return;
  }
  Work work;
  work.id = wr.wr_id = next_id_++ << 1 | 1;
  draw_pieces(side, srq->pd, random, srq->elements, false, work);
  std::vector<ibv_sge> list;
  for (const Piece& piece : work.pieces) {
    list.push_back({reinterpret_cast<std::uintptr_t>(side.memory + piece.begin), piece.length, piece.lkey});
  }
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  expect(ibv_post_srq_recv(srq->real, &wr, &bad), {0}, "ibv_post_srq_recv");
  srq->queue.push_back(std::move(work));
}

}  // namespace verbs_sequences
