#include "tests/sim/fault_link.h"

#include <algorithm>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr std::uint32_t kGap = 192, kMostWorks = 28, kMostReceives = 30, kSrqEntries = 16;
constexpr std::uint32_t kCounterBytes = 64;  ///< at the start of the target zone: the word of the atomics
constexpr std::uint64_t kIsReceive = 1ull << 63;

bool read_called(void* context, std::uint64_t address, std::byte* to, std::size_t bytes) {
  auto& memory = *static_cast<CalledMemory*>(context);
  if (address < memory.client_address || address + bytes > memory.client_address + memory.size) return false;
  const std::size_t n = std::min(bytes, memory.left);
  std::memcpy(to, memory.bytes + (address - memory.client_address), n);
  memory.left -= memory.left == ~std::size_t{0} ? 0 : n;
  return n == bytes;
}

bool write_called(void* context, std::uint64_t address, const std::byte* from, std::size_t bytes) {
  auto& memory = *static_cast<CalledMemory*>(context);
  if (address < memory.client_address || address + bytes > memory.client_address + memory.size) return false;
  const std::size_t n = std::min(bytes, memory.left);
  std::memcpy(memory.bytes + (address - memory.client_address), from, n);
  memory.left -= memory.left == ~std::size_t{0} ? 0 : n;
  return n == bytes;
}

std::uint32_t access_of(ZoneKind kind) {
  switch (kind) {
    case kSourceZone: return memory::kRemoteRead | memory::kMwBind;
    case kTargetZone: return 15 | memory::kMwBind;
    default: return memory::kLocalWrite;
  }
}

std::uint32_t round_up(std::uint32_t bytes) { return (bytes + 63) & ~63u; }

bool is_send(std::uint8_t opcode) { return opcode == UROCE_WR_SEND || opcode == UROCE_WR_SEND_WITH_IMM; }
bool is_write(std::uint8_t opcode) {
  return opcode == UROCE_WR_RDMA_WRITE || opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
}
bool lands(std::uint8_t opcode) { return opcode == UROCE_WR_RDMA_READ || opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD; }

std::uint8_t timeout_code(Nanos longest_trip, Random& random) {
  std::uint32_t code = 6;
  while ((4096ull << code) < longest_trip * 12) ++code;
  return static_cast<std::uint8_t>(code + random.below(2));
}

/// Poisons what the daemon must not touch any more.
void bury(std::unique_ptr<SimQp> qp, std::vector<std::unique_ptr<SimQp>>& graveyard) {
  for (AlignedBytes* bytes : {&qp->sq_ring, &qp->rq_ring, &qp->shadow, &qp->resources}) {
    std::memset(bytes->data(), kPoison, bytes->size());
  }
  std::memset(&qp->daemon, kPoison, sizeof qp->daemon);
  graveyard.push_back(std::move(qp));
}

}  // namespace

bool is_untouched(const SimQp& qp) {
  const auto poisoned = [](const void* data, std::size_t bytes) {
    const auto* const at = static_cast<const unsigned char*>(data);
    return std::all_of(at, at + bytes, [](unsigned char byte) { return byte == kPoison; });
  };
  return poisoned(qp.sq_ring.data(), qp.sq_ring.size()) && poisoned(qp.rq_ring.data(), qp.rq_ring.size()) &&
         poisoned(qp.shadow.data(), qp.shadow.size()) && poisoned(qp.resources.data(), qp.resources.size()) &&
         poisoned(&qp.daemon, sizeof qp.daemon);
}

