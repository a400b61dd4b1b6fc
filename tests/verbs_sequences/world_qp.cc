// Queue pairs: which states follow each other, with which attributes (qp_state_table of the kernel, IBTA vol.
// 1, 10.3.1).
#include <algorithm>
#include <cerrno>
#include <chrono>

#include "world.h"

namespace verbs_sequences {
namespace {

struct Masks {
  bool allowed = false;
  int required = 0, optional = 0;
};

constexpr int kToRtrUc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kToRtrRc = kToRtrUc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kToRtsRc =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// What a change of state needs and may have; alternate paths are left out, as RoCE has none.
Masks masks(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  const bool rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD;
  const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  const int running = IBV_QP_CUR_STATE | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS) | (rc ? IBV_QP_MIN_RNR_TIMER : 0);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return {to == IBV_QPS_RESET || from != IBV_QPS_RESET};
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return {true, init, 0};
  if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) return {true, 0, init};
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
    return {true, rc ? kToRtrRc : ud ? 0 : kToRtrUc, IBV_QP_PKEY_INDEX | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)};
  }
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) return {true, rc ? kToRtsRc : int{IBV_QP_SQ_PSN}, running};
  if (from == IBV_QPS_RTS && to == IBV_QPS_RTS) return {true, 0, running};
  if (from == IBV_QPS_RTS && to == IBV_QPS_SQD) return {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY};
  if (from == IBV_QPS_SQD && to == IBV_QPS_RTS) return {true, 0, running};
  if (from == IBV_QPS_SQE && to == IBV_QPS_RTS && !rc) return {true, 0, running};
  if (from == IBV_QPS_SQD && to == IBV_QPS_SQD) {
    if (ud) return {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
    return {true, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | (rc ? IBV_QP_MIN_RNR_TIMER : 0)};
  }
  return {};
}

/// Every attribute that some change of state has; none of them is ever allowed where masks() does not say so.
constexpr int kSurplus[] = {
    IBV_QP_ACCESS_FLAGS,       IBV_QP_QKEY,    IBV_QP_PATH_MTU,         IBV_QP_TIMEOUT,       IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,          IBV_QP_RQ_PSN,  IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN};

/// Devices that take a wrong value, by its low bits.
enum class Taken : std::uint8_t { kNever, kByRxe, kAnywhere };

/// A value of an attribute that must be refused.
struct BadValue {
  int attribute;
  void (*set)(ibv_qp_attr& attr);
  const char* what;
  Taken taken = Taken::kNever;
};

constexpr BadValue kBadValues[] = {
    {IBV_QP_PORT, [](ibv_qp_attr& a) { a.port_num = 0; }, "ibv_modify_qp, port 0"},
    {IBV_QP_PORT, [](ibv_qp_attr& a) { a.port_num = 2; }, "ibv_modify_qp, port 2"},
    {IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); }, "ibv_modify_qp, path_mtu 0",
     Taken::kByRxe},
    {IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); }, "ibv_modify_qp, path_mtu 6"},
    {IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.port_num = 0; }, "ibv_modify_qp, address vector with port 0"},
    {IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.port_num = 9; }, "ibv_modify_qp, address vector with port 9"},
    {IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }, "ibv_modify_qp, address vector without a GRH"},
    {IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 255; }, "ibv_modify_qp, GID index 255"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; },
     "ibv_modify_qp, too many READs of the peer", Taken::kByRxe},
    {IBV_QP_MAX_QP_RD_ATOMIC, [](ibv_qp_attr& a) { a.max_rd_atomic = 255; }, "ibv_modify_qp, too many READs"},
    {IBV_QP_TIMEOUT, [](ibv_qp_attr& a) { a.timeout = 32; }, "ibv_modify_qp, timeout 32"},
    {IBV_QP_RETRY_CNT, [](ibv_qp_attr& a) { a.retry_cnt = 8; }, "ibv_modify_qp, retry_cnt 8", Taken::kByRxe},
    {IBV_QP_RNR_RETRY, [](ibv_qp_attr& a) { a.rnr_retry = 8; }, "ibv_modify_qp, rnr_retry 8", Taken::kByRxe},
    {IBV_QP_MIN_RNR_TIMER, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }, "ibv_modify_qp, min_rnr_timer 32",
     Taken::kByRxe},
    // The kernel's drivers use the low 24 bits.
    {IBV_QP_SQ_PSN, [](ibv_qp_attr& a) { a.sq_psn |= 1 << 24; }, "ibv_modify_qp, 25 bits of sq_psn",
     Taken::kAnywhere},
    {IBV_QP_RQ_PSN, [](ibv_qp_attr& a) { a.rq_psn |= 1 << 24; }, "ibv_modify_qp, 25 bits of rq_psn",
     Taken::kAnywhere},
};

