// Completions and events: what a poll returns, which descriptors are readable, and which events they deliver.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <cerrno>
#include <cstdio>

#include "world.h"

namespace verbs_sequences {

void World::create_channel(Side& side) {
  auto* place = side.channels.free_place();
  if (place == nullptr) return;
  ibv_comp_channel* const channel =
      expect_made(ibv_create_comp_channel(side.end->context), {0}, "ibv_create_comp_channel");
  fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  *place = Channel{channel};
}

void World::destroy_channel(Side& side, const Operation& op) {
  Channel* channel = side.channels.find(op.a);
  if (channel == nullptr) return;
  if (channel->users > 0) {
    expect(ibv_destroy_comp_channel(channel->real), {EBUSY}, "ibv_destroy_comp_channel of a channel in use");
    return;
  }
  expect(ibv_destroy_comp_channel(channel->real), {0}, "ibv_destroy_comp_channel");
  side.channels.remove(channel);
}

void World::arm(Side& side, const Operation& op, Random& random) {
  Cq* cq = side.cqs.find(op.a);
  if (cq == nullptr) return;
  const bool solicited = random.below(3) == 0;
  expect(ibv_req_notify_cq(cq->real, solicited), {0},
         solicited ? "ibv_req_notify_cq, solicited" : "ibv_req_notify_cq");
  if (cq->channel == nullptr) return;
  if (cq->entries > 0) {
    // A device that compares indices reports the entries that there are at once; others wait for a new one.
    cq->armed = Armed::kLoose;
    ++cq->most;
  } else if (cq->armed == Armed::kLoose && solicited) {
    ++cq->most;  // it may still be armed for any
  } else if (cq->armed != Armed::kAny) {
    cq->armed = solicited ? Armed::kSolicited : Armed::kAny;
  }
}

/// `solicited`: or an error, which counts as such.
void World::entry(Cq& cq, bool solicited, bool failed) {
  ++cq.entries;
  ++under_way_;
  if (cq.armed == Armed::kNo || cq.armed == Armed::kLoose || (cq.armed == Armed::kSolicited && !solicited)) return;
  if (cq.armed == Armed::kSolicited && failed && ground_.differs(Rxe::kSolicitedErrors)) {
    cq.armed = Armed::kLoose;
    ++cq.most;
    return;
  }
  cq.armed = Armed::kNo;
  ++cq.most;
  cq.least = 1;  // a second one may be merged with one that waits
}

Qp* World::find_qp(Side& side, std::uint32_t number) {
  for (auto& qp : side.qps.places) {
    if (qp && qp->real->qp_num == number) return &*qp;
  }
  return nullptr;
}

void World::check_completion(Side& side, Cq& cq, const ibv_wc& wc) {
  ++ground_.completed;
  Qp* const qp = find_qp(side, wc.qp_num);
  const std::string title = "completion " + std::to_string(wc.wr_id) + " of QP " + std::to_string(wc.qp_num) +
                            " (" + ibv_wc_status_str(wc.status) + "): ";
  if (ground_.trace) std::printf("    %s\n", title.c_str());
  if (qp == nullptr) fail(title + "there is no such QP");
  const bool receive = (wc.wr_id & 1) != 0;
  if (&cq != (receive ? qp->recv_cq : qp->send_cq)) fail(title + "in another CQ");
  std::deque<Work>& queue = receive ? qp->receives : qp->sends;
  while (!queue.empty() && queue.front().id != wc.wr_id && queue.front().decided && !queue.front().counted) {
    queue.pop_front();  // successful, and not signaled
  }
  if (queue.empty()) fail(title + "nothing is outstanding: completed twice, or never posted");
  const Work work = queue.front();
  if (work.id != wc.wr_id) fail(title + "out of order, " + std::to_string(work.id) + " is older");
  queue.pop_front();
  if (!work.decided) fail(title + "the request cannot be complete yet");
  if (!work.counted) fail(title + "the request was not signaled");
  --cq.entries;
  --under_way_;
  if (receive && qp->srq != nullptr) --qp->srq->taken;
  if ((work.allowed & bit(wc.status)) == 0) {
    fail(title + "allowed are the statuses of bits " + std::to_string(work.allowed));
  }
  if (wc.status != IBV_WC_SUCCESS) {
    ++ground_.failed_requests;
    return;
  }
  if (wc.opcode != work.done_as)
    fail(title + "opcode " + std::to_string(wc.opcode) + ", not " + std::to_string(work.done_as));
  if (!receive) return;
  if (wc.byte_len != work.length)
    fail(title + "byte_len " + std::to_string(wc.byte_len) + ", not " + std::to_string(work.length));
  if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != work.has_imm) fail(title + "IBV_WC_WITH_IMM is wrong");
  if (work.has_imm && wc.imm_data != work.imm) fail(title + "other immediate data");
  if (work.source_qp != 0 && wc.src_qp != work.source_qp) fail(title + "src_qp " + std::to_string(wc.src_qp));
}