FaultLink::FaultLink(const FaultSetting& setting, std::uint32_t index, std::uint64_t seed)
    : setting_(setting), index_(index), random_(seed) {
  const std::uint32_t most = round_up(setting.largest);
  const std::size_t sizes[kZones] = {std::size_t{most} * 4, kCounterBytes + std::size_t{most} * kMostWorks,
                                     std::size_t{most} * kMostWorks, std::size_t{most} * kMostReceives};
  for (int side = 0; side < 2; ++side) {
    FaultEnd& end = ends_[side];
    end.host = static_cast<std::uint32_t>(side);
    end.base = Qpn{0x200 + index * 16 + static_cast<std::uint32_t>(side) * 8};
    end.pd = PdId{index * 2 + static_cast<std::uint32_t>(side) + 1};
    std::size_t at = kGap;
    for (std::size_t i = 0; i < kZones; ++i) {
      end.zones[i].at = at;
      end.zones[i].size = sizes[i];
      at += sizes[i] + kGap;
    }
    end.arena.resize(at);
    random_.fill(end.arena.data(), end.arena.size());
    end.psn = random_.chance(0.4) ? Psn(0) - random_.below(60) : Psn(static_cast<std::uint32_t>(random_.next()));
  }
  lives_left_ = random_.between(1, 4);
  shared_ = random_.chance(0.25);
}

// ---------------------------------------------------------------- lives

void FaultLink::register_zone(FaultEnd& end, ZoneKind kind) {
  FaultZone& zone = end.zones[kind];
  zone.iova = (random_.next() >> 1) & ~std::uint64_t{63};
  zone.used = kind == kTargetZone ? kCounterBytes : 0;
  zone.frozen.clear();
  zone.called.reset();
  memory::Region region;
  region.pd = end.pd;
  region.access = access_of(kind);
  region.iova = zone.iova;
  region.length = zone.size;
  region.base = end.arena.data() + zone.at;
  const bool fails = fault_ == Fault::kMemory && fault_zone_ == kind && &end == &ends_[fault_side_];
  if (fails || random_.chance(0.15)) {
    zone.called = std::make_unique<CalledMemory>();
    zone.called->bytes = region.base;
    zone.called->client_address = region.client_address = 0x7000'0000'0000 + zone.at;
    zone.called->size = zone.size;
    zone.called->io.read = read_called;
    zone.called->io.write = write_called;
    zone.called->io.context = zone.called.get();
    region.base = nullptr;
    region.indirect = &zone.called->io;
  }
  const auto key = host(end).table.insert(region);
  if (!key) fail("no room for an MR");
  zone.key = *key;
  zone.registered = true;
}

Key FaultLink::bind_window(FaultEnd& end, ZoneKind kind, std::uint32_t access) {
  const auto window = host(end).table.allocate_window(
      end.pd, random_.chance(0.5) ? memory::Kind::kWindow1 : memory::Kind::kWindow2);
  if (!window) fail("no room for a window");
  const Key bound{(window->value & ~0xffu) | ((window->value + 1) & 0xff)};
  const FaultZone& zone = end.zones[kind];
  const memory::Binding request{.window = *window,
                                .new_key = bound,
                                .mr = zone.key,
                                .pd = end.pd,
                                .qpn = end.qp->qpn,
                                .address = zone.iova,
                                .length = zone.size,
                                .access = access};
  if (host(end).table.bind(request) != memory::Verdict::kOk) fail("a window can't be bound");
  return bound;
}

void FaultLink::bind_windows(FaultEnd& end) {
  end.window = bind_window(end, kTargetZone, memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic);
  end.read_window = bind_window(end, kSourceZone, memory::kRemoteRead);
  end.window_allocated = end.read_window_allocated = true;
}

void FaultLink::retire_window(FaultEnd& end, ZoneKind kind) {
  if (kind != kTargetZone && kind != kSourceZone) return;
  const bool target = kind == kTargetZone;
  bool& allocated = target ? end.window_allocated : end.read_window_allocated;
  if (!allocated) return;
  const Key window = target ? end.window : end.read_window;
  if (!host(end).table.retire(window)) fail("a window can't be retired");
  retired_windows_.emplace_back(&end, window);
  allocated = false;
}

void FaultLink::register_zones(FaultEnd& end) {
  for (std::size_t i = 0; i < kZones; ++i) register_zone(end, static_cast<ZoneKind>(i));
}

void FaultLink::retire(FaultEnd& end, ZoneKind kind) {
  memory::Table& table = host(end).table;
  retire_window(end, kind);
  if (!end.zones[kind].registered) return;
  if (!table.retire(end.zones[kind].key)) fail("an MR can't be retired");
  end.zones[kind].registered = false;
  retired_.emplace_back(&end, kind);
}

