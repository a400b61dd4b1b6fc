#include "worker/worker.h"

#include <algorithm>
#include <utility>

#include "base/qpn_layout.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"
#include "worker/duty_cycle_tracker.h"

namespace uroce::worker {
namespace {

constexpr std::size_t kSteerBurst = 32;

proto::TransportConfig on_huge_pages(proto::TransportConfig config, std::pmr::memory_resource& memory) {
  config.resource = &memory;
  return config;
}

/// Any program may send to UDP port 4791 through a socket of the kernel. Peers would take it for a packet of our
/// QPs, also where a router has removed a routing header before.
bool may_become_roce(std::span<const std::byte> frame) {
  constexpr std::uint8_t kRouting = 43;  // RFC 8200, 4.4
  const wire::FrameLayout layout = wire::layout_of(frame);
  if (layout.ipv6 && layout.protocol == kRouting) return true;
  return layout.udp && wire::load16(&frame[layout.transport + 2]) == wire::kRoceUdpPort;
}

}  // namespace

WorkerCore::WorkerCore(const WorkerConfig& config, WorkerShared& shared, memory::Table& memory,
                       net::LinkStack* link)
    : config_(config),
      shared_(shared),
      link_(link),
      transport_(on_huge_pages(config.transport, qp_tables_), memory),
      completion_events_(config.transport.max_cqs, counters_),
      raw_(transport_, config.transport.mac, config.frame_bytes) {
  for (std::uint32_t i = 0; config.workers > 1 && i < config.workers; ++i) {
    from_.push_back(std::make_unique<PacketRing>(config.frame_bytes));
  }
  shared_.workers.push_back(this);
}

WorkerCore::~WorkerCore() { std::erase(shared_.workers, this); }

void WorkerCore::run(const WorkerCommandRef& command) {
  if (!threaded_.load(std::memory_order_acquire)) {
    now_ = std::max(now_, config_.clock());
    mailbox_.run(command, *this);
    return;
  }
  section_.await_command(command.name(), config_.clock());
  mailbox_.call(command, [this] { wake(); });
  section_.command_done();
}

// ---------------------------------------------------------------- frames in

void WorkerCore::receive(std::span<const base::Frame> frames, Nanos now) {
  // Parse a few packets before handling the first, so that the state of their QPs is prefetched. The limit keeps
  // the payload that the ICRC has read in the cache until it is copied.
  constexpr std::size_t kAheadBytes = 4096;
  sniff(frames, now);
  for (std::size_t next = 0; next < frames.size();) {
    std::size_t count = 0;
    const std::size_t end = std::min(frames.size(), next + ahead_.size());
    for (std::size_t bytes = 0; next < end && bytes < kAheadBytes; ++next) {
      const base::Frame& frame = frames[next];
      bytes += frame.length;
      if (next + 1 < frames.size()) __builtin_prefetch(frames[next + 1].data);
      const wire::ParseOptions options{.check_icrc = (frame.flags & base::kIcrcGood) == 0,
                                       .check_ip_checksum = (frame.flags & base::kIpChecksumGood) == 0,
                                       .defer_icrc = true};
      if (!classify(frame, options, ahead_[count], now)) continue;
      transport_.prefetch(ahead_[count].bth.dest_qpn);
      ++count;
    }
    for (std::size_t i = 0; i < count; ++i) count_verdict(deliver(ahead_[i], now));
  }
}

wire::ParseVerdict WorkerCore::deliver(wire::RxPacket& packet, Nanos now) {
  if (packet.bth.dest_qpn.value == wire::kGsiQpn && link_ != nullptr) [[unlikely]] {
    shared_.gsi.receive(packet, *link_);
    return wire::ParseVerdict::kOk;
  }
  return transport_.receive(packet, now);
}

void WorkerCore::deliver_steered(std::span<const std::byte> frame, std::uint32_t sender, bool icrc_pending,
                                 Nanos now) {
  const wire::ParseOptions options{
      .check_icrc = icrc_pending, .check_ip_checksum = false, .defer_icrc = icrc_pending};
  wire::RxPacket packet;
  if (!wire::accepted(wire::parse(frame, options, packet))) return;  // the sending worker accepted it
  packet.sender = sender;
  const wire::ParseVerdict verdict = deliver(packet, now);
  if (icrc_pending) count_verdict(verdict);
}

bool WorkerCore::is_for_us(const wire::RxPacket& packet) {
  const net::Addressed verdict = addresses_.check(packet);
  if (verdict == net::Addressed::kToUs) [[likely]]
    return true;
  ++(verdict == net::Addressed::kWrongVlan ? counters_.wrong_vlan : counters_.wrong_address);
  return false;
}

bool WorkerCore::classify(const base::Frame& from, const wire::ParseOptions& options, wire::RxPacket& out,
                          Nanos now) {
  const std::span<const std::byte> frame = from.bytes();
  const wire::ParseVerdict verdict = prediction_.parse(frame, options, out);
  out.sender = from.sender;
  if (wire::accepted(verdict)) [[likely]] {
    if ((from.flags & base::kByReference) != 0) [[unlikely]]
      out.state = wire::PacketState::kByReference;
    if (!is_for_us(out)) [[unlikely]] {
      count_verdict(wire::ParseVerdict::kOk);
      if (!out.by_reference()) dispatch_to_flows(frame, from.sender, now);
      return false;
    }
    if (config_.workers == 1) return true;
    if (out.multicast) {
      steer_to_others(from);
      return true;
    }
    const std::uint32_t owner = worker_of(out.bth.dest_qpn);
    if (owner == config_.index || owner >= config_.workers) return true;
    const bool pending = verdict == wire::ParseVerdict::kIcrcPending;
    if (!pending) count_verdict(verdict);
    steer(owner, frame, pending ? SteerReason::kIcrcPending : SteerReason::kVerified, from.sender);
    return false;
  }
  count_verdict(verdict);
  if (verdict == wire::ParseVerdict::kNotRoce) {
    receive_not_roce(frame, from.sender, now);
  } else {
    dispatch_to_flows(frame, from.sender, now);
  }
  return false;
}

void WorkerCore::receive_not_roce(std::span<const std::byte> frame, std::uint32_t sender, Nanos now) {
  if (link_ == nullptr) return steer(kLinkWorker, frame, SteerReason::kNotRoce, sender);
  dispatch_to_flows(frame, sender, now);
  // As on a wire, the link stack does not hear what this port sends to all: it would take a program's ARP for that
  // of another host with this address.
  if (sender != 0 && !frame.empty() && (frame[0] & std::byte{1}) != std::byte{0}) return;
  const bool answered = link_->receive(frame, now);
  link_dirty_ = true;
  if (netdev_ == nullptr || answered || netdev_->is_own(frame)) return;
  counters_.netdev_dropped += netdev_->take_lost();
  ++(netdev_->deliver(frame) ? counters_.netdev_received : counters_.netdev_dropped);
}

void WorkerCore::steer_to_others(const base::Frame& frame) {
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    if (i != config_.index) steer(i, frame.bytes(), SteerReason::kVerified, frame.sender);
  }
}

