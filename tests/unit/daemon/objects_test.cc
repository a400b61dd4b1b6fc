// Shared receive queues, XRC domains, windows, imports, resizing: which requests are accepted, and what remains
// after clients.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::Reply;

namespace {

class ObjectsTest : public ::testing::Test {
 protected:
  ObjectsTest() { client.hello(); }

  uroce_create_srq_response create_srq(TestClient& by, uroce_create_srq_request request, int* status = nullptr) {
    Reply reply = by.send(UROCE_CMD_CREATE_SRQ, request);
    if (status != nullptr) *status = reply.status;
    const auto made = TestClient::value<uroce_create_srq_response>(reply);
    by.map(made.chunks, reply);
    return made;
  }
  uroce_create_srq_request srq_request(std::uint32_t max_wr = 8) const {
    uroce_create_srq_request request{};
    request.pd = pd;
    request.max_wr = max_wr;
    request.max_sge = 2;
    return request;
  }
  std::uint32_t open_xrcd(TestClient& by, int fd, std::uint32_t flags, int* status = nullptr) {
    std::vector<UniqueFd> fds;
    if (fd >= 0) fds.emplace_back(::dup(fd));
    const Reply reply = by.send(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{flags, 0}, std::move(fds));
    if (status != nullptr) *status = reply.status;
    return TestClient::value<uroce_handle>(reply).handle;
  }

  TestDaemon daemon;
  Conductor& conductor = *daemon.conductor;
  TestClient client{conductor};
  std::uint32_t pd = 0;

  void SetUp() override { pd = client.alloc_pd(); }
};

TEST_F(ObjectsTest, AnSrqIsMadeQueriedResizedAndDestroyed) {
  const auto made = create_srq(client, srq_request(5));
  ASSERT_NE(made.handle, 0u);
  EXPECT_EQ(made.max_wr, 8u);
  EXPECT_EQ(made.max_sge, 2u);
  EXPECT_GE(made.stride, sizeof(uroce_rq_entry) + 2 * sizeof(uroce_sge));
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), EBUSY);

  // Three entries are posted; they move to the larger ring under their indices.
  auto* producer = client.at<uroce_producer_line>(made.client);
  for (std::uint64_t i = 0; i < 3; ++i) {
    reinterpret_cast<uroce_rq_entry*>(client.at<std::byte>(made.ring) + i * made.stride)->wr_id = 100 + i;
  }
  producer->index = 3;
  Reply reply = client.send(UROCE_CMD_MODIFY_SRQ,
                            uroce_modify_srq_request{made.handle, UROCE_SRQ_MAX_WR | UROCE_SRQ_LIMIT, 30, 2});
  ASSERT_EQ(reply.status, 0);
  const auto resized = TestClient::value<uroce_modify_srq_response>(reply);
  client.map(resized.chunks, reply);
  EXPECT_EQ(resized.entries, 32u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reinterpret_cast<uroce_rq_entry*>(client.at<std::byte>(resized.ring) + i * made.stride)->wr_id,
              100 + i);
  }
  const auto now =
      TestClient::value<uroce_query_srq_response>(client.send(UROCE_CMD_QUERY_SRQ, uroce_handle{made.handle, 0}));
  EXPECT_EQ(now.max_wr, 32u);
  EXPECT_EQ(now.limit, 2u);
  // A ring with fewer entries than are posted is refused.
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_SRQ, uroce_modify_srq_request{made.handle, UROCE_SRQ_MAX_WR, 2, 0}).status,
            EINVAL);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, made.handle), ENOENT);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
}

