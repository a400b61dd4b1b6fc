#include "worker/worker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "control/qpn.h"
#include "wire/network_headers.h"

namespace uroce::daemon {
namespace {

constexpr std::size_t kSteerBurst = 32;
constexpr Nanos kEventRetry = kMillisecond;

std::atomic_ref<std::uint32_t> sleeping(SessionPort& port) { return std::atomic_ref(port.line->sleeping); }

void watch(int epoll, int fd) {
  epoll_event event{};
  // Edge-triggered: every write wakes once and nobody has to read the counter.
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

proto::TransportConfig on_huge_pages(proto::TransportConfig config, std::pmr::memory_resource& memory) {
  config.resource = &memory;
  return config;
}

}  // namespace

AsyncEventQueue::AsyncEventQueue() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void AsyncEventQueue::put(std::span<const proto::Event> events) {
  {
    std::lock_guard lock(mutex_);
    events_.insert(events_.end(), events.begin(), events.end());
  }
  ::eventfd_write(fd_.get(), 1);
}

std::vector<proto::Event> AsyncEventQueue::take() {
  eventfd_t ignored;
  ::eventfd_read(fd_.get(), &ignored);
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

WorkerCore::WorkerCore(const WorkerConfig& config, WorkerShared& shared, memory::Table& memory,
                       net::LinkStack* link)
    : config_(config),
      shared_(shared),
      link_(link),
      transport_(on_huge_pages(config.transport, qp_tables_), memory),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  watch(epoll_.get(), wake_fd_.get());
  for (std::uint32_t i = 0; config.workers > 1 && i < config.workers; ++i) {
    from_.push_back(std::make_unique<PacketRing>(config.frame_bytes));
  }
  shared_.workers.push_back(this);
}

WorkerCore::~WorkerCore() { std::erase(shared_.workers, this); }

void WorkerCore::call(const Mailbox::Function& function) {
  if (!threaded_.load(std::memory_order_acquire)) {
    function(*this);
    return;
  }
  mailbox_.call(function, [this] { wake(); });
}

void WorkerCore::wake() {
  if (asleep_.load(std::memory_order_seq_cst)) ::eventfd_write(wake_fd_.get(), 1);
}

// ---------------------------------------------------------------- frames in

void WorkerCore::receive(std::span<const base::Frame> frames, Nanos now) {
  // A few packets are parsed before the first is acted on, so that their QPs' state is on its way meanwhile; not so
  // many that what the ICRC brought into the cache is out of it again when it is copied.
  constexpr std::size_t kAheadBytes = 4096;
  sniff(frames, now);
  for (std::size_t next = 0; next < frames.size();) {
    std::size_t count = 0;
    const std::size_t end = std::min(frames.size(), next + ahead_.size());
    for (std::size_t bytes = 0; next < end && bytes < kAheadBytes; ++next) {
      const base::Frame& frame = frames[next];
      bytes += frame.length;
      if (next + 1 < frames.size()) __builtin_prefetch(frames[next + 1].data);
      const wire::ParseOptions options{
          .check_icrc = true, .check_ip_checksum = (frame.flags & base::kIpChecksumGood) == 0, .defer_icrc = true};
      if (!classify(frame.bytes(), options, ahead_[count], now)) continue;
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

void WorkerCore::deliver_steered(std::span<const std::byte> frame, bool icrc_pending, Nanos now) {
  const wire::ParseOptions options{
      .check_icrc = icrc_pending, .check_ip_checksum = false, .defer_icrc = icrc_pending};
  wire::RxPacket packet;
  if (!wire::accepted(wire::parse(frame, options, packet))) return;  // the sending worker accepted it
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

bool WorkerCore::classify(std::span<const std::byte> frame, const wire::ParseOptions& options, wire::RxPacket& out,
                          Nanos now) {
  const wire::ParseVerdict verdict = prediction_.parse(frame, options, out);
  if (wire::accepted(verdict)) [[likely]] {
    if (!is_for_us(out)) [[unlikely]] {
      count_verdict(wire::ParseVerdict::kOk);
      dispatch_to_flows(frame, now);
      return false;
    }
    if (config_.workers == 1) return true;
    if (out.multicast) {
      steer_to_others(frame);
      return true;
    }
    const std::uint32_t owner = worker_of(out.bth.dest_qpn);
    if (owner == config_.index || owner >= config_.workers) return true;
    const bool pending = verdict == wire::ParseVerdict::kIcrcPending;
    if (!pending) count_verdict(verdict);
    steer(owner, frame, pending ? SteerReason::kIcrcPending : SteerReason::kVerified);
    return false;
  }
  count_verdict(verdict);
  if (verdict == wire::ParseVerdict::kNotRoce) {
    receive_not_roce(frame, now);
  } else {
    dispatch_to_flows(frame, now);
  }
  return false;
}

void WorkerCore::receive_not_roce(std::span<const std::byte> frame, Nanos now) {
  if (link_ == nullptr) return steer(0, frame, SteerReason::kNotRoce);
  dispatch_to_flows(frame, now);
  link_->receive(frame, now);
  link_dirty_ = true;
}

void WorkerCore::steer_to_others(std::span<const std::byte> frame) {
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    if (i != config_.index) steer(i, frame, SteerReason::kVerified);
  }
}

void WorkerCore::steer(std::uint32_t worker, std::span<const std::byte> frame, SteerReason reason) {
  WorkerCore& other = *shared_.workers[worker];
  const bool taken = other.from_[config_.index]->push(frame, reason);
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
        case SteerReason::kVerified: deliver_steered(frame, false, now); break;
        case SteerReason::kIcrcPending: deliver_steered(frame, true, now); break;
        case SteerReason::kNotRoce: receive_not_roce(frame, now); break;
        case SteerReason::kToFlows: dispatch_to_flows(frame, now); break;
        case SteerReason::kToSniffers: sniff(frame, now); break;
      }
      ring->pop();
      any = true;
    }
  }
  return any;
}

// ---------------------------------------------------------------- raw packets

void WorkerCore::dispatch_to_flows(std::span<const std::byte> frame, Nanos now) {
  if (!shared_.any_flows.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (link_ == nullptr) return steer(0, frame, SteerReason::kToFlows);
  const wire::FrameLayout layout = wire::layout_of(frame);
  std::array<net::FlowTarget, net::FlowTable::kMaxCopies> targets;
  const std::size_t count = flows_.classify(frame, net::key_of(frame, layout), targets);
  deliver_to_targets(frame, layout, std::span(targets).first(count), now);
}

void WorkerCore::sniff(std::span<const base::Frame> frames, Nanos now) {
  if (!shared_.any_sniffers.load(std::memory_order_relaxed)) [[likely]]
    return;
  for (const base::Frame& frame : frames) {
    if ((frame.flags & base::kIpChecksumNeeded) == 0) {
      sniff(frame.bytes(), now);
      continue;
    }
    std::vector<std::byte> as_sent(frame.bytes().begin(), frame.bytes().end());
    if (const wire::FrameLayout layout = wire::layout_of(as_sent); layout.ipv4) {
      std::byte* const ip = &as_sent[layout.network];
      wire::store16(ip + 10, wire::Ipv4Header::parse(ip).right_checksum());
    }
    sniff(as_sent, now);
  }
}

void WorkerCore::sniff(std::span<const std::byte> frame, Nanos now) {
  if (link_ == nullptr) return steer(0, frame, SteerReason::kToSniffers);
  std::array<net::FlowTarget, net::FlowTable::kMaxCopies> targets;
  const std::size_t count = flows_.sniffers(frame, targets);
  deliver_to_targets(frame, wire::layout_of(frame), std::span(targets).first(count), now);
}

void WorkerCore::deliver_to_targets(std::span<const std::byte> frame, const wire::FrameLayout& layout,
                                    std::span<const net::FlowTarget> targets, Nanos now) {
  if (targets.empty()) return;
  proto::ReceivedFrame received{.bytes = frame, .vlan = layout.vlan, .vlan_tci = layout.vlan_tci};
  received.checksums_good = wire::checksums_good(frame, layout);
  for (const net::FlowTarget& target : targets) {
    received.flow_tag = target.tag;
    transport_.receive_frame({target.qp}, received, now);
  }
}

bool WorkerCore::add_flow(std::uint64_t id, net::Flow flow) {
  if (!flows_.add(id, std::move(flow))) return false;
  flows_changed();
  return true;
}

void WorkerCore::remove_flow(std::uint64_t id) {
  flows_.remove(id);
  flows_changed();
}

void WorkerCore::flows_changed() {
  shared_.any_flows.store(!flows_.empty(), std::memory_order_relaxed);
  shared_.any_sniffers.store(flows_.sniffs(), std::memory_order_relaxed);
  const net::RxFilter filter = flows_.wants_foreign(config_.transport.mac) ? net::RxFilter::kPromiscuous
                               : flows_.empty()                            ? net::RxFilter::kRoceOnly
                                                                           : net::RxFilter::kAllForPort;
  if (filter == rx_filter_) return;
  rx_filter_ = filter;
  if (set_rx_filter) set_rx_filter(filter);
}

// ---------------------------------------------------------------- clients

bool WorkerCore::serve_doorbells() {
  bool any = false;
  for (SessionPort* port : ports_) {
    port->bells.drain([&](std::uint32_t bit) {
      any = true;
      const std::uint32_t qp = bit < port->qp_of_bit.size() ? port->qp_of_bit[bit] : SessionPort::kNoQp;
      if (qp == SessionPort::kNoQp) {
        ++counters_.bad_doorbells;
      } else {
        transport_.doorbell({qp});
      }
    });
  }
  return any;
}

void WorkerCore::advance(Nanos now, bool behind) {
  now_ = now;
  transport_.advance(now, behind);
  if (link_ != nullptr) shared_.gsi.advance(now);
  if (link_ != nullptr && (link_dirty_ || now >= link_deadline_)) {
    link_->advance(now);
    link_deadline_ = link_->next_timeout();
    link_dirty_ = true;
  }
}

void WorkerCore::publish(Nanos now) {
  send_completion_events(now);
  proto::Event events[32];
  if (const std::size_t n = transport_.take_events(events); n != 0) shared_.events.put({events, n});
}

bool WorkerCore::write_event(Cq& cq) {
  const ssize_t n = ::write(cq.channel_fd, &cq.cookie, sizeof(cq.cookie));
  if (n < 0 && errno == EAGAIN) return false;
  ++counters_.events_sent;  // or the client has closed its end, and nobody waits
  return true;
}

void WorkerCore::send_event(Cq& cq, Nanos now) {
  if (!cq.take_event() || write_event(cq)) return;
  // Its reader is slow. One event owed is enough: whoever reads it finds all completions.
  if (!cq.event_owed.exchange(true, std::memory_order_acq_rel)) owed_events_.push_back(&cq);
  ++counters_.events_delayed;
  retry_events_at_ = now + kEventRetry;
}

void WorkerCore::release_held_events(Nanos now) {
  std::erase_if(held_events_, [&](const HeldEvent& held) {
    Cq& cq = *held.cq;
    const std::uint32_t made = cq.produced(), count = cq.event_count.load(std::memory_order_relaxed);
    const bool enough = count != 0 && made - cq.event_at.load(std::memory_order_relaxed) >= count;
    if (now < held.until && !enough && cq.moderated()) return false;
    cq.event_at.store(made, std::memory_order_relaxed);
    cq.event_held.store(false, std::memory_order_release);
    send_event(cq, now);
    return true;
  });
}

void WorkerCore::send_completion_events(Nanos now) {
  for (queue::CqProducer* producer : transport_.touched_cqs()) {
    Cq& cq = static_cast<Cq&>(*producer);
    if (cq.channel_fd < 0) continue;
    if (!cq.moderated()) {
      send_event(cq, now);
    } else if (!cq.event_held.exchange(true, std::memory_order_acq_rel)) {
      held_events_.push_back({&cq, now + cq.event_period.load(std::memory_order_relaxed)});
    }
  }
  if (!held_events_.empty()) release_held_events(now);
  if (owed_events_.empty() || now < retry_events_at_) return;
  std::erase_if(owed_events_, [&](Cq* cq) {
    if (!write_event(*cq)) return false;
    cq->event_owed.store(false, std::memory_order_release);
    return true;
  });
  retry_events_at_ = now + kEventRetry;
}

std::size_t WorkerCore::next_link_frame(std::span<std::byte> to) {
  const std::size_t n = link_ == nullptr ? 0 : link_->next_frame(to);
  if (n != 0) return n;
  link_dirty_ = false;
  if (!gsi_waits()) return 0;
  const std::size_t mad = shared_.gsi.next_frame(to, *link_, now_);
  link_dirty_ = true;  // it may have asked for a neighbour
  return mad;
}

// ---------------------------------------------------------------- sleeping

void WorkerCore::announce_sleep() {
  asleep_.store(true, std::memory_order_seq_cst);
  // A number of its own for each sleep, so that a client that rings on and on writes the eventfd once.
  if (++sleep_number_ == 0) sleep_number_ = 1;
  for (SessionPort* port : ports_) sleeping(*port).store(sleep_number_, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool WorkerCore::clients_are_yielding(Nanos now) {
  // A client that went off to do something else is forgotten after this long.
  constexpr Nanos kFresh = 100 * kMicrosecond;
  bool any = false;
  for (SessionPort* port : ports_) {
    const std::uint32_t polls = port->bells.polls();
    if (polls != port->polls) {
      port->polls = polls;
      port->polls_at = now;
    }
    any |= (polls & 1) != 0 && now - port->polls_at < kFresh;
  }
  return any;
}

bool WorkerCore::take_rnr_drops() {
  const std::uint64_t missed = transport_.counters().drop_no_receive;
  return std::exchange(receives_missed_, missed) != missed;
}

bool WorkerCore::work_waiting() const {
  if (mailbox_.waiting() || gsi_waits() || !owed_events_.empty()) return true;
  for (const auto& ring : from_) {
    if (!ring->empty()) return true;
  }
  return std::ranges::any_of(ports_, [](const SessionPort* port) { return port->bells.any(); });
}

void WorkerCore::wait(Nanos limit) {
  ++counters_.sleeps;
  epoll_event events[16];
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(std::min(limit, 3600 * kSecond) / kSecond);
  timeout.tv_nsec = static_cast<long>(limit % kSecond);
  ::epoll_pwait2(epoll_.get(), events, std::size(events), limit == kNever ? nullptr : &timeout, nullptr);
}

void WorkerCore::end_sleep() {
  for (SessionPort* port : ports_) sleeping(*port).store(0, std::memory_order_relaxed);
  asleep_.store(false, std::memory_order_relaxed);
}

Nanos WorkerCore::until_timer(Nanos now) const {
  Nanos next = std::min(transport_.next_timeout(), link_deadline_);
  if (link_ != nullptr) next = std::min(next, shared_.gsi.next_timeout());
  for (const HeldEvent& held : held_events_) next = std::min(next, held.until);
  if (next == kNever) return kNever;
  return next > now ? next - now : 0;
}

void WorkerCore::watch_device(int wake_fd) {
  if (wake_fd < 0) return;
  epoll_event event{};
  // Level-triggered: the device's disarm_wake() says when it has been seen.
  event.events = EPOLLIN;
  event.data.fd = wake_fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_fd, &event);
}

// ---------------------------------------------------------------- commands

void WorkerCore::attach(SessionPort& port) {
  ports_.push_back(&port);
  watch(epoll_.get(), port.eventfd);
}

void WorkerCore::detach(SessionPort& port) {
  std::erase(ports_, &port);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, port.eventfd, nullptr);
}

void WorkerCore::set_cq(CqId id, Cq* cq, std::uint64_t session) { transport_.set_cq(id, cq, session); }

void WorkerCore::remove_cq(CqId id, Cq* cq) {
  transport_.set_cq(id, nullptr, 0);
  std::erase(owed_events_, cq);
  std::erase_if(held_events_, [cq](const HeldEvent& held) { return held.cq == cq; });
}

}  // namespace uroce::daemon