void WorkerCore::steer(std::uint32_t worker, std::span<const std::byte> frame, SteerReason reason,
                       std::uint32_t sender) {
  WorkerCore& other = *shared_.workers[worker];
  PacketRing& ring = *other.from_[config_.index];
  // Frames of the kernel's connections leave half of the ring to packets of QPs.
  const bool room = reason != SteerReason::kNotRoce || ring.size() < ring.slots() / 2;
  const bool taken = room && ring.push(frame, reason, sender);
  ++(taken ? counters_.steered_away : counters_.steer_dropped);
  other.wake();
}

bool WorkerCore::receive_steered(Nanos now) {
  bool any = false;
  for (auto& ring : from_) {
    for (std::size_t i = 0; i < kSteerBurst; ++i) {
      const std::span<const std::byte> frame = ring->front();
      if (frame.empty()) break;
      switch (ring->reason()) {
        case SteerReason::kVerified: deliver_steered(frame, ring->sender(), false, now); break;
        case SteerReason::kIcrcPending: deliver_steered(frame, ring->sender(), true, now); break;
        case SteerReason::kNotRoce: receive_not_roce(frame, ring->sender(), now); break;
        case SteerReason::kToFlows: dispatch_to_flows(frame, ring->sender(), now); break;
        case SteerReason::kToSniffers: sniff(frame, now); break;
      }
      ring->pop();
      any = true;
    }
  }
  return any;
}

