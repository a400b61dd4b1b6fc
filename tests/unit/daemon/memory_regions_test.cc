// Regions that are re-registered, that have no memory, and whose memory is mapped on demand.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>

#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::Reply;

namespace {

class MemoryRegionsTest : public ::testing::Test {
 protected:
  MemoryRegionsTest() {
    client.hello();
    pd = client.alloc_pd();
  }
  PdId id_of(std::uint32_t handle) { return client.session().pds.find(handle)->id; }
  memory::Verdict resolve(std::uint32_t key, std::uint32_t in, std::uint64_t address, std::uint32_t need) {
    return daemon.memory.resolve(Key{key}, id_of(in), address, 8, need, span);
  }
  /// Without pieces.
  Reply rereg(std::uint32_t handle, std::uint32_t mask, std::uint32_t to_pd, std::uint32_t access) {
    uroce_rereg_mr_request request{};
    request.handle = handle;
    request.mask = mask;
    request.mr.pd = to_pd;
    request.mr.access = access;
    return client.send(UROCE_CMD_REREG_MR, request);
  }

  TestDaemon daemon;
  TestClient client{*daemon.conductor};
  std::uint32_t pd = 0;
  memory::Span span;
  std::byte* data = nullptr;
};

TEST(ProcMemAccess, IsRefusedWhereTheConfigurationSaysSo) {
  for (const bool allowed : {true, false}) {
    control::DaemonConfig config = test_config();
    config.indirect = allowed;
    TestDaemon daemon(config);
    platform::Peer peer{.pid = ::getpid(), .uid = ::getuid(), .pidfd = UniqueFd(), .gid = ::getgid()};
    peer.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    ASSERT_TRUE(peer.pidfd.valid());
    TestClient client(*daemon.conductor, std::move(peer));
    client.hello();
    std::uint64_t own = 0;
    uroce_reg_mr_request request{};
    request.pd = client.alloc_pd();
    request.addr = request.iova = reinterpret_cast<std::uint64_t>(&own);
    request.length = sizeof(own);
    request.access = kReadWrite;
    EXPECT_EQ(client.send(UROCE_CMD_REG_MR, request).status, allowed ? 0 : EOPNOTSUPP);
  }
}

TEST(ProcMemAccess, OfAProgramInAPidNamespaceThatTheDaemonDoesNotSee) {
  TestDaemon daemon;
  // SO_PEERCRED has 0 for it.
  platform::Peer peer{.pid = 0, .uid = ::getuid(), .pidfd = UniqueFd(), .gid = ::getgid()};
  peer.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  TestClient client(*daemon.conductor, std::move(peer));
  client.hello();
  std::uint64_t own = 0;
  uroce_reg_mr_request request{};
  request.pd = client.alloc_pd();
  request.addr = request.iova = reinterpret_cast<std::uint64_t>(&own);
  request.length = sizeof(own);
  request.access = kReadWrite;
  EXPECT_EQ(client.send(UROCE_CMD_REG_MR, request).status, EPERM);
  const Reply reply = client.send(UROCE_CMD_EXPLAIN, std::span<const std::byte>{});
  const std::string words = TestClient::value<uroce_explain_response>(reply).text;
  EXPECT_NE(words.find("PID namespace"), std::string::npos) << words;
}

TEST_F(MemoryRegionsTest, AccessAndPdChangeInPlace) {
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data));
  const std::uint32_t other = client.alloc_pd();
  Reply reply = rereg(mr.handle, UROCE_REREG_ACCESS | UROCE_REREG_PD, other, memory::kLocalWrite);
  ASSERT_EQ(reply.status, 0);
  const auto now = TestClient::value<uroce_reg_mr_response>(reply);
  EXPECT_EQ(now.handle, mr.handle);
  EXPECT_EQ(resolve(mr.rkey, pd, 0x10000, memory::kRemoteRead), memory::Verdict::kNoSuchKey);
  EXPECT_EQ(resolve(now.lkey, other, 0x10000, 0), memory::Verdict::kOk);
  EXPECT_EQ(resolve(now.rkey, other, 0x10000, memory::kRemoteRead), memory::Verdict::kNoAccess);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, other), 0);
}

