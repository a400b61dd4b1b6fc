// Many QPs at once: what READs may have under way stays within the receive ring, and nobody starves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/network.h"
#include "wire/extended_headers.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace uroce::sim {
namespace {

constexpr std::uint32_t kDepth = 8;
constexpr std::uint64_t kIova = 0x10000;

class Crowd {
 public:
  Crowd(std::uint32_t qps, std::uint32_t ring_bytes, std::uint32_t bytes, std::uint32_t mtu)
      : bytes_(bytes), ring_bytes_(ring_bytes), network_({.latency = 20 * kMicrosecond}, 1) {
    for (std::uint32_t id = 0; id < 2; ++id) {
      HostSettings settings;
      settings.id = id;
      settings.cqs = 1;
      settings.max_qps = qps;
      settings.receive_ring_bytes = ring_bytes;
      hosts_[id] = std::make_unique<Host>(settings);
      memory_[id].resize(bytes);
      std::fill(memory_[id].begin(), memory_[id].end(), static_cast<std::byte>(id + 1));
      key_[id] = *hosts_[id]->table.insert(
          {.pd = PdId{1}, .access = 15, .iova = kIova, .length = bytes, .base = memory_[id].data()});
    }
    for (std::uint32_t id = 0; id < 2; ++id) {
      for (std::uint32_t i = 0; i < qps; ++i) add_qp(id, i, mtu);
    }
  }

  void post(std::uint8_t opcode) {
    for (std::uint32_t i = 0; i < qps_[0].size(); ++i) post(opcode, i, kDepth, bytes_);
  }
  void post(std::uint8_t opcode, std::uint32_t number, std::uint32_t depth, std::uint32_t bytes) {
    SimQp& qp = *qps_[0][number];
    for (std::uint32_t i = 0; i < depth; ++i) {
      std::byte* slot = qp.sq.next();
      ASSERT_NE(slot, nullptr);
      uroce_sq_entry entry{};
      entry.opcode = opcode;
      entry.flags = UROCE_SEND_SIGNALED;
      entry.num_sge = 1;
      entry.rkey = key_[1].value;
      entry.remote_addr = kIova;
      const uroce_sge sge{kIova, bytes, key_[0].value};
      queue::write_send(slot, entry, &sge, sizeof(sge));
      qp.sq.advance();
    }
    qp.sq.publish();
    hosts_[0]->doorbell(qp);
  }

  /// The peer of the QPs before this one is dead: their packets are lost.
  void lose_before(std::uint32_t number) { dead_before_ = 0x100 + number; }
  /// Time until a READ of this length completes at that QP.
  Nanos read_takes(std::uint32_t number, std::uint32_t bytes) {
    const Nanos began = now_;
    const std::uint64_t before = done_[0x100 + number];
    post(UROCE_WR_RDMA_READ, number, 1, bytes);
    while (done_[0x100 + number] == before && !testing::Test::HasFatalFailure()) step();
    return now_ - began;
  }
  void pass(Nanos time) {
    const Nanos until = now_ + time;
    while (now_ < until && !testing::Test::HasFatalFailure()) step(until);
  }

  void limit(std::uint32_t number, std::uint32_t kbps) {
    proto::QpAttr attr;
    attr.rate_kbps = kbps;
    ASSERT_EQ(hosts_[0]->modify(*qps_[0][number], attr, proto::kAttrRateLimit, now_).error, 0);
  }

  /// Until every work is complete, or `most` steps are over. Completions by QPN.
  void run(std::uint64_t most) {
    const std::size_t due = qps_[0].size() * kDepth;
    for (std::uint64_t i = 0; i < most && total_ < due; ++i) step();
  }

  void step(Nanos latest = kNever) {
    Nanos next = std::min(network_.next_arrival(), latest);
    for (auto& host : hosts_) {
      next = std::min(next, host->has_work() ? now_ + 300 : host->next_timeout());
    }
    ASSERT_NE(next, kNever) << "nothing will ever happen";
    now_ = std::max(now_, next);
    while (network_.receive(now_, [&](const Arrival& arrival, std::span<const std::byte> frame) {
      if (arrival.to == 0) count(frame, false);
      hosts_[arrival.to]->arrive(frame);
    })) {
    }
    for (std::uint32_t id = 0; id < 2; ++id) {
      hosts_[id]->step(now_, [&](std::span<const std::byte> frame) {
        if (id == 0) count(frame, true);
        if (dest_qpn_of(frame) >= dead_before_) network_.send(1 - id, frame, now_);
      });
    }
    auto& cq = *hosts_[0]->cqs[0];
    while (const uroce_cqe* cqe = cq.consumer.peek()) {
      ASSERT_EQ(cqe->status, UROCE_WC_SUCCESS);
      ++done_[cqe->qpn];
      ++total_;
      cq.consumer.pop();
      cq.consumer.publish();
    }
  }