TEST_F(ObjectsTest, ALimitAboveWhatIsPostedIsToldAtOnceAndOnce) {
  auto request = srq_request();
  request.cookie = 77;
  const auto made = create_srq(client, request);
  ASSERT_EQ(client.send(UROCE_CMD_MODIFY_SRQ, uroce_modify_srq_request{made.handle, UROCE_SRQ_LIMIT, 0, 4}).status,
            0);
  uroce_async_event event{};
  ASSERT_EQ(::read(client.hello_fd(1), &event, sizeof(event)), static_cast<ssize_t>(sizeof(event)));
  EXPECT_EQ(event.type, 15u);
  EXPECT_EQ(event.cookie, 77u);
  const auto now =
      TestClient::value<uroce_query_srq_response>(client.send(UROCE_CMD_QUERY_SRQ, uroce_handle{made.handle, 0}));
  EXPECT_EQ(now.limit, 0u);
}

TEST_F(ObjectsTest, EventsThatTheSocketDidNotHoldLeaveWithTheirObject) {
  auto request = srq_request();
  std::uint32_t handles[2];
  for (std::uint32_t& handle : handles) {
    ++request.cookie;
    handle = create_srq(client, request).handle;
  }
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const uroce_modify_srq_request modify{handles[i % 2], UROCE_SRQ_LIMIT, 0, 4};
    ASSERT_EQ(client.send(UROCE_CMD_MODIFY_SRQ, modify).status, 0);
  }
  const auto& kept = client.session().events_owed;
  ASSERT_GE(kept.size(), 2u);
  const std::size_t before = kept.size();
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, handles[0]), 0);
  EXPECT_EQ(kept.size(), before / 2);
  for (const uroce_async_event& event : kept) EXPECT_EQ(event.cookie, 2u);
}

TEST_F(ObjectsTest, SrqsThatMakeNoSenseAreRefused) {
  int status = 0;
  auto request = srq_request(0);
  create_srq(client, request, &status);
  EXPECT_EQ(status, EINVAL);
  request = srq_request(control::kMaxSrqWr + 1);
  create_srq(client, request, &status);
  EXPECT_EQ(status, EINVAL);
  request = srq_request();
  request.type = 2;  // tag matching
  create_srq(client, request, &status);
  EXPECT_EQ(status, EOPNOTSUPP);
  request = srq_request();
  request.type = 1;  // XRC without a domain
  create_srq(client, request, &status);
  EXPECT_EQ(status, EINVAL);
  request = srq_request();
  request.limit = 9;
  create_srq(client, request, &status);
  EXPECT_EQ(status, EINVAL);
}

TEST_F(ObjectsTest, ACqIsResizedWithEntriesInIt) {
  const ClientCq cq = client.create_cq(4);
  control::CqObject* object = client.session().cqs.find(cq.made.handle);
  // Seven went through, so the ring is in its second lap; three wait.
  auto* block = client.at<uroce_cq_client_block>(cq.made.client);
  queue::CqConsumer ring = cq.ring;
  for (std::uint64_t i = 0; i < 10; ++i) {
    uroce_cqe cqe{};
    cqe.wr_id = i;
    ASSERT_TRUE(object->cq->push(cqe, false));
    if (i >= 7) continue;
    ASSERT_NE(ring.peek(), nullptr);
    ring.pop();
    ring.publish();
  }
  EXPECT_EQ(block->consumer, 7u);
  EXPECT_EQ(client.send(UROCE_CMD_RESIZE_CQ, uroce_resize_cq_request{cq.made.handle, 2}).status, EINVAL);
  Reply reply = client.send(UROCE_CMD_RESIZE_CQ, uroce_resize_cq_request{cq.made.handle, 30});
  ASSERT_EQ(reply.status, 0);
  const auto resized = TestClient::value<uroce_resize_cq_response>(reply);
  client.map(resized.chunks, reply);
  EXPECT_EQ(resized.entries, 32u);
  ring.move_to(client.at<uroce_cqe>(resized.ring), resized.entries);
  for (std::uint64_t i = 7; i < 10; ++i) {
    ASSERT_NE(ring.peek(), nullptr);
    EXPECT_EQ(ring.peek()->wr_id, i);
    ring.pop();
  }
  EXPECT_EQ(ring.peek(), nullptr);
  ring.publish();
  // It works for several laps.
  for (std::uint64_t i = 10; i < 200; ++i) {
    uroce_cqe cqe{};
    cqe.wr_id = i;
    ASSERT_TRUE(object->cq->push(cqe, false));
    ASSERT_NE(ring.peek(), nullptr);
    EXPECT_EQ(ring.peek()->wr_id, i);
    ring.pop();
    ring.publish();
    EXPECT_EQ(ring.peek(), nullptr);
  }
}

