#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

std::uint32_t round_up(std::size_t bytes) { return static_cast<std::uint32_t>((bytes + 63) / 64 * 64); }

wire::Mac mac_of(std::uint8_t host) { return {2, 0, 0, 0, 0, host}; }

std::shared_ptr<Transport> make_transport(const Options& options, memory::Table& table, std::uint8_t host) {
  TransportConfig config;
  config.mac = mac_of(host);
  config.max_qps = 8;
  config.max_cqs = 16;
  config.receive_ring_bytes = options.receive_ring_bytes;
  config.start_window = options.start_window;
  config.quantum_packets = options.quantum;
  return std::make_shared<Transport>(config, table);
}

}  // namespace

std::uint32_t big_endian(std::uint32_t value) { return __builtin_bswap32(value); }

wire::Address address_of(std::uint8_t host) {
  wire::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, host};
  return address;
}

End::End(const Options& chosen, Qpn number, std::uint8_t host, const End* neighbour)
    : options(chosen),
      shared_table(neighbour != nullptr ? neighbour->shared_table : std::make_shared<memory::Table>(256, 7)),
      table(*shared_table),
      transport(neighbour != nullptr ? neighbour->transport : make_transport(options, table, host)),
      qpn(number),
      memory(kMemory),
      first_cq_(neighbour != nullptr ? neighbour->first_cq_ + 2 : 0) {
  key = *table.insert({.pd = pd, .access = kAllAccess, .iova = kIova, .length = kMemory, .base = memory.data()});

  for (std::uint32_t i = 0; i < 2; ++i) {
    cq_ring_[i].resize(options.cq_entries);
    cq_[i] = queue::CqProducer(cq_ring_[i].data(), options.cq_entries, &cq_client_[i]);
    consumer_[i] = queue::CqConsumer(cq_ring_[i].data(), options.cq_entries, &cq_client_[i]);
    transport->set_cq(CqId{first_cq_ + i}, &cq_[i], 1);
  }
  sq_stride_ = round_up(sizeof(uroce_sq_entry) + std::max<std::size_t>(options.max_sge * 16, options.max_inline) +
                        options.max_tso_header);
  rq_stride_ = round_up(sizeof(uroce_rq_entry) + options.max_sge * 16);
  if (options.srq || options.type == QpType::kXrcRecv) {
    srq_key = *table.insert(
        {.pd = kSrqPd, .access = kAllAccess, .iova = kIova, .length = kMemory, .base = memory.data()});
    SrqCreate create{.id = kSrq,
                     .pd = kSrqPd,
                     .owner = 43,
                     .xrc = options.type == QpType::kXrcRecv,
                     .xrcd = kXrcd,
                     .cq = CqId{first_cq_ + 1},
                     .max_sge = options.max_sge};
    srq_ring_.resize(options.entries * rq_stride_ / 64);
    const queue::RingShape shape{srq_ring_[0].bytes, options.entries, rq_stride_};
    create.ring = queue::WorkConsumer(shape, &srq_client_.index, &srq_consumer_);
    srq_producer_ = queue::WorkProducer(shape, &srq_client_.index, &srq_consumer_);
    srq = std::make_unique<Srq>(create);
    transport->set_srq(kSrq, srq.get());
  }
  sq_ring_.resize(options.entries * sq_stride_ / 64);
  rq_ring_.resize(options.entries * rq_stride_ / 64);
  shadow_.resize(sq_ring_.size());
  resources_.resize(Transport::kMaxRdAtomic);
  const queue::RingShape sq{sq_ring_[0].bytes, options.entries, sq_stride_};
  const queue::RingShape rq{rq_ring_[0].bytes, options.entries, rq_stride_};
  sq_ = queue::WorkProducer(sq, &client_.sq.index, &daemon_.sq_consumer);
  rq_ = queue::WorkProducer(rq, &client_.rq.index, &daemon_.rq_consumer);
  QpCreate create;
  create.type = options.type;
  create.qpn = qpn;
  create.pd = pd;
  create.send_cq = CqId{first_cq_};
  create.recv_cq = CqId{first_cq_ + 1};
  create.signal_all = options.signal_all;
  create.sq = queue::WorkConsumer(sq, &client_.sq.index, &daemon_.sq_consumer);
  create.rq = queue::WorkConsumer(rq, &client_.rq.index, &daemon_.rq_consumer);
  create.max_send_sge = create.max_recv_sge = options.max_sge;
  create.max_inline = options.max_inline;
  create.max_tso_header = options.max_tso_header;
  create.strip_vlan = options.strip_vlan;
  create.sq_shadow = {shadow_[0].bytes, shadow_.size() * 64};
  create.responder_resources = {resources_[0].bytes, resources_.size() * 64};
  create.owner = 42;
  create.user = options.user;
  create.share = options.share;
  create.has_srq = options.srq;
  create.srq = options.srq ? kSrq : SrqId{};
  create.xrcd = kXrcd;
  if (!has_send_queue(options.type)) create.sq = {};
  EXPECT_EQ(transport->create(create, qp), 0);
  path.source = address_of(host);
  path.source_mac = mac_of(host);
}