TEST_F(MemoryRegionsTest, AnotherRangeTakesThePlaceOfTheFirst) {
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data));
  UniqueFd file(::memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  uroce_rereg_mr_request request{};
  request.handle = mr.handle;
  request.mask = UROCE_REREG_TRANSLATION;
  request.mr.addr = request.mr.iova = 0x20000;
  request.mr.length = 8192;
  request.mr.piece_count = 1;
  request.mr.piece[0] = {0, 0, 0, 8192};
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(file));
  Reply reply = client.send(UROCE_CMD_REREG_MR, request, std::move(fds));
  ASSERT_EQ(reply.status, 0);
  const auto now = TestClient::value<uroce_reg_mr_response>(reply);
  EXPECT_EQ(resolve(now.rkey, pd, 0x21000, memory::kRemoteWrite), memory::Verdict::kOk);
  EXPECT_EQ(resolve(now.rkey, pd, 0x10000, memory::kRemoteWrite), memory::Verdict::kOutOfRange);
  EXPECT_EQ(client.session().memory.mappings(), 1u);
}

TEST_F(MemoryRegionsTest, ARegionForWindowsIsMappedForWriting) {
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, memory::kMwBind, data));
  EXPECT_EQ(rereg(mr.handle, UROCE_REREG_ACCESS, 0, kReadWrite).status, 0);
  EXPECT_EQ(resolve(mr.rkey, pd, 0x10000, memory::kRemoteWrite), memory::Verdict::kOk);
}

TEST_F(MemoryRegionsTest, ARefusedChangeLeavesTheRegionAsItWas) {
  const auto mr =
      TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, memory::kRemoteRead, data));
  EXPECT_EQ(rereg(mr.handle, UROCE_REREG_ACCESS, 0, memory::kRemoteWrite).status, EINVAL);
  // It was mapped for reading: to write, the pieces must come along.
  EXPECT_EQ(rereg(mr.handle, UROCE_REREG_ACCESS, 0, kReadWrite).status, EINVAL);
  EXPECT_EQ(rereg(mr.handle, UROCE_REREG_PD, pd + 7, 0).status, EINVAL);
  EXPECT_EQ(rereg(mr.handle, 8, 0, 0).status, EINVAL);
  EXPECT_EQ(rereg(mr.handle, 0, 0, 0).status, EINVAL);
  EXPECT_EQ(rereg(mr.handle + 1, UROCE_REREG_ACCESS, 0, 0).status, EINVAL);
  EXPECT_EQ(resolve(mr.rkey, pd, 0x10000, memory::kRemoteRead), memory::Verdict::kOk);
  EXPECT_EQ(daemon.memory.size(), 1u);
}

TEST_F(MemoryRegionsTest, PastTheEndOfItsFileNothingIsRegistered) {
  const UniqueFd file(::memfd_create("short", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const auto send = [&](std::uint32_t command, std::span<const std::byte> body) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::dup(file.get()));
    return client.send(command, body, std::move(fds));
  };
  uroce_reg_mr_request request{};
  request.pd = pd;
  request.access = kReadWrite;
  request.addr = request.iova = 0x10000;
  request.length = 32768;
  request.piece_count = 1;
  request.piece[0] = {0, 0, 0, 32768};
  const auto body = std::as_bytes(std::span(&request, 1));
  EXPECT_EQ(send(UROCE_CMD_REG_MR, body).status, EFAULT);
  EXPECT_EQ(send(UROCE_CMD_ALLOC_FAST_MR, body).status, EFAULT);
  EXPECT_EQ(daemon.memory.size(), 0u);

  // A change that fails leaves the region as it was.
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data));
  uroce_rereg_mr_request change{};
  change.handle = mr.handle;
  change.mask = UROCE_REREG_TRANSLATION;
  change.mr = request;
  EXPECT_EQ(send(UROCE_CMD_REREG_MR, std::as_bytes(std::span(&change, 1))).status, EFAULT);
  EXPECT_EQ(resolve(mr.rkey, pd, 0x10000, memory::kRemoteWrite), memory::Verdict::kOk);
  EXPECT_EQ(client.session().memory.mappings(), 1u);
  request.access |= memory::kOnDemand;
  EXPECT_EQ(send(UROCE_CMD_REG_MR, body).status, 0);
}

