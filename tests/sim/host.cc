#include "tests/sim/host.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/qpn_layout.h"
#include "wire/frame_template.h"

namespace uroce::sim {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kResponderResources = 128;

std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) & ~(kLine - 1); }

wire::Mac mac_of(std::uint32_t id) { return {0x02, 0, 0, 0, 0, static_cast<std::uint8_t>(id + 1)}; }

proto::TransportConfig transport_config(const HostSettings& settings) {
  proto::TransportConfig config;
  config.max_qps = settings.max_qps;
  config.max_cqs = settings.cqs;
  config.max_srqs = 16;
  config.max_ahs = 16;
  config.max_attachments = 16;
  config.receive_ring_bytes = settings.receive_ring_bytes;
  config.quantum_packets = settings.quantum_packets;
  config.min_early_retry_delay = settings.min_early_retry_delay;
  config.offload_ip_checksum = settings.offload_ip_checksum;
  config.mac = mac_of(settings.id);
  config.seed = settings.seed;
  return config;
}

wire::Address address_of(const HostSettings& settings) {
  wire::Address address;
  if (settings.ipv6) {
    address.bytes = {0x20, 0x01, 0x0d, 0xb8};
  } else {
    address.bytes[10] = address.bytes[11] = 0xff;
    address.bytes[12] = 192;
    address.bytes[14] = 2;
  }
  address.bytes[15] = static_cast<std::uint8_t>(settings.id + 1);
  return address;
}

net::InterfaceAddress own_address(const HostSettings& settings) {
  return {address_of(settings), static_cast<std::uint8_t>(settings.ipv6 ? 64 : 24), settings.vlan.value_or(0)};
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t bytes) : memory_(new std::byte[bytes + kLine]()), size_(bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  data_ = memory_.get() + (kLine - address % kLine) % kLine;
}

SimCq::SimCq(std::uint32_t entries) : ring_(entries), producer(ring_.data(), entries, &client_) {
  consumer = queue::CqConsumer(ring_.data(), entries, &client_);
}

SimSrq::SimSrq(proto::SrqCreate create, std::uint32_t entries) {
  const auto stride =
      static_cast<std::uint32_t>(std::bit_ceil(sizeof(uroce_rq_entry) + create.max_sge * sizeof(uroce_sge)));
  ring = AlignedBytes(std::size_t{entries} * stride);
  const queue::RingShape shape{ring.data(), entries, stride};
  create.ring = queue::WorkConsumer(shape, &client.index, &consumer_);
  producer = queue::WorkProducer(shape, &client.index, &consumer_);
  srq = std::make_unique<proto::Srq>(create);
}

Host::Worker::Worker(const worker::WorkerConfig& config, Host& host)
    : core(config, host.shared_, host.table, config.index == 0 ? &host.link_ : nullptr),
      device(mac_of(host.settings.id), host.settings.offload_ip_checksum),
      loop(core, device) {
  port.session = 1;
  port.bells = queue::DoorbellReader(bells.get());
  port.line = &line;
  core.attach(port);
  device.set_references(host.settings.references);
  const net::InterfaceAddress own = own_address(host.settings);
  core.set_addresses({&own, 1});
}

Host::Host(const HostSettings& host_settings)
    : settings(host_settings),
      table(4096, host_settings.seed),
      random_(host_settings.seed + 0x5eed),
      references_(~host_settings.seed),
      link_(net::LinkConfig{.mac = mac_of(settings.id), .mtu = 4500, .addresses = {own_address(settings)}}) {
  for (std::uint32_t i = 0; i < settings.workers; ++i) {
    worker::WorkerConfig config;
    config.index = i;
    config.workers = settings.workers;
    config.transport = transport_config(settings);
    config.transport.seed += i;
    config.frame_bytes = SimDevice::kFrameBytes;
    workers_.push_back(std::make_unique<Worker>(config, *this));
  }
  for (std::uint32_t i = 0; i < settings.cqs; ++i) {
    cqs.push_back(std::make_unique<SimCq>(settings.cq_entries));
    for (auto& worker : workers_) worker->core.set_cq(CqId{i}, &cqs.back()->producer, 1);
  }
}

