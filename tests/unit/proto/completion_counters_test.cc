// Completion counters: each operation of a QP is counted once, where it ends, and only what it was attached for.
#include "proto/state/completion_counters.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

/// A counter for each operation of one QP.
struct Counted {
  explicit Counted(End& of, bool bytes = false, std::uint32_t operations = UROCE_ALL_COUNTED) : end(of) {
    // As a QP that has been reset: attached before it is connected again.
    EXPECT_EQ(attach(operations, bytes), EINVAL) << "in RTS";
    EXPECT_EQ(end.to(QpState::kReset, 0).error, 0);
    EXPECT_EQ(attach(operations, bytes), 0);
  }
  int attach(std::uint32_t operations, bool bytes) {
    for (std::uint32_t i = 0; i < shared.size(); ++i) {
      if ((operations >> i & 1) == 0) continue;
      const int error = end.transport->attach_counter(end.qp, table, 1u << i, {&shared[i], bytes});
      if (error != 0) return error;
    }
    return 0;
  }
  std::uint64_t done(CountedOperation of) const { return shared[static_cast<std::size_t>(of)].done; }
  std::uint64_t failed(CountedOperation of) const { return shared[static_cast<std::size_t>(of)].failed; }
  /// All of them, in order.
  std::vector<std::uint64_t> done() const {
    std::vector<std::uint64_t> all;
    for (const uroce_comp_cntr& each : shared) all.push_back(each.done);
    return all;
  }

  End& end;
  QpCompletionCounters table{};
  std::array<uroce_comp_cntr, UROCE_COUNTED_OPERATIONS> shared{};
};
using Values = std::vector<std::uint64_t>;

/// A pair whose two QPs are counted.
struct CountedPair {
  explicit CountedPair(bool bytes = false, const Options& options = {},
                       std::uint32_t operations = UROCE_ALL_COUNTED)
      : pair(options), a(pair.a, bytes, operations), b(pair.b, bytes, operations) {
    const auto remote = [](const End& end) {
      return Remote{end.qpn, end.options.psn, end.path.source, end.path.source_mac};
    };
    connect(pair.a, remote(pair.b), pair.now);
    connect(pair.b, remote(pair.a), pair.now);
  }
  Work work(std::uint8_t opcode, std::uint32_t bytes, std::uint8_t flags = UROCE_SEND_SIGNALED) {
    return {.wr_id = ++wr_id,
            .opcode = opcode,
            .flags = flags,
            .sges = {pair.a.sge(0, bytes)},
            .remote = End::kIova,
            .rkey = pair.b.key.value};
  }
  /// One of each operation of a send queue. SENDs and immediate data find receives.
  void one_of_each(std::uint8_t flags = UROCE_SEND_SIGNALED) {
    for (std::uint64_t i = 0; i < 3; ++i) pair.b.post_receive(i, {pair.b.sge(4096, 4096)});
    pair.a.post(work(UROCE_WR_SEND, 100, flags));
    pair.a.post(work(UROCE_WR_SEND_WITH_IMM, 300, flags));
    pair.a.post(work(UROCE_WR_RDMA_WRITE, 1000, flags));
    pair.a.post(work(UROCE_WR_RDMA_WRITE_WITH_IMM, 40, flags));
    pair.a.post(work(UROCE_WR_RDMA_READ, 700, flags));
    pair.a.post(work(UROCE_WR_ATOMIC_FETCH_AND_ADD, 8, flags));
    pair.a.post(work(UROCE_WR_ATOMIC_WRITE, 8, flags));
  }
  std::uint64_t wr_id = 0;
  Pair pair;
  Counted a, b;
};

TEST(CompletionCounters, CountEachOperationOnce) {
  CountedPair counted;
  counted.one_of_each();
  counted.pair.settle(kSecond);
  ASSERT_EQ(counted.pair.a.poll().size(), 7u);
  EXPECT_EQ(counted.a.done(), (Values{2, 0, 1, 0, 2, 0}));
  EXPECT_EQ(counted.b.done(), (Values{0, 3, 0, 1, 0, 2}));
}