ibv_qp_state next_of(ibv_qp_state state, Random& random) {
  switch (state) {
    case IBV_QPS_RESET: return IBV_QPS_INIT;
    case IBV_QPS_INIT: return random.below(3) == 0 ? IBV_QPS_INIT : IBV_QPS_RTR;
    case IBV_QPS_RTR: return IBV_QPS_RTS;
    case IBV_QPS_RTS: return random.below(2) == 0 ? IBV_QPS_SQD : IBV_QPS_RTS;
    case IBV_QPS_SQD: return random.below(4) == 0 ? IBV_QPS_SQD : IBV_QPS_RTS;
    case IBV_QPS_SQE: return IBV_QPS_RTS;
    default: return IBV_QPS_RESET;
  }
}

}  // namespace

unsigned Qp::undecided() const {
  return static_cast<unsigned>(std::count_if(sends.begin(), sends.end(), [](const Work& w) { return !w.decided; }));
}

void World::create_qp(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.a);
  Cq *send_cq = side.cqs.find(op.b), *recv_cq = side.cqs.find(op.c);
  auto* place = side.qps.free_place();
  if (pd == nullptr || send_cq == nullptr || place == nullptr) return;
  ibv_qp_init_attr init{};
  const std::uint32_t kind = random.below(6);
  init.qp_type = kind < 4 ? IBV_QPT_RC : kind == 4 ? IBV_QPT_UC : IBV_QPT_UD;
  Srq* srq = init.qp_type != IBV_QPT_UC && random.below(4) == 0 ? side.srqs.find(op.a) : nullptr;
  if (srq != nullptr && srq->pd != pd && ground_.differs(Rxe::kSrqDomain)) srq = nullptr;
  init.send_cq = send_cq->real;
  init.recv_cq = recv_cq->real;
  init.srq = srq == nullptr ? nullptr : srq->real;
  init.qp_context = place;
  init.sq_sig_all = random.below(4) == 0;
  init.cap = {4 + random.below(20), 4 + random.below(20), 1 + random.below(4), 1 + random.below(4),
              random.below(129)};
  const ibv_qp_cap asked = init.cap;
  ibv_qp* const real = expect_made(ibv_create_qp(pd->real, &init), {0}, "ibv_create_qp");
  if (ground_.differs(Rxe::kSizesAsAsked)) {
    ibv_qp_attr attr{};
    expect(ibv_query_qp(real, &attr, IBV_QP_CAP, &init), {0}, "ibv_query_qp");
  }
  const ibv_qp_cap& got = init.cap;
  if (got.max_send_wr < asked.max_send_wr || got.max_send_sge < asked.max_send_sge ||
      got.max_inline_data < asked.max_inline_data ||
      (srq == nullptr && (got.max_recv_wr < asked.max_recv_wr || got.max_recv_sge < asked.max_recv_sge))) {
    fail("ibv_create_qp: the queues are smaller than asked for");
  }
  *place = Qp{real, side_of(side), init.qp_type, pd, send_cq, recv_cq, srq, got, init.sq_sig_all != 0};
  for (int* users : {&pd->users, &send_cq->users, &recv_cq->users}) ++*users;
  if (srq != nullptr) ++srq->users;
}

void World::create_bad_qp(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.a);
  Cq* cq = side.cqs.find(op.b);
  if (pd == nullptr || cq == nullptr) return;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq->real;
  init.cap = {4, 4, 1, 1, 0};
  const auto past = [](int limit) { return static_cast<std::uint32_t>(limit) + 1; };
  switch (random.below(5)) {
    case 0: init.cap.max_send_wr = past(side.end->attr.max_qp_wr); break;
    case 1: init.cap.max_recv_wr = past(side.end->attr.max_qp_wr); break;
    case 2: init.cap.max_send_sge = past(side.end->attr.max_sge); break;
    case 3: init.cap.max_recv_sge = past(side.end->attr.max_sge); break;
    default: init.cap.max_inline_data = 1 << 28; break;
  }
  ibv_qp* const qp = expect_made(ibv_create_qp(pd->real, &init), {EINVAL}, "ibv_create_qp of a wrong size");
  if (qp != nullptr) ibv_destroy_qp(qp);
}

void World::part(Qp& qp) {
  Qp* const peer = qp.peer;
  qp.peer = nullptr;
  if (peer == nullptr) return;
  peer->peer = nullptr;
  for (const Qp* one : {&qp, peer}) {
    const Qp* const other = one == peer ? &qp : peer;
    // What waits may be under way once more, and find the next receive.
    if (one->undecided() > 0) unreliable_[one->side][other->side] = true;
  }
  if (peer->undecided() > 0) breaks_.push_back(peer);
}