TEST_F(ObjectsTest, WindowsBelongToTheirPdAndGoWithTheirSession) {
  const auto made =
      TestClient::value<uroce_alloc_mw_response>(client.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{pd, 2}));
  ASSERT_NE(made.rkey, 0u);
  EXPECT_EQ(client.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{pd, 3}).status, EINVAL);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_MW, made.handle), 0);
  EXPECT_EQ(client.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{pd, 1}).status, 0);
  EXPECT_EQ(daemon.memory.size(), 1u);
  client.close();
  EXPECT_EQ(daemon.memory.size(), 0u);
}

TEST_F(ObjectsTest, MemoryUnderAWindowStaysUntilTheWindowGoes) {
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(
      client.reg_mr(pd, 0x10000, 4096, kReadWrite | memory::kMwBind, data));
  const auto mw =
      TestClient::value<uroce_alloc_mw_response>(client.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{pd, 1}));
  memory::Binding binding;
  binding.window = Key{mw.rkey};
  binding.new_key = Key{mw.rkey ^ 1};
  binding.mr = Key{mr.lkey};
  binding.pd = client.session().pds.find(pd)->id;
  binding.address = 0x10000;
  binding.length = 100;
  binding.access = memory::kRemoteRead;
  ASSERT_EQ(daemon.memory.bind(binding), memory::Verdict::kOk);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_MW, mw.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
}

TEST_F(ObjectsTest, AnotherSessionsWindowDiesWithTheMemoryBelowIt) {
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(
      client.reg_mr(pd, 0x10000, 4096, kReadWrite | memory::kMwBind, data));
  TestClient other(conductor);
  other.hello();
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  const auto own = TestClient::value<uroce_handle>(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}));
  const auto mw = TestClient::value<uroce_alloc_mw_response>(
      other.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{own.handle, 1}));
  const PdId id = client.session().pds.find(pd)->id;
  ASSERT_EQ(daemon.memory.bind({.window = Key{mw.rkey},
                                .new_key = Key{mw.rkey ^ 1},
                                .mr = Key{mr.lkey},
                                .pd = id,
                                .address = 0x10000,
                                .length = 100,
                                .access = memory::kRemoteRead}),
            memory::Verdict::kOk);
  memory::Span span;
  EXPECT_EQ(daemon.memory.resolve(Key{mw.rkey ^ 1}, id, 0x10000, 1, memory::kRemoteRead, span),
            memory::Verdict::kOk);
  client.close();
  EXPECT_EQ(daemon.memory.resolve(Key{mw.rkey ^ 1}, id, 0x10000, 1, memory::kRemoteRead, span),
            memory::Verdict::kNoSuchKey);
  EXPECT_EQ(other.destroy(UROCE_CMD_DEALLOC_MW, mw.handle), 0);
  other.close();
  EXPECT_EQ(daemon.memory.size(), 0u);
}

