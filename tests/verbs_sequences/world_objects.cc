// Domains, regions, completion queues, shared receive queues and address handles. The errors are those of the man
// pages and of the kernel's core (drivers/infiniband/core); where devices differ, each answer is allowed.
#include <cerrno>
#include <cstring>

#include "world.h"

namespace verbs_sequences {

void World::alloc_pd(Side& side) {
  auto* place = side.pds.free_place();
  if (place == nullptr) return;
  *place = Pd{expect_made(ibv_alloc_pd(side.end->context), {0}, "ibv_alloc_pd")};
}

void World::dealloc_pd(Side& side, const Operation& op) {
  Pd* pd = side.pds.find(op.a);
  if (pd == nullptr) return;
  // In use by a region, window, queue or handle: EBUSY (uverbs_free_pd).
  const int error = pd->users > 0 ? expect(ibv_dealloc_pd(pd->real), {EBUSY}, "ibv_dealloc_pd of a domain in use")
                                  : expect(ibv_dealloc_pd(pd->real), {0}, "ibv_dealloc_pd");
  if (error == 0) side.pds.remove(pd);
}

void World::reg_mr(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  auto* place = side.mrs.free_place();
  if (pd == nullptr || place == nullptr) return;
  Mr mr{nullptr, pd, 0, kArena, 0x1f};  // all kinds of access
  if (random.below(3) == 0) {
    mr.begin = random.below(kArena - 1);
    mr.length = 1 + random.below(static_cast<std::uint32_t>(kArena - mr.begin));
  }
  if (random.below(3) == 0) {
    mr.access = static_cast<int>(random.below(32));
    if ((mr.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0)
      mr.access |= IBV_ACCESS_LOCAL_WRITE;
  }
  mr.real = expect_made(ibv_reg_mr(pd->real, side.memory + mr.begin, mr.length, mr.access), {0}, "ibv_reg_mr");
  if (mr.real->length != mr.length || mr.real->addr != side.memory + mr.begin || mr.real->pd != pd->real) {
    fail("ibv_reg_mr: the members of ibv_mr are not what was asked for");
  }
  ++pd->users;
  *place = mr;
}

void World::reg_bad_mr(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  if (pd == nullptr) return;
  struct Bad {
    void* address;
    std::size_t length;
    int access;
    int error;
    const char* what;
  };
  const std::uintptr_t last = ~std::uintptr_t{0} - 4095;
  const Bad all[] = {
      {ground_.hole, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT, "ibv_reg_mr of what is not mapped"},
      {ground_.hole - 4096, 8192, 0, EFAULT, "ibv_reg_mr past the end of a mapping"},
      {nullptr, 4096, 0, EFAULT, "ibv_reg_mr of address 0"},
      {ground_.short_file, 8192, IBV_ACCESS_LOCAL_WRITE, EFAULT, "ibv_reg_mr past the end of a file"},
      {ground_.read_only, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT, "ibv_reg_mr with LOCAL_WRITE of read-only memory"},
      {side.memory, 64, IBV_ACCESS_REMOTE_WRITE, EINVAL, "ibv_reg_mr with REMOTE_WRITE and without LOCAL_WRITE"},
      {side.memory, 64, IBV_ACCESS_REMOTE_ATOMIC, EINVAL, "ibv_reg_mr with REMOTE_ATOMIC and without LOCAL_WRITE"},
      {side.memory, 64, 1 << 15, EINVAL, "ibv_reg_mr with an unknown access flag"},
      {reinterpret_cast<void*>(last), 8192, 0, EINVAL, "ibv_reg_mr past the end of the address space"},
  };
  const Bad& bad = all[random.below(std::size(all))];
  // The kernel's core refuses the flags, and the pages are found later; rxe and some drivers order that otherwise.
  const bool forced = bad.address == ground_.hole - 4096 && ground_.differs(Rxe::kForcedPages);
  ibv_mr* const mr = expect_made(ibv_reg_mr(pd->real, bad.address, bad.length, bad.access),
                                 {bad.error, forced ? 0 : bad.error}, bad.what);
  if (mr != nullptr) ibv_dereg_mr(mr);
}

/// Whether a request that is not complete sends from the region, which must then stay (ibv_post_send(3)).
bool World::waits_for(const Side& side, const Mr& mr) const {
  for (const auto& qp : side.qps.places) {
    if (!qp) continue;
    for (const Work& work : qp->sends) {
      for (const Piece& piece : work.pieces) {
        if (!work.decided && piece.lkey == mr.real->lkey) return true;
      }
    }
  }
  return false;
}

void World::rereg_mr(Side& side, const Operation& op, Random& random) {
  Mr* mr = side.mrs.find(op.a);
  Pd* pd = side.pds.find(op.b);
  if (mr == nullptr || pd == nullptr || mr->windows > 0 || ground_.differs(Rxe::kNoRereg)) return;
  settle();
  if (waits_for(side, *mr)) return;
  const int flags = static_cast<int>(random.below(9));  // 8 is not a flag
  const std::size_t begin = random.below(kArena - 1);
  const std::size_t length = 1 + random.below(static_cast<std::uint32_t>(kArena - begin));
  const bool change_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  const int access = change_access ? static_cast<int>(random.below(16)) : 0;
  const bool bad_access = (access & 1) == 0 && (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const int answer = ibv_rereg_mr(mr->real, flags, pd->real, side.memory + begin, length, access);
  ++ground_.calls;
  // The library refuses unknown flags, the kernel all else; the region is unchanged.
  if (flags == 8 || flags == 0 || bad_access) {
    if (answer != IBV_REREG_MR_ERR_INPUT && (flags == 8 || answer != IBV_REREG_MR_ERR_CMD)) {
      fail("ibv_rereg_mr with wrong arguments: " + std::to_string(answer));
    }
    ++ground_.refused;
    return;
  }
  if (answer != 0) {
    fail("ibv_rereg_mr: " + std::to_string(answer) + ", errno " + std::to_string(errno) + ", flags " +
         std::to_string(flags) + ", access " + std::to_string(access) + " after " + std::to_string(mr->access));
  }
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    mr->begin = begin;
    mr->length = length;
  }
  if (change_access) mr->access = access;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    --mr->pd->users;
    ++pd->users;
    mr->pd = pd;
  }
}

void World::dereg_mr(Side& side, const Operation& op) {
  Mr* mr = side.mrs.find(op.a);
  if (mr == nullptr) return;
  settle();
  if (waits_for(side, *mr)) return;
  if (mr->windows > 0) {
    // ibv_dereg_mr(3): fails if a window is bound to the region. rxe answers EINVAL.
    expect(ibv_dereg_mr(mr->real), {EBUSY, EINVAL}, "ibv_dereg_mr with a bound window");
    return;
  }
  expect(ibv_dereg_mr(mr->real), {0}, "ibv_dereg_mr");
  --mr->pd->users;
  side.mrs.remove(mr);
}

void World::create_cq(Side& side, const Operation& op, Random& random) {
  auto* place = side.cqs.free_place();
  if (place == nullptr) return;
  Channel* channel = op.c % 4 != 0 ? side.channels.find(op.b) : nullptr;
  const int entries = static_cast<int>(700 + random.below(1000));
  Cq cq{
      expect_made(ibv_create_cq(side.end->context, entries, place, channel == nullptr ? nullptr : channel->real, 0),
                  {0}, "ibv_create_cq"),
      channel};
  if (cq.real->cqe < entries) fail("ibv_create_cq: fewer entries than asked for");
  if (channel != nullptr) ++channel->users;
  *place = cq;
}

void World::create_bad_cq(Side& side, const Operation& op, Random& random) {
  Channel* channel = side.channels.find(op.b);
  ibv_comp_channel* const real = channel == nullptr ? nullptr : channel->real;
  int entries = 16, vector = 0;
  const unsigned which = random.below(4);
  if (which == 0) entries = -1;
  if (which == 1) entries = side.end->attr.max_cqe + 1;
  if (which == 2) vector = side.end->context->num_comp_vectors;
  if (which == 3) vector = -1;
  ibv_cq* const cq = expect_made(ibv_create_cq(side.end->context, entries, nullptr, real, vector), {EINVAL},
                                 which < 2 ? "ibv_create_cq of a wrong size" : "ibv_create_cq with a wrong vector");
  if (cq != nullptr) ibv_destroy_cq(cq);
}

void World::destroy_cq(Side& side, const Operation& op) {
  Cq* cq = side.cqs.find(op.a);
  if (cq == nullptr) return;
  if (cq->users > 0) {
    expect(ibv_destroy_cq(cq->real), {EBUSY}, "ibv_destroy_cq of a CQ in use");
    return;
  }
  expect(ibv_destroy_cq(cq->real), {0}, "ibv_destroy_cq");
  Channel* const channel = cq->channel;
  side.cqs.remove(cq);
  if (channel == nullptr) return;
  --channel->users;
  check_channel(side, *channel);
}

void World::resize_cq(Side& side, const Operation& op, Random& random) {
  Cq* cq = side.cqs.find(op.a);
  if (cq == nullptr) return;
  const int before = cq->real->cqe;
  if (random.below(3) == 0) {
    const int wrong = random.below(2) == 0 ? -1 : side.end->attr.max_cqe + 1;
    expect(ibv_resize_cq(cq->real, wrong), {EINVAL}, "ibv_resize_cq to a wrong size");
    if (cq->real->cqe != before) fail("ibv_resize_cq failed, and changed cqe");
    return;
  }
  const int entries = static_cast<int>(700 + random.below(1000));
  expect(ibv_resize_cq(cq->real, entries), {0}, "ibv_resize_cq");
  if (cq->real->cqe < entries) fail("ibv_resize_cq: fewer entries than asked for");
}

void World::create_srq(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  auto* place = side.srqs.free_place();
  if (pd == nullptr || place == nullptr) return;
  ibv_srq_init_attr init{};
  init.srq_context = place;
  init.attr.max_wr = 4 + random.below(30);
  init.attr.max_sge = 1 + random.below(4);
  const ibv_srq_attr asked = init.attr;
  ibv_srq* const srq = expect_made(ibv_create_srq(pd->real, &init), {0}, "ibv_create_srq");
  if (ground_.differs(Rxe::kSizesAsAsked)) expect(ibv_query_srq(srq, &init.attr), {0}, "ibv_query_srq");
  if (init.attr.max_wr < asked.max_wr || init.attr.max_sge < asked.max_sge)
    fail("ibv_create_srq: less than asked for");
  ++pd->users;
  *place = Srq{srq, pd, init.attr.max_wr, init.attr.max_sge};
}

void World::create_bad_srq(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  if (pd == nullptr) return;
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  if (random.below(2) == 0) {
    init.attr.max_wr = static_cast<std::uint32_t>(side.end->attr.max_srq_wr) + 1;
  } else {
    init.attr.max_sge = static_cast<std::uint32_t>(side.end->attr.max_srq_sge) + 1;
  }
  ibv_srq* const srq = expect_made(ibv_create_srq(pd->real, &init), {EINVAL}, "ibv_create_srq of a wrong size");
  if (srq != nullptr) ibv_destroy_srq(srq);
}

void World::destroy_srq(Side& side, const Operation& op) {
  Srq* srq = side.srqs.find(op.a);
  if (srq == nullptr) return;
  if (srq->users > 0) {
    expect(ibv_destroy_srq(srq->real), {EBUSY}, "ibv_destroy_srq of an SRQ in use");
    return;
  }
  expect(ibv_destroy_srq(srq->real), {0}, "ibv_destroy_srq");
  --srq->pd->users;
  side.srqs.remove(srq);
}

void World::modify_srq(Side& side, const Operation& op, Random& random) {
  Srq* srq = side.srqs.find(op.a);
  if (srq == nullptr) return;
  settle();
  ibv_srq_attr attr{};
  if (random.below(4) == 0) {
    attr.srq_limit = srq->capacity + 1 + random.below(1 << 20);
    expect(ibv_modify_srq(srq->real, &attr, IBV_SRQ_LIMIT), {EINVAL}, "ibv_modify_srq, a limit above max_wr");
    return;
  }
  attr.srq_limit = random.below(srq->capacity);
  expect(ibv_modify_srq(srq->real, &attr, IBV_SRQ_LIMIT), {0}, "ibv_modify_srq");
  srq->limit = attr.srq_limit;
  // Devices differ in whether a limit that is not reached when it is set causes the event at once: at the next
  // message.
  if (srq->limit > srq->queue.size()) {
    ++srq->most;
    srq->limit = 0;
  }
}

void World::query_srq(Side& side, const Operation& op) {
  Srq* srq = side.srqs.find(op.a);
  if (srq == nullptr) return;
  settle();
  ibv_srq_attr attr{};
  expect(ibv_query_srq(srq->real, &attr), {0}, "ibv_query_srq");
  if (attr.max_wr != srq->capacity || attr.max_sge != srq->elements)
    fail("ibv_query_srq: another size than created");
  if (srq->most == 0 && attr.srq_limit != srq->limit) {
    fail("ibv_query_srq: the limit is " + std::to_string(attr.srq_limit) + ", not " + std::to_string(srq->limit));
  }
}

void World::create_ah(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  auto* place = side.ahs.free_place();
  if (pd == nullptr || place == nullptr) return;
  const int to = static_cast<int>(random.below(2));
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = sides_[static_cast<std::size_t>(to)].end->gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(side.end->gid_index);
  attr.grh.hop_limit = 64;
  *place = Ah{expect_made(ibv_create_ah(pd->real, &attr), {0}, "ibv_create_ah"), pd, to};
  ++pd->users;
}

void World::create_bad_ah(Side& side, const Operation& op, Random& random) {
  Pd* pd = side.pds.find(op.b);
  if (pd == nullptr) return;
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = side.end->gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(side.end->gid_index);
  attr.grh.hop_limit = 64;
  const char* what = nullptr;
  switch (random.below(4)) {
    case 0:
      attr.port_num = 0;
      what = "ibv_create_ah with port 0";
      break;
    case 1:
      attr.port_num = static_cast<std::uint8_t>(2 + random.below(254));
      what = "ibv_create_ah with a port that there is not";
      break;
    case 2:
      attr.is_global = 0;
      what = "ibv_create_ah without a GRH on RoCE";
      break;
    default:
      attr.grh.sgid_index = 255;
      if (side.end->port.gid_tbl_len > 255) return;
      what = "ibv_create_ah with an index past the table of GIDs";
      break;
  }
  ibv_ah* const ah = expect_made(ibv_create_ah(pd->real, &attr), {EINVAL}, what);
  if (ah != nullptr) ibv_destroy_ah(ah);
}

void World::destroy_ah(Side& side, const Operation& op) {
  Ah* ah = side.ahs.find(op.a);
  if (ah == nullptr) return;
  settle();
  // A handle in use by posted requests may be destroyed only after these; sends that wait in SQD use none here.
  for (auto& qp : side.qps.places) {
    if (qp && qp->undecided() > 0 && qp->type == IBV_QPT_UD) return;
  }
  expect(ibv_destroy_ah(ah->real), {0}, "ibv_destroy_ah");
  --ah->pd->users;
  side.ahs.remove(ah);
}

void World::query_port(Side& side, Random& random) {
  ibv_context* const context = side.end->context;
  ibv_port_attr port{};
  ibv_gid gid{};
  __be16 pkey = 0;
  const int gids = side.end->port.gid_tbl_len;
  switch (random.below(7)) {
    case 0: expect(ibv_query_port(context, 1, &port), {0}, "ibv_query_port"); break;
    case 1: expect(ibv_query_port(context, 0, &port), {EINVAL}, "ibv_query_port of port 0"); break;
    case 2: expect(ibv_query_port(context, 2, &port), {EINVAL}, "ibv_query_port of port 2"); break;
    case 3:
      expect(ibv_query_gid(context, 1, side.end->gid_index, &gid), {0}, "ibv_query_gid");
      if (std::memcmp(gid.raw, side.end->gid.raw, 16) != 0) fail("ibv_query_gid: another GID than before");
      break;
    case 4: {
      // ib_uverbs: an index past the table is EINVAL.
      ibv_gid_entry entry{};
      expect(ibv_query_gid_ex(context, 1, static_cast<std::uint32_t>(gids) + random.below(3), &entry, 0), {EINVAL},
             "ibv_query_gid_ex past the table");
      break;
    }
    case 5: expect(ibv_query_pkey(context, 1, 0, &pkey), {0}, "ibv_query_pkey"); break;
    default:
      // libibverbs reads sysfs, where there is no such file; the errno is the one of open().
      if (ibv_query_pkey(context, 1, side.end->port.pkey_tbl_len, &pkey) == 0)
        fail("ibv_query_pkey past the table");
      ++ground_.calls;
      break;
  }
}

}  // namespace verbs_sequences
