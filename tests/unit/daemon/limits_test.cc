// As many sessions and QPs as are promised (docs/architecture.md, Limits), and what they cost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "proto/state/qp.h"
#include "test_client.h"
#include "test_daemon.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UROCE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UROCE_SANITIZED 1
#endif
#endif

namespace uroce::daemon::testing {
namespace {

std::size_t resident_bytes() {
  std::size_t pages = 0, resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  const int fields = std::fscanf(file, "%zu %zu", &pages, &resident);
  std::fclose(file);
  return fields == 2 ? resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

uroce_create_qp_request small_qp(std::uint32_t pd, std::uint32_t cq) {
  auto request = TestClient::qp_request(pd, cq);
  request.max_send_wr = request.max_recv_wr = request.max_send_sge = request.max_recv_sge = 1;
  return request;
}

/// Bytes in shared memory and of the send queue's copy.
std::size_t queue_bytes(const uroce_create_qp_response& made) {
  return sizeof(uroce_qp_client_block) + sizeof(uroce_qp_daemon_block) +
         std::size_t{made.sq_entries} * made.sq_stride * 2 + std::size_t{made.rq_entries} * made.rq_stride;
}

/// `count` QPs of a fresh session; 0: all were made.
int make_qps(TestClient& client, std::uint32_t count) {
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  for (std::uint32_t i = 0; i < count; ++i) {
    int status = 0;
    client.create_qp(small_qp(pd, cq.made.handle), &status);
    if (status != 0) return status;
  }
  return 0;
}

TEST(LimitsTest, OneSessionHoldsTenThousandQpsAtTwoKibEach) {
  constexpr std::uint32_t kQps = 10000;
  control::DaemonConfig config = test_config();
  config.max_qps = kQps;
  TestDaemon daemon(config);
  TestClient client(*daemon.conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  const std::size_t before = resident_bytes();
  std::size_t queues = 0;
  for (std::uint32_t i = 0; i < kQps; ++i) {
    int status = 0;
    queues += queue_bytes(client.create_qp(small_qp(pd, cq.made.handle), &status).made);
    ASSERT_EQ(status, 0) << "QP " << i;
  }
  const std::size_t each = (resident_bytes() - before) / kQps;
  RecordProperty("bytes_each", static_cast<int>(each));
  RecordProperty("bytes_of_queues_each", static_cast<int>(queues / kQps));
#ifndef UROCE_SANITIZED
  // The worker's tables were there before; the client's mapping of the queues is in this process too.
  EXPECT_LE(each + sizeof(proto::Qp) + sizeof(proto::QpCold), 2048 + 2 * queues / kQps);
#endif
  int status = 0;
  client.create_qp(small_qp(pd, cq.made.handle), &status);
  EXPECT_EQ(status, ENOMEM);
}

TEST(LimitsTest, SixtyFourSessionsHoldAHundredThousandQps) {
  constexpr std::uint32_t kSessions = 64, kQpsOfEach = 1600, kWorkers = 2;
  control::DaemonConfig config = test_config();
  config.max_qps = kSessions * kQpsOfEach / kWorkers;
  TestDaemon daemon(config, kWorkers);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (std::uint32_t i = 0; i < kSessions; ++i) {
    clients.push_back(std::make_unique<TestClient>(*daemon.conductor));
    ASSERT_EQ(make_qps(*clients.back(), kQpsOfEach), 0) << "session " << i;
  }
  EXPECT_EQ(daemon.conductor->events().qps(), kSessions * kQpsOfEach);
  clients.clear();
  EXPECT_EQ(daemon.conductor->events().qps(), 0u);
}

TEST(LimitsTest, AQpHasAsManyWorkRequestsAsTheDeviceSays) {
  TestDaemon daemon;
  TestClient client(*daemon.conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(control::kMaxCqe);
  EXPECT_EQ(cq.made.entries, control::kMaxCqe);
  auto request = small_qp(pd, cq.made.handle);
  request.max_send_wr = request.max_recv_wr = control::kMaxQpWr;
  int status = 0;
  const ClientQp qp = client.create_qp(request, &status);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(qp.made.max_send_wr, control::kMaxQpWr);
  uroce_create_srq_request srq{};
  srq.pd = pd;
  srq.max_wr = control::kMaxSrqWr;
  srq.max_sge = 1;
  EXPECT_EQ(client.send(UROCE_CMD_CREATE_SRQ, srq).status, 0);
}

}  // namespace
}  // namespace uroce::daemon::testing