TEST_F(ObjectsTest, ImportsNeedTheOthersDescriptorAndNameItsObjects) {
  TestClient other(conductor);
  other.hello();
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data));
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}).status, EINVAL);
  std::vector<UniqueFd> wrong;
  wrong.emplace_back(::memfd_create("wrong", MFD_CLOEXEC));
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(wrong)).status, ENOENT);
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd + 5, 0}).status, EINVAL);
  const auto own = TestClient::value<uroce_handle>(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}));
  const auto imported = TestClient::value<uroce_import_mr_response>(
      other.send(UROCE_CMD_IMPORT_MR, uroce_import_mr_request{own.handle, mr.handle}));
  EXPECT_EQ(imported.lkey, mr.lkey);
  EXPECT_EQ(imported.addr, 0x10000u);
  EXPECT_EQ(imported.length, 4096u);
  // In another PD the handle is not valid.
  const std::uint32_t foreign = other.alloc_pd();
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_MR, uroce_import_mr_request{foreign, mr.handle}).status, EINVAL);
  EXPECT_EQ(other.destroy(UROCE_CMD_DEALLOC_PD, own.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
}

TEST_F(ObjectsTest, AChunkIsKnownByItsCookieNotByItsInodeAlone) {
  TestClient other(conductor);
  other.hello();
  auto* const cookie = reinterpret_cast<std::byte*>(client.doorbells() + daemon.cores.size());
  const auto import = [&] {
    std::vector<UniqueFd> fds;
    fds.push_back(client.chunk_fd(0));
    return other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status;
  };
  // The file stands for another one with the same inode number.
  *cookie ^= std::byte{1};
  EXPECT_EQ(import(), ENOENT);
  *cookie ^= std::byte{1};
  EXPECT_EQ(import(), 0);
}

TEST_F(ObjectsTest, APdNumberIsInUseWhileAnImporterHasThePd) {
  TestClient other(conductor), third(conductor);
  other.hello();
  third.hello();
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  const auto own = TestClient::value<uroce_handle>(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}));
  const PdId number = other.session().pds.find(own.handle)->id;
  client.close();
  // More PDs than there are numbers, one at a time.
  for (std::uint32_t i = 0; i < 5 * control::kMaxPd; ++i) {
    const auto next = conductor.state().new_pd();
    ASSERT_NE(next, nullptr);
    ASSERT_NE(next->id(), number);
  }
}

TEST_F(ObjectsTest, DeviceMemoryIsASealedFileThatAnImporterGets) {
  UniqueFd memory(::memfd_create("dm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
  const auto allocate = [&](std::uint64_t length) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::dup(memory.get()));
    const uroce_alloc_dm_request request{length};
    return client.send(UROCE_CMD_ALLOC_DM, std::as_bytes(std::span(&request, 1)), std::move(fds));
  };
  EXPECT_EQ(allocate(4096).status, EINVAL) << "it could shrink";
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(allocate(4097).status, EINVAL);
  EXPECT_EQ(allocate(0).status, EINVAL);
  const auto made = TestClient::value<uroce_handle>(allocate(4000));
  TestClient other(conductor);
  other.hello();
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_DM, made).status, EINVAL) << "of no session that it may import from";
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  const Reply reply = other.send(UROCE_CMD_IMPORT_DM, made);
  EXPECT_EQ(TestClient::value<uroce_import_dm_response>(reply).length, 4000u);
  ASSERT_EQ(reply.fds.size(), 1u);
  struct stat ours {
  }, theirs{};
  ASSERT_EQ(::fstat(memory.get(), &ours) | ::fstat(reply.fds[0].get(), &theirs), 0);
  EXPECT_EQ(ours.st_ino, theirs.st_ino);
  EXPECT_EQ(client.destroy(UROCE_CMD_FREE_DM, made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_FREE_DM, made.handle), ENOENT);
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_DM, made).status, EINVAL);
}

