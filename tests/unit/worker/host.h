// A whole worker without thread, clock or client process: a WorkerLoop over a WireDevice, one session, an RC QP and
// a raw packet QP. Two hosts joined by their devices run in virtual time:
//
//   for (Nanos now = kSecond; !done; now += kMicrosecond) { a.loop.step(now); b.loop.step(now); }
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/table.h"
#include "net/link_stack.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"
#include "wire_device.h"
#include "worker/worker_loop.h"

namespace uroce::worker::testing {

struct alignas(64) Line {
  std::byte bytes[64];
};

/// A QP with its rings, as the client and the daemon share them.
class Queues {
 public:
  static constexpr std::uint32_t kEntries = 256, kStride = 128;

  proto::QpCreate create(proto::QpType type, Qpn qpn) {
    const queue::RingShape sq{sq_ring_[0].bytes, kEntries, kStride}, rq{rq_ring_[0].bytes, kEntries, kStride};
    sq_ = queue::WorkProducer(sq, &client_.sq.index, &daemon_.sq_consumer);
    rq_ = queue::WorkProducer(rq, &client_.rq.index, &daemon_.rq_consumer);
    proto::QpCreate create;
    create.type = type;
    create.qpn = qpn;
    create.pd = PdId{3};
    create.sq = queue::WorkConsumer(sq, &client_.sq.index, &daemon_.sq_consumer);
    create.rq = queue::WorkConsumer(rq, &client_.rq.index, &daemon_.rq_consumer);
    create.sq_shadow = {shadow_[0].bytes, shadow_.size() * sizeof(Line)};
    create.responder_resources = {resources_[0].bytes, resources_.size() * sizeof(Line)};
    create.owner = 1;
    return create;
  }

  void post_write(std::uint64_t wr_id, const uroce_sge& local, std::uint64_t remote, std::uint32_t rkey) {
    std::byte* const slot = sq_.next();
    ASSERT_NE(slot, nullptr);
    uroce_sq_entry entry{};
    entry.wr_id = wr_id;
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.remote_addr = remote;
    entry.rkey = rkey;
    queue::write_send(slot, entry, &local, sizeof(local));
    sq_.advance();
    sq_.publish();
  }
  bool post_receive(std::uint64_t wr_id, const uroce_sge& to) {
    std::byte* const slot = rq_.next();
    if (slot == nullptr) return false;
    const uroce_rq_entry entry{wr_id, 1, 0};
    std::memcpy(slot, &entry, sizeof(entry));
    std::memcpy(slot + sizeof(entry), &to, sizeof(to));
    rq_.advance();
    rq_.publish();
    return true;
  }

  proto::QpIndex index;

 private:
  std::vector<Line> sq_ring_{kEntries * kStride / 64}, rq_ring_{kEntries * kStride / 64};
  std::vector<Line> shadow_{kEntries * kStride / 64}, resources_{proto::Transport::kMaxRdAtomic};
  uroce_qp_client_block client_{};
  uroce_qp_daemon_block daemon_{};
  queue::WorkProducer sq_, rq_;
};

class Host {
 public:
  static constexpr std::uint32_t kCqEntries = 1024, kRcBit = 0;
  static constexpr std::uint64_t kIova = 0x10000;
  static constexpr std::size_t kMemory = 1u << 20;

