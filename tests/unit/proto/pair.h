// Two transports with one QP each, joined by a wire that a test can hold, inspect, drop from and replay. Time
// advances only when the test advances it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "memory/table.h"
#include "proto/state/srq.h"
#include "proto/transport.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"
#include "wire/address.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace uroce::proto::test {

inline constexpr std::uint32_t kAllAccess =
    memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;

/// A packet in flight, parsed.
struct Packet {
  std::vector<std::byte> bytes;
  wire::RxPacket rx;

  wire::Operation operation() const { return rx.info->operation; }
  std::uint32_t psn() const { return rx.bth.psn.value(); }
  wire::Aeth aeth() const { return wire::Aeth::parse(rx.bth_start + rx.info->aeth); }
  wire::Reth reth() const { return wire::Reth::parse(rx.bth_start + rx.info->reth); }
  bool is_nak(wire::Nak code) const {
    return operation() == wire::Operation::kAcknowledge && aeth().syndrome == static_cast<std::uint8_t>(code);
  }
};

struct Options {
  QpType type = QpType::kRc;
  std::uint32_t mtu = 256;
  std::uint32_t entries = 64;
  std::uint32_t cq_entries = 256;
  std::uint32_t max_sge = 4, max_inline = 128, max_tso_header = 0;
  std::uint8_t max_rd_atomic = 4, max_dest_rd_atomic = 4;
  std::uint8_t timeout = 14, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 12;
  std::uint32_t psn = 100;
  std::uint32_t access = kAllAccess;
  bool signal_all = false;
  std::uint32_t receive_ring_bytes = 4u << 20;
  std::uint32_t start_window = 128u << 10;  ///< few tests are to wait for it to grow
  std::uint32_t quantum = 16;
  std::uint32_t qkey = 0x1234;
  std::uint32_t pd = 3;
  bool srq = false;
  bool strip_vlan = false;
  std::uint64_t user = 0;
  UserShare share;
};

inline constexpr SrqId kSrq{9};
inline constexpr std::uint32_t kXrcd = 5;
inline constexpr PdId kSrqPd{4};
inline constexpr AhId kPeer{1};  ///< address handle of the other end

struct Datagram {
  std::uint32_t ah, remote_qpn, remote_qkey;
};

/// The parts of a work request that a test sets; the rest of the entry is derived.
struct Work {
  std::uint64_t wr_id = 0;
  std::uint8_t opcode = UROCE_WR_SEND;
  std::uint8_t flags = UROCE_SEND_SIGNALED;
  std::vector<uroce_sge> sges;
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::uint32_t imm = 0;
  std::uint64_t compare_add = 0, swap = 0;
  std::vector<std::byte> inline_data;
  std::optional<Datagram> ud;
  std::optional<uroce_wr_bind> bind;
  std::optional<uroce_wr_flush> flush;
  std::uint16_t mss = 0;
  std::vector<std::byte> header;  ///< for a TSO
  std::uint32_t srqn = kSrq.value;
  std::uint32_t handle = 0;
};

class End {
 public:
  static constexpr std::size_t kMemory = 1u << 20;
  static constexpr std::uint64_t kIova = 0x10000;

  /// With a `neighbour`, the QP is added to that end's transport, with its own CQs and memory.
  End(const Options& options, Qpn qpn, std::uint8_t host, const End* neighbour = nullptr);

  uroce_sge sge(std::uint64_t offset, std::uint32_t length) const { return {kIova + offset, length, key.value}; }
  std::byte* at(std::uint64_t offset) { return memory.data() + offset; }
  void fill(std::uint64_t offset, std::size_t bytes, std::uint8_t seed);

  void post(const Work& work);
  void post_raw(const uroce_sq_entry& entry, const std::vector<uroce_sge>& sges);
  void post_receive(std::uint64_t wr_id, const std::vector<uroce_sge>& sges);
  void post_to(queue::WorkProducer& ring, std::uint64_t wr_id, const std::vector<uroce_sge>& sges) const;
  /// Moves the SRQ to another ring with that many entries.
  bool resize_srq(std::uint32_t entries);
  void ring() { transport->doorbell(qp); }
  /// Places of the send queue that the client may not use: what it posted and has not got back.
  std::uint32_t used_places() const { return sq_.head() - sq_.consumer(); }
  /// As a client that writes where it may not.
  void overwrite_send_ring(std::byte with) {
    std::memset(static_cast<void*>(sq_ring_.data()), std::to_integer<int>(with), sq_ring_.size() * sizeof(Line));
  }
  std::vector<uroce_cqe> poll(bool receive_cq = false);
  std::vector<Event> events();
  QpSnapshot snapshot() const;
  ModifyVerdict to(QpState state, Nanos now, bool notify = false);
  const Counters& counters() const { return transport->counters(); }

  Options options;
  std::shared_ptr<memory::Table> shared_table;
  memory::Table& table;
  std::shared_ptr<Transport> transport;
  QpIndex qp;
  Qpn qpn;
  PdId pd{options.pd};
  Key key;
  Key srq_key;  ///< the same memory in the SRQ's PD
  std::unique_ptr<Srq> srq;
  wire::PathAddress path;
  std::vector<std::byte> memory;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::uint32_t first_cq_ = 0;  ///< the first of two
  std::uint32_t sq_stride_ = 0, rq_stride_ = 0;
  std::vector<Line> sq_ring_, rq_ring_, shadow_, resources_, srq_ring_;
  uroce_producer_line srq_client_{};
  std::uint32_t srq_consumer_ = 0;
  queue::WorkProducer srq_producer_;
  uroce_qp_client_block client_{};
  uroce_qp_daemon_block daemon_{};
  queue::WorkProducer sq_, rq_;
  std::vector<uroce_cqe> cq_ring_[2];
  uroce_cq_client_block cq_client_[2] = {};
  queue::CqProducer cq_[2];
  queue::CqConsumer consumer_[2];
};

/// What an end knows about the QP at the other end.
struct Remote {
  Qpn qpn;
  std::uint32_t psn = 0;
  wire::Address address;
  wire::Mac mac{};
};
/// From RESET to `state`: INIT, RTR or RTS.
void connect(End& end, const Remote& remote, Nanos now, QpState state = QpState::kRts);

/// 192.0.2.host
wire::Address address_of(std::uint8_t host);

/// Ends a and b; b's peer is a.
class Pair {
 public:
  explicit Pair(const Options& a = {}, std::optional<Options> b = {});
  static Pair of(QpType type, bool srq = false);

  /// Takes the packets that `from` wants to send now.
  std::vector<Packet> take(End& from);
  void deliver(End& to, const Packet& packet);
  /// Exchanges packets until both are silent; `lose` selects the packets that are dropped.
  void run(const std::function<bool(const End& from, const Packet&)>& lose = {});
  /// Duplicates the packets in flight, with the ECN congestion mark.
  void deliver_marked(End& to, const Packet& packet);
  /// Advances time, fires timers, and runs.
  void pass(Nanos time);
  /// Advances from timer to timer, running in between, for at most `time`.
  void settle(Nanos time, const std::function<bool(const End& from, const Packet&)>& lose = {});

  Nanos now = kSecond;
  End a, b;
  std::vector<Packet> log;  ///< all packets that run() carried or lost
};

std::uint32_t big_endian(std::uint32_t value);

}  // namespace uroce::proto::test