void End::fill(std::uint64_t offset, std::size_t bytes, std::uint8_t seed) {
  for (std::size_t i = 0; i < bytes; ++i) *at(offset + i) = static_cast<std::byte>(seed + i * 7 + (i >> 8));
}

void End::post(const Work& work) {
  uroce_sq_entry entry{};
  entry.wr_id = work.wr_id;
  entry.opcode = work.opcode;
  entry.flags = work.flags;
  entry.num_sge = static_cast<std::uint16_t>(work.sges.size());
  entry.imm_data = work.imm;
  entry.rkey = work.rkey;
  entry.remote_addr = work.remote;
  entry.atomic.compare_add = work.compare_add;
  entry.atomic.swap = work.swap;
  entry.remote_srqn = work.srqn;
  entry.mw_handle = work.handle;
  if (work.ud) {
    entry.ah = work.ud->ah;
    entry.ud = {work.ud->remote_qpn, work.ud->remote_qkey};
  }
  if (work.bind) entry.bind = *work.bind;
  if (work.flush) entry.flush = *work.flush;
  if (!work.header.empty()) entry.tso = {work.mss, static_cast<std::uint16_t>(work.header.size()), {}};
  if (!work.inline_data.empty()) {
    entry.flags |= UROCE_SEND_INLINE;
    entry.inline_length = static_cast<std::uint32_t>(work.inline_data.size());
  }
  std::byte* const slot = sq_.next();
  ASSERT_NE(slot, nullptr);
  std::vector<std::byte> list = work.inline_data;
  if (list.empty()) {
    const auto sges = std::as_bytes(std::span(work.sges));
    list.assign(sges.begin(), sges.end());
  }
  list.insert(list.end(), work.header.begin(), work.header.end());
  queue::write_send(slot, entry, list.data(), list.size());
  sq_.advance();
  sq_.publish();
  ring();
}

void End::post_raw(const uroce_sq_entry& entry, const std::vector<uroce_sge>& sges) {
  std::byte* const slot = sq_.next();
  ASSERT_NE(slot, nullptr);
  queue::write_send(slot, entry, sges.data(), sges.size() * sizeof(uroce_sge));
  sq_.advance();
  sq_.publish();
  ring();
}

void End::post_receive(std::uint64_t wr_id, const std::vector<uroce_sge>& sges) {
  post_to(srq ? srq_producer_ : rq_, wr_id, sges);
}

void End::post_to(queue::WorkProducer& ring, std::uint64_t wr_id, const std::vector<uroce_sge>& sges) const {
  std::byte* const slot = ring.next();
  ASSERT_NE(slot, nullptr);
  const uroce_rq_entry entry{wr_id, static_cast<std::uint32_t>(sges.size()), 0};
  std::memcpy(slot, &entry, sizeof entry);
  const std::size_t room = (rq_stride_ - sizeof entry) / sizeof(uroce_sge);
  if (!sges.empty()) {
    std::memcpy(slot + sizeof entry, sges.data(), std::min(room, sges.size()) * sizeof(uroce_sge));
  }
  ring.advance();
  ring.publish();
}

bool End::resize_srq(std::uint32_t entries) {
  std::vector<Line> bigger(entries * rq_stride_ / 64);
  const queue::RingShape shape{bigger[0].bytes, entries, rq_stride_};
  if (!srq->resize(queue::WorkConsumer(shape, &srq_client_.index, &srq_consumer_))) return false;
  srq_ring_.swap(bigger);
  srq_producer_.move_to(shape);
  return true;
}

std::vector<uroce_cqe> End::poll(bool receive_cq) {
  std::vector<uroce_cqe> out;
  queue::CqConsumer& cq = consumer_[receive_cq ? 1 : 0];
  while (const uroce_cqe* entry = cq.peek()) {
    out.push_back(*entry);
    cq.pop();
  }
  cq.publish();
  return out;
}

std::vector<Event> End::events() {
  std::array<Event, 32> out;
  const std::size_t count = transport->take_events(out);
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
}

QpSnapshot End::snapshot() const {
  QpSnapshot out;
  EXPECT_TRUE(transport->query(qp, out));
  return out;
}

ModifyVerdict End::to(QpState state, Nanos now, bool notify) {
  QpAttr attr;
  attr.state = state;
  attr.sqd_notify = notify;
  const ModifyVerdict verdict = transport->modify(
      qp, attr, static_cast<std::uint32_t>(kAttrState) | (notify ? std::uint32_t{kAttrSqdNotify} : 0u), now);
  if (state == QpState::kReset && verdict.error == 0) {
    sq_.reset();
    rq_.reset();
  }
  return verdict;
}

