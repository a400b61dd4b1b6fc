// A worker without its device: what one poll-mode thread owns, and the parts of its duty cycle that do not touch
// the port. WorkerLoop (worker_loop.h) adds a device and turns it.
//
// Call contract. On the worker's thread only, except call(), wake() and set_threaded(). The conductor changes what
// is in here through call(): the command runs on the worker's thread between two duty cycles, and call() returns
// when it has run. Before the thread starts, and in tests without one, it runs at once on the caller's thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/types.h"
#include "net/device.h"
#include "net/flow_table.h"
#include "net/link_stack.h"
#include "net/local_addresses.h"
#include "platform/clock.h"
#include "platform/huge_pages.h"
#include "proto/transport.h"
#include "wire/header_prediction.h"
#include "wire/packet.h"
#include "worker/channel.h"
#include "worker/completion_events.h"
#include "worker/counter_section.h"
#include "worker/counters.h"
#include "worker/gsi_channel.h"
#include "worker/latency.h"
#include "worker/mailbox.h"
#include "worker/neighbour_event.h"
#include "worker/netdev_port.h"
#include "worker/packet_ring.h"
#include "worker/poll_policy.h"
#include "worker/port_control.h"
#include "worker/raw_dispatch.h"
#include "worker/session_ports.h"
#include "worker/sleep.h"
#include "worker/watch_gate.h"

namespace uroce::worker {

class DutyCycleTracker;

/// Index of the worker that owns the link stack and receives frames that are not RoCE.
inline constexpr std::uint32_t kLinkWorker = 0;

/// What all workers of a daemon share.
struct WorkerShared {
  static constexpr std::uint32_t kAnywhere = ~std::uint32_t{0};
  static constexpr std::size_t kMaxAsyncEvents = 1u << 18;
  static constexpr std::size_t kMaxFailures = 64;  ///< later ones are left out of the log

  std::vector<class WorkerCore*> workers;
  Channel<proto::Event> events{kMaxAsyncEvents, ChannelReader::kSleepsOnFd};  ///< from any worker to the conductor
  Channel<proto::QpFailure> failures{kMaxFailures, ChannelReader::kPolls};    ///< from any worker, for the log
  NeighbourEvent neighbours;
  WatchGate watch_gate;
  GsiPort gsi;                            ///< between the link worker and the conductor
  std::atomic<bool> few_cores{false};     ///< pollers outnumber the cores of the machine
  std::atomic<std::uint32_t> pollers{0};  ///< of all daemons: workers, and sessions with connected QPs
  std::atomic<bool> core_left{false};     ///< the machine has more cores than workers, of all daemons
  std::atomic<std::uint32_t> first_core{
      kAnywhere};                          ///< core of the first worker, counted among those the daemon may use
  std::atomic<bool> link_disabled{false};  ///< urocectl link down: frames are dropped in both directions
  std::atomic<bool> any_flows{false}, any_sniffers{false};
};

struct WorkerConfig {
  std::uint32_t index = 0;
  std::uint32_t workers = 1;
  proto::TransportConfig transport;
  PollPolicyConfig poll;
  int cpu = -1;                      ///< that its thread is bound to; -1: any
  std::uint32_t frame_bytes = 9600;  ///< length of the largest frame
  /// Of what is not part of a duty cycle: how long commands take, and those that run without a thread.
  Nanos (*clock)() = monotonic_now;
};

class WorkerCore {
 public:
  WorkerCore(const WorkerConfig& config, WorkerShared& shared, memory::Table& memory, net::LinkStack* link);
  ~WorkerCore();
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // Any thread.
  /// Runs the command between two duty cycles and returns afterwards.
  template <class Command>
  requires WorkerCommand<std::remove_reference_t<Command>>
  void call(Command&& command) { run(WorkerCommandRef(command)); }
  /// Runs the command in the next duty cycle and does not wait for it (simulation).
  void post(Mailbox::Entry& entry) { mailbox_.post(entry); }
  const CommandTrace& command_trace() const { return mailbox_.trace(); }
  /// Wakes the worker if it sleeps. Call it after the work has been stored where work_waiting() looks.
  void wake() { sleep_.wake(); }
  bool is_sleeping() const { return sleep_.is_sleeping(); }
  /// The memory that the worker may be using; no mark: none, or it sleeps.
  proto::BusyWith busy_with() const { return transport_.busy_with(); }
  /// 0: run() was not called.
  pid_t thread_id() const { return thread_id_.load(std::memory_order_relaxed); }
  void set_threaded(bool threaded) { threaded_.store(threaded, std::memory_order_release); }

