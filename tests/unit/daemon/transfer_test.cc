// The whole path on one thread: doorbell, transport, device and back, completion, event.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <numeric>

#include "mapping/sigbus_guard.h"
#include "platform/record_socket.h"
#include "test_client.h"
#include "test_daemon.h"
#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::daemon::testing {

using control::Reply;

namespace {

constexpr std::uint32_t kAllAccess = 0xf;
constexpr std::uint64_t kBase = 0x7000000;

/// Two connected QPs of one client with 64 KiB of memory.
class TransferTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    client.hello();
    pd = client.alloc_pd();
    channel = TestClient::value<uroce_handle>(
                  channel_reply = client.send(UROCE_CMD_CREATE_CHANNEL, std::span<const std::byte>{}))
                  .handle;
    cq = client.create_cq(64, channel, 0x1234);
    const Reply mr = client.reg_mr(pd, kBase, 65536, kAllAccess, data);
    ASSERT_EQ(mr.status, 0);
    key = TestClient::value<uroce_reg_mr_response>(mr).lkey;
    a = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    b = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    const auto gid = ipv4(1).bytes;
    ASSERT_EQ(client.connect(a, b.made.qpn, gid), 0);
    ASSERT_EQ(client.connect(b, a.made.qpn, gid), 0);
  }

  uroce_sge sge(std::size_t offset, std::uint32_t bytes) const { return {kBase + offset, bytes, key}; }
  uroce_sq_entry write(std::size_t to) const {
    uroce_sq_entry entry{};
    entry.wr_id = 77;
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.remote_addr = kBase + to;
    entry.rkey = key;
    return entry;
  }
  const uroce_cqe* wait_cqe() {
    daemon.run_until([this] { return cq.ring.peek() != nullptr; });
    return cq.ring.peek();
  }

  TestDaemon daemon{test_config(), GetParam()};
  TestClient client{*daemon.conductor};
  Reply channel_reply;
  std::uint32_t pd = 0, channel = 0, key = 0;
  ClientCq cq;
  ClientQp a, b;
  std::byte* data = nullptr;
};

TEST_P(TransferTest, AWriteArrivesAndCompletes) {
  for (int i = 0; i < 8000; ++i) data[i] = static_cast<std::byte>(i * 7);
  const uroce_sge from = sge(0, 8000);
  a.post_send(write(32768), std::span(&from, 1));
  const uroce_cqe* done = wait_cqe();
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->status, UROCE_WC_SUCCESS);
  EXPECT_EQ(done->wr_id, 77u);
  EXPECT_EQ(done->qpn, a.made.qpn);
  EXPECT_EQ(std::memcmp(data, data + 32768, 8000), 0);
}

TEST_P(TransferTest, ASendFindsTheReceiveAndBothComplete) {
  std::memcpy(data, "ping", 4);
  const uroce_sge from = sge(0, 4), to = sge(4096, 100);
  b.post_recv(5, std::span(&to, 1));
  uroce_sq_entry entry = write(0);
  entry.opcode = UROCE_WR_SEND;
  a.post_send(entry, std::span(&from, 1));
  int received = 0, sent = 0;
  ASSERT_TRUE(daemon.run_until([&] {
    while (const uroce_cqe* e = cq.ring.peek()) {
      EXPECT_EQ(e->status, UROCE_WC_SUCCESS);
      (e->opcode == UROCE_WC_RECV ? received : sent) += 1;
      cq.ring.pop();
    }
    cq.ring.publish();
    return received == 1 && sent == 1;
  }));
  EXPECT_EQ(std::memcmp(data + 4096, "ping", 4), 0);
}

