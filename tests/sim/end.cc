#include "tests/sim/end.h"

#include <algorithm>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr std::uint32_t kGap = 256;

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
    end.host->table.retire(key);
    end.host->table.release(key);
  }
  end.all_perishable.clear();
}

std::uint64_t draw_iova(Random& random) {
  // Anywhere but at the very top: the harness itself must not wrap. Atomics need the target aligned, as the arena
  // is.
  return (random.next() >> 1) & ~std::uint64_t{63};
}

}  // namespace

bool End::in_error() const {
  proto::QpSnapshot snapshot;
  return host->transport.query(qp->index, snapshot) && snapshot.state == proto::QpState::kErr;
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
  const std::uint32_t access[] = {0, 15, 0, memory::kLocalWrite, memory::kLocalWrite};
  for (int i = 0; i < 5; ++i) {
    order[i]->iova = draw_iova(random);
    order[i]->key = insert(end, order[i]->piece, order[i]->iova, access[i], pd);
  }
  end.foreign = insert(end, end.target.piece, end.target.iova, 15, PdId{pd.value + 1000});
  end.qp = std::make_unique<SimQp>();
  end.send_cq = queues.cq.value_or(CqId{random.below(host.settings.cqs)});
  end.recv_cq = queues.cq.value_or(CqId{random.below(host.settings.cqs)});
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
  end.perishable.clear();
  end.perished.clear();
  end.receive_owed = 0;
  for (std::uint32_t i = random.below(6); i > 0; --i) {
    end.perishable.push_back(
        insert(end, end.target.piece, end.target.iova, 15, end.pd, memory::Kind::kFast));
  }
  end.all_perishable = end.perishable;
}

void tear_down(End& end) {
  end.host->transport.destroy(end.qp->index);
  drop_perishable(end);
  for (const Zone* zone : {&end.source[0], &end.source[1], &end.target, &end.landing, &end.receive}) {
    end.host->table.retire(zone->key);
    end.host->table.release(zone->key);
  }
  end.host->table.retire(end.foreign);
  end.host->table.release(end.foreign);
}

bool post(End& end, const Work& work) {
  std::byte* slot = end.qp->sq.next();
  if (slot == nullptr) return false;
  std::memcpy(slot, &work.entry, sizeof(work.entry));
  if ((work.entry.flags & UROCE_SEND_INLINE) != 0) {
    const std::size_t room = end.qp->sq.ring().stride - sizeof(work.entry);
    if (!work.payload.empty()) {
      std::memcpy(slot + sizeof(work.entry), work.payload.data(), std::min(room, work.payload.size()));
    }
  } else {
    const std::size_t room = (end.qp->sq.ring().stride - sizeof(work.entry)) / sizeof(uroce_sge);
    const std::size_t count = std::min(room, work.sges.size());
    if (count != 0) std::memcpy(slot + sizeof(work.entry), work.sges.data(), count * sizeof(uroce_sge));
  }
  end.qp->sq.advance();
  return true;
}

bool post(End& end, const Receive& receive) {
  std::byte* slot = end.qp->rq.next();
  if (slot == nullptr) return false;
  uroce_rq_entry entry{};
  entry.wr_id = receive.wr_id;
  entry.num_sge = static_cast<std::uint32_t>(receive.sges.size());
  std::memcpy(slot, &entry, sizeof(entry));
  if (!receive.sges.empty()) {
    std::memcpy(slot + sizeof(entry), receive.sges.data(), receive.sges.size() * sizeof(uroce_sge));
  }
  end.qp->rq.advance();
  return true;
}

}  // namespace uroce::sim