TEST_F(ObjectsTest, XrcDomainsOfOneFileAreOne) {
  UniqueFd file(::memfd_create("domain", MFD_CLOEXEC));
  int status = 0;
  open_xrcd(client, file.get(), 0, &status);
  EXPECT_EQ(status, EAGAIN);
  const std::uint32_t first = open_xrcd(client, file.get(), O_CREAT | O_EXCL, &status);
  ASSERT_EQ(status, 0);
  open_xrcd(client, file.get(), O_CREAT | O_EXCL, &status);
  EXPECT_EQ(status, EINVAL);
  TestClient other(conductor);
  other.hello();
  const std::uint32_t second = open_xrcd(other, file.get(), 0, &status);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(client.session().xrcds.find(first)->domain, other.session().xrcds.find(second)->domain);
  const std::uint32_t lonely = open_xrcd(other, -1, O_CREAT, &status);
  ASSERT_EQ(status, 0);
  EXPECT_NE(other.session().xrcds.find(lonely)->domain, other.session().xrcds.find(second)->domain);
  open_xrcd(other, -1, 0, &status);
  EXPECT_EQ(status, EAGAIN);
  // It is destroyed with its last user.
  EXPECT_EQ(client.destroy(UROCE_CMD_CLOSE_XRCD, first), 0);
  open_xrcd(client, file.get(), 0, &status);
  EXPECT_EQ(status, 0);
  client.close();
  other.close();
  TestClient late(conductor);
  late.hello();
  open_xrcd(late, file.get(), 0, &status);
  EXPECT_EQ(status, EAGAIN);
}

TEST_F(ObjectsTest, ADescriptorOpenedWithoutAccessOpensNoXrcDomain) {
  UniqueFd file(::memfd_create("domain", MFD_CLOEXEC));
  int status = 0;
  open_xrcd(client, file.get(), O_CREAT, &status);
  ASSERT_EQ(status, 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const UniqueFd name_only(::open(path.c_str(), O_PATH | O_CLOEXEC));
  ASSERT_TRUE(name_only.valid());
  open_xrcd(client, name_only.get(), 0, &status);
  EXPECT_EQ(status, EBADF);
  const UniqueFd readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  open_xrcd(client, readable.get(), 0, &status);
  EXPECT_EQ(status, 0);
}

TEST_F(ObjectsTest, AnXrcTargetIsOpenedByItsTenantOnly) {
  UniqueFd file(::memfd_create("domain", MFD_CLOEXEC));
  uroce_create_qp_request request{};
  request.type = 10;  // XRC target
  request.xrcd = open_xrcd(client, file.get(), O_CREAT);
  int status = 0;
  const ClientQp target = client.create_qp(request, &status);
  ASSERT_EQ(status, 0);
  const auto open = [&](TestClient& by) {
    by.hello();
    const std::uint32_t xrcd = open_xrcd(by, file.get(), 0);
    return by.send(UROCE_CMD_OPEN_QP, uroce_open_qp_request{xrcd, target.made.qpn, 0}).status;
  };
  TestClient same(conductor), other_user(conductor, 65534);
  platform::Peer inside = TestClient::myself();
  inside.pid_ns = {1, 2};
  TestClient container(conductor, std::move(inside));
  EXPECT_EQ(open(same), 0);
  EXPECT_EQ(open(other_user), EINVAL);
  EXPECT_EQ(open(container), EINVAL);
}

TEST_F(ObjectsTest, AnXrcSrqHoldsItsDomainAndItsCq) {
  const std::uint32_t xrcd = open_xrcd(client, -1, O_CREAT);
  const ClientCq cq = client.create_cq(8);
  auto request = srq_request();
  request.type = 1;
  request.xrcd = xrcd;
  request.cq = cq.made.handle;
  const auto made = create_srq(client, request);
  ASSERT_NE(made.handle, 0u);
  EXPECT_NE(made.srqn, 0u);
  EXPECT_EQ(client.destroy(UROCE_CMD_CLOSE_XRCD, xrcd), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, cq.made.handle), EBUSY);
  // An ordinary QP can't receive from it.
  auto qp = TestClient::qp_request(pd, cq.made.handle);
  qp.srq = made.handle;
  int status = 0;
  client.create_qp(qp, &status);
  EXPECT_EQ(status, EINVAL);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_CLOSE_XRCD, xrcd), 0);
}

}  // namespace
}  // namespace uroce::daemon::testing
