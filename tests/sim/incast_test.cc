// Many hosts write to one at the same time, through a switch whose memory does not hold what they send at first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/random.h"
#include "tests/sim/switch.h"

namespace uroce::sim {
namespace {

constexpr std::uint64_t kIova = 0x10000;
constexpr std::uint32_t kFirstQpn = 0x100;

struct Load {
  std::uint8_t opcode;  ///< UROCE_WR_RDMA_WRITE to the one host, or _READ by it
  std::uint32_t senders;
  std::uint32_t bytes;  ///< of each message
  std::uint8_t timeout;
  bool marks;   ///< by the switch (ECN)
  Nanos limit;  ///< of a round
};

class Incast {
 public:
  Incast(const Load& load, std::uint64_t seed)
      : load_(load),
        random_(seed),
        switch_({.mark_bytes = load.marks ? 200'000 : SIZE_MAX}, load.senders + 1),
        memory_(load.bytes) {
    for (std::uint32_t id = 0; id <= load.senders; ++id) {
      HostSettings settings;
      settings.id = id;
      settings.cqs = 1;
      settings.offload_ip_checksum = true;  // the switch marks frames and leaves the checksum
      settings.max_qps = id == 0 ? load.senders : 1;
      settings.seed = random_.next();
      hosts_.push_back(std::make_unique<Host>(settings));
      keys_.push_back(*hosts_[id]->table.insert(
          {.pd = PdId{1}, .access = 15, .iova = kIova, .length = load.bytes, .base = memory_.data()}));
      order_.push_back(id);
    }
    for (std::uint32_t id = 1; id <= load.senders; ++id) {
      add_qp(0, id);
      add_qp(id, 0);
    }
  }

  /// One message of each sender, at about the same time. How long the last one takes.
  Nanos round() {
    const Nanos began = now_;
    for (std::uint32_t id = 1; id <= load_.senders; ++id) post(id);
    posted_ = true;
    const std::uint64_t due = done_ + load_.senders;
    while (done_ < due && !testing::Test::HasFatalFailure()) step();
    return now_ - began;
  }
  /// Time on the last cable for the payload alone.
  Nanos least() const { return Nanos{load_.senders} * load_.bytes * 8 / 100; }
  std::uint64_t lost() const { return switch_.lost(); }
  proto::Counters counters() const {
    proto::Counters sum;
    for (const auto& host : hosts_) {
      const proto::Counters each = host->counters();
      sum.retransmitted_pkts += each.retransmitted_pkts;
      sum.local_ack_timeout_err += each.local_ack_timeout_err;
    }
    return sum;
  }

 private:
  void add_qp(std::uint32_t id, std::uint32_t peer) {
    const std::uint32_t sender = std::max(id, peer);
    auto& qps = id == 0 ? receiving_ : sending_;
    qps.push_back(std::make_unique<SimQp>());
    const QueueSizes sizes{.sq_entries = 2, .rq_entries = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 0};
    ASSERT_EQ(hosts_[id]->create_qp(sizes, Qpn{kFirstQpn + sender}, PdId{1}, CqId{0}, CqId{0}, *qps.back()), 0);
    Connection c;
    c.path = hosts_[id]->path_to(*hosts_[peer]);
    c.dest_qpn = Qpn{kFirstQpn + sender};
    c.path_mtu = 4096;
    c.timeout = load_.timeout;
    c.max_rd_atomic = c.max_dest_rd_atomic = 16;
    ASSERT_EQ(connect(*hosts_[id], *qps.back(), c, 0).error, 0);
  }

  bool reads() const { return load_.opcode == UROCE_WR_RDMA_READ; }

  void post(std::uint32_t id) {
    const std::uint32_t from = reads() ? 0 : id, to = reads() ? id : 0;
    SimQp& qp = reads() ? *receiving_[id - 1] : *sending_[id - 1];
    std::byte* slot = qp.sq.next();
    ASSERT_NE(slot, nullptr);
    uroce_sq_entry entry{};
    entry.opcode = load_.opcode;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.rkey = keys_[to].value;
    entry.remote_addr = kIova;
    const uroce_sge sge{kIova, load_.bytes, keys_[from].value};
    queue::write_send(slot, entry, &sge, sizeof(sge));
    qp.sq.advance();
    qp.sq.publish();
    hosts_[from]->doorbell(qp);
  }

  void step() {
    Nanos next = switch_.next_moment();
    for (auto& host : hosts_) next = std::min(next, host->has_work() ? now_ + 300 : host->next_timeout());
    const bool begins = std::exchange(posted_, false);
    if (begins) next = now_;
    ASSERT_NE(next, kNever) << "nothing will ever happen";
    now_ = std::max(now_, next);
    switch_.receive(now_, [&](std::uint32_t to, std::span<const std::byte> frame) { hosts_[to]->arrive(frame); });
    // No order of the senders is always the same.
    for (std::size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[random_.below(static_cast<std::uint32_t>(i + 1))]);
    }
    for (const std::uint32_t id : order_) {
      if (!begins && !hosts_[id]->has_work() && hosts_[id]->next_timeout() > now_) continue;
      hosts_[id]->step(now_, [&](std::span<const std::byte> frame) {
        switch_.send(id, id == 0 ? dest_qpn_of(frame) - kFirstQpn : 0, frame, now_);
      });
    }
    for (const auto& host : hosts_) {
      SimCq& cq = *host->cqs[0];
      while (const uroce_cqe* cqe = cq.consumer.peek()) {
        ASSERT_EQ(cqe->status, UROCE_WC_SUCCESS);
        ++done_;
        cq.consumer.pop();
        cq.consumer.publish();
      }
    }
  }

  const Load load_;
  Random random_;
  Switch switch_;
  std::vector<std::byte> memory_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Key> keys_;
  std::vector<std::unique_ptr<SimQp>> receiving_, sending_;
  std::vector<std::uint32_t> order_;
  Nanos now_ = 0;
  std::uint64_t done_ = 0;
  bool posted_ = true;
};

class IncastRounds : public ::testing::TestWithParam<Load> {};

// Their connections are new, so that nobody knows the round trip or the bottleneck. No round waits for the verbs
// timeout, which is 67 ms and 1.07 s here.
TEST_P(IncastRounds, EndSoon) {
  const Load load = GetParam();
  Incast incast(load, 1);
  Nanos longest = 0;
  for (int i = 0; i < 5 && !HasFatalFailure(); ++i) longest = std::max(longest, incast.round());
  const proto::Counters counters = incast.counters();
  EXPECT_LE(longest, load.limit);
  EXPECT_EQ(counters.local_ack_timeout_err, 0u);
  const auto ms = [](Nanos time) { return static_cast<double>(time) / 1e6; };
  std::printf("longest round %.3f ms, at least %.3f; %llu frames lost, %llu sent again\n", ms(longest),
              ms(incast.least()), static_cast<unsigned long long>(incast.lost()),
              static_cast<unsigned long long>(counters.retransmitted_pkts));
}

INSTANTIATE_TEST_SUITE_P(Loads, IncastRounds,
                         ::testing::Values(Load{UROCE_WR_RDMA_WRITE, 1, 65536, 14, false, 30 * kMicrosecond},
                                           Load{UROCE_WR_RDMA_WRITE, 1, 1u << 20, 14, false, 120 * kMicrosecond},
                                           Load{UROCE_WR_RDMA_WRITE, 8, 65536, 14, false, 60 * kMicrosecond},
                                           Load{UROCE_WR_RDMA_WRITE, 16, 1u << 20, 14, true, 2 * kMillisecond},
                                           Load{UROCE_WR_RDMA_WRITE, 32, 65536, 14, false, kMillisecond},
                                           Load{UROCE_WR_RDMA_WRITE, 128, 65536, 14, false, 20 * kMillisecond},
                                           Load{UROCE_WR_RDMA_WRITE, 128, 65536, 18, true, 2 * kMillisecond},
                                           Load{UROCE_WR_RDMA_READ, 8, 65536, 14, false, 60 * kMicrosecond},
                                           Load{UROCE_WR_RDMA_READ, 16, 1u << 20, 18, true, 20 * kMillisecond},
                                           Load{UROCE_WR_RDMA_READ, 128, 65536, 18, true, 20 * kMillisecond}),
                         [](const auto& test) {
                           const Load& load = test.param;
                           return (load.opcode == UROCE_WR_RDMA_READ ? "Read" : "Write") +
                                  std::to_string(load.senders) + "Of" + std::to_string(load.bytes) +
                                  (load.marks ? "Marked" : "");
                         });

}  // namespace
}  // namespace uroce::sim