  /// The calling thread is the worker's.
  void note_thread();

  // The duty cycle.
  void receive(std::span<const base::Frame> frames, Nanos now);
  bool receive_steered(Nanos now);
  bool serve_doorbells(Nanos now);
  bool commands_waiting() const { return mailbox_.waiting(); }
  bool serve_commands(Nanos now) {
    if (!mailbox_.waiting()) return false;
    now_ = now;
    transport_.note_busy_with(0);
    return mailbox_.serve(*this);
  }
  /// Timers. `rx_pending`: more frames may have arrived than were received, so an acknowledge is not late yet.
  void advance(Nanos now, bool rx_pending = false);
  /// Completion events and asynchronous events of this cycle.
  void publish(Nanos now);
  bool link_has_frames() const { return link_dirty_ || gsi_waits(); }
  std::size_t next_link_frame(std::span<std::byte> to);
  /// Whether the kernel has sent frames.
  bool netdev_waits() const { return netdev_ != nullptr && netdev_->waiting(); }
  /// Copies the next of these into `to` and returns its length; 0: there is none for the wire.
  std::size_t next_netdev_frame(std::span<std::byte> to);
  /// Shows frames that the port received, or is to send, to the flows that want all.
  void sniff(std::span<const base::Frame> frames, Nanos now);

  // Sleeping.
  void announce_sleep() { sleep_.announce(sessions_); }
  /// Whether anything came since the last cycle. After announce_sleep().
  bool work_waiting() const;
  /// Returns when woken or after `limit`.
  void wait(Nanos limit);
  /// The worker slept from `slept` to `now`.
  void note_wake_up(Nanos slept, Nanos now);
  void end_sleep() {
    sleep_.end(sessions_);
    shared_.watch_gate.open();
  }
  void watch_device(int wake_fd) { sleep_.watch_device(wake_fd); }
  /// This worker and `other` are stepped by one thread, which sleeps for both. Before a port is watched.
  void sleep_with(const WorkerCore& other) { sleep_.join(other.sleep_); }
  /// Time from `now` to the next timer; kNever: none.
  Nanos until_timer(Nanos now) const;
  bool clients_are_yielding(Nanos now) { return sessions_.clients_are_yielding(now); }
  /// Whether datagrams were dropped since the last call because no receive was posted.
  bool take_rnr_drops();

  // Commands.
  /// The time of the duty cycle. Commands read no clock: their time would be later than that of the rest of the
  /// cycle.
  Nanos now() const { return now_; }
  proto::Transport& transport() { return transport_; }
  /// nullptr on every worker but the link worker.
  net::LinkStack* link() { return link_; }
  /// The addresses to which packets for this port are sent; none before the first call.
  void set_addresses(std::span<const net::InterfaceAddress> addresses) { addresses_.assign(addresses); }
  /// The link worker only; nullptr: none. Before the threads start.
  void set_netdev(NetdevPort* netdev);
  /// Flows exist on the link worker only. False: the table is full.
  bool add_flow(std::uint64_t id, net::Flow flow);
  void remove_flow(std::uint64_t id);
  /// The link stack was used and may have frames to send.
  void touch_link() { link_dirty_ = true; }
  void attach(SessionPort& port);
  void detach(SessionPort& port);
  void set_cq(CqId id, Cq* cq, std::uint64_t session);
  void remove_cq(CqId id, Cq* cq);

