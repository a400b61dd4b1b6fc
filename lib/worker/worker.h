// A worker without its device: what one poll-mode thread owns, and the parts of its duty cycle that do not touch
// the port. WorkerLoop (worker_loop.h) puts a device around it; tests and benchmarks call the same functions.
//
// Call contract. On the worker's thread only: everything but call(), wake() and set_threaded(). The conductor
// changes what is in here through call(): the function runs on the worker's thread between two duty cycles, and
// call() returns when it has run. Without a thread (tests, before start) it runs at once on the caller's.
//
// Edges: sleeping is a store-load pair with each of those who wake. announce_sleep() stores asleep_ and every
// session's `sleeping`, fences, then work_waiting() looks at doorbells, mailbox and packet rings; the others store
// their work, then read the flag, all seq_cst.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/types.h"
#include "net/device.h"
#include "net/flow_table.h"
#include "net/link_stack.h"
#include "net/local_addresses.h"
#include "platform/huge_pages.h"
#include "platform/unique_fd.h"
#include "proto/transport.h"
#include "queue/completion_queue.h"
#include "queue/doorbell.h"
#include "wire/header_prediction.h"
#include "wire/packet.h"
#include "worker/gsi_channel.h"
#include "worker/mailbox.h"
#include "worker/packet_ring.h"
#include "worker/poll_policy.h"

namespace uroce::daemon {

/// A CQ, made by the conductor and fed by workers. Stays where it is from set_cq to its removal everywhere.
struct Cq : queue::CqProducer {
  using CqProducer::CqProducer;

  /// Events wait for so many entries, or so long after the first; 0 and 0: for nothing.
  void moderate(std::uint32_t count, Nanos period) {
    event_period.store(period, std::memory_order_relaxed);
    event_count.store(count, std::memory_order_relaxed);
  }
  bool moderated() const {
    return event_count.load(std::memory_order_relaxed) > 1 || event_period.load(std::memory_order_relaxed) != 0;
  }

  std::atomic<std::uint32_t> event_count{0};
  std::atomic<Nanos> event_period{0};
  std::atomic<std::uint32_t> event_at{0};  ///< entries made when the last event was due
  std::atomic<bool> event_held{false};     ///< some worker waits for the count or the time
  int channel_fd = -1;                     ///< write end of the completion channel; -1: none
  std::uint64_t cookie = 0;                ///< what is written to it
  std::atomic<bool> event_owed{false};     ///< the channel was full
};

/// One session as one worker sees it. Belongs to the worker from attach() to detach().
struct SessionPort {
  static constexpr std::uint32_t kNoQp = ~0u;

  std::uint64_t session = 0;
  queue::DoorbellReader bells;
  uroce_worker_line* line = nullptr;
  int eventfd = -1;                      ///< clients write it after ringing when `line` says sleeping
  std::vector<std::uint32_t> qp_of_bit;  ///< QpIndex, or kNoQp
  std::uint32_t polls = 0;               ///< of its clients, as last seen
  Nanos polls_at = 0;                    ///< when they last changed
};

/// What a worker counts for itself; copied out on its own thread.
struct WorkerCounters {
  std::uint64_t parse[static_cast<std::size_t>(wire::ParseVerdict::kCount)] = {};
  std::uint64_t steps = 0, sleeps = 0;
  std::uint64_t bad_doorbells = 0;  ///< bits that belong to no QP of their session
  std::uint64_t steered_away = 0, steer_dropped = 0;
  std::uint64_t events_sent = 0, events_delayed = 0;
  std::uint64_t wrong_address = 0;  ///< RoCE for an address that isn't ours
  std::uint64_t wrong_vlan = 0;     ///< for one of ours that is in another VLAN, or in none
};

/// Asynchronous events on their way to the conductor. Any worker writes, the conductor reads.
class AsyncEventQueue {
 public:
  AsyncEventQueue();
  void put(std::span<const proto::Event> events);
  std::vector<proto::Event> take();
  int fd() const { return fd_.get(); }  ///< readable when there are some

 private:
  UniqueFd fd_;
  std::mutex mutex_;
  std::vector<proto::Event> events_;
};

/// What all workers of a daemon share.
struct WorkerShared {
  std::vector<class WorkerCore*> workers;
  AsyncEventQueue events;
  GsiPort gsi;  ///< between worker 0 and the conductor
  std::atomic<bool> few_cores{false};
  static constexpr std::uint32_t kAnywhere = ~std::uint32_t{0};
  std::atomic<std::uint32_t> first_core{kAnywhere};  ///< of worker 0, counted among those that the daemon may use
  std::atomic<bool> link_disabled{false};            ///< urocectl link down: frames are lost both ways
  std::atomic<bool> any_flows{false}, any_sniffers{false};
};

struct WorkerConfig {
  std::uint32_t index = 0;
  std::uint32_t workers = 1;
  proto::TransportConfig transport;
  PollPolicyConfig poll;
  int cpu = -1;                      ///< to run on; -1: any
  std::uint32_t frame_bytes = 9600;  ///< of the largest frame
};

class WorkerCore {
 public:
  WorkerCore(const WorkerConfig& config, WorkerShared& shared, memory::Table& memory, net::LinkStack* link);
  ~WorkerCore();
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // Any thread.
  void call(const Mailbox::Function& function);
  void wake();
  void set_threaded(bool threaded) { threaded_.store(threaded, std::memory_order_release); }