Host::~Host() = default;

void Host::disturb(Worker& worker) {
  if (settings.references && references_.chance(0.05)) worker.device.set_references(references_.chance(0.8));
  if (!settings.busy_port) return;
  worker.device.set_credit(random_.chance(0.7) ? SimDevice::kUnlimited : random_.below(8));
  worker.device.set_burst(random_.chance(0.7) ? SimDevice::kUnlimited : random_.between(1, 8));
}

void Host::arrive(std::span<const std::byte> frame) {
  const std::uint32_t flow = (dest_qpn_of(frame) * 2654435761u) >> 16;
  std::uint32_t sender = 0, flags = 0;
  if (const Host* const from = sender_of(frame)) {
    const auto known = from->senders_.find(dest_qpn_of(frame));
    if (known != from->senders_.end()) sender = known->second;
    if (settings.references && is_by_reference(frame)) flags = base::kIcrcGood | base::kByReference;
  }
  workers_[flow % workers_.size()]->device.arrive(frame, sender, flags);
}

// A frame to this host's own address would come back with its sender (drivers/packet/loopback).
const Host* Host::sender_of(std::span<const std::byte> frame) const {
  if (frame.size() < 12) return nullptr;
  const auto comes_from = [frame](const Host* host) {
    return std::memcmp(mac_of(host->settings.id).data(), frame.data() + 6, sizeof(wire::Mac)) == 0;
  };
  if (comes_from(this)) return this;
  if (switched_ == nullptr) return nullptr;
  const auto host = std::ranges::find_if(switched_->hosts, comes_from);
  return host != switched_->hosts.end() ? *host : nullptr;
}

void Host::join(Switched& switched) {
  switched_ = &switched;
  switched.hosts.push_back(this);
  switched.by_worker.resize(workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i]->core.transport().join(switched.by_worker[i]);
}

void Host::in_next_step(std::function<void()> act) {
  commands_.push_back(std::make_unique<Posted>(std::move(act)));
  workers_[random_.below(static_cast<std::uint32_t>(workers_.size()))]->core.post(commands_.back()->entry);
}

void Host::doorbell(const SimQp& qp) {
  Worker& worker = *workers_[qp.worker];
  queue::DoorbellRinger(worker.bells.get(), &worker.line).ring(qp.bit);
}

void Host::set_srq(SrqId id, proto::Srq* srq) {
  for (auto& worker : workers_) worker->core.transport().set_srq(id, srq);
}

void Host::set_address_handle(AhId id, PdId pd, const wire::PathAddress& path) {
  for (auto& worker : workers_) worker->core.transport().set_address_handle(id, pd, &path);
}

std::vector<proto::Event> Host::take_events() {
  std::vector<proto::Event> all = shared_.events.take();
  // Those of a command since the last step, too.
  for (auto& worker : workers_) {
    proto::Event events[16];
    while (const std::size_t count = worker->core.transport().take_events(events)) {
      all.insert(all.end(), events, events + count);
    }
  }
  return all;
}

Nanos Host::next_timeout() const {
  Nanos next = kNever;
  for (const auto& worker : workers_) next = std::min(next, worker->core.transport().next_timeout());
  return next;
}

bool Host::wants_transmit() const {
  return std::ranges::any_of(workers_,
                             [](const auto& worker) { return worker->core.transport().wants_transmit(); });
}

bool Host::holds_frames() const {
  return std::ranges::any_of(workers_, [](const auto& worker) {
    return worker->device.has_arrivals() || worker->device.refused() || worker->core.work_waiting();
  });
}

bool Host::has_work() const { return holds_frames() || wants_transmit(); }

proto::Counters Host::counters() const {
  proto::Counters sum;
  for (const auto& worker : workers_) {
    const proto::Counters& each = worker->core.transport().counters();
#define UROCE_ADD(name) sum.name += each.name;
    UROCE_PROTO_COUNTERS(UROCE_ADD)
#undef UROCE_ADD
  }
  return sum;
}

std::uint64_t Host::frames_parsed() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) {
    for (const std::uint64_t each : worker->core.counters().parse) sum += each;
  }
  return sum;
}

