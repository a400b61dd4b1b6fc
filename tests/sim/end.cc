#include "tests/sim/end.h"

#include <algorithm>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr std::uint32_t kGap = 256;
constexpr std::uint32_t kTargetAccess = 15 | memory::kMwBind | memory::kFlushGlobal;
constexpr std::uint32_t kWindowAccess = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;

Key insert(End& end, const Piece& piece, std::uint64_t iova, std::uint32_t access, PdId pd,
           memory::Kind kind = memory::Kind::kRegistered) {
  memory::Region region;
  region.pd = pd;
  region.access = access;
  region.iova = iova;
  region.length = piece.length;
  region.base = end.arena.data() + piece.offset;
  region.kind = kind;
  const auto key = end.host->table.insert(region);
  if (!key.has_value()) throw Violation("no room for an MR");
  return *key;
}

void drop_perishable(End& end) {
  for (Key key : end.all_perishable) {
    if (!end.host->table.retire(key)) throw Violation("a key can't be retired");
    end.host->table.release(key);
  }
  end.all_perishable.clear();
}

/// A window over the whole target zone.
Key bind_window(End& end, memory::Kind kind) {
  const Key window = *end.host->table.allocate_window(end.pd, kind);
  const Key bound{(window.value & ~0xffu) | ((window.value + 1) & 0xff)};
  const memory::Binding request{.window = window,
                                .new_key = bound,
                                .mr = end.target.key,
                                .pd = end.pd,
                                .qpn = end.qp->qpn,
                                .address = end.target.iova,
                                .length = end.target.piece.length,
                                .access = kWindowAccess};
  if (end.host->table.bind(request) != memory::Verdict::kOk) throw Violation("a window can't be bound");
  return bound;
}

Key allocate_fast(End& end) {
  return *end.host->table.allocate_fast({.pd = end.pd,
                                         .access = 15,
                                         .length = end.target.piece.length,
                                         .base = end.arena.data() + end.target.piece.offset,
                                         .client_address = end.target.iova});
}

void draw_keys(End& end, Random& random) {
  end.perishable.clear();
  end.perished.clear();
  end.read_keys.clear();
  end.unbound.clear();
  end.window = bind_window(end, random.chance(0.5) ? memory::Kind::kWindow1 : memory::Kind::kWindow2);
  for (std::uint32_t i = random.below(6); i > 0; --i) {
    end.perishable.push_back(random.chance(0.5)
                                 ? insert(end, end.target.piece, end.target.iova, 15, end.pd, memory::Kind::kFast)
                                 : bind_window(end, memory::Kind::kWindow2));
  }
  for (std::uint32_t i = random.below(5); i > 0; --i) {
    end.unbound.push_back(random.chance(0.5) ? allocate_fast(end)
                                             : *end.host->table.allocate_window(end.pd, memory::Kind::kWindow2));
  }
  end.all_perishable = end.perishable;
  end.all_perishable.push_back(end.window);
  end.all_perishable.insert(end.all_perishable.end(), end.unbound.begin(), end.unbound.end());
}

std::uint64_t draw_iova(Random& random) {
  // Anywhere but at the very top: the harness itself must not wrap. Atomics need the target aligned, as the arena
  // is.
  return (random.next() >> 1) & ~std::uint64_t{63};
}

}  // namespace

bool End::in_error() const {
  proto::QpSnapshot snapshot;
  return host->query(*qp, snapshot) && snapshot.state == proto::QpState::kErr;
}