  // The duty cycle.
  void receive(std::span<const base::Frame> frames, Nanos now);
  bool receive_steered(Nanos now);
  bool serve_doorbells();
  bool serve_commands() { return mailbox_.serve(*this); }
  /// Timers. `behind`: more may have arrived than was received.
  void advance(Nanos now, bool behind = false);
  /// Completion events and asynchronous events that came about in this cycle.
  void publish(Nanos now);
  bool link_has_frames() const { return link_dirty_ || gsi_waits(); }
  std::size_t next_link_frame(std::span<std::byte> to);
  /// Shows frames that the port received, or is to send, to the flows that want all.
  void sniff(std::span<const base::Frame> frames, Nanos now);

  // Sleeping.
  void announce_sleep();
  bool work_waiting() const;
  /// Whether some client polls in vain right now and hands its core over.
  bool clients_are_yielding(Nanos now);
  /// Whether datagrams were dropped since the last call because no receive was posted.
  bool take_rnr_drops();
  /// Returns when woken or after `limit`.
  void wait(Nanos limit);
  void end_sleep();
  /// Time from `now` to the next timer; kNever: none.
  Nanos until_timer(Nanos now) const;
  void watch_device(int wake_fd);

  // Commands.
  proto::Transport& transport() { return transport_; }
  net::LinkStack* link() { return link_; }
  /// What this port's packets are addressed to; none before the first call.
  void set_addresses(std::span<const net::InterfaceAddress> addresses) { addresses_.assign(addresses); }
  // Who receives what is not for the transport; of worker 0 only.
  bool add_flow(std::uint64_t id, net::Flow flow);
  void remove_flow(std::uint64_t id);
  /// The link stack was used: frames of its may wait.
  void touch_link() { link_dirty_ = true; }
  void attach(SessionPort& port);
  void detach(SessionPort& port);
  void set_cq(CqId id, Cq* cq, std::uint64_t session);
  void remove_cq(CqId id, Cq* cq);

  const WorkerConfig& config() const { return config_; }
  WorkerShared& shared() { return shared_; }
  WorkerCounters& counters() { return counters_; }
  /// Set by the loop: what the device says now.
  std::function<net::DeviceCounters()> device_counters;
  std::function<net::DeviceInfo()> device_info;
  std::function<void(net::RxFilter)> set_rx_filter;

 private:
  bool gsi_waits() const { return link_ != nullptr && shared_.gsi.waiting(); }
  void count_verdict(wire::ParseVerdict verdict) { ++counters_.parse[static_cast<std::size_t>(verdict)]; }
  /// Gives a packet to the transport or, on worker 0, to the GSI; returns its final verdict.
  wire::ParseVerdict deliver(wire::RxPacket& packet, Nanos now);
  void deliver_steered(std::span<const std::byte> frame, bool icrc_pending, Nanos now);
  /// Parses a frame from the port. True: a packet for this worker, which deliver() takes and which is counted then.
  /// Everything else is counted and handed on here.
  bool classify(std::span<const std::byte> frame, const wire::ParseOptions& options, wire::RxPacket& out,
                Nanos now);
  void receive_not_roce(std::span<const std::byte> frame, Nanos now);
  bool is_for_us(const wire::RxPacket& packet);
  /// Each other worker gets a copy: it may have members of the group.
  void steer_to_others(std::span<const std::byte> frame);
  void steer(std::uint32_t worker, std::span<const std::byte> frame, SteerReason reason);
  void dispatch_to_flows(std::span<const std::byte> frame, Nanos now);
  void sniff(std::span<const std::byte> frame, Nanos now);
  void deliver_to_targets(std::span<const std::byte> frame, const wire::FrameLayout& layout,
                          std::span<const net::FlowTarget> targets, Nanos now);
  void flows_changed();
  void send_completion_events(Nanos now);
  bool write_event(Cq& cq);
  void send_event(Cq& cq, Nanos now);
  void release_held_events(Nanos now);

  WorkerConfig config_;
  WorkerShared& shared_;
  net::LinkStack* link_;  // worker 0 only
  HugePages huge_pages_;
  std::pmr::monotonic_buffer_resource qp_tables_{HugePages::kPage, &huge_pages_};
  proto::Transport transport_;
  std::array<wire::RxPacket, 16> ahead_;  ///< receive(): parsed and not acted on yet
  wire::HeaderPrediction prediction_;     ///< of what comes from the port
  Mailbox mailbox_;
  std::vector<SessionPort*> ports_;
  std::vector<std::unique_ptr<PacketRing>> from_;  // by sending worker; empty with one worker
  std::vector<Cq*> owed_events_;
  Nanos retry_events_at_ = 0;
  /// CQs whose events wait for more entries, or for a time.
  struct HeldEvent {
    Cq* cq;
    Nanos until;
  };
  std::vector<HeldEvent> held_events_;
  std::uint64_t receives_missed_ = 0;  ///< by datagrams, when last looked at
  Nanos link_deadline_ = kNever;
  Nanos now_ = 0;  ///< of this duty cycle
  bool link_dirty_ = false;
  net::LocalAddresses addresses_;
  net::FlowTable flows_;  ///< worker 0 only
  net::RxFilter rx_filter_ = net::RxFilter::kRoceOnly;
  WorkerCounters counters_;
  UniqueFd epoll_, wake_fd_;
  std::atomic<bool> asleep_{false};
  std::uint32_t sleep_number_ = 0;
  std::atomic<bool> threaded_{false};
};

}  // namespace uroce::daemon