void World::finish_breaks() {
  while (!breaks_.empty()) {
    Qp* const qp = breaks_.back();
    breaks_.pop_back();
    go_to_error(*qp);
  }
  let_arrive();
}

void World::enter_error(Qp& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  part(qp);
  qp.may_event = true;
  // ibv_get_async_event(3): the event of a QP with an SRQ that goes to ERR.
  if (qp.srq != nullptr) {
    ++qp.last_wqe;
    qp.last_wqe_waits = true;
  }
  qp.state = IBV_QPS_ERR;
  const std::uint32_t flush = bit(IBV_WC_WR_FLUSH_ERR) | (qp.nowhere ? bit(IBV_WC_RETRY_EXC_ERR) : 0);
  for (Work& work : qp.sends) {
    if (!work.decided) decide(qp, work, false, flush);
  }
  for (Work& work : qp.receives) {
    if (!work.decided) decide(qp, work, true, bit(IBV_WC_WR_FLUSH_ERR));
  }
}

void World::go_to_error(Qp& qp) {
  settle();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (qp.state == IBV_QPS_RESET) {
    expect(ibv_modify_qp(qp.real, &attr, IBV_QP_STATE), {EINVAL}, "ibv_modify_qp from RESET to ERR");
    return;
  }
  part(qp);
  expect(ibv_modify_qp(qp.real, &attr, IBV_QP_STATE), {0}, "ibv_modify_qp to ERR");
  enter_error(qp);
  finish_breaks();
  settle();
}

void World::go_to_reset(Qp& qp) {
  settle();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  part(qp);
  expect(ibv_modify_qp(qp.real, &attr, IBV_QP_STATE), {0}, "ibv_modify_qp to RESET");
  qp.state = IBV_QPS_RESET;
  qp.nowhere = false;
  qp.sends.clear();
  qp.receives.clear();
  finish_breaks();
}

void World::destroy_qp(Side& side, const Operation& op) {
  Qp* qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  settle();
  if (!qp->groups.empty()) {
    expect(ibv_destroy_qp(qp->real), {EBUSY}, "ibv_destroy_qp of a member of a group");
    return;
  }
  part(*qp);
  expect(ibv_destroy_qp(qp->real), {0}, "ibv_destroy_qp");
  for (int* users : {&qp->pd->users, &qp->send_cq->users, &qp->recv_cq->users}) --*users;
  if (qp->srq != nullptr) --qp->srq->users;
  side.qps.remove(qp);
  finish_breaks();
  take_async_event(side);
}

/// Legal values of all attributes of the change.
void World::fill(const Qp& qp, ibv_qp_state to, Random& random, ibv_qp_attr& attr) {
  const Side& side = sides_[static_cast<std::size_t>(qp.side)];
  attr.qp_state = to;
  attr.cur_qp_state = qp.state;
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (qp.type == IBV_QPT_RC) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  if (random.below(8) == 0) attr.qp_access_flags &= random.below(16);
  attr.path_mtu = static_cast<ibv_mtu>(IBV_MTU_256 + random.below(static_cast<std::uint32_t>(ground_.bench.mtu())));
  attr.dest_qp_num = 0xfff000 + random.below(0xff0);
  attr.rq_psn = random.below(1 << 24);
  attr.sq_psn = random.below(1 << 24);
  attr.max_rd_atomic = attr.max_dest_rd_atomic = static_cast<std::uint8_t>(1 + random.below(16));
  attr.min_rnr_timer = 1;
  // A second and more: nothing is lost here, and a request that nobody answers must not end by itself.
  constexpr std::uint8_t kTimeouts[] = {0, 18, 19, 20, 31};
  attr.timeout = kTimeouts[random.below(std::size(kTimeouts))];
  attr.retry_cnt = 7;
  attr.rnr_retry = random.below(4) == 0 ? static_cast<std::uint8_t>(random.below(3)) : 7;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = side.end->gid;
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(side.end->gid_index);
  attr.ah_attr.grh.hop_limit = 64;
}