  explicit Host(std::uint8_t number)
      : address(ipv4(number)),
        mac{2, 0, 0, 0, 0, number},
        memory(kMemory),
        link({.mac = mac, .mtu = 4300, .addresses = {{address, 24}}}),
        device(mac),
        core(config(mac), shared, table, &link),
        loop(core, device),
        cq(cq_ring_.data(), kCqEntries, &cq_client_) {
    key =
        *table.insert({.pd = PdId{3}, .access = kAccess, .iova = kIova, .length = kMemory, .base = memory.data()});
    core.set_addresses({{{address, 24}}});
    consumer_ = queue::CqConsumer(cq_ring_.data(), kCqEntries, &cq_client_);
    core.set_cq(CqId{0}, &cq, 1);
    qpn = Qpn{0x10u + number};
    EXPECT_EQ(core.transport().create(rc.create(proto::QpType::kRc, qpn), rc.index), 0);
    port_.line = &line_;
    port_.bells = queue::DoorbellReader(&bells_);
    port_.qp_of_bit = {rc.index.value};
    core.attach(port_);
  }
  ~Host() { core.detach(port_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  uroce_sge sge(std::uint64_t offset, std::uint32_t length) const { return {kIova + offset, length, key.value}; }
  void ring() { queue::DoorbellRinger(&bells_, &line_).ring(kRcBit); }
  /// As a client that says when it rang, and when it woke the worker.
  void say_rung(Nanos when) { bells_.rung_ns = when; }
  void say_woken(Nanos when) { bells_.woken_ns = when; }
  bool is_asked_for_stamps() const { return (line_.sleeping & UROCE_STAMP_DOORBELLS) != 0; }

  void connect(const Host& peer, Nanos now) {
    proto::QpAttr attr;
    attr.state = proto::QpState::kInit;
    attr.access = kAccess;
    modify(attr, proto::kAttrState | proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrAccessFlags, now);
    attr.state = proto::QpState::kRtr;
    attr.path.source = address;
    attr.path.source_mac = mac;
    attr.path.dest = peer.address;
    attr.path.dest_mac = peer.mac;
    attr.path_mtu = 4096;
    attr.dest_qpn = peer.qpn;
    attr.rq_psn = Psn(100);
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    modify(attr,
           proto::kAttrState | proto::kAttrAv | proto::kAttrPathMtu | proto::kAttrDestQpn | proto::kAttrRqPsn |
               proto::kAttrMaxDestRdAtomic | proto::kAttrMinRnrTimer,
           now);
    attr.state = proto::QpState::kRts;
    attr.sq_psn = Psn(100);
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    modify(attr,
           proto::kAttrState | proto::kAttrSqPsn | proto::kAttrTimeout | proto::kAttrRetryCnt |
               proto::kAttrRnrRetry | proto::kAttrMaxRdAtomic,
           now);
  }

  /// A raw packet QP that gets a copy of every frame of the port.
  void add_sniffer() {
    proto::Transport& transport = core.transport();
    EXPECT_EQ(transport.create(sniffer.create(proto::QpType::kRawPacket, Qpn{0x30}), sniffer.index), 0);
    proto::QpAttr attr;
    attr.state = proto::QpState::kInit;
    EXPECT_EQ(transport.modify(sniffer.index, attr, proto::kAttrState | proto::kAttrPort, 0).error, 0);
    attr.state = proto::QpState::kRtr;
    EXPECT_EQ(transport.modify(sniffer.index, attr, proto::kAttrState, 0).error, 0);
    net::Flow flow;
    flow.type = net::FlowType::kSniffer;
    flow.qp = sniffer.index.value;
    EXPECT_TRUE(core.add_flow(1, flow));
  }

  /// Completions so far of this QP since the last call.
  std::size_t poll(Qpn of, std::uint8_t status = UROCE_WC_SUCCESS) {
    std::size_t count = 0;
    for (const uroce_cqe* entry; (entry = consumer_.peek()) != nullptr; consumer_.pop()) {
      EXPECT_EQ(entry->status, status);
      count += entry->qpn == of.value ? 1 : 0;
    }
    consumer_.publish();
    return count;
  }

 private:
  std::array<uroce_cqe, kCqEntries> cq_ring_{};
  uroce_cq_client_block cq_client_{};

 public:
  const wire::Address address;
  const wire::Mac mac;
  std::vector<std::byte> memory;
  memory::Table table{256, 7};
  net::LinkStack link;
  WorkerShared shared;
  WireDevice device;
  WorkerCore core;
  WorkerLoop<WireDevice> loop;
  Cq cq;
  Queues rc, sniffer;
  Qpn qpn;
  Key key;

 private:
  static constexpr std::uint32_t kAccess = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead;

  static wire::Address ipv4(std::uint8_t last) {
    wire::Address address;
    address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
    return address;
  }
  static WorkerConfig config(const wire::Mac& mac) {
    WorkerConfig config;
    config.transport.max_qps = config.transport.max_cqs = config.transport.max_srqs = 16;
    config.transport.offload_ip_checksum = true;
    config.transport.mac = mac;
    return config;
  }
  void modify(const proto::QpAttr& attr, std::uint32_t mask, Nanos now) {
    EXPECT_STREQ(core.transport().modify(rc.index, attr, mask, now).what, "");
  }

  queue::CqConsumer consumer_;
  uroce_doorbells bells_{};
  uroce_worker_line line_{};
  SessionPort port_;
};

}  // namespace uroce::worker::testing
