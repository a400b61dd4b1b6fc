// One end of the virtual wire: the workers of a daemon, each with its port, run by WorkerLoop::step as in
// production; a memory table, CQs and QPs, and the client's ends of their queues, all in plain memory. Virtual
// time, no thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory/table.h"
#include "proto/state/srq.h"
#include "proto/transport.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"
#include "tests/sim/device.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "wire/frame_template.h"
#include "wire/packet.h"
#include "worker/worker_loop.h"

namespace uroce::sim {

/// Zeroed bytes on a cache line boundary.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct QueueSizes {
  std::uint32_t sq_entries = 16, rq_entries = 16;
  std::uint32_t max_send_sge = 4, max_recv_sge = 4, max_inline = 64;
  bool signal_all = false;
  std::optional<CqId> cq = {};  ///< of both queues; none: any of the host's
  proto::QpType type = proto::QpType::kRc;
  std::optional<SrqId> srq = {};
  std::uint32_t max_tso_header = 0;
  std::uint32_t first_index = 0;  ///< of both rings, until a reset
};

inline constexpr std::uint32_t kXrcd = 3;

/// A shared receive queue with both its ends.
class SimSrq {
 public:
  SimSrq(proto::SrqCreate create, std::uint32_t entries);
  std::unique_ptr<proto::Srq> srq;
  queue::WorkProducer producer;
  AlignedBytes ring;
  uroce_producer_line client{};

 private:
  std::uint32_t consumer_ = 0;
};

/// A CQ with both its ends.
class SimCq {
 public:
  explicit SimCq(std::uint32_t entries);
  const std::vector<uroce_cqe>& ring() const { return ring_; }

 private:
  std::vector<uroce_cqe> ring_;
  uroce_cq_client_block client_{};

 public:
  worker::Cq producer;
  queue::CqConsumer consumer;
};

/// A QP as its client has it.
struct SimQp {
  std::uint32_t worker = 0;
  std::uint32_t bit = 0;  ///< of its doorbell
  proto::QpIndex index;
  Qpn qpn;
  QueueSizes sizes;
  queue::WorkProducer sq, rq;
  uroce_qp_client_block client{};
  uroce_qp_daemon_block daemon{};
  AlignedBytes sq_ring, rq_ring, shadow, resources;
};

struct HostSettings {
  std::uint32_t id = 0;  ///< 0 or 1: the address's last byte
  bool ipv6 = false;
  std::optional<std::uint16_t> vlan;
  bool offload_ip_checksum = false;
  std::uint32_t workers = 1;
  bool references =
      false;  ///< payload of frames to hosts of this process is named now and then, as a capture comes and goes
  bool busy_port = false;  ///< transmit() often refuses frames, receive() often gives few
  std::uint32_t receive_ring_bytes = 4u << 20;
  std::uint32_t quantum_packets = 16;
  Nanos min_early_retry_delay = 4 * kMillisecond;
  std::uint32_t max_qps = 16;
  std::uint32_t cqs = 2;
  std::uint32_t cq_entries = 4096;
  std::uint64_t seed = 1;
};

class Host;

/// Hosts whose frames reach each other as over drivers/packet/switch: with their senders, and now and then without
/// their payload.
struct Switched {
  std::vector<proto::LocalDevices> by_worker;
  std::vector<Host*> hosts;
};

class Host {
 public:
  explicit Host(const HostSettings& settings);
  ~Host();

  /// errno of Transport::create. With several workers the upper bits of `qpn` are replaced by the worker's number.
  int create_qp(const QueueSizes& sizes, Qpn qpn, PdId pd, CqId send_cq, CqId recv_cq, SimQp& out);
  void destroy_qp(const SimQp& qp, Nanos now);
  wire::PathAddress path_to(const Host& peer) const;

  // What a client does.
  void doorbell(const SimQp& qp);

  // What the conductor does.
  proto::ModifyVerdict modify(const SimQp& qp, const proto::QpAttr& attr, std::uint32_t mask, Nanos now) {
    return transport(qp).modify(qp.index, attr, mask, now);
  }
  bool query(const SimQp& qp, proto::QpSnapshot& out) { return transport(qp).query(qp.index, out); }
  void set_srq(SrqId id, proto::Srq* srq);
  void set_address_handle(AhId id, PdId pd, const wire::PathAddress& path);
  std::vector<proto::Event> take_events();