void set_up(End& end, Host& host, Random& random, const ZoneSizes& zones, const QueueSizes& queues, Qpn qpn,
            PdId pd) {
  end.host = &host;
  end.pd = pd;
  Zone* const order[] = {&end.source[0], &end.target, &end.source[1], &end.landing, &end.receive};
  const std::uint32_t sizes[] = {zones.source, zones.target, zones.source, zones.landing, zones.receive};
  std::size_t offset = kGap;
  for (int i = 0; i < 5; ++i) {
    order[i]->piece = {offset, (sizes[i] + 63) & ~63u};
    offset += order[i]->piece.length + kGap;
  }
  end.arena.resize(offset);
  random.fill(end.arena.data(), end.arena.size());
  const std::uint32_t access[] = {0, kTargetAccess, 0, memory::kLocalWrite, memory::kLocalWrite};
  for (int i = 0; i < 5; ++i) {
    order[i]->iova = draw_iova(random);
    order[i]->key = insert(end, order[i]->piece, order[i]->iova, access[i], pd);
  }
  end.foreign = insert(end, end.target.piece, end.target.iova, 15, PdId{pd.value + 1000});
  end.qp = std::make_unique<SimQp>();
  end.send_cq = queues.cq.value_or(CqId{random.below(host.settings.cqs)});
  end.recv_cq = queues.cq.value_or(CqId{random.below(host.settings.cqs)});
  end.srq_id = queues.srq;
  if (host.create_qp(queues, qpn, pd, end.send_cq, end.recv_cq, *end.qp) != 0) throw Violation("no QP");
}

void begin_connection(End& end, Random& random) {
  end.image = end.arena;
  end.memory.arena = &end.arena;
  end.memory.initial = end.arena;
  end.memory.target = end.target.piece;
  end.landing.used = end.receive.used = 0;
  end.out = Flow{};
  end.open_reads.clear();
  end.moved_to_error = false;
  drop_perishable(end);
  end.receive_owed = 0;
  draw_keys(end, random);
  if (!end.srq_id) return;
  const bool xrc = end.qp->sizes.type == proto::QpType::kXrcRecv;
  end.srq = std::make_unique<SimSrq>(proto::SrqCreate{.id = *end.srq_id,
                                                      .pd = end.pd,
                                                      .owner = 1,
                                                      .xrc = xrc,
                                                      .xrcd = kXrcd,
                                                      .cq = end.recv_cq,
                                                      .max_sge = end.qp->sizes.max_recv_sge},
                                     end.qp->sizes.rq_entries);
  end.host->set_srq(*end.srq_id, end.srq->srq.get());
}

void tear_down(End& end) {
  end.host->destroy_qp(*end.qp, 0);
  if (end.srq_id) end.host->set_srq(*end.srq_id, nullptr);
  drop_perishable(end);
  for (const Zone* zone : {&end.source[0], &end.source[1], &end.target, &end.landing, &end.receive}) {
    if (!end.host->table.retire(zone->key)) throw Violation("a region can't be retired");
    end.host->table.release(zone->key);
  }
  end.host->table.retire(end.foreign);
  end.host->table.release(end.foreign);
}

bool post(End& end, const Work& work) {
  std::byte* slot = end.qp->sq.next();
  if (slot == nullptr) return false;
  const std::size_t room = end.qp->sq.ring().stride - abi::operation_of(work.entry.opcode).list_at;
  if ((work.entry.flags & UROCE_SEND_INLINE) != 0) {
    queue::write_send(slot, work.entry, work.payload.data(), std::min(room, work.payload.size()));
  } else {
    const std::size_t bytes = std::min(room, work.sges.size() * sizeof(uroce_sge));
    queue::write_send(slot, work.entry, work.sges.data(), bytes);
  }
  end.qp->sq.advance();
  return true;
}

bool post(End& end, const Receive& receive) {
  std::byte* slot = end.receive_ring().next();
  if (slot == nullptr) return false;
  uroce_rq_entry entry{};
  entry.wr_id = receive.wr_id;
  entry.num_sge = static_cast<std::uint32_t>(receive.sges.size());
  std::memcpy(slot, &entry, sizeof(entry));
  if (!receive.sges.empty()) {
    std::memcpy(slot + sizeof(entry), receive.sges.data(), receive.sges.size() * sizeof(uroce_sge));
  }
  end.receive_ring().advance();
  return true;
}

}  // namespace uroce::sim