namespace {

void expect_modify(End& end, QpState state, QpAttr& attr, std::uint32_t mask, Nanos now) {
  attr.state = state;
  EXPECT_STREQ(end.transport->modify(end.qp, attr, mask | kAttrState, now).what, "");
}

std::uint32_t rtr_mask(QpType type) {
  if (type == QpType::kUd) return 0;
  const std::uint32_t mask = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  const bool responds = type == QpType::kRc || type == QpType::kXrcRecv;
  return responds ? mask | kAttrMaxDestRdAtomic | kAttrMinRnrTimer : mask;
}

std::uint32_t rts_mask(QpType type) {
  constexpr std::uint32_t kRequester = kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxRdAtomic;
  const bool requests = type == QpType::kRc || type == QpType::kXrcSend;
  if (type == QpType::kXrcRecv) return kAttrSqPsn | kAttrTimeout;
  return requests ? kAttrSqPsn | kRequester : std::uint32_t{kAttrSqPsn};
}

}  // namespace

void connect(End& end, const Remote& remote, Nanos now, QpState state) {
  const Options& options = end.options;
  const bool datagrams = options.type == QpType::kUd;
  end.path.dest = remote.address;
  end.path.dest_mac = remote.mac;
  if (datagrams) end.transport->set_address_handle(kPeer, end.pd, &end.path);
  QpAttr attr;
  attr.access = options.access;
  attr.qkey = options.qkey;
  attr.path = end.path;
  attr.path_mtu = options.mtu;
  attr.dest_qpn = remote.qpn;
  attr.rq_psn = Psn(remote.psn);
  attr.max_dest_rd_atomic = options.max_dest_rd_atomic;
  attr.min_rnr_timer = options.min_rnr_timer;
  attr.sq_psn = Psn(options.psn);
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_cnt;
  attr.rnr_retry = options.rnr_retry;
  attr.max_rd_atomic = options.max_rd_atomic;
  const std::uint32_t rights = datagrams ? kAttrQkey : kAttrAccessFlags;
  expect_modify(end, QpState::kInit, attr, kAttrPkeyIndex | kAttrPort | rights, now);
  if (state == QpState::kInit) return;
  expect_modify(end, QpState::kRtr, attr, rtr_mask(options.type), now);
  if (state == QpState::kRtr) return;
  expect_modify(end, QpState::kRts, attr, rts_mask(options.type), now);
}

namespace {

Remote remote_of(const End& end) { return {end.qpn, end.options.psn, end.path.source, end.path.source_mac}; }

}  // namespace

Pair::Pair(const Options& first, std::optional<Options> second)
    : a(first, Qpn{0x11}, 1), b(second.value_or(first), Qpn{0x22}, 2) {
  connect(a, remote_of(b), now);
  connect(b, remote_of(a), now);
}

Pair Pair::of(QpType type, bool srq) {
  Options options;
  options.type = type;
  options.srq = srq;
  Options peer = options;
  if (type == QpType::kXrcSend) peer.type = QpType::kXrcRecv;
  return Pair(options, peer);
}

std::vector<Packet> Pair::take(End& from) {
  std::vector<Packet> out;
  constexpr std::uint32_t kFrames = 32, kBytes = 4096 + wire::kMaxOverhead;
  std::vector<std::byte> buffer(kFrames * kBytes);
  std::array<base::Frame, kFrames> frames;
  for (;;) {
    for (std::uint32_t i = 0; i < kFrames; ++i) frames[i] = {buffer.data() + i * kBytes, 0, kBytes, 0, 0, nullptr};
    TxBurst burst{frames, 0};
    from.transport->transmit(burst, now);
    if (burst.count == 0) return out;
    for (std::size_t i = 0; i < burst.count; ++i) {
      Packet packet;
      packet.bytes.assign(frames[i].data, frames[i].data + frames[i].length);
      EXPECT_EQ(wire::parse(packet.bytes, {}, packet.rx), wire::ParseVerdict::kOk);
      out.push_back(std::move(packet));  // the bytes do not move
    }
  }
}

void Pair::deliver(End& to, const Packet& packet) {
  wire::RxPacket rx = packet.rx;
  EXPECT_EQ(to.transport->receive(rx, now), wire::ParseVerdict::kOk);
}

void Pair::deliver_marked(End& to, const Packet& packet) {
  wire::RxPacket marked = packet.rx;
  marked.ce = true;
  to.transport->receive(marked, now);
}

void Pair::run(const std::function<bool(const End& from, const Packet&)>& lose) {
  for (bool busy = true; busy;) {
    busy = false;
    for (End* from : {&a, &b}) {
      for (Packet& packet : take(*from)) {
        busy = true;
        if (!lose || !lose(*from, packet)) deliver(from == &a ? b : a, packet);
        log.push_back(std::move(packet));
      }
    }
  }
}

void Pair::pass(Nanos time) {
  now += time;
  a.transport->advance(now);
  b.transport->advance(now);
  run();
}

void Pair::settle(Nanos time, const std::function<bool(const End& from, const Packet&)>& lose) {
  const Nanos end = now + time;
  run(lose);
  for (;;) {
    const Nanos next = std::min(a.transport->next_timeout(), b.transport->next_timeout());
    if (next > end) break;
    now = std::max(now, next);
    a.transport->advance(now);
    b.transport->advance(now);
    run(lose);
  }
  now = end;
}

}  // namespace uroce::proto::test