std::uint64_t Host::frames_taken() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) {
    sum += worker->core.counters().parse[static_cast<std::size_t>(wire::ParseVerdict::kOk)];
  }
  return sum;
}

std::uint64_t Host::frames_misdirected() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) {
    const worker::WorkerCounters& counters = worker->core.counters();
    sum += counters.wrong_address + counters.wrong_vlan;
  }
  return sum;
}

std::uint64_t Host::frames_lost_between_workers() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->core.counters().steer_dropped;
  return sum;
}

std::uint64_t Host::frames_refused() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) {
    const worker::WorkerCounters& counters = worker->core.counters();
    for (std::size_t i = 0; i < std::size(counters.parse); ++i) {
      if (i != static_cast<std::size_t>(wire::ParseVerdict::kOk)) sum += counters.parse[i];
    }
  }
  return sum;
}

int Host::create_qp(const QueueSizes& sizes, Qpn qpn, PdId pd, CqId send_cq, CqId recv_cq, SimQp& out) {
  const auto workers = static_cast<std::uint32_t>(workers_.size());
  out.worker = (qpn.value ^ qpn.value >> kQpnLocalBits) % workers;
  if (workers != 1) {
    constexpr std::uint32_t kLocal = (1u << kQpnLocalBits) - 1;
    qpn = Qpn{(qpn.value & kLocal) | out.worker << kQpnLocalBits};
  }
  out.sizes = sizes;
  out.qpn = qpn;
  const std::size_t list_bytes = std::max<std::size_t>(sizes.max_send_sge * sizeof(uroce_sge), sizes.max_inline);
  const auto sq_stride =
      static_cast<std::uint32_t>(round_up(sizeof(uroce_sq_entry) + list_bytes + sizes.max_tso_header));
  const auto rq_stride =
      static_cast<std::uint32_t>(std::bit_ceil(sizeof(uroce_rq_entry) + sizes.max_recv_sge * sizeof(uroce_sge)));
  out.sq_ring = AlignedBytes(std::size_t{sizes.sq_entries} * sq_stride);
  out.rq_ring = AlignedBytes(std::size_t{sizes.rq_entries} * rq_stride);
  out.shadow = AlignedBytes(out.sq_ring.size());
  out.resources = AlignedBytes(kResponderResources * proto::Transport::kResponderResourceBytes);
  const queue::RingShape sq{out.sq_ring.data(), sizes.sq_entries, sq_stride};
  const queue::RingShape rq{out.rq_ring.data(), sizes.rq_entries, rq_stride};
  const std::uint32_t first = sizes.first_index;
  out.client.sq.index = out.client.rq.index = out.daemon.sq_consumer = out.daemon.rq_consumer = first;
  out.sq = queue::WorkProducer(sq, &out.client.sq.index, &out.daemon.sq_consumer, first);
  out.rq = queue::WorkProducer(rq, &out.client.rq.index, &out.daemon.rq_consumer, first);

  proto::QpCreate create;
  create.type = sizes.type;
  create.has_srq = sizes.srq.has_value();
  create.srq = sizes.srq.value_or(SrqId{});
  create.xrcd = kXrcd;
  create.qpn = qpn;
  create.pd = pd;
  create.send_cq = send_cq;
  create.recv_cq = recv_cq;
  create.signal_all = sizes.signal_all;
  if (sizes.type != proto::QpType::kXrcRecv) {
    create.sq = queue::WorkConsumer(sq, &out.client.sq.index, &out.daemon.sq_consumer, first);
  }
  create.rq = queue::WorkConsumer(rq, &out.client.rq.index, &out.daemon.rq_consumer, first);
  create.max_send_sge = sizes.max_send_sge;
  create.max_recv_sge = sizes.max_recv_sge;
  create.max_inline = sizes.max_inline;
  create.max_tso_header = sizes.max_tso_header;
  create.sq_shadow = out.shadow.span();
  create.responder_resources = out.resources.span();
  create.owner = 1;
  const int error = transport(out).create(create, out.index);
  if (error != 0) return error;
  std::vector<std::uint32_t>& bits = workers_[out.worker]->port.qp_of_bit;
  out.bit = static_cast<std::uint32_t>(bits.size());
  bits.push_back(out.index.value);
  return 0;
}

