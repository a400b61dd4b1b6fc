// lib/client against a whole daemon: queues that are resized while in use.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "client/completion_queue.h"
#include "client/queue_pair.h"
#include "client/session.h"
#include "client/shared_receive_queue.h"
#include "daemon/daemon.h"
#include "memory_device.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

constexpr std::uint32_t kTestQkey = 77;

class LibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/uroce-library-XXXXXX";
    config.run_dir = ::mkdtemp(name);
    thread = std::thread([this] {
      const PortSpec<MemoryDevice> port{config, {&device}};
      static_cast<void>(run_daemon<MemoryDevice>({&port, 1}, {.on_ready = [this] { ready.store(true); }}, stop));
      ready.store(true);
    });
    while (!ready.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(client::Session::open(config.run_dir + "/" + config.name + ".sock", session), 0);
    uroce_handle made{};
    ASSERT_EQ(session->call(UROCE_CMD_ALLOC_PD, {}, std::as_writable_bytes(std::span(&made, 1))), 0);
    pd = made.handle;
    uroce_reg_mr_response mr{};
    ASSERT_EQ(session->call(UROCE_CMD_ALLOC_NULL_MR, uroce_handle{pd, 0}, mr), 0);
    key = mr.lkey;
  }
  void TearDown() override {
    session.reset();
    stop.store(true);
    thread.join();
    std::filesystem::remove_all(config.run_dir);
  }
  int modify(std::uint32_t state, std::uint32_t mask) {
    uroce_modify_qp_request request{};
    request.handle = qp.made().handle;
    request.mask = proto::kAttrState | mask;
    request.attr.state = state;
    request.attr.port = 1;
    request.attr.qkey = kTestQkey;
    return session->call(UROCE_CMD_MODIFY_QP, std::as_bytes(std::span(&request, 1)), {});
  }
  void make_qp() {
    uroce_create_cq_request cq_request{};
    cq_request.entries = 64;
    ASSERT_EQ(client::CompletionQueue::create(*session, cq_request, cq), 0);
    uroce_create_srq_request srq_request{};
    srq_request.pd = pd;
    srq_request.max_wr = 32;
    srq_request.max_sge = 1;
    ASSERT_EQ(client::SharedReceiveQueue::create(*session, srq_request, srq), 0);
    uroce_create_qp_request request{};
    request.type = kUd;
    request.pd = pd;
    request.send_cq = request.recv_cq = cq.made().handle;
    request.srq = srq.made().handle;
    request.max_send_wr = 16;
    request.max_send_sge = 1;
    ASSERT_EQ(client::QueuePair::create(*session, request, qp), 0);
    ASSERT_EQ(modify(1, proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrQkey), 0);
    ASSERT_EQ(modify(2, 0), 0);
    ASSERT_EQ(modify(3, proto::kAttrSqPsn), 0);
    uroce_create_ah_request ah_request{};
    ah_request.pd = pd;
    ah_request.av.is_global = ah_request.av.port_num = ah_request.av.hop_limit = 1;
    std::memcpy(ah_request.av.dgid, ipv4(1).bytes.data(), 16);
    uroce_handle made{};
    ASSERT_EQ(session->call(UROCE_CMD_CREATE_AH, ah_request, made), 0);
    ah = made.handle;
  }
  bool post_receive(std::uint64_t wr_id) {
    const std::lock_guard guard(srq.lock);
    uroce_rq_entry* const entry = srq.reserve();
    if (entry == nullptr) return false;
    *entry = {wr_id, 1, 0};
    *reinterpret_cast<uroce_sge*>(entry + 1) = {0, 200, key};
    srq.commit();
    srq.publish();
    return true;
  }
  bool send_to_self(std::uint64_t wr_id) {
    const std::lock_guard guard(qp.sq_lock);
    uroce_sq_entry* const entry = qp.reserve_send();
    if (entry == nullptr) return false;
    *entry = {};
    entry->wr_id = wr_id;
    entry->opcode = UROCE_WR_SEND;
    entry->flags = UROCE_SEND_SIGNALED;
    entry->num_sge = 1;
    entry->ah = ah;
    entry->ud = {qp.made().qpn, kTestQkey};
    *reinterpret_cast<uroce_sge*>(queue::send_list(*entry)) = {0, 100, key};
    qp.commit_send();
    qp.ring_doorbell();
    return true;
  }

  control::DaemonConfig config = test_config();
  MemoryDevice device;
  std::atomic<bool> ready{false}, stop{false};
  std::thread thread;
  std::unique_ptr<client::Session> session;
  client::CompletionQueue cq;
  client::SharedReceiveQueue srq;
  client::QueuePair qp;
  std::uint32_t pd = 0, key = 0, ah = 0;
};

TEST_F(LibraryTest, NothingIsLostWhileQueuesAreResized) {
  constexpr std::uint64_t kMessages = 2000;
  make_qp();
  std::atomic<bool> done{false};
  std::thread resizer([&] {
    for (std::uint32_t i = 0; !done.load(); ++i) {
      EXPECT_EQ(cq.resize(i % 2 == 0 ? 500 : 64), 0);
      uroce_modify_srq_request request{};
      request.mask = UROCE_SRQ_MAX_WR;
      request.max_wr = i % 2 == 0 ? 100 : 32;
      EXPECT_EQ(srq.modify(request), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::uint64_t posted = 0, sent = 0, completed = 0, received = 0;
  bool in_order = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (received < kMessages && std::chrono::steady_clock::now() < end) {
    while (posted < kMessages && posted - received < 24 && post_receive(posted)) ++posted;
    while (sent < posted && sent - completed < 12 && send_to_self(sent)) ++sent;
    cq.poll(32, [&](const uroce_cqe& cqe) {
      EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
      std::uint64_t& next = cqe.opcode == UROCE_WC_RECV ? received : completed;
      in_order &= cqe.wr_id == next;
      ++next;
    });
  }
  done.store(true);
  resizer.join();
  EXPECT_EQ(received, kMessages);
  EXPECT_TRUE(in_order);
  uroce_query_srq_response now{};
  EXPECT_EQ(srq.query(now), 0);
  EXPECT_EQ(now.max_wr, srq.made().max_wr);
}

TEST_F(LibraryTest, AnotherSessionImportsThroughTheShareDescriptor) {
  std::unique_ptr<client::Session> other;
  ASSERT_EQ(client::Session::open(config.run_dir + "/" + config.name + ".sock", other), 0);
  const int fd = session->share_fd();
  ASSERT_EQ(other->call(UROCE_CMD_IMPORT_DEVICE, {}, {}, std::span(&fd, 1)), 0);
  uroce_handle imported{};
  EXPECT_EQ(other->call(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}, imported), 0);
  EXPECT_NE(imported.handle, 0u);
}

}  // namespace
}  // namespace uroce::daemon::testing
