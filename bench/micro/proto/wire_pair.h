// Two workers on one core, joined by an in-memory wire, each run by WorkerLoop::step as in the daemon: every frame
// is parsed and its ICRC checked on arrival. The client's side of the queues is part of the loop: posting,
// doorbells, polling.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <new>
#include <vector>

#include "bench/micro/proto/wire_device.h"
#include "memory/table.h"
#include "platform/huge_pages.h"
#include "proto/transport.h"
#include "queue/completion_queue.h"
#include "queue/work_queue.h"
#include "wire/address.h"
#include "wire/frame_template.h"
#include "wire/packet.h"
#include "worker/worker_loop.h"

namespace uroce::bench {

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "bench: %s\n", what);
  std::abort();
}

struct Queues {
  std::uint32_t sq_entries = 256, rq_entries = 256;
  std::uint32_t mtu = 4096;
  proto::QpType type = proto::QpType::kRc;  ///< or UD
};

struct Qp {
  proto::QpIndex index;
  queue::WorkProducer sq, rq;
  uroce_qp_client_block client{};
  uroce_qp_daemon_block daemon{};
};

/// One worker, one MR, one CQ, any number of QPs.
class Side {
 public:
  static constexpr std::uint32_t kCqEntries = 1u << 16;
  static constexpr std::uint32_t kStride = 128;
  static constexpr std::uint64_t kIova = 0x100000;
  static constexpr std::uint32_t kAh = 1, kQkey = 0x11;

  Side(std::uint8_t id, std::uint32_t qps, std::size_t memory_bytes)
      : id_(id),
        memory_(memory_bytes),
        table_(64, id + 1u),
        link_(net::LinkConfig{.mtu = WireDevice::kFrameBytes, .addresses = {{path().source}}}),
        core_(config(qps), shared_, table_, &link_),
        loop_(core_, device_),
        ring_(kCqEntries),
        producer_(ring_.data(), kCqEntries, &cq_client_) {
    consumer_ = queue::CqConsumer(ring_.data(), kCqEntries, &cq_client_);
    core_.set_cq(CqId{0}, &producer_, 1);
    port_.bells = queue::DoorbellReader(bells_.get());
    port_.line = &line_;
    core_.attach(port_);
    const net::InterfaceAddress own{path().source};
    core_.set_addresses({&own, 1});
    memory::Region region;
    region.pd = PdId{1};
    region.access = 15;
    region.iova = kIova;
    region.length = memory_bytes;
    region.base = memory_.data();
    key_ = *table_.insert(region);
    for (std::size_t i = 0; i < memory_bytes; ++i) memory_[i] = static_cast<std::byte>(i * 7 + id);
  }

  void add_qp(std::uint32_t number, const Queues& queues) {
    qps_.push_back(std::pmr::polymorphic_allocator<>(&queues_memory_).new_object<Qp>());
    Qp& qp = *qps_.back();
    const std::size_t sq_bytes = std::size_t{queues.sq_entries} * kStride;
    const std::size_t rq_bytes = std::size_t{queues.rq_entries} * 32;
    constexpr std::size_t kResources = 16 * proto::Transport::kResponderResourceBytes * 8;
    auto* at = static_cast<std::byte*>(queues_memory_.allocate(2 * sq_bytes + rq_bytes + kResources, 64));
    const queue::RingShape sq{at, queues.sq_entries, kStride};
    proto::QpCreate create;
    create.sq_shadow = {at + sq_bytes, sq_bytes};
    create.responder_resources = {at + 2 * sq_bytes, kResources};
    const queue::RingShape rq{at + 2 * sq_bytes + kResources, queues.rq_entries, 32};
    qp.sq = queue::WorkProducer(sq, &qp.client.sq.index, &qp.daemon.sq_consumer);
    qp.rq = queue::WorkProducer(rq, &qp.client.rq.index, &qp.daemon.rq_consumer);
    create.type = queues.type;
    create.qpn = Qpn{0x1000 + number};
    create.pd = PdId{1};
    create.sq = queue::WorkConsumer(sq, &qp.client.sq.index, &qp.daemon.sq_consumer);
    create.rq = queue::WorkConsumer(rq, &qp.client.rq.index, &qp.daemon.rq_consumer);
    create.max_inline = 0;
    create.owner = 1;
    require(transport().create(create, qp.index) == 0, "no QP");
    port_.qp_of_bit.resize(number + 1, worker::SessionPort::kNoQp);
    port_.qp_of_bit[number] = qp.index.value;
    queues.type == proto::QpType::kUd ? start_datagrams(qp) : connect(qp, number, queues.mtu);
  }