bool World::poll_one(Side& side, Cq& cq) {
  ibv_wc wc{};
  const int got = ibv_poll_cq(cq.real, 1, &wc);
  ground_.calls += got == 1 ? 1 : 0;  // not those that only wait
  if (got < 0 || got > 1) fail("ibv_poll_cq returns " + std::to_string(got));
  if (got == 1) check_completion(side, cq, wc);
  return got == 1;
}

void World::poll_some(Side& side, const Operation& op, Random& random) {
  Cq* cq = side.cqs.find(op.a);
  if (cq == nullptr) return;
  ibv_wc all[8];
  const int most = static_cast<int>(1 + random.below(8));
  const int got = ibv_poll_cq(cq->real, most, all);
  ++ground_.calls;
  if (got < 0 || got > most) fail("ibv_poll_cq returns " + std::to_string(got));
  for (int i = 0; i < got; ++i) check_completion(side, *cq, all[i]);
}

bool World::check_channel(Side& side, Channel& channel) {
  bool some = false, maybe = false;
  for (const auto& cq : side.cqs.places) {
    if (!cq || cq->channel != &channel) continue;
    some |= cq->least > 0;
    maybe |= cq->most > 0;
  }
  pollfd one{channel.real->fd, POLLIN, 0};
  const bool readable = poll(&one, 1, some ? 10000 : 0) == 1;
  if (some && !readable) fail("an event should wait in a completion channel, and poll(2) says that there is none");
  if (!maybe && readable) fail("no event can wait in a completion channel, and poll(2) says that there is one");
  return maybe;
}

void World::take_event(Side& side, const Operation& op) {
  Channel* channel = side.channels.find(op.a);
  if (channel == nullptr) return;
  const bool maybe = check_channel(side, *channel);
  bool some = false;
  for (const auto& cq : side.cqs.places) some |= cq && cq->channel == channel && cq->least > 0;
  ibv_cq* real = nullptr;
  void* context = nullptr;
  const int answer = ibv_get_cq_event(channel->real, &real, &context);
  ++ground_.calls;
  if (answer != 0) {
    if (some) fail("ibv_get_cq_event fails, and an event waits");
    if (errno != EAGAIN) fail("ibv_get_cq_event of a channel without events: errno " + std::to_string(errno));
    return;
  }
  if (!maybe) fail("ibv_get_cq_event returns an event that nothing caused");
  if (ground_.trace) std::printf("    an event\n");
  ++ground_.events;
  for (auto& cq : side.cqs.places) {
    if (!cq || cq->real != real) continue;
    if (context != &cq) fail("ibv_get_cq_event: another cq_context than the CQ was created with");
    ibv_ack_cq_events(real, 1);
    if (cq->channel != channel || cq->most == 0) fail("ibv_get_cq_event: an event of a CQ that has none");
    cq->least = 0;  // one that was merged may have been this one
    if (cq->armed != Armed::kLoose || cq->most > 1) --cq->most;
    return;
  }
  fail("ibv_get_cq_event: an event of a CQ that there is not");
}

void World::limit_reached(Srq& srq) {
  if (srq.limit == 0 || srq.queue.size() >= srq.limit) return;
  srq.limit = 0;
  ++srq.least;
  ++srq.most;
}

bool World::take_async_event(Side& side) {
  bool some = false, maybe = false;
  for (const auto& qp : side.qps.places) {
    some |= qp && qp->last_wqe_waits && !ground_.differs(Rxe::kNoLastWqe);
    maybe |= qp && (qp->may_event || qp->last_wqe > 0);
  }
  for (const auto& srq : side.srqs.places) {
    some |= srq && srq->least > 0;
    maybe |= srq && srq->most > 0;
  }
  pollfd one{side.end->context->async_fd, POLLIN, 0};
  const bool readable = poll(&one, 1, some ? 10000 : 0) == 1;
  if (some && !readable) fail("an asynchronous event should wait, and poll(2) says that there is none");
  if (!readable) return false;
  ibv_async_event event{};
  expect(ibv_get_async_event(side.end->context, &event), {0}, "ibv_get_async_event");
  ++ground_.events;
  ibv_ack_async_event(&event);
  const std::string title = std::string("asynchronous event '") + ibv_event_type_str(event.event_type) + "': ";
  if (!maybe) fail(title + "nothing caused it");
  if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    for (auto& srq : side.srqs.places) {
      if (!srq || srq->real != event.element.srq) continue;
      if (srq->most == 0) fail(title + "the SRQ has not reached it");
      --srq->most;
      srq->least -= srq->least > 0 ? 1 : 0;
      return true;
    }
    fail(title + "there is no such SRQ");
  }
  for (auto& qp : side.qps.places) {
    if (!qp || qp->real != event.element.qp) continue;
    if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
      if (qp->last_wqe == 0) fail(title + "the QP has not gone to ERR, or this is one too many");
      --qp->last_wqe;
      qp->last_wqe_waits = false;
    } else if (!qp->may_event) {
      fail(title + "nothing happened to the QP");
    }
    return true;
  }
  fail(title + "there is no such QP");
}

}  // namespace verbs_sequences