void World::connect(Side& side, const Operation& op, Random& random) {
  Qp* const left = side.qps.find(op.a);
  if (left == nullptr || (left->state == IBV_QPS_RTS && random.below(4) != 0)) return;
  Qp* ends[2] = {left, nullptr};
  const std::size_t count = left->type == IBV_QPT_UD ? 1 : 2;
  if (count == 2) {
    Side& other = sides_[op.c & 1];
    for (unsigned i = 0; i < other.qps.places.size() && ends[1] == nullptr; ++i) {
      auto& at = other.qps.places[(op.b + i) % other.qps.places.size()];
      if (at && &*at != left && at->type == left->type) ends[1] = &*at;
    }
    if (ends[1] == nullptr) return;
  }
  for (std::size_t i = 0; i < count; ++i) go_to_reset(*ends[i]);
  ibv_qp_attr attrs[2] = {};
  for (std::size_t i = 0; i < count; ++i) fill(*ends[i], IBV_QPS_INIT, random, attrs[i]);
  const std::size_t last = random.below(8) == 0 ? 1 : count;  // the second one may stay in RTR
  for (std::size_t i = 0; i < count; ++i) {
    Qp& qp = *ends[i];
    ibv_qp_attr& attr = attrs[i];
    if (count == 2) {
      attr.dest_qp_num = ends[1 - i]->real->qp_num;
      attr.ah_attr.grh.dgid = sides_[static_cast<std::size_t>(ends[1 - i]->side)].end->gid;
      attr.path_mtu = attrs[0].path_mtu;
      attr.rq_psn = attrs[1 - i].sq_psn;
      attr.max_rd_atomic = attrs[1 - i].max_dest_rd_atomic;
    }
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      if (to == IBV_QPS_RTS && i >= last) break;
      attr.qp_state = to;
      expect(ibv_modify_qp(qp.real, &attr, IBV_QP_STATE | masks(qp.type, qp.state, to).required), {0},
             "ibv_modify_qp");
      qp.state = to;
    }
    qp.access = attr.qp_access_flags;
    qp.mtu = 128u << attr.path_mtu;
    qp.rnr_retry = attr.rnr_retry;
    qp.may_event = true;
    qp.peer = count == 2 ? ends[1 - i] : nullptr;
  }
}

/// As long as the QP drains, it may refuse the next change.
void World::drain(Qp& qp, bool notify) {
  qp.may_event |= notify || ground_.differs(Rxe::kDrainedEvent);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  do {
    if (std::chrono::steady_clock::now() > end) fail("a QP in SQD does not end to drain");
    expect(ibv_query_qp(qp.real, &attr, IBV_QP_STATE, &init), {0}, "ibv_query_qp");
  } while (attr.sq_draining != 0);
}

void World::modify(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  settle();
  const ibv_qp_state to = next_of(qp->state, random);
  if (to == IBV_QPS_RESET) return go_to_reset(*qp);
  if (qp->undecided() > 0 && qp->state == IBV_QPS_RTS) return;  // a peer that isn't ready may be at any point of it
  if (qp->peer != nullptr && (qp->peer->undecided() > 0 || qp->state == IBV_QPS_RTR)) return;  // it knows the PSN
  const Masks needs = masks(qp->type, qp->state, to);
  ibv_qp_attr attr{};
  fill(*qp, to, random, attr);
  const int mask = IBV_QP_STATE | needs.required | (needs.optional & static_cast<int>(random.next()));
  attr.en_sqd_async_notify = 1;
  expect(ibv_modify_qp(qp->real, &attr, mask), {0}, "ibv_modify_qp");
  qp->state = to;
  if (to == IBV_QPS_SQD) drain(*qp, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) qp->access = attr.qp_access_flags;
  if ((mask & IBV_QP_RNR_RETRY) != 0) qp->rnr_retry = attr.rnr_retry;
  if (to == IBV_QPS_RTR) qp->nowhere = qp->type != IBV_QPT_UD;
  if (to == IBV_QPS_RTS) {
    progress(*qp);
    settle();
    finish_breaks();
  }
}

