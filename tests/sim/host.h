// One end of the virtual wire: a transport with its memory table, CQs and QPs, and the client's ends of their
// queues, all in plain memory. No clock and no socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/table.h"
#include "proto/state/srq.h"
#include "proto/transport.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"
#include "tests/sim/network.h"
#include "wire/frame_template.h"
#include "wire/header_prediction.h"
#include "wire/packet.h"

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
  queue::CqProducer producer;
  queue::CqConsumer consumer;
  const std::vector<uroce_cqe>& ring() const { return ring_; }

 private:
  std::vector<uroce_cqe> ring_;
  uroce_cq_client_block client_{};
};

/// A QP as its client has it.
struct SimQp {
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
  bool copy_early = false;  ///< the middle of WRITEs and READs is copied while its ICRC is checked
  std::uint32_t receive_ring_bytes = 4u << 20;
  std::uint32_t quantum_packets = 16;
  Nanos min_early_retry_delay = 4 * kMillisecond;
  std::uint32_t max_qps = 16;
  std::uint32_t cqs = 2;
  std::uint32_t cq_entries = 4096;
  std::uint64_t seed = 1;
};

class Host {
 public:
  static constexpr std::uint32_t kFrameBytes = 4096 + wire::kMaxOverhead;
  static constexpr std::uint32_t kBurst = 32;

  explicit Host(const HostSettings& settings);

  /// errno of Transport::create.
  int create_qp(const QueueSizes& sizes, Qpn qpn, PdId pd, CqId send_cq, CqId recv_cq, SimQp& out);
  wire::PathAddress path_to(const Host& peer) const;

  /// Takes a frame from the wire; counts it by verdict.
  wire::ParseVerdict receive(std::span<const std::byte> frame, Nanos now);
  /// Lets the transport send one burst; calls sent(frame). True: it wants to send more.
  template <class Sent>
  bool transmit(Nanos now, Sent&& sent) {
    proto::TxBurst burst{std::span(frames_), 0};
    for (base::Frame& frame : frames_) frame.length = frame.flags = 0;
    const bool more = transport.transmit(burst, now);
    for (std::size_t i = 0; i < burst.count; ++i) sent(frames_[i].bytes());
    frames_sent_ += burst.count;
    return more;
  }

  const HostSettings settings;
  memory::Table table;
  proto::Transport transport;
  std::vector<std::unique_ptr<SimCq>> cqs;

  std::uint64_t frames_sent() const { return frames_sent_; }
  std::uint64_t frames_taken() const { return frames_taken_; }
  std::uint64_t frames_refused() const { return frames_refused_; }

 private:
  AlignedBytes frame_memory_;
  std::array<base::Frame, kBurst> frames_;
  wire::HeaderPrediction prediction_;
  std::uint64_t frames_sent_ = 0, frames_taken_ = 0, frames_refused_ = 0;
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
proto::ModifyVerdict connect(Host& host, proto::QpIndex qp, const Connection& connection, Nanos now);
proto::ModifyVerdict change_state(Host& host, proto::QpIndex qp, proto::QpState state, Nanos now,
                                  bool notify = false);

}  // namespace uroce::sim