// ---------------------------------------------------------------- raw packets

void WorkerCore::dispatch_to_flows(std::span<const std::byte> frame, std::uint32_t sender, Nanos now) {
  if (!shared_.any_flows.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (link_ == nullptr) return steer(kLinkWorker, frame, SteerReason::kToFlows, sender);
  raw_.dispatch(frame, sender, now);
}

void WorkerCore::sniff(std::span<const base::Frame> frames, Nanos now) {
  if (!shared_.any_sniffers.load(std::memory_order_relaxed)) [[likely]]
    return;
  for (const base::Frame& frame : frames) {
    // A frame without payload was sent before the first sniffer came.
    if ((frame.flags & base::kByReference) != 0) continue;
    if (const auto bytes = raw_.as_sent(frame); !bytes.empty()) sniff(bytes, now);
  }
}

void WorkerCore::sniff(std::span<const std::byte> frame, Nanos now) {
  if (link_ == nullptr) return steer(kLinkWorker, frame, SteerReason::kToSniffers);
  raw_.sniff(frame, now);
}

bool WorkerCore::add_flow(std::uint64_t id, net::Flow flow) {
  if (!raw_.add_flow(id, std::move(flow))) return false;
  flows_changed();
  return true;
}

void WorkerCore::remove_flow(std::uint64_t id) {
  raw_.remove_flow(id);
  flows_changed();
}

void WorkerCore::flows_changed() {
  shared_.any_flows.store(raw_.has_flows(), std::memory_order_relaxed);
  shared_.any_sniffers.store(raw_.has_sniffers(), std::memory_order_relaxed);
  choose_rx_filter();
}

void WorkerCore::choose_rx_filter() {
  net::RxFilter filter = raw_.rx_filter();
  if (netdev_ != nullptr && filter == net::RxFilter::kRoceOnly) filter = net::RxFilter::kAllForPort;
  if (filter == rx_filter_) return;
  rx_filter_ = filter;
  if (port_ != nullptr) port_->set_rx_filter(filter);
}

void WorkerCore::set_netdev(NetdevPort* netdev) {
  netdev_ = netdev;
  choose_rx_filter();
}

void WorkerCore::set_port(PortControl* port) {
  port_ = port;
  if (port_ != nullptr && rx_filter_ != net::RxFilter::kRoceOnly) port_->set_rx_filter(rx_filter_);
}

// ---------------------------------------------------------------- clients

bool WorkerCore::serve_doorbells(Nanos now) {
  if (latency_.on) [[unlikely]]
    return serve_measured_doorbells(now);
  return sessions_.drain([this](const SessionPort& port) { note_busy_with(port); },
                         [this](std::uint32_t qp) {
                           if (qp == SessionPort::kNoQp) {
                             ++counters_.bad_doorbells;
                           } else {
                             transport_.doorbell({qp});
                           }
                         });
}

/// What a client says about the time counts if it was after the last look.
bool WorkerCore::serve_measured_doorbells(Nanos now) {
  Nanos rung = 0;
  const auto about = [&](const SessionPort& port) {
    note_busy_with(port);
    const Nanos said = port.bells.rung_ns();
    rung = said > measured_at_ && said <= now ? said : now;
  };
  const bool any = sessions_.drain(about, [&](std::uint32_t qp) {
    if (qp == SessionPort::kNoQp) {
      ++counters_.bad_doorbells;
    } else {
      transport_.measured_doorbell({qp}, rung);
    }
  });
  measured_at_ = now;
  return any;
}

void WorkerCore::advance(Nanos now, bool rx_pending) {
  now_ = now;
  transport_.advance(now, rx_pending);
  if (link_ != nullptr) shared_.gsi.advance(now);
  if (link_ != nullptr && (link_dirty_ || now >= link_deadline_)) {
    link_->advance(now);
    link_deadline_ = link_->next_timeout();
    link_dirty_ = true;
    if (link_->take_resolved()) {
      shared_.gsi.neighbours_changed();
      shared_.neighbours.signal();
    }
  }
}

void WorkerCore::publish(Nanos now) {
  completion_events_.send(transport_.touched_cqs(), now);
  proto::Event events[32];
  if (const std::size_t n = transport_.take_events(events); n != 0) [[unlikely]] {
    counters_.async_events_lost += n - shared_.events.put({events, n});
  }
  if (transport_.any_failures()) [[unlikely]] {
    proto::QpFailure failures[16];
    shared_.failures.put({failures, transport_.take_failures(failures)});
  }
  transport_.note_busy_with(0);
}

std::size_t WorkerCore::next_link_frame(std::span<std::byte> to) {
  const std::size_t n = link_ == nullptr ? 0 : link_->next_frame(to);
  if (n != 0) return n;
  link_dirty_ = false;
  if (!gsi_waits()) return 0;
  const std::size_t mad = shared_.gsi.next_frame(to, *link_, now_);
  link_dirty_ = true;  // it may have sent a request for a neighbour
  return mad;
}

std::size_t WorkerCore::next_netdev_frame(std::span<std::byte> to) {
  const std::size_t bytes = netdev_->next_frame(to);
  if (bytes == 0) return 0;
  counters_.netdev_dropped += netdev_->take_lost();
  const bool to_roce = may_become_roce(to.first(bytes));
  ++(to_roce ? counters_.netdev_dropped : counters_.netdev_sent);
  return to_roce ? 0 : bytes;
}

// ---------------------------------------------------------------- sleeping

bool WorkerCore::take_rnr_drops() {
  const std::uint64_t missed = transport_.counters().drop_no_receive;
  return std::exchange(receives_missed_, missed) != missed;
}

bool WorkerCore::work_waiting() const {
  if (mailbox_.waiting() || gsi_waits() || netdev_waits()) return true;
  return sessions_.any_rung() || !std::ranges::all_of(from_, [](const auto& ring) { return ring->empty(); });
}

void WorkerCore::wait(Nanos limit) {
  ++counters_.sleeps;
  sleep_.wait(limit);
}

void WorkerCore::note_wake_up(Nanos slept, Nanos now) {
  if (!latency_.on) return;
  const Nanos woken = sessions_.first_wake(slept);
  if (woken <= now) latency_.wake_up.record(now - woken);
}

void WorkerCore::measure_latency(bool on) {
  if (on) {
    latency_ = {};
    transport_.clear_latencies();
  }
  latency_.on = on;
  measured_at_ = now_;
  sessions_.want_stamps(on);
  if (tracker_ != nullptr) tracker_->choose_measured();
}

void WorkerCore::set_duty_cycle_tracker(DutyCycleTracker* tracker) {
  tracker_ = tracker;
  if (tracker_ != nullptr) tracker_->choose_measured();
}

Nanos WorkerCore::until_timer(Nanos now) const {
  Nanos next = std::min(transport_.next_timeout(), completion_events_.next_timeout());
  if (link_ != nullptr) next = std::min({next, link_deadline_, shared_.gsi.next_timeout()});
  if (next == kNever) return kNever;
  return next > now ? next - now : 0;
}

// ---------------------------------------------------------------- commands

void WorkerCore::attach(SessionPort& port) {
  sessions_.attach(port);
  sleep_.watch(port.eventfd);
}

void WorkerCore::detach(SessionPort& port) {
  sessions_.detach(port);
  sleep_.unwatch(port.eventfd);
}

void WorkerCore::set_cq(CqId id, Cq* cq, std::uint64_t session) {
  transport_.set_cq(id, cq, session);
  completion_events_.set_cq(id, cq);
}

void WorkerCore::remove_cq(CqId id, Cq* cq) {
  transport_.set_cq(id, nullptr, 0);
  completion_events_.remove_cq(id, cq);
}

}  // namespace uroce::worker