  const WorkerConfig& config() const { return config_; }
  /// Binds the calling thread, which is the worker's, to a CPU; -1: to none. 0 or an errno.
  int set_cpu(int cpu);
  WorkerShared& shared() { return shared_; }
  WorkerCounters& counters() { return counters_; }
  /// Of the page of counters.
  CounterSectionWriter& section() { return section_; }
  WorkerLatency& latency() { return latency_; }
  /// Measures latencies from now on, from none; or keeps those of before.
  void measure_latency(bool on);
  /// Of the thread that steps this worker; nullptr: there is none.
  void set_duty_cycle_tracker(DutyCycleTracker* tracker);
  /// nullptr while no WorkerLoop exists.
  PortControl* port() { return port_; }
  void set_port(PortControl* port);

 private:
  void run(const WorkerCommandRef& command);
  void note_busy_with(const SessionPort& port) { transport_.note_busy_with(proto::mark_of_session(port.session)); }
  bool serve_measured_doorbells(Nanos now);
  bool gsi_waits() const { return link_ != nullptr && shared_.gsi.waiting(); }
  void count_verdict(wire::ParseVerdict verdict) { ++counters_.parse[static_cast<std::size_t>(verdict)]; }
  /// Gives a packet to the transport or, on the link worker, to the GSI; returns its final verdict.
  wire::ParseVerdict deliver(wire::RxPacket& packet, Nanos now);
  void deliver_steered(std::span<const std::byte> frame, std::uint32_t sender, bool icrc_pending, Nanos now);
  /// Parses a frame from the port. True: a packet for this worker, which deliver() takes and which is counted then.
  /// Everything else is counted and handed on here.
  bool classify(const base::Frame& frame, const wire::ParseOptions& options, wire::RxPacket& out, Nanos now);
  void receive_not_roce(std::span<const std::byte> frame, std::uint32_t sender, Nanos now);
  bool is_for_us(const wire::RxPacket& packet);
  /// Each other worker gets a copy: it may have members of the group.
  void steer_to_others(const base::Frame& frame);
  void steer(std::uint32_t worker, std::span<const std::byte> frame, SteerReason reason, std::uint32_t sender = 0);
  void dispatch_to_flows(std::span<const std::byte> frame, std::uint32_t sender, Nanos now);
  void sniff(std::span<const std::byte> frame, Nanos now);
  void flows_changed();
  void choose_rx_filter();

  WorkerConfig config_;
  WorkerShared& shared_;
  net::LinkStack* link_;          // the link worker only
  NetdevPort* netdev_ = nullptr;  // the link worker only; nullptr: the kernel has no interface
  platform::HugePages huge_pages_;
  std::pmr::monotonic_buffer_resource qp_tables_{platform::HugePages::kPage, &huge_pages_};
  proto::Transport transport_;
  std::array<wire::RxPacket, 16> ahead_;  // receive(): parsed and not delivered yet
  wire::HeaderPrediction prediction_;     // for frames from the port and local ones
  Mailbox mailbox_{config_.clock};
  SessionPorts sessions_;
  std::vector<std::unique_ptr<PacketRing>> from_;  // by sending worker; empty with one worker
  WorkerCounters counters_;
  CounterSectionWriter section_;
  WorkerLatency latency_;
  DutyCycleTracker* tracker_ = nullptr;
  Nanos measured_at_ = 0;  // serve_doorbells(): its last time, while latency is measured
  CompletionEvents completion_events_;
  RawDispatch raw_;
  WorkerSleep sleep_;
  PortControl* port_ = nullptr;
  net::RxFilter rx_filter_ = net::RxFilter::kRoceOnly;  // last requested of the port
  net::LocalAddresses addresses_;
  std::uint64_t receives_missed_ = 0;  // take_rnr_drops(): the counter at the last call
  Nanos link_deadline_ = 0;
  Nanos now_ = 0;            // time of this duty cycle
  bool link_dirty_ = false;  // the link stack may have frames to send
  std::atomic<bool> threaded_{false};
  std::atomic<pid_t> thread_id_{0};
};

}  // namespace uroce::worker