void World::modify_bad(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr || qp->state == IBV_QPS_ERR) return;
  settle();
  ibv_qp_state to = next_of(qp->state, random);
  Masks needs = masks(qp->type, qp->state, to);
  int mask = IBV_QP_STATE | needs.required;
  ibv_qp_attr attr{};
  fill(*qp, to, random, attr);
  const char* what = nullptr;
  Taken taken = Taken::kNever;
  const std::uint32_t kind = random.below(4);
  if (kind == 0 && needs.required != 0) {
    int bits = needs.required;
    for (std::uint32_t i = random.below(3); i > 0 && (bits & (bits - 1)) != 0; --i) bits &= bits - 1;
    mask &= ~(bits & -bits);
    what = "ibv_modify_qp without a required attribute";
  } else if (kind == 1) {
    const int surplus = kSurplus[random.below(std::size(kSurplus))];
    if (((needs.required | needs.optional) & surplus) != 0 || (to == IBV_QPS_SQD && qp->state == to)) return;
    mask |= surplus;
    what = "ibv_modify_qp with an attribute that the change of state does not have";
  } else if (kind == 2) {
    to = static_cast<ibv_qp_state>(random.below(9));
    if (to < 7 && masks(qp->type, qp->state, to).allowed) return;
    attr.qp_state = to;
    mask = IBV_QP_STATE;
    if (to == IBV_QPS_INIT) mask |= masks(qp->type, IBV_QPS_RESET, to).required;
    if (to == IBV_QPS_RTR) mask |= masks(qp->type, IBV_QPS_INIT, to).required;
    if (to == IBV_QPS_RTS) mask |= masks(qp->type, IBV_QPS_RTR, to).required;
    what = "ibv_modify_qp to a state that cannot follow";
  } else {
    const BadValue& bad = kBadValues[random.below(std::size(kBadValues))];
    if ((needs.required & bad.attribute) == 0) return;
    bad.set(attr);
    what = bad.what;
    taken = bad.taken;
  }
  if (what == nullptr) return;
  const int answer = ibv_modify_qp(qp->real, &attr, mask);
  // An index in the table, but without a GID (rdma_get_gid_attr).
  const bool unused = attr.ah_attr.grh.sgid_index == 255 && side.end->port.gid_tbl_len > 255;
  if (taken == Taken::kAnywhere || (taken == Taken::kByRxe && ground_.differs(Rxe::kLowBits))) {
    if (expect(answer, {0, EINVAL}, what) == 0) return go_to_reset(*qp);
  } else {
    expect(answer, {EINVAL, unused ? ENODATA : EINVAL}, what);
  }
  query_qp(*qp);
}

void World::query_qp(Qp& qp) {
  settle();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  expect(ibv_query_qp(qp.real, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), {0}, "ibv_query_qp");
  if (attr.qp_state != qp.state) {
    fail("ibv_query_qp: the state is " + std::to_string(attr.qp_state) + ", not " + std::to_string(qp.state));
  }
  if (qp.real->state != qp.state && qp.state != IBV_QPS_ERR && qp.state != IBV_QPS_SQE)
    fail("ibv_qp.state is another one");
  if (init.cap.max_send_wr != qp.cap.max_send_wr || init.qp_type != qp.type || init.send_cq != qp.send_cq->real) {
    fail("ibv_query_qp: another QP than created");
  }
  // Without options to negotiate it has no vendor to name.
  ibv_ece ece{};
  if (expect(ibv_query_ece(qp.real, &ece), {0, EOPNOTSUPP}, "ibv_query_ece") == 0 && ece.vendor_id == 0) {
    fail("ibv_query_ece: options of no vendor");
  }
}

ibv_gid group_gid(std::uint8_t which) {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x0e;
  gid.raw[15] = which;
  return gid;
}

void World::leave_groups(Qp& qp) {
  for (const std::uint8_t group : qp.groups) {
    const ibv_gid gid = group_gid(group);
    expect(ibv_detach_mcast(qp.real, &gid, 0), {0}, "ibv_detach_mcast");
  }
  qp.groups.clear();
}

void World::attach(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  const std::uint8_t group = static_cast<std::uint8_t>(1 + random.below(3));
  ibv_gid gid = group_gid(group);
  if (qp->type != IBV_QPT_UD) {
    expect(ibv_attach_mcast(qp->real, &gid, 0), {EINVAL}, "ibv_attach_mcast of a QP that is not UD");
  } else if (random.below(4) == 0) {
    gid.raw[0] = 0xfe;
    expect(ibv_attach_mcast(qp->real, &gid, 0), {EINVAL}, "ibv_attach_mcast to a GID of no group");
  } else {
    // A second time: ib_uverbs_attach_mcast answers 0, and one detach ends it.
    expect(ibv_attach_mcast(qp->real, &gid, 0), {0}, "ibv_attach_mcast");
    if (std::find(qp->groups.begin(), qp->groups.end(), group) == qp->groups.end()) qp->groups.push_back(group);
  }
}

void World::detach(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  if (qp == nullptr) return;
  const std::uint8_t group = static_cast<std::uint8_t>(1 + random.below(3));
  const ibv_gid gid = group_gid(group);
  const auto at = std::find(qp->groups.begin(), qp->groups.end(), group);
  if (at == qp->groups.end()) {
    expect(ibv_detach_mcast(qp->real, &gid, 0), {EINVAL}, "ibv_detach_mcast of a QP outside the group");
    return;
  }
  expect(ibv_detach_mcast(qp->real, &gid, 0), {0}, "ibv_detach_mcast");
  qp->groups.erase(at);
}

}  // namespace verbs_sequences