  std::uint64_t total() const { return total_; }
  std::int64_t most_under_way() const { return most_; }
  const std::map<std::uint32_t, std::uint64_t>& sent_frames() const { return sent_; }
  const std::map<std::uint32_t, std::uint64_t>& done() const { return done_; }
  std::uint64_t bytes_of(std::uint32_t qpn) const { return bytes_of_.at(qpn); }
  Nanos last_of(std::uint32_t qpn) const { return last_.at(qpn); }
  const std::vector<std::byte>& memory(int id) const { return memory_[id]; }
  proto::Counters counters(int id) const { return hosts_[id]->counters(); }

 private:
  void add_qp(std::uint32_t id, std::uint32_t number, std::uint32_t mtu) {
    qps_[id].push_back(std::make_unique<SimQp>());
    SimQp& qp = *qps_[id].back();
    const QueueSizes sizes{
        .sq_entries = 16, .rq_entries = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
    ASSERT_EQ(hosts_[id]->create_qp(sizes, Qpn{0x100 + number}, PdId{1}, CqId{0}, CqId{0}, qp), 0);
    Connection c;
    c.path = hosts_[id]->path_to(*hosts_[1 - id]);
    c.dest_qpn = Qpn{0x100 + number};
    c.path_mtu = mtu;
    c.timeout = 16;
    c.max_rd_atomic = c.max_dest_rd_atomic = 16;
    ASSERT_EQ(connect(*hosts_[id], qp, c, 0).error, 0);
  }

  /// READ bytes that are asked for and have not come.
  void count(std::span<const std::byte> frame, bool sent) {
    wire::RxPacket packet;
    ASSERT_EQ(wire::parse(frame, {}, packet), wire::ParseVerdict::kOk);
    if (sent) {
      const std::uint32_t qpn = packet.bth.dest_qpn.value;
      ++sent_[qpn];
      bytes_of_[qpn] += frame.size();
      last_[qpn] = now_;
    }
    if (sent && packet.info->reth != 0 && packet.info->has(wire::kRead)) {
      under_way_ += wire::Reth::parse(packet.bth_start + packet.info->reth).length;
      most_ = std::max(most_, under_way_);
      if (dead_before_ == 0) {
        EXPECT_LE(under_way_, static_cast<std::int64_t>(ring_bytes_));
      }
    }
    if (!sent && packet.info->has(wire::kRead)) under_way_ -= packet.payload_bytes;
  }

  std::uint32_t bytes_, ring_bytes_, dead_before_ = 0;
  Network network_;
  std::unique_ptr<Host> hosts_[2];
  std::vector<std::byte> memory_[2];
  Key key_[2];
  std::vector<std::unique_ptr<SimQp>> qps_[2];
  Nanos now_ = 0;
  std::uint64_t total_ = 0;
  std::int64_t under_way_ = 0, most_ = 0;
  std::map<std::uint32_t, std::uint64_t> done_, sent_, bytes_of_;
  std::map<std::uint32_t, Nanos> last_;
};

TEST(ReadWindow, ManyDeepReadersNeverHaveMoreUnderWayThanTheReceiveRingHolds) {
  Crowd crowd(32, 256u << 10, 65536, 1024);
  crowd.post(UROCE_WR_RDMA_READ);
  crowd.run(1'000'000);
  EXPECT_EQ(crowd.total(), 32u * kDepth);
  EXPECT_GT(crowd.most_under_way(), 64 << 10);  // the ring is made use of
  EXPECT_EQ(crowd.memory(0), crowd.memory(1));
  EXPECT_EQ(crowd.counters(0).retransmitted_pkts, 0u);
}

TEST(ReadWindow, AReadLargerThanTheReceiveRingComesInParts) {
  Crowd crowd(2, 16384, 1u << 20, 4096);
  crowd.post(UROCE_WR_RDMA_READ);
  crowd.run(1'000'000);
  EXPECT_EQ(crowd.total(), 2u * kDepth);
  EXPECT_EQ(crowd.memory(0), crowd.memory(1));
}

TEST(Fairness, ReadersOfADeadPeerDoNotStopTheOthers) {
  for (const std::uint32_t bytes : {1u << 20, 65536u, 4096u, 64u}) {
    Crowd crowd(101, 4u << 20, 1u << 20, 4096);
    crowd.lose_before(100);
    for (std::uint32_t i = 0; i < 100; ++i) crowd.post(UROCE_WR_RDMA_READ, i, kDepth, bytes);
    for (int i = 0; i < 300; ++i) {
      crowd.pass(i % 7 * 100 * kMicrosecond);
      ASSERT_LE(crowd.read_takes(100, 64), kMillisecond) << bytes << " bytes, READ " << i;
    }
  }
}

TEST(Fairness, ALongReadWaitsForADeadPeerOnlyForTheFirstMilliseconds) {
  Crowd crowd(101, 4u << 20, 1u << 20, 4096);
  crowd.lose_before(100);
  for (std::uint32_t i = 0; i < 100; ++i) crowd.post(UROCE_WR_RDMA_READ, i, kDepth, 1u << 20);
  crowd.pass(100 * kMicrosecond);
  EXPECT_LE(crowd.read_takes(100, 65536), 20 * kMillisecond);
  for (int i = 0; i < 100; ++i) {
    crowd.pass(i % 7 * 300 * kMicrosecond);
    ASSERT_LE(crowd.read_takes(100, 65536), 2 * kMillisecond) << "READ " << i;
  }
}

TEST(Fairness, ReadersShareTheReceiveRing) {
  Crowd crowd(16, 128u << 10, 65536, 4096);
  crowd.post(UROCE_WR_RDMA_READ);
  while (crowd.total() < 16 * kDepth / 2) ASSERT_NO_FATAL_FAILURE(crowd.step());
  std::uint64_t least = kDepth, most = 0;
  for (std::uint32_t qpn = 0x100; qpn < 0x110; ++qpn) {
    const auto found = crowd.done().find(qpn);
    const std::uint64_t done = found == crowd.done().end() ? 0 : found->second;
    least = std::min(least, done);
    most = std::max(most, done);
  }
  EXPECT_GE(least, 2u);
  EXPECT_LE(most, 6u);
}

TEST(Pacing, EachOfManyHoldsItsOwnRateAndTheOthersDoNotWait) {
  Crowd crowd(16, 4u << 20, 65536, 1024);
  for (std::uint32_t i = 0; i < 8; ++i) crowd.limit(i, 10'000u << i);
  crowd.post(UROCE_WR_RDMA_WRITE);
  crowd.run(1'000'000);
  EXPECT_EQ(crowd.total(), 16u * kDepth);
  for (std::uint32_t i = 0; i < 8; ++i) {
    const double ideal = static_cast<double>(crowd.bytes_of(0x100 + i)) * 8e6 / (10'000u << i);
    EXPECT_NEAR(static_cast<double>(crowd.last_of(0x100 + i)), ideal, ideal * 0.03) << (10'000u << i) << " kbit/s";
  }
  for (std::uint32_t i = 8; i < 16; ++i) EXPECT_LT(crowd.last_of(0x100 + i), crowd.last_of(0x107));
  EXPECT_EQ(crowd.counters(0).retransmitted_pkts, 0u);
}

TEST(Fairness, WritersTakeTurns) {
  Crowd crowd(16, 4u << 20, 65536, 1024);
  crowd.post(UROCE_WR_RDMA_WRITE);
  crowd.run(200);
  std::uint64_t least = ~0ull, most = 0;
  for (const auto& [qpn, frames] : crowd.sent_frames()) {
    least = std::min(least, frames);
    most = std::max(most, frames);
  }
  EXPECT_EQ(crowd.sent_frames().size(), 16u);
  EXPECT_GT(least, 0u);
  EXPECT_LE(most, least * 3 / 2 + 32) << "a turn is 16 packets";
  crowd.run(1'000'000);
  EXPECT_EQ(crowd.total(), 16u * kDepth);
  EXPECT_EQ(crowd.memory(0), crowd.memory(1));
}

}  // namespace
}  // namespace uroce::sim