void Host::destroy_qp(const SimQp& qp, Nanos now) {
  workers_[qp.worker]->port.qp_of_bit[qp.bit] = worker::SessionPort::kNoQp;
  transport(qp).destroy(qp.index, now);
}

wire::PathAddress Host::path_to(const Host& peer) const {
  wire::PathAddress path;
  path.source_mac = mac_of(settings.id);
  path.dest_mac = mac_of(peer.settings.id);
  path.vlan = settings.vlan;
  path.source = address_of(settings);
  path.dest = address_of(peer.settings);
  path.traffic_class = 0x20;
  return path;
}

namespace {

proto::ModifyVerdict connect_datagram(Host& host, const SimQp& qp, const Connection& c, Nanos now) {
  using namespace proto;
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.qkey = c.qkey;
  ModifyVerdict verdict = host.modify(qp, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey, now);
  if (verdict.error != 0) return verdict;
  attr.state = QpState::kRtr;
  verdict = host.modify(qp, attr, kAttrState, now);
  if (verdict.error != 0) return verdict;
  attr.state = QpState::kRts;
  attr.sq_psn = c.sq_psn;
  return host.modify(qp, attr, kAttrState | kAttrSqPsn, now);
}

proto::ModifyVerdict connect_raw(Host& host, const SimQp& qp, Nanos now) {
  using namespace proto;
  QpAttr attr;
  ModifyVerdict verdict;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    attr.state = state;
    const bool first = state == QpState::kInit;
    verdict = host.modify(qp, attr, kAttrState | (first ? std::uint32_t{kAttrPort} : 0u), now);
    if (verdict.error != 0) break;
  }
  return verdict;
}

}  // namespace

proto::ModifyVerdict connect(Host& host, const SimQp& qp, const Connection& c, Nanos now) {
  using namespace proto;
  if (c.type == QpType::kUd) return connect_datagram(host, qp, c, now);
  if (c.type == QpType::kRawPacket) return connect_raw(host, qp, now);
  const bool responds = c.type == QpType::kRc || c.type == QpType::kXrcRecv;
  const bool requests = c.type == QpType::kRc || c.type == QpType::kXrcSend;
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.access = c.access;
  ModifyVerdict verdict = host.modify(qp, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, now);
  if (verdict.error != 0) return verdict;
  attr.state = QpState::kRtr;
  attr.path = c.path;
  attr.path_mtu = c.path_mtu;
  attr.dest_qpn = c.dest_qpn;
  attr.rq_psn = c.rq_psn;
  attr.max_dest_rd_atomic = c.max_dest_rd_atomic;
  attr.min_rnr_timer = c.min_rnr_timer;
  std::uint32_t mask = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  if (responds) mask |= kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  verdict = host.modify(qp, attr, mask, now);
  if (verdict.error != 0) return verdict;
  attr.state = QpState::kRts;
  attr.timeout = c.timeout;
  attr.retry_cnt = c.retry_cnt;
  attr.rnr_retry = c.rnr_retry;
  attr.sq_psn = c.sq_psn;
  attr.max_rd_atomic = c.max_rd_atomic;
  mask = kAttrState | kAttrSqPsn;
  if (c.type == QpType::kXrcRecv) mask |= kAttrTimeout;
  if (requests) mask |= kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxRdAtomic;
  attr.rate_kbps = c.rate_kbps;
  if (c.rate_kbps != 0 && c.type != QpType::kXrcRecv) mask |= kAttrRateLimit;
  return host.modify(qp, attr, mask, now);
}

proto::ModifyVerdict change_state(Host& host, const SimQp& qp, proto::QpState state, Nanos now, bool notify) {
  proto::QpAttr attr;
  attr.state = state;
  attr.sqd_notify = notify;
  const std::uint32_t mask = proto::kAttrState | (notify ? std::uint32_t{proto::kAttrSqdNotify} : 0u);
  return host.modify(qp, attr, mask, now);
}

}  // namespace uroce::sim