TEST_P(TransferTest, AQpThatIsNotThePeerSendsNothingIntoAConnection) {
  TestClient forger(*daemon.conductor, 65534);
  forger.hello();
  const std::uint32_t forgers_pd = forger.alloc_pd();
  ClientCq forgers_cq = forger.create_cq(64);
  std::byte* forged = nullptr;
  const Reply mr = forger.reg_mr(forgers_pd, kBase, 4096, kAllAccess, forged);
  ASSERT_EQ(mr.status, 0);
  std::memcpy(forged, "forged", 6);
  const uroce_sge from_forger{kBase, 6, TestClient::value<uroce_reg_mr_response>(mr).lkey};
  const uroce_sge from = sge(0, 4), to = sge(4096, 100);
  b.post_recv(5, std::span(&to, 1));
  uroce_sq_entry entry = write(0);
  entry.opcode = UROCE_WR_SEND;
  // QPs of the other user, of either worker, with the peer's number and PSN and from its address.
  for (int i = 0; i < 4; ++i) {
    ClientQp c = forger.create_qp(TestClient::qp_request(forgers_pd, forgers_cq.made.handle));
    ASSERT_EQ(forger.connect(c, b.made.qpn, ipv4(1).bytes), 0);
    c.post_send(entry, std::span(&from_forger, 1));
    daemon.settle();
    EXPECT_EQ(cq.ring.peek(), nullptr);
    ASSERT_EQ(forger.destroy(UROCE_CMD_DESTROY_QP, c.made.handle), 0);
  }
  std::memcpy(data, "true", 4);
  a.post_send(entry, std::span(&from, 1));
  int received = 0, sent = 0;
  ASSERT_TRUE(daemon.run_until([&] {
    while (const uroce_cqe* e = cq.ring.peek()) {
      EXPECT_EQ(e->status, UROCE_WC_SUCCESS);
      (e->opcode == UROCE_WC_RECV ? received : sent) += 1;
      cq.ring.pop();
    }
    cq.ring.publish();
    return received == 1 && sent == 1;
  }));
  EXPECT_EQ(std::memcmp(data + 4096, "true", 4), 0);
}

TEST_P(TransferTest, AFrameFromTheWireDoesNotPassForAQpOfThisPort) {
  const uroce_sge to = sge(4096, 100);
  b.post_recv(5, std::span(&to, 1));
  wire::PathAddress path;
  path.source_mac = path.dest_mac = daemon.devices[0].info().mac;
  path.source = path.dest = ipv4(1);
  const wire::FrameTemplate headers(path);
  std::array<std::byte, 256> frame{};
  constexpr std::size_t kCovered = wire::kBthBytes + 8;
  std::byte* at = frame.data() + headers.emit(frame.data(), kCovered + wire::kIcrcBytes);
  wire::Bth bth;
  bth.opcode = wire::opcode(wire::Service::kRc, wire::Operation::kSendOnly);
  bth.dest_qpn = Qpn{b.made.qpn};
  bth.emit(at);
  at += kCovered;
  wire::store_raw(at, wire::icrc_of(frame.data() + headers.ip_offset(), headers.ip_bytes(), kCovered));
  daemon.devices[0].inject(std::span(frame).first(headers.header_bytes() + kCovered + wire::kIcrcBytes));
  daemon.settle();
  EXPECT_EQ(cq.ring.peek(), nullptr);
  std::uint64_t dropped = 0;
  for (const auto& core : daemon.cores) dropped += core->transport().counters().drop_wrong_source;
  EXPECT_EQ(dropped, 1u);
}