  /// Posts one request with one scatter element. False: the queue is full.
  bool post(std::uint32_t number, std::uint8_t opcode, bool signaled, std::uint64_t offset, std::uint32_t bytes,
            Key remote, std::uint64_t wr_id) {
    Qp& qp = *qps_[number];
    std::byte* slot = qp.sq.next();
    if (slot == nullptr) return false;
    auto* entry = reinterpret_cast<uroce_sq_entry*>(slot);
    entry->wr_id = wr_id;
    entry->opcode = opcode;
    entry->flags = signaled ? std::uint8_t{UROCE_SEND_SIGNALED} : std::uint8_t{0};
    entry->num_sge = 1;
    entry->inline_length = 0;
    entry->imm_data = 0;
    entry->rkey = remote.value;
    entry->remote_addr = kIova + offset;
    const uroce_sge sge{kIova + offset, bytes, key_.value};
    std::memcpy(queue::send_list(*entry), &sge, sizeof(sge));
    qp.sq.advance();
    return true;
  }
  /// A SEND to the peer's UD QP of that number.
  void post_datagram(std::uint32_t number, bool signaled, std::uint64_t offset, std::uint32_t bytes) {
    auto* entry = reinterpret_cast<uroce_sq_entry*>(qps_[number]->sq.next());
    require(post(number, UROCE_WR_SEND, signaled, offset, bytes, {}, 0), "send queue full");
    entry->ah = kAh;
    entry->ud = {0x1000 + number, kQkey};
  }
  void ring(std::uint32_t number) {
    qps_[number]->sq.publish();
    queue::DoorbellRinger(bells_.get(), &line_).ring(number);
  }
  void post_receive(std::uint32_t number, std::uint64_t offset, std::uint32_t bytes) {
    Qp& qp = *qps_[number];
    std::byte* slot = qp.rq.next();
    require(slot != nullptr, "receive queue full");
    const uroce_rq_entry entry{1, 1, 0};
    const uroce_sge sge{kIova + offset, bytes, key_.value};
    std::memcpy(slot, &entry, sizeof(entry));
    std::memcpy(slot + sizeof(entry), &sge, sizeof(sge));
    qp.rq.advance();
  }
  void publish_receives(std::uint32_t number) { qps_[number]->rq.publish(); }

  /// Completions found; every one must be a success.
  std::uint32_t poll() {
    std::uint32_t found = 0;
    for (const uroce_cqe* cqe = consumer_.peek(); cqe != nullptr; cqe = consumer_.peek()) {
      require(cqe->status == UROCE_WC_SUCCESS, "a completion in error");
      consumer_.pop();
      ++found;
    }
    if (found != 0) consumer_.publish();
    return found;
  }

  void connect(Side& peer) { device_.connect(peer.device_); }
  /// One duty cycle. Every frame that arrives must be good.
  void step(Nanos now) { loop_.step(now); }
  void expect_no_refusals() {
    const auto& parse = core_.counters().parse;
    for (std::size_t i = 0; i < std::size(parse); ++i) {
      const auto verdict = static_cast<wire::ParseVerdict>(i);
      const bool good = verdict == wire::ParseVerdict::kOk || verdict == wire::ParseVerdict::kNotRoce;
      require(good || parse[i] == 0, "a frame was refused");
    }
  }
  proto::Transport& transport() { return core_.transport(); }
  void measure_latency() { core_.measure_latency(true); }
  Key key() const { return key_; }
  std::byte* memory() { return memory_.data(); }
  std::byte* frame(std::uint32_t i) { return device_.frame(i); }

 private:
  static worker::WorkerConfig config(std::uint32_t qps) {
    worker::WorkerConfig config;
    config.transport.max_qps = qps;
    config.transport.max_cqs = 4;
    config.transport.max_srqs = 4;
    return config;
  }

  wire::PathAddress path() const {
    wire::PathAddress path;
    for (wire::Address* address : {&path.source, &path.dest}) {
      address->bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 0};
    }
    path.source.bytes[15] = static_cast<std::uint8_t>(id_ + 1);
    path.dest.bytes[15] = static_cast<std::uint8_t>(2 - id_);
    return path;
  }

  void start_datagrams(Qp& qp) {
    using namespace proto;
    const wire::PathAddress to = path();
    transport().set_address_handle(AhId{kAh}, PdId{1}, &to);
    QpAttr attr;
    attr.qkey = kQkey;
    constexpr std::pair<QpState, std::uint32_t> kSteps[] = {
        {QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrQkey}, {QpState::kRtr, 0}, {QpState::kRts, kAttrSqPsn}};
    for (const auto& [state, mask] : kSteps) {
      attr.state = state;
      require(transport().modify(qp.index, attr, kAttrState | mask, 0).error == 0, "a UD QP's states");
    }
  }

  void connect(Qp& qp, std::uint32_t number, std::uint32_t mtu) {
    using namespace proto;
    QpAttr attr;
    attr.state = QpState::kInit;
    attr.access = 15;
    require(
        transport().modify(qp.index, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, 0).error ==
            0,
        "INIT");
    attr.state = QpState::kRtr;
    attr.path = path();
    attr.path_mtu = mtu;
    attr.dest_qpn = Qpn{0x1000 + number};
    attr.rq_psn = attr.sq_psn = Psn(1000);
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 16;
    attr.min_rnr_timer = 1;
    require(transport()
                    .modify(qp.index, attr,
                            kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic |
                                kAttrMinRnrTimer,
                            0)
                    .error == 0,
            "RTR");
    attr.state = QpState::kRts;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    require(
        transport()
                .modify(qp.index, attr,
                        kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic,
                        0)
                .error == 0,
        "RTS");
  }

  std::uint8_t id_;
  // As in the daemon: tables and rings in huge pages.
  platform::HugePages huge_pages_;
  std::pmr::monotonic_buffer_resource queues_memory_{platform::HugePages::kPage, &huge_pages_};
  std::vector<std::byte> memory_;
  memory::Table table_;
  worker::WorkerShared shared_;
  net::LinkStack link_;
  WireDevice device_;
  worker::WorkerCore core_;
  worker::WorkerLoop<WireDevice> loop_;
  std::unique_ptr<uroce_doorbells> bells_ = std::make_unique<uroce_doorbells>();
  uroce_worker_line line_{};
  worker::SessionPort port_;
  std::vector<uroce_cqe> ring_;
  uroce_cq_client_block cq_client_{};
  worker::Cq producer_;
  queue::CqConsumer consumer_;
  Key key_;
  std::vector<Qp*> qps_;  // in queues_memory_, trivial to destroy
};

}  // namespace uroce::bench
