// The course of a sequence, and what outlives it.
#include "world.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace verbs_sequences {

struct Ground::Marker {
  conformance::Side side;
  conformance::Ah to[2];
};

Ground::Ground(Bench& b, bool t) : bench(b), trace(t) {
  if (std::strncmp(ibv_get_device_name(bench.left.context->device), "rxe", 3) == 0) differs.apply();
  const auto map = [](std::size_t bytes, int protection, int flags, int fd) {
    void* const at = mmap(nullptr, bytes, protection, flags, fd, 0);
    if (at == MAP_FAILED) throw Failed{"no memory"};
    return static_cast<std::uint8_t*>(at);
  };
  // An event that the model does not know of must not keep a reader waiting.
  for (const End* end : {&bench.left, &bench.right}) fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK);
  for (std::uint8_t*& one : memory) one = map(kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  hole = map(3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) + 4096;
  mprotect(hole, 8192, PROT_NONE);  // unmapped, it would soon hold another mapping
  const int fd = memfd_create("one page", 0);
  if (fd < 0 || ftruncate(fd, 4096) != 0) throw Failed{"no memfd"};
  short_file = map(8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  close(fd);
  read_only = map(4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  const End* const ends[2] = {&bench.left, &bench.right};
  for (std::size_t i = 0; i < 2; ++i) {
    markers[i].reset(new Marker{{*ends[i], IBV_QPT_UD, 4096, {}}, {}});
    for (std::size_t k = 0; k < 2; ++k)
      markers[i]->to[k] = conformance::make_ah(*ends[i], markers[i]->side.pd, *ends[k]);
    ibv_qp* const qp = markers[i]->side.qp.get();
    CHECK_OK(conformance::to_init(qp, 0));
    CHECK_OK(conformance::to_rtr(*ends[i], qp, *ends[i], 0, bench.mtu()));
    CHECK_OK(conformance::to_rts(qp));
  }
}

Ground::~Ground() = default;

void Ground::marker(std::size_t from, std::size_t to) {
  conformance::Side &left = markers[from]->side, &right = markers[to]->side;
  ibv_sge sge = left.buffer.sge(0, 8);
  ibv_send_wr wr = conformance::request(IBV_WR_SEND, sge);
  wr.wr.ud = {markers[from]->to[to].get(), right.qp->qp_num, conformance::kQkey};
  CHECK_OK(right.post_recv(64, 64));
  CHECK_OK(left.post(wr));
  conformance::wait(left.cq.get());  // either first, if both are the same
  conformance::wait(right.cq.get());
}

World::World(Ground& ground) : ground_(ground) {
  const End* const ends[2] = {&ground.bench.left, &ground.bench.right};
  for (std::size_t i = 0; i < 2; ++i) {
    sides_[i].end = ends[i];
    sides_[i].memory = ground.memory[i];
    sides_[i].expected.resize(kArena);
    for (std::size_t k = 0; k < kArena; ++k) sides_[i].expected[k] = static_cast<std::uint8_t>(k * 7 + k / 251 + i);
    std::memcpy(ground.memory[i], sides_[i].expected.data(), kArena);
  }
}

int World::expect(int answer, Allowed allowed, const char* call) {
  const int error = answer == -1 ? errno : answer;
  ++ground_.calls;
  if (error != 0) ++ground_.refused;
  if (ground_.trace) std::printf("    %s: %d\n", call, error);
  if (std::find(allowed.begin(), allowed.end(), error) != allowed.end()) return error;
  std::string text =
      std::string(call) + ": errno " + std::to_string(error) + " (" + std::strerror(error) + "), not";
  for (const int one : allowed) text += " " + std::to_string(one);
  throw Failed{text};
}

void World::run(const Operation& op) {
  Random random(op.choices);
  Side& side = sides_[op.side];
  switch (op.kind) {
    case Kind::kAllocPd: return alloc_pd(side);
    case Kind::kDeallocPd: return dealloc_pd(side, op);
    case Kind::kRegMr: return reg_mr(side, op, random);
    case Kind::kRegBadMr: return reg_bad_mr(side, op, random);
    case Kind::kRereg: return rereg_mr(side, op, random);
    case Kind::kDeregMr: return dereg_mr(side, op);
    case Kind::kCreateChannel: return create_channel(side);
    case Kind::kDestroyChannel: return destroy_channel(side, op);
    case Kind::kCreateCq: return create_cq(side, op, random);
    case Kind::kCreateBadCq: return create_bad_cq(side, op, random);
    case Kind::kDestroyCq: return destroy_cq(side, op);
    case Kind::kResizeCq: return resize_cq(side, op, random);
    case Kind::kArm: return arm(side, op, random);
    case Kind::kPoll: return poll_some(side, op, random);
    case Kind::kTakeEvent: return take_event(side, op);
    case Kind::kCreateSrq: return create_srq(side, op, random);
    case Kind::kCreateBadSrq: return create_bad_srq(side, op, random);
    case Kind::kDestroySrq: return destroy_srq(side, op);
    case Kind::kModifySrq: return modify_srq(side, op, random);
    case Kind::kQuerySrq: return query_srq(side, op);
    case Kind::kPostSrqRecv: return post_srq_recv(side, op, random);
    case Kind::kCreateQp: return create_qp(side, op, random);
    case Kind::kCreateBadQp: return create_bad_qp(side, op, random);
    case Kind::kDestroyQp: return destroy_qp(side, op);
    case Kind::kConnect: return connect(side, op, random);
    case Kind::kModify: return modify(side, op, random);
    case Kind::kModifyBad: return modify_bad(side, op, random);
    case Kind::kToError:
      if (Qp* const qp = side.qps.find(op.a)) go_to_error(*qp);
      return;
    case Kind::kToReset:
      if (Qp* const qp = side.qps.find(op.a)) go_to_reset(*qp);
      return;
    case Kind::kQueryQp:
      if (Qp* const qp = side.qps.find(op.a)) query_qp(*qp);
      return;
    case Kind::kPostSend: return post_send(side, op, random);
    case Kind::kPostBadSend: return post_bad_send(side, op, random);
    case Kind::kPostRecv: return post_recv(side, op, random);
    case Kind::kCreateAh: return create_ah(side, op, random);
    case Kind::kCreateBadAh: return create_bad_ah(side, op, random);
    case Kind::kDestroyAh: return destroy_ah(side, op);
    case Kind::kAllocMw: return alloc_mw(side, op, random);
    case Kind::kBindMw: return bind_mw(side, op, random);
    case Kind::kDeallocMw: return dealloc_mw(side, op);
    case Kind::kAttach: return attach(side, op, random);
    case Kind::kDetach: return detach(side, op, random);
    case Kind::kQueryPort: return query_port(side, random);
    case Kind::kTakeAsyncEvent: take_async_event(side); return;
    case Kind::kCount: break;
  }
}

void World::finish() {
  settle();
  for (Side& side : sides_) {
    for (auto& qp : side.qps.places) {
      if (qp) go_to_error(*qp);
    }
  }
  for (Side& side : sides_) {
    while (take_async_event(side)) {
    }
    for (auto& channel : side.channels.places) {
      if (channel) check_channel(side, *channel);
    }
    const Operation first{Kind::kCount, 0, 0, 0, 0, 0};
    for (auto& qp : side.qps.places) {
      if (!qp) continue;
      // Queues are empty now: a completion that is left is one too many.
      for (Cq* cq : {qp->send_cq, qp->recv_cq}) {
        if (poll_one(side, *cq)) fail("a completion that the model does not know");
      }
    }
    for (auto& qp : side.qps.places) {
      if (qp) leave_groups(*qp);
    }
    while (side.qps.find(0) != nullptr) destroy_qp(side, first);
    while (side.srqs.find(0) != nullptr) destroy_srq(side, first);
    while (side.mws.find(0) != nullptr) dealloc_mw(side, first);
    while (side.mrs.find(0) != nullptr) dereg_mr(side, first);
    while (side.ahs.find(0) != nullptr) destroy_ah(side, first);
    while (side.cqs.find(0) != nullptr) destroy_cq(side, first);
    while (side.channels.find(0) != nullptr) destroy_channel(side, first);
    while (side.pds.find(0) != nullptr) dealloc_pd(side, first);
    take_async_event(side);
  }
}

void World::abandon() {
  chain_.clear();
  for (Side& side : sides_) {
    const auto each = [](auto& table, auto destroy) {
      for (auto& at : table.places) {
        if (at) destroy(at->real);
        at.reset();
      }
    };
    for (auto& qp : side.qps.places) {
      for (const std::uint8_t group : qp ? qp->groups : std::vector<std::uint8_t>{}) {
        const ibv_gid gid = group_gid(group);
        ibv_detach_mcast(qp->real, &gid, 0);
      }
    }
    each(side.qps, ibv_destroy_qp);
    each(side.srqs, ibv_destroy_srq);
    each(side.mws, conformance::destroy_mw);
    each(side.mrs, ibv_dereg_mr);
    each(side.ahs, ibv_destroy_ah);
    each(side.cqs, ibv_destroy_cq);
    each(side.channels, ibv_destroy_comp_channel);
    each(side.pds, ibv_dealloc_pd);
    // Events that are left are none of the next sequence's.
    ibv_async_event event{};
    while (ibv_get_async_event(side.end->context, &event) == 0) ibv_ack_async_event(&event);
  }
}

}  // namespace verbs_sequences