void FaultLink::release_retired() {
  for (const auto& [end, window] : retired_windows_) host(*end).table.release(window);
  for (const auto& [end, kind] : retired_) {
    FaultZone& zone = end->zones[kind];
    host(*end).table.release(zone.key);
    const auto from = end->arena.begin() + static_cast<std::ptrdiff_t>(zone.at);
    zone.frozen.assign(from, from + static_cast<std::ptrdiff_t>(zone.size));
  }
  retired_windows_.clear();
  retired_.clear();
}

void FaultLink::unregister_zones(FaultEnd& end) {
  for (std::size_t i = 0; i < kZones; ++i) retire(end, static_cast<ZoneKind>(i));
  if (end.window_allocated || end.read_window_allocated) fail("a window without its MR");
  release_retired();
}

void FaultLink::make_qp(FaultEnd& end, Nanos now) {
  // Reset, or destroyed and made anew, mostly under its number.
  if (end.qp && random_.chance(0.5)) {
    if (end.connected && change_state(host(end), *end.qp, proto::QpState::kReset, now).error != 0) fail("to RESET");
    end.qp->sq.reset();
    end.qp->rq.reset();
    return;
  }
  if (end.qp) destroy(end, now);
  if (random_.chance(0.2)) end.base = Qpn{end.base.value ^ 1};
  constexpr std::uint32_t kEntries[] = {2, 8, 16};
  QueueSizes sizes{.sq_entries = random_.pick(kEntries),
                   .rq_entries = random_.pick(kEntries),
                   .max_send_sge = 2,
                   .max_recv_sge = 2,
                   .max_inline = 0};
  sizes.first_index = setting_.wrap ? 0u - random_.below(24) : 0;
  if (shared_) sizes.srq = srq_of(end);
  end.qp = std::make_unique<SimQp>();
  end.send_cq = CqId{random_.below(host(end).settings.cqs)};
  end.recv_cq = CqId{random_.below(host(end).settings.cqs)};
  if (host(end).create_qp(sizes, end.base, end.pd, end.send_cq, end.recv_cq, *end.qp) != 0) fail("no QP");
}

void FaultLink::make_srq(FaultEnd& end) {
  if (!shared_) return;
  auto srq = std::make_unique<SimSrq>(proto::SrqCreate{.id = srq_of(end), .pd = end.pd, .owner = 1, .max_sge = 2},
                                      kSrqEntries);
  host(end).set_srq(srq_of(end), srq->srq.get());
  end.srq = std::move(srq);
}

void FaultLink::destroy(FaultEnd& end, Nanos now) {
  host(end).destroy_qp(*end.qp, now);
  bury(std::move(end.qp), *setting_.graveyard);
  end.connected = false;
}

void FaultLink::draw_psns() {
  // Far from the life before, as random PSNs are: late packets of that life are then recognised.
  for (FaultEnd& end : ends_) {
    if (life_ != 0) end.psn = end.psn + (5u << 20) + random_.below(1u << 20);
  }
}

void FaultLink::connect_ends(Nanos now) {
  constexpr std::uint32_t kMtus[] = {256, 512, 1024};
  mtu_ = random_.pick(kMtus);
  const auto depth = static_cast<std::uint8_t>(random_.between(1, 8));
  for (int side = 0; side < 2; ++side) {
    FaultEnd& end = ends_[side];
    const FaultEnd& peer = ends_[1 - side];
    Connection c;
    c.path = host(end).path_to(host(peer));
    c.dest_qpn = peer.qp->qpn;
    c.sq_psn = end.psn;
    c.rq_psn = peer.psn;
    c.path_mtu = mtu_;
    c.timeout = timeout_code(setting_.longest_trip, random_);
    c.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 8));
    c.max_rd_atomic = c.max_dest_rd_atomic = depth;
    const proto::ModifyVerdict verdict = connect(host(end), *end.qp, c, now);
    if (verdict.error != 0) fail(std::string("connect: ") + verdict.what);
    end.connected = true;
  }
}