TEST(CompletionCounters, CountWhatMakesNoCompletion) {
  CountedPair counted;
  counted.one_of_each(0);
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.pair.a.poll().size(), 0u);
  EXPECT_EQ(counted.a.done(), (Values{2, 0, 1, 0, 2, 0}));
}

TEST(CompletionCounters, AddLengths) {
  CountedPair counted(true);
  counted.one_of_each();
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.a.done(), (Values{400, 0, 700, 0, 1040, 0}));
  EXPECT_EQ(counted.b.done(), (Values{0, 440, 0, 700, 0, 1040}));
}

TEST(CompletionCounters, WithSignalAllCompleteAndCount) {
  CountedPair counted(false, {.signal_all = true});
  counted.one_of_each(0);
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.pair.a.poll().size(), 7u);
  EXPECT_EQ(counted.a.done(), (Values{2, 0, 1, 0, 2, 0}));
}

TEST(CompletionCounters, CountOnlyWhatTheyAreAttachedFor) {
  CountedPair counted(false, {}, UROCE_COUNTED_READ | UROCE_COUNTED_REMOTE_WRITE);
  counted.one_of_each();
  counted.pair.settle(kSecond);
  ASSERT_EQ(counted.pair.a.poll().size(), 7u);
  EXPECT_EQ(counted.a.done(), (Values{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(counted.b.done(), (Values{0, 0, 0, 0, 0, 2}));
}

TEST(CompletionCounters, CountOnceWhatIsSentMoreOften) {
  // Each packet is lost once, in both directions: requests, responses and acknowledges come twice.
  CountedPair counted;
  counted.one_of_each();
  std::vector<std::pair<const End*, std::uint32_t>> seen;
  counted.pair.settle(10 * kSecond, [&](const End& from, const Packet& packet) {
    const std::pair<const End*, std::uint32_t> each{&from, packet.psn()};
    if (std::find(seen.begin(), seen.end(), each) != seen.end()) return false;
    seen.push_back(each);
    return true;
  });
  ASSERT_EQ(counted.pair.a.poll().size(), 7u);
  EXPECT_GT(seen.size(), 10u);
  EXPECT_EQ(counted.a.done(), (Values{2, 0, 1, 0, 2, 0}));
  EXPECT_EQ(counted.b.done(), (Values{0, 3, 0, 1, 0, 2}));
}

TEST(CompletionCounters, CountFailuresAndFlushes) {
  CountedPair counted;
  Work bad = counted.work(UROCE_WR_RDMA_WRITE, 10);
  bad.rkey ^= 0x80;
  counted.pair.b.post_receive(1, {counted.pair.b.sge(0, 100)});
  counted.pair.b.post_receive(2, {counted.pair.b.sge(0, 100)});
  counted.pair.a.post_receive(3, {counted.pair.a.sge(0, 100)});
  counted.pair.a.post(bad);
  counted.pair.a.post(counted.work(UROCE_WR_SEND, 10));
  counted.pair.a.post(counted.work(UROCE_WR_RDMA_READ, 10));
  counted.pair.settle(kSecond);
  ASSERT_EQ(counted.pair.a.snapshot().state, QpState::kErr);
  ASSERT_EQ(counted.pair.b.snapshot().state, QpState::kErr);
  EXPECT_EQ(counted.a.done(), Values(UROCE_COUNTED_OPERATIONS));
  EXPECT_EQ(counted.b.done(), Values(UROCE_COUNTED_OPERATIONS));
  EXPECT_EQ(counted.a.failed(CountedOperation::kWrite), 1u);
  EXPECT_EQ(counted.a.failed(CountedOperation::kSend), 1u);
  EXPECT_EQ(counted.a.failed(CountedOperation::kRead), 1u);
  EXPECT_EQ(counted.a.failed(CountedOperation::kReceive), 1u);
  EXPECT_EQ(counted.b.failed(CountedOperation::kReceive), 2u);
  EXPECT_EQ(counted.b.failed(CountedOperation::kRemoteWrite), 0u) << "a refused request does not complete";
  // What is posted to a QP in ERR is flushed.
  counted.pair.a.post(counted.work(UROCE_WR_SEND, 10));
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.a.failed(CountedOperation::kSend), 2u);
}

TEST(CompletionCounters, AShareOfTheReadThatFailsIsNoRead) {
  CountedPair counted;
  counted.pair.a.post(counted.work(UROCE_WR_RDMA_READ, 4096));
  auto requests = counted.pair.take(counted.pair.a);
  ASSERT_EQ(requests.size(), 1u);
  counted.pair.deliver(counted.pair.b, requests[0]);
  ASSERT_TRUE(counted.pair.b.table.retire(counted.pair.b.key));
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.b.done(CountedOperation::kRemoteRead), 0u);
  EXPECT_EQ(counted.a.failed(CountedOperation::kRead), 1u);
}

TEST(CompletionCounters, LastOverAReset) {
  CountedPair counted;
  counted.one_of_each();
  counted.pair.settle(kSecond);
  for (End* const end : {&counted.pair.a, &counted.pair.b}) {
    ASSERT_EQ(end->to(QpState::kReset, counted.pair.now).error, 0);
    end->poll();
    end->poll(true);
  }
  const auto remote = [](const End& end) {
    return Remote{end.qpn, end.options.psn, end.path.source, end.path.source_mac};
  };
  connect(counted.pair.a, remote(counted.pair.b), counted.pair.now);
  connect(counted.pair.b, remote(counted.pair.a), counted.pair.now);
  counted.one_of_each();
  counted.pair.settle(kSecond);
  EXPECT_EQ(counted.a.done(), (Values{4, 0, 2, 0, 4, 0}));
  EXPECT_EQ(counted.b.done(), (Values{0, 6, 0, 2, 0, 4}));
}

TEST(CompletionCounters, UnreliableServices) {
  CountedPair uc(false, {.type = QpType::kUc});
  uc.pair.b.post_receive(1, {uc.pair.b.sge(0, 100)});
  uc.pair.a.post(uc.work(UROCE_WR_SEND, 10));
  uc.pair.a.post(uc.work(UROCE_WR_RDMA_WRITE, 10));
  uc.pair.settle(kSecond);
  EXPECT_EQ(uc.a.done(), (Values{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(uc.b.done(), (Values{0, 1, 0, 0, 0, 1}));
  CountedPair ud(true, {.type = QpType::kUd});
  ud.pair.b.post_receive(1, {ud.pair.b.sge(0, 100)});
  Work datagram = ud.work(UROCE_WR_SEND, 10);
  datagram.ud = Datagram{.ah = kPeer.value, .remote_qpn = 0x22, .remote_qkey = 0x1234};
  ud.pair.a.post(datagram);
  ud.pair.settle(kSecond);
  EXPECT_EQ(ud.a.done(), (Values{10, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ud.b.done(), (Values{0, 50, 0, 0, 0, 0})) << "as wc.byte_len: with the 40 bytes of the GRH";
}

TEST(CompletionCounters, WhoSeesTheCountMayPostAsMuch) {
  // Unsignaled WQEs leave their places in the queue as soon as they are counted.
  CountedPair counted(false, {.entries = 4});
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (int i = 0; i < 4; ++i) counted.pair.a.post(counted.work(UROCE_WR_RDMA_WRITE, 8, 0));
    counted.pair.settle(kSecond);
    ASSERT_EQ(counted.a.done(CountedOperation::kWrite), 4 * round);
  }
}

}  // namespace
}  // namespace uroce::proto::test