TEST_P(TransferTest, AnArmedCqWritesItsCookieOnce) {
  const uroce_sge from = sge(0, 8);
  const auto readable = [&] {
    pollfd fd{channel_reply.fds[0].get(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  a.post_send(write(4096), std::span(&from, 1));
  ASSERT_NE(wait_cqe(), nullptr);
  daemon.settle();
  EXPECT_FALSE(readable());
  cq.ring.arm(false);
  a.post_send(write(4096), std::span(&from, 1));
  ASSERT_TRUE(daemon.run_until(readable));
  std::uint64_t cookie = 0;
  ASSERT_EQ(::read(channel_reply.fds[0].get(), &cookie, 8), 8);
  EXPECT_EQ(cookie, 0x1234u);
  a.post_send(write(4096), std::span(&from, 1));
  daemon.settle();
  EXPECT_FALSE(readable());
}

TEST_P(TransferTest, EventsThatDoNotFitIntoTheChannelComeLater) {
  const int writer = client.session().channels.find(channel)->writer.get();
  const std::uint64_t filler = 1;
  int filled = 0;
  while (platform::send_record(writer, std::as_bytes(std::span(&filler, 1))) == platform::Sent::kYes) ++filled;
  ASSERT_GT(filled, 100);
  cq.ring.arm(false);
  const uroce_sge from = sge(0, 8);
  a.post_send(write(4096), std::span(&from, 1));
  ASSERT_NE(wait_cqe(), nullptr);
  daemon.settle();
  std::uint64_t cookie = 0;
  for (int i = 0; i < filled; ++i) ASSERT_EQ(::read(channel_reply.fds[0].get(), &cookie, 8), 8);
  EXPECT_EQ(cookie, filler);
  pollfd fd{channel_reply.fds[0].get(), POLLIN, 0};
  ASSERT_TRUE(daemon.run_until([&] { return ::poll(&fd, 1, 0) == 1; }));
  ASSERT_EQ(::read(channel_reply.fds[0].get(), &cookie, 8), 8);
  EXPECT_EQ(cookie, 0x1234u);
}

TEST_P(TransferTest, APortThatRefusesFramesDelaysThemAndLosesNone) {
  for (auto& device : daemon.devices) device.set_credit(0);
  std::iota(reinterpret_cast<unsigned char*>(data), reinterpret_cast<unsigned char*>(data) + 16384, 0);
  const uroce_sge from = sge(0, 16384);
  a.post_send(write(32768), std::span(&from, 1));
  daemon.settle();
  EXPECT_EQ(cq.ring.peek(), nullptr);
  ASSERT_TRUE(daemon.run_until([&] {
    for (auto& device : daemon.devices) device.set_credit(1);
    return cq.ring.peek() != nullptr;
  }));
  EXPECT_EQ(cq.ring.peek()->status, UROCE_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(data, data + 32768, 16384), 0);
  proto::QpSnapshot now;
  daemon.cores[a.made.worker]->transport().query(client.session().qps.find(a.made.handle)->index, now);
  EXPECT_EQ(now.counters.retransmitted_pkts, 0u);
}

TEST_P(TransferTest, AModeratedCqWaitsForTheCountOrTheTime) {
  const uroce_sge from = sge(0, 8);
  const auto readable = [&] {
    pollfd fd{channel_reply.fds[0].get(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  ASSERT_EQ(client.send(UROCE_CMD_MODIFY_CQ, uroce_modify_cq_request{cq.made.handle, 3, 60000, 0}).status, 0);
  cq.ring.arm(false);
  for (int i = 0; i < 2; ++i) a.post_send(write(4096), std::span(&from, 1));
  ASSERT_NE(wait_cqe(), nullptr);
  daemon.settle();
  EXPECT_FALSE(readable());
  a.post_send(write(4096), std::span(&from, 1));
  ASSERT_TRUE(daemon.run_until(readable));
  std::uint64_t cookie = 0;
  ASSERT_EQ(::read(channel_reply.fds[0].get(), &cookie, 8), 8);

  ASSERT_EQ(client.send(UROCE_CMD_MODIFY_CQ, uroce_modify_cq_request{cq.made.handle, 0, 3000, 0}).status, 0);
  cq.ring.arm(false);
  const Nanos before = monotonic_now();
  a.post_send(write(4096), std::span(&from, 1));
  ASSERT_TRUE(daemon.run_until(readable));
  EXPECT_GE(monotonic_now() - before, 3 * kMillisecond);
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_CQ, uroce_modify_cq_request{cq.made.handle, 1u << 16, 0, 0}).status,
            EINVAL);
}

TEST_P(TransferTest, DoorbellsOfStrangersAndNobodyAreCountedAndIgnored) {
  queue::DoorbellRinger bell(client.doorbells(), &client.header()->worker[0]);
  for (std::uint32_t bit : {3000u, UROCE_MAX_SESSION_QPS - 1}) bell.ring(bit);
  daemon.settle();
  EXPECT_EQ(daemon.cores[0]->counters().bad_doorbells, 2u);
}

TEST_P(TransferTest, AProducerIndexFromNowhereDoesNotHarmTheDaemon) {
  auto* block = client.at<uroce_qp_client_block>(a.made.client);
  block->sq.index = 0xdeadbeef;
  a.bell.ring(a.made.doorbell_bit);
  block->rq.index = 0x80000000;
  daemon.settle();
  TestClient other(*daemon.conductor);
  other.hello();
  EXPECT_NE(other.alloc_pd(), 0u);
}

/// A work request that uses 64 KiB of a file of which a page is left.
struct CutOffUse {
  const char* name;
  std::uint8_t opcode;
  bool local;  ///< the file is where the data come from, or a READ goes to
  std::uint32_t at, bytes;
  std::uint8_t status;
};
constexpr CutOffUse kCutOffUses[] = {
    {"WRITE from it", UROCE_WR_RDMA_WRITE, true, 0, 32768, UROCE_WC_LOC_PROT_ERR},
    {"short WRITE from it", UROCE_WR_RDMA_WRITE, true, 4096, 8, UROCE_WC_LOC_PROT_ERR},
    {"WRITE into it", UROCE_WR_RDMA_WRITE, false, 0, 32768, UROCE_WC_REM_ACCESS_ERR},
    {"short WRITE into it", UROCE_WR_RDMA_WRITE, false, 12288, 8, UROCE_WC_REM_ACCESS_ERR},
    {"READ of it", UROCE_WR_RDMA_READ, false, 0, 32768, UROCE_WC_REM_ACCESS_ERR},
    {"READ into it", UROCE_WR_RDMA_READ, true, 0, 32768, UROCE_WC_LOC_PROT_ERR},
    {"atomic on it", UROCE_WR_ATOMIC_FETCH_AND_ADD, false, 8192, 8, UROCE_WC_REM_OP_ERR},
    {"atomic into it", UROCE_WR_ATOMIC_FETCH_AND_ADD, true, 8192, 8, UROCE_WC_LOC_PROT_ERR},
    {"ATOMIC WRITE into it", UROCE_WR_ATOMIC_WRITE, false, 8192, 8, UROCE_WC_REM_OP_ERR},
    {"SEND into it", UROCE_WR_SEND, false, 4000, 200, UROCE_WC_REM_OP_ERR},
};

TEST_P(TransferTest, WhatIsCutOffAFileCostsTheWorkRequestsThatUseItAndNotTheSession) {
  mapping::SigbusGuard::instance().install();
  constexpr std::uint64_t kFile = kBase + (1u << 20);
  for (const CutOffUse& use : kCutOffUses) {
    SCOPED_TRACE(use.name);
    std::byte* more = nullptr;
    int fd = -1;
    const Reply mr = client.reg_mr(pd, kFile, 65536, kAllAccess, more, &fd);
    ASSERT_EQ(mr.status, 0);
    const UniqueFd file(fd);
    ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
    const std::uint32_t of_file = TestClient::value<uroce_reg_mr_response>(mr).lkey;
    ClientQp from = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    ClientQp to = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    ASSERT_EQ(client.connect(from, to.made.qpn, ipv4(1).bytes), 0);
    ASSERT_EQ(client.connect(to, from.made.qpn, ipv4(1).bytes), 0);
    const uroce_sge in_file{kFile + use.at, use.bytes, of_file}, elsewhere = sge(0, use.bytes);
    uroce_sq_entry entry = write(32768);
    entry.opcode = use.opcode;
    if (!use.local) entry.remote_addr = kFile + use.at, entry.rkey = of_file;
    if (use.opcode == UROCE_WR_SEND) to.post_recv(5, std::span(&in_file, 1));
    from.post_send(entry, std::span(use.local ? &in_file : &elsewhere, 1));
    bool received = use.opcode != UROCE_WR_SEND, sent = false;
    ASSERT_TRUE(daemon.run_until([&] {
      while (const uroce_cqe* e = cq.ring.peek()) {
        EXPECT_EQ(e->status, e->qpn == from.made.qpn ? use.status : std::uint8_t{UROCE_WC_LOC_PROT_ERR});
        (e->qpn == from.made.qpn ? sent : received) = true;
        cq.ring.pop();
      }
      cq.ring.publish();
      return sent && received;
    }));
    EXPECT_EQ(mapping::SigbusGuard::instance().take_loser(), client.session().id);
    EXPECT_EQ(mapping::SigbusGuard::instance().take_offender(), 0u);

    // The page that is left is as good as ever.
    const uroce_sge source = sge(0, 4096);
    std::memset(data, 0x5a, 4096);
    entry = write(0);
    entry.remote_addr = kFile;
    entry.rkey = of_file;
    a.post_send(entry, std::span(&source, 1));
    const uroce_cqe* done = wait_cqe();
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(done->status, UROCE_WC_SUCCESS);
    EXPECT_EQ(more[4095], std::byte{0x5a});
    cq.ring.pop();
    cq.ring.publish();
    EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, TestClient::value<uroce_reg_mr_response>(mr).handle), 0);
  }
  EXPECT_NE(client.alloc_pd(), 0u);
}

TEST_P(TransferTest, AClientThatDiesUnderTrafficTakesNobodyAlong) {
  TestClient other(*daemon.conductor);
  other.hello();
  const uroce_sge from = sge(0, 32768);
  for (int i = 0; i < 8; ++i) a.post_send(write(32768), std::span(&from, 1));
  for (int i = 0; i < 3; ++i) {
    for (auto& loop : daemon.loops) loop->step(monotonic_now());
  }
  client.close();
  daemon.settle();
  EXPECT_EQ(daemon.memory.size(), 0u);
  EXPECT_NE(other.alloc_pd(), 0u);
}

TEST_P(TransferTest, FramesThatAreNoRoceAreCountedByReason) {
  std::byte garbage[100] = {};
  daemon.devices[0].inject(garbage);
  daemon.settle();
  std::uint64_t total = 0;
  for (auto& core : daemon.cores) {
    for (const std::uint64_t n : core->counters().parse) total += n;
  }
  EXPECT_GE(total, 1u);
}

INSTANTIATE_TEST_SUITE_P(Workers, TransferTest, ::testing::Values(1u, 2u),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace uroce::daemon::testing