  /// Runs in the next step, where a worker runs the commands of the conductor: after it has received, before it
  /// sends.
  void in_next_step(std::function<void()> act);
  bool has_commands() const { return !commands_.empty(); }

  /// Before QPs are made. All hosts have as many workers, and the same thread steps those with the same number.
  void join(Switched& switched);
  /// A frame reaches the port. Frames of one flow arrive at one queue.
  void arrive(std::span<const std::byte> frame);
  /// One duty cycle of each worker, the first of them changing. Calls sent(frame) for each RoCE frame that left.
  template <class Sent>
  void step(Nanos now, Sent&& sent) {
    for (std::uint32_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = *workers_[(first_ + i) % workers_.size()];
      disturb(worker);
      worker.loop.step(now);
      worker.device.take_sent([&](const base::Frame& frame) {
        if (!is_roce(frame.bytes())) return;  // of the link stack
        frames_sent_ += base::wire_cost(frame).packets;
        senders_[dest_qpn_of(frame.bytes())] = frame.sender;
        sent(frame.bytes());
      });
    }
    ++first_;
    commands_.clear();
  }

  Nanos next_timeout() const;
  bool wants_transmit() const;
  /// Whether frames wait in the port, between workers, or because the port refused them.
  bool holds_frames() const;
  /// Whether a step would find something to do now.
  bool has_work() const;
  /// Sums over all workers.
  proto::Counters counters() const;
  /// Packets, of which a frame by reference may stand for several.
  std::uint64_t frames_sent() const { return frames_sent_; }
  std::uint64_t frames_parsed() const;  ///< whatever the verdict
  std::uint64_t frames_taken() const;
  std::uint64_t frames_refused() const;               ///< by lengths, headers or ICRC
  std::uint64_t frames_misdirected() const;           ///< for no address of the host
  std::uint64_t frames_lost_between_workers() const;  ///< their ring was full

  proto::Transport& transport(const SimQp& qp) { return workers_[qp.worker]->core.transport(); }

  const HostSettings settings;
  memory::Table table;
  std::vector<std::unique_ptr<SimCq>> cqs;

 private:
  struct Worker {
    Worker(const worker::WorkerConfig& config, Host& host);
    worker::WorkerCore core;
    SimDevice device;
    worker::WorkerLoop<SimDevice> loop;
    std::unique_ptr<uroce_doorbells> bells = std::make_unique<uroce_doorbells>();
    uroce_worker_line line{};
    worker::SessionPort port;
  };
  struct Command {
    static constexpr std::string_view kName = "simulated";
    void describe(worker::ArgumentText&) const {}
    void run(worker::WorkerCore&) { act(); }
    std::function<void()> act;
  };
  struct Posted {
    explicit Posted(std::function<void()> act) : command{std::move(act)} {}
    Command command;
    worker::Mailbox::Entry entry{worker::WorkerCommandRef(command)};
  };
  void disturb(Worker& worker);
  /// The host of this process that sent the frame; nullptr: it came from a wire.
  const Host* sender_of(std::span<const std::byte> frame) const;

  Switched* switched_ = nullptr;
  Random random_;
  Random references_;  ///< of its own: the other draws are the same in worlds without them
  worker::WorkerShared shared_;
  net::LinkStack link_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Posted>> commands_;
  std::uint32_t first_ = 0;
  std::unordered_map<std::uint32_t, std::uint32_t> senders_;  ///< of frames, by destination QPN
  std::uint64_t frames_sent_ = 0;
};

/// Attributes for the way from RESET to RTS.
struct Connection {
  wire::PathAddress path;
  Qpn dest_qpn;
  Psn sq_psn, rq_psn;
  std::uint32_t path_mtu = 1024;
  std::uint8_t timeout = 14, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 1;
  std::uint8_t max_rd_atomic = 1, max_dest_rd_atomic = 1;
  std::uint32_t access = 0xf | memory::kFlushGlobal;
  std::uint32_t qkey = 0;
  std::uint32_t rate_kbps = 0;
  proto::QpType type = proto::QpType::kRc;
};

/// RESET -> INIT -> RTR -> RTS. The failed transition's verdict, or one with error 0.
proto::ModifyVerdict connect(Host& host, const SimQp& qp, const Connection& connection, Nanos now);
proto::ModifyVerdict change_state(Host& host, const SimQp& qp, proto::QpState state, Nanos now,
                                  bool notify = false);

}  // namespace uroce::sim
