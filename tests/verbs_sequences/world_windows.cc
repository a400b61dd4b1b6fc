// Memory windows of type 1: ibv_bind_mw(3).
#include <sched.h>
#include <cerrno>

#include "world.h"

namespace verbs_sequences {

void World::alloc_mw(Side& side, const Operation& op, Random&) {
  Pd* pd = side.pds.find(op.b);
  auto* place = side.mws.free_place();
  if (pd == nullptr || place == nullptr) return;
  *place = Mw{expect_made(ibv_alloc_mw(pd->real, IBV_MW_TYPE_1), {0}, "ibv_alloc_mw"), pd};
  ++pd->users;
}

void World::bind_mw(Side& side, const Operation& op, Random& random) {
  Qp* const qp = side.qps.find(op.a);
  Mw* const mw = side.mws.find(op.b);
  Mr* const mr = side.mrs.find(op.c);
  if (qp == nullptr || mw == nullptr || mr == nullptr || ground_.differs(Rxe::kWindows)) return;
  settle();
  if (qp->type != IBV_QPT_RC || qp->state != IBV_QPS_RTS || qp->undecided() > 0 || qp->nowhere ||
      qp->peer == nullptr || qp->sends.size() >= qp->cap.max_send_wr) {
    return;
  }
  if (mr->pd == qp->pd && random.below(4) == 0) return bind_nothing(side, *qp, *mr);
  ibv_mw_bind bind{};
  Work work;
  bind.wr_id = work.id = next_id_++ << 1;
  bind.send_flags = IBV_SEND_SIGNALED;
  const std::size_t begin = mr->begin + random.below(static_cast<std::uint32_t>(mr->length));
  const std::size_t length = 1 + random.below(static_cast<std::uint32_t>(mr->begin + mr->length - begin));
  const unsigned access = random.below(8) << 1;
  bind.bind_info = {mr->real, reinterpret_cast<std::uintptr_t>(side.memory + begin), length, access};
  // IBTA vol. 1, 10.6.7.2.5: one domain for all three; the region must allow windows, and local writes if the
  // window allows remote ones.
  const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const bool good = mw->pd == qp->pd && mr->pd == qp->pd && (mr->access & IBV_ACCESS_MW_BIND) != 0 &&
                    (!writes || (mr->access & IBV_ACCESS_LOCAL_WRITE) != 0);
  // libibverbs looks at the domains of window and region (ibv_cmd, ibv_bind_mw); what it leaves fails by
  // completion.
  const int answer = ibv_bind_mw(qp->real, mw->real, &bind);
  if (good) {
    expect(answer, {0}, "ibv_bind_mw");
  } else if (expect(answer, {0, EINVAL, EPERM}, "ibv_bind_mw that is wrong") != 0) {
    return;
  }
  work.done_as = IBV_WC_BIND_MW;
  qp->sends.push_back(std::move(work));
  if (good) {
    if (mw->mr != nullptr) --mw->mr->windows;
    ++mr->windows;
    mw->mr = mr;
    mw->begin = begin;
    mw->length = length;
    mw->access = access;
    decide(*qp, qp->sends.back(), false, bit(IBV_WC_SUCCESS));
  } else {
    decide(*qp, qp->sends.back(), false, bit(IBV_WC_MW_BIND_ERR));
    enter_error(*qp);
  }
  settle();
  finish_breaks();
}

/// A window of type 2 has no bind of length 0 (IBTA vol. 1, o10-37.2.40).
void World::bind_nothing(Side& side, Qp& qp, const Mr& mr) {
  ibv_mw* const mw = expect_made(ibv_alloc_mw(qp.pd->real, IBV_MW_TYPE_2), {0}, "ibv_alloc_mw of type 2");
  Work work;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = work.id = next_id_++ << 1;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {
      mw, ibv_inc_rkey(mw->rkey), {mr.real, reinterpret_cast<std::uintptr_t>(side.memory + mr.begin), 0, 0}};
  if (expect(ibv_post_send(qp.real, &wr, &bad), {0, EINVAL}, "ibv_post_send of a bind of length 0") == 0) {
    qp.sends.push_back(std::move(work));
    decide(qp, qp.sends.back(), false, bit(IBV_WC_MW_BIND_ERR));
    enter_error(qp);
  }
  settle();
  finish_breaks();
  expect(ibv_dealloc_mw(mw), {0}, "ibv_dealloc_mw");
}

void World::dealloc_mw(Side& side, const Operation& op) {
  Mw* const mw = side.mws.find(op.a);
  if (mw == nullptr) return;
  settle();
  expect(ibv_dealloc_mw(mw->real), {0}, "ibv_dealloc_mw");
  if (mw->mr != nullptr) --mw->mr->windows;
  --mw->pd->users;
  side.mws.remove(mw);
}

}  // namespace verbs_sequences