void FaultLink::begin(Nanos now) {
  fault_ = setting_.calm || random_.chance(0.25) ? Fault::kNone : static_cast<Fault>(random_.below(kFaults));
  fault_side_ = static_cast<int>(random_.below(2));
  fault_zone_ = static_cast<ZoneKind>(random_.below(kZones));
  fault_after_ = random_.chance(0.2) ? 0 : random_.below(30);
  disturbed_ = restarted_ = false;
  for (FaultEnd& end : ends_) make_qp(end, now);
  draw_psns();
  for (FaultEnd& end : ends_) {
    make_srq(end);
    register_zones(end);
    bind_windows(end);
    end.initial = end.arena;
    end.works.clear();
    end.consuming.clear();
    end.receives.clear();
    end.completed = end.succeeded = end.received = end.received_ok = 0;
    end.failed = end.receive_failed = end.probed = false;
    end.added = 0;
    end.works_left = random_.chance(0.1) ? 0 : random_.between(1, 24);
  }
  connect_ends(now);
  completions_at_ = completions_;
  began_ = now;
  pause_ = 2'000;
  next_action_ = now + random_.below(10'000);
  if (setting_.trace) setting_.trace(describe());
}

// ---------------------------------------------------------------- faults

bool FaultLink::fault_due() const {
  if (disturbed_ || closed_ || fault_ == Fault::kNone) return false;
  return completions_ - completions_at_ >= fault_after_ || (works_done(ends_[0]) && works_done(ends_[1]));
}

void FaultLink::apply_fault(Nanos now) {
  FaultEnd& end = ends_[fault_side_];
  disturbed_ = true;
  if (setting_.trace) setting_.trace("fault: " + describe());
  switch (fault_) {
    case Fault::kDeregister: return retire(end, fault_zone_);
    case Fault::kWindow: retire_window(end, kTargetZone); return retire_window(end, kSourceZone);
    case Fault::kMemory: end.zones[fault_zone_].called->left = random_.below(3 * setting_.largest); return;
    case Fault::kToError:
      if (change_state(host(end), *end.qp, proto::QpState::kErr, now).error != 0) fail("to ERR");
      return;
    case Fault::kToReset:
      if (change_state(host(end), *end.qp, proto::QpState::kReset, now).error != 0) fail("to RESET");
      end.connected = false;
      return;
    case Fault::kDestroy: return destroy(end, now);
    default: return;  // the world does the rest
  }
}

void FaultLink::on_restart(std::uint32_t restarted) {
  if (closed_) return;
  FaultEnd& end = ends_[restarted];
  disturbed_ = restarted_ = true;
  if (end.qp) bury(std::move(end.qp), *setting_.graveyard);
  end.connected = end.window_allocated = end.read_window_allocated = false;
  for (FaultZone& zone : end.zones) {
    zone.registered = false;
    const auto from = end.arena.begin() + static_cast<std::ptrdiff_t>(zone.at);
    zone.frozen.assign(from, from + static_cast<std::ptrdiff_t>(zone.size));
  }
}

// ---------------------------------------------------------------- clients

bool FaultLink::in_error(const FaultEnd& end) const {
  proto::QpSnapshot snapshot;
  return end.qp && host(end).query(*end.qp, snapshot) && snapshot.state == proto::QpState::kErr;
}

const FaultEnd* FaultLink::end_of(std::uint32_t at, std::uint32_t qpn) const {
  if (closed_ || !ends_[at].qp || ends_[at].qp->qpn.value != qpn) return nullptr;
  return &ends_[at];
}

void FaultLink::act(Nanos now) {
  if (closed_) return;
  if (now - began_ > 60 * kSecond) fail("a connection does not end: " + describe());
  bool posted = false;
  for (int side = 0; side < 2; ++side) {
    FaultEnd& end = ends_[side];
    if (!end.connected) continue;
    if (end.failed || in_error(end)) end.works_left = std::min(end.works_left, random_.below(3));
    if (random_.chance(0.7)) posted |= post_receives(side);
    if (random_.chance(0.7)) posted |= post_works(side);
  }
  pause_ = posted ? 2'000 : std::min<Nanos>(pause_ * 3 / 2, 2 * kMillisecond);
  next_action_ = now + 200 + pause_ + random_.below(3'000);
}

FaultWork FaultLink::draw_work(int side) {
  FaultEnd& end = ends_[side];
  FaultEnd& peer = ends_[1 - side];
  constexpr std::uint8_t kOpcodes[] = {
      UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_WRITE_WITH_IMM, UROCE_WR_SEND, UROCE_WR_SEND_WITH_IMM, UROCE_WR_RDMA_READ,
      UROCE_WR_RDMA_READ,  UROCE_WR_ATOMIC_FETCH_AND_ADD};
  FaultWork work;
  uroce_sq_entry& entry = work.entry;
  entry.opcode = random_.pick(kOpcodes);
  const bool atomic = entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD;
  work.length = atomic ? 8 : random_.chance(0.05) ? 0 : random_.between(1, setting_.largest);
  work.consumes = is_send(entry.opcode) || entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
  entry.imm_data = static_cast<std::uint32_t>(random_.next());
  if (random_.chance(0.1)) entry.flags |= UROCE_SEND_FENCE;
  FaultZone& target = peer.zones[kTargetZone];
  entry.rkey = random_.chance(0.3) ? peer.window.value : target.key.value;
  if (lands(entry.opcode)) {
    FaultZone& landing = end.zones[kLandingZone];
    work.local = landing.at + landing.used;
    landing.used += round_up(work.length);
  } else {
    const auto room = static_cast<std::uint32_t>(end.zones[kSourceZone].size - work.length);
    work.local = end.zones[kSourceZone].at + random_.below(room + 1);
    const auto from = end.initial.begin() + static_cast<std::ptrdiff_t>(work.local);
    work.payload.assign(from, from + work.length);
  }
  if (is_write(entry.opcode)) {
    work.target = target.at + target.used;
    target.used += round_up(work.length);
    entry.remote_addr = target.iova + (work.target - target.at);
  } else if (entry.opcode == UROCE_WR_RDMA_READ) {
    const FaultZone& source = peer.zones[kSourceZone];
    work.target = source.at + random_.below(static_cast<std::uint32_t>(source.size - work.length) + 1);
    entry.rkey = random_.chance(0.3) ? peer.read_window.value : source.key.value;
    entry.remote_addr = source.iova + (work.target - source.at);
    const auto from = peer.initial.begin() + static_cast<std::ptrdiff_t>(work.target);
    work.payload.assign(from, from + work.length);
  } else if (atomic) {
    work.target = target.at;
    entry.remote_addr = target.iova;
    std::memcpy(&work.result, &peer.initial[work.target], 8);
    work.result += end.added;
    entry.atomic.compare_add = random_.next();
    end.added += entry.atomic.compare_add;
    work.payload.resize(8);
    std::memcpy(work.payload.data(), &work.result, 8);
  }
  return work;
}

bool FaultLink::post_works(int side) {
  FaultEnd& end = ends_[side];
  bool posted = false;
  for (std::uint32_t burst = random_.between(1, 6); burst > 0 && end.works_left > 0; --burst) {
    const std::size_t outstanding = end.works.size() - end.completed;
    std::byte* const slot = end.qp->sq.next();
    if (slot == nullptr || outstanding >= end.qp->sizes.sq_entries) break;
    FaultWork work = draw_work(side);
    --end.works_left;
    work.signaled = end.works_left == 0 || outstanding + 1 >= end.qp->sizes.sq_entries || random_.chance(0.6);
    uroce_sq_entry& entry = work.entry;
    entry.wr_id = std::uint64_t{life_} << 40 | std::uint64_t{index_} << 36 | end.works.size();
    if (work.signaled) entry.flags |= UROCE_SEND_SIGNALED;
    const FaultZone& zone = end.zones[lands(entry.opcode) ? kLandingZone : kSourceZone];
    const std::uint32_t first = random_.below(work.length + 1);
    const std::uint64_t address = zone.iova + (work.local - zone.at);
    const uroce_sge sges[2] = {{address, first, zone.key.value},
                               {address + first, work.length - first, zone.key.value}};
    entry.num_sge = 2;
    queue::write_send(slot, entry, sges, sizeof sges);
    end.qp->sq.advance();
    if (work.consumes) end.consuming.push_back(end.works.size());
    end.works.push_back(std::move(work));
    posted = true;
  }
  if (!posted) return false;
  end.qp->sq.publish();
  host(end).doorbell(*end.qp);
  return true;
}

bool FaultLink::post_receives(int side) {
  FaultEnd& end = ends_[side];
  FaultZone& zone = end.zones[kReceiveZone];
  const std::size_t wanted = is_hostile() ? end.received + 4 : ends_[1 - side].consuming.size() + index_ % 3;
  bool posted = false;
  queue::WorkProducer& ring = end.srq ? end.srq->producer : end.qp->rq;
  const std::uint32_t entries = end.srq ? kSrqEntries : end.qp->sizes.rq_entries;
  while (end.receives.size() < wanted && end.receives.size() - end.received < entries) {
    std::byte* const slot = ring.next();
    if (slot == nullptr) break;
    if (zone.used + setting_.largest > zone.size) zone.used = 0;  // only forged messages use up the zone
    FaultReceive receive{
        .wr_id = kIsReceive | std::uint64_t{life_} << 40 | std::uint64_t{index_} << 36 | end.receives.size(),
        .at = zone.at + zone.used,
        .capacity = setting_.largest};
    zone.used += round_up(setting_.largest);
    const uroce_rq_entry entry{receive.wr_id, 1, 0};
    const uroce_sge sge{zone.iova + (receive.at - zone.at), receive.capacity, zone.key.value};
    std::memcpy(slot, &entry, sizeof entry);
    std::memcpy(slot + sizeof entry, &sge, sizeof sge);
    ring.advance();
    end.receives.push_back(receive);
    posted = true;
  }
  if (posted) ring.publish();
  return posted;
}

/// A client that wants to know whether its peer is alive. WRITEs without data need no key.
void FaultLink::post_probe(int side) {
  FaultEnd& end = ends_[side];
  std::byte* const slot = end.qp->sq.next();
  if (slot == nullptr) return;
  FaultWork work;
  work.signaled = true;
  work.must_fail = silent(ends_[1 - side]);
  work.entry.opcode = UROCE_WR_RDMA_WRITE;
  work.entry.flags = UROCE_SEND_SIGNALED;
  work.entry.wr_id = std::uint64_t{life_} << 40 | std::uint64_t{index_} << 36 | end.works.size();
  queue::write_send(slot, work.entry, nullptr, 0);
  end.qp->sq.advance();
  end.qp->sq.publish();
  end.works.push_back(std::move(work));
  end.probed = true;
  host(end).doorbell(*end.qp);
}

bool FaultLink::works_done(const FaultEnd& end) const {
  if (!end.connected || end.completed == end.works.size()) return !end.connected || end.works_left == 0;
  if (end.works_left != 0 || end.failed) return false;
  const auto rest = end.works.begin() + static_cast<std::ptrdiff_t>(end.completed);
  if (std::any_of(rest, end.works.end(), [](const FaultWork& work) { return work.signaled; })) return false;
  proto::QpSnapshot snapshot;
  return host(end).query(*end.qp, snapshot) && snapshot.sq_outstanding == 0;
}

bool FaultLink::done() {
  if (!works_done(ends_[0]) || !works_done(ends_[1])) return false;
  if (fault_ != Fault::kNone && !disturbed_) return false;
  bool probing = false;
  for (int side = 0; side < 2; ++side) {
    FaultEnd& end = ends_[side];
    if (end.connected && !end.srq && in_error(end) && end.received != end.receives.size())
      return false;  // flushed after a while
    if (!disturbed_ || end.probed || !end.connected || in_error(end)) continue;
    post_probe(side);
    probing = true;
  }
  return !probing;
}

}  // namespace uroce::sim