TEST_F(MemoryRegionsTest, ANullMrReadsZeroesAndDropsWrites) {
  const auto mr =
      TestClient::value<uroce_reg_mr_response>(client.send(UROCE_CMD_ALLOC_NULL_MR, uroce_handle{pd, 0}));
  ASSERT_NE(mr.lkey, 0u);
  ASSERT_EQ(resolve(mr.lkey, pd, 0xdeadbeef000, memory::kLocalWrite), memory::Verdict::kOk);
  std::byte bytes[8];
  std::memset(bytes, 0xff, sizeof(bytes));
  EXPECT_TRUE(span.write(0, bytes, sizeof(bytes)));
  EXPECT_TRUE(span.read(0, bytes, sizeof(bytes)));
  for (const std::byte b : bytes) EXPECT_EQ(b, std::byte{0});
  EXPECT_EQ(resolve(mr.lkey, pd, 0x1000, memory::kRemoteRead), memory::Verdict::kNoAccess);
  EXPECT_EQ(rereg(mr.handle, UROCE_REREG_ACCESS, 0, 0).status, EINVAL);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
}

TEST_F(MemoryRegionsTest, AnOnDemandRegionMayHaveHolesAndBeEverything) {
  UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  TestClient own(*daemon.conductor, platform::Peer{::getpid(), 0, std::move(self)});
  own.hello();
  const std::uint32_t in = own.alloc_pd();
  uroce_reg_mr_request request{};
  request.pd = in;
  request.access = memory::kLocalWrite;
  request.addr = request.iova = 0x1000;  // nothing is there
  request.length = 4096;
  EXPECT_EQ(own.send(UROCE_CMD_REG_MR, request).status, EFAULT);
  request.access |= memory::kOnDemand;
  EXPECT_EQ(own.send(UROCE_CMD_REG_MR, request).status, 0);
  request.addr = request.iova = 0;
  request.length = ~std::uint64_t{0};
  const auto whole = TestClient::value<uroce_reg_mr_response>(own.send(UROCE_CMD_REG_MR, request));
  ASSERT_NE(whole.lkey, 0u);
  std::uint64_t number = 0x1234;
  const PdId id = own.session().pds.find(in)->id;
  ASSERT_EQ(daemon.memory.resolve(Key{whole.lkey}, id, reinterpret_cast<std::uintptr_t>(&number), sizeof(number), 0,
                                  span),
            memory::Verdict::kOk);
  std::uint64_t seen = 0;
  EXPECT_TRUE(span.read(0, reinterpret_cast<std::byte*>(&seen), sizeof(seen)));
  EXPECT_EQ(seen, number);
  ASSERT_EQ(daemon.memory.resolve(Key{whole.lkey}, id, 0x1000, 8, 0, span), memory::Verdict::kOk);
  EXPECT_FALSE(span.read(0, reinterpret_cast<std::byte*>(&seen), sizeof(seen)));
  request.access = memory::kLocalWrite;
  EXPECT_EQ(own.send(UROCE_CMD_REG_MR, request).status, EINVAL);
}

TEST_F(MemoryRegionsTest, AFastRegistrationKeyOpensNothingUntilAWorkRequestSaysWhat) {
  UniqueFd file(::memfd_create("fast", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  uroce_reg_mr_request request{};
  request.pd = pd;
  request.access = kReadWrite;
  request.addr = request.iova = 0x30000;
  request.length = 8192;
  request.piece_count = 1;
  request.piece[0] = {0, 0, 0, 8192};
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(file));
  const auto mr =
      TestClient::value<uroce_reg_mr_response>(client.send(UROCE_CMD_ALLOC_FAST_MR, request, std::move(fds)));
  ASSERT_NE(mr.rkey, 0u);
  EXPECT_EQ(resolve(mr.rkey, pd, 0x30000, memory::kRemoteRead), memory::Verdict::kNoSuchKey);
  const Key next{mr.rkey ^ 1};
  ASSERT_EQ(daemon.memory.register_fast({.key = Key{mr.rkey},
                                         .new_key = next,
                                         .pd = id_of(pd),
                                         .address = 0x31000,
                                         .length = 64,
                                         .access = memory::kRemoteRead}),
            memory::Verdict::kOk);
  EXPECT_EQ(resolve(next.value, pd, 0x31000, memory::kRemoteRead), memory::Verdict::kOk);
  EXPECT_EQ(resolve(next.value, pd, 0x30000, memory::kRemoteRead), memory::Verdict::kOutOfRange);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
  EXPECT_EQ(resolve(next.value, pd, 0x31000, memory::kRemoteRead), memory::Verdict::kNoSuchKey);
}

}  // namespace
}  // namespace uroce::daemon::testing
