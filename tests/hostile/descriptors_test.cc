// Descriptors that do not close, and too many of them: they cost their sender its session, and no other client.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

/// A TCP socket whose last close(2) waits for a minute: SO_LINGER, and a peer that reads nothing.
class LingeringSockets {
 public:
  LingeringSockets() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    const int small = 4096;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any));
    ::listen(listener_.get(), 4096);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length);
  }
  UniqueFd make() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const linger wait{1, 60};
    const int small = 4096;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    ::usleep(1000);
    const std::vector<char> bytes(1 << 12);
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    ::fcntl(socket.get(), F_SETFL, 0);  // close(2) of a nonblocking socket does not wait
    return socket;
  }

 private:
  UniqueFd listener_;
  sockaddr_in address_{};
};

void expect_served(DaemonProcess& daemon) {
  Tenant tenant(daemon.socket_path(), 1 << 20);
  EXPECT_TRUE(tenant.ok()) << tenant.error;
  EXPECT_TRUE(tenant.ok() && tenant.write_once() != 0);
}

/// Sends a request with descriptors that do not close. A process that exits closes without waiting, so a child
/// makes and sends them.
bool send_lingering(RawClient& client, LingeringSockets& sockets, std::uint32_t command, std::size_t count) {
  Child sender(::geteuid(), [&]() -> int {
    std::vector<UniqueFd> held;
    std::vector<int> fds;
    for (std::size_t i = 0; i < count; ++i) fds.push_back(held.emplace_back(sockets.make()).get());
    ::_exit(client.send(command, {}, fds) ? 0 : 1);
  });
  return sender.wait() == 0;
}

/// Enough for 25 messages of 200: descriptors do not linger if the daemon closes its own before the sender has
/// exited.
constexpr int kMost = 5000;

/// How many of kMost descriptors were sent before the session was closed.
int send_until_closed(RawClient& client, std::uint32_t command, std::size_t each) {
  LingeringSockets sockets;
  int sent = 0;
  while (sent < kMost && send_lingering(client, sockets, command, each) && client.receive().status >= 0) {
    sent += static_cast<int>(each);
  }
  return sent;
}

class Lingering : public ::testing::TestWithParam<std::pair<std::uint32_t, std::size_t>> {};

TEST_P(Lingering, DescriptorsCostOneThreadAndTheSession) {
  const auto [command, each] = GetParam();
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  expect_served(daemon);
  const std::size_t threads = daemon.threads(), descriptors = daemon.descriptors();
  Shared<std::atomic<int>> sent;
  Child attacker(kAttacker, [&, command = command, each = each] {
    rlimit files{4096, 4096};
    ::setrlimit(RLIMIT_NOFILE, &files);
    RawClient client(daemon.socket_path());
    if (client.hello() != 0) return 1;
    sent->store(send_until_closed(client, command, each));
    ::pause();
    return 0;
  });
  for (int i = 0; i < 2000 && *sent == 0 && attacker.running(); ++i) ::usleep(10'000);
  EXPECT_GT(*sent, 0) << "exit " << attacker.wait(0);
  EXPECT_LT(*sent, kMost) << "the session was not closed";
  EXPECT_LE(daemon.threads(), threads + 2);
  EXPECT_LE(daemon.descriptors(), descriptors + 600);
  EXPECT_FALSE(daemon.stuck()) << daemon.thread_states();
  expect_served(daemon);
  EXPECT_EQ(daemon.stop(), 0);
}

// A command that takes descriptors, one that takes none, an unknown one, and more than any command takes.
INSTANTIATE_TEST_SUITE_P(All, Lingering,
                         ::testing::Values(std::pair{std::uint32_t{UROCE_CMD_OPEN_XRCD}, std::size_t{1}},
                                           std::pair{std::uint32_t{UROCE_CMD_ALLOC_PD}, std::size_t{1}},
                                           std::pair{std::uint32_t{0xffff}, std::size_t{8}},
                                           std::pair{std::uint32_t{UROCE_CMD_REG_MR}, std::size_t{200}}));

TEST(Descriptors, AreRefusedWithCommandsThatTakeNone) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  RawClient client(daemon.socket_path());
  ASSERT_EQ(client.hello(), 0);
  const UniqueFd file(::memfd_create("unwanted", MFD_CLOEXEC));
  const int fd = file.get();
  EXPECT_EQ(client.call(UROCE_CMD_ALLOC_PD, {}, {&fd, 1}).status, EINVAL);
  EXPECT_EQ(client.call(UROCE_CMD_QUERY_DEVICE, {}, {&fd, 1}).status, EINVAL);
  EXPECT_EQ(client.call(UROCE_CMD_ALLOC_PD).status, 0);
  EXPECT_FALSE(client.closed());
}

/// Unread messages of a session that is closed hold descriptors, too.
TEST(Descriptors, ThatWaitInASocketStopNobody) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  expect_served(daemon);
  Shared<std::atomic<int>> stage;
  Child attacker(kAttacker, [&] {
    RawClient client(daemon.socket_path());
    if (client.hello() != 0) return 1;
    LingeringSockets sockets;
    stage->store(1);
    while (*stage != 2) ::usleep(1000);
    // The session is closed for the first message; the others stay in its socket.
    const std::byte malformed{};
    bool sent = client.send_bytes({&malformed, 1});
    for (int i = 0; i < 4; ++i) sent = sent && send_lingering(client, sockets, UROCE_CMD_OPEN_XRCD, 1);
    stage->store(3);
    ::pause();
    return 0;
  });
  while (*stage != 1 && attacker.running()) ::usleep(1000);
  ::kill(daemon.pid(), SIGSTOP);
  stage->store(2);
  while (*stage != 3 && attacker.running()) ::usleep(1000);
  ::kill(daemon.pid(), SIGCONT);
  expect_served(daemon);
  EXPECT_TRUE(attacker.running());
  EXPECT_EQ(daemon.stop(), 0);
}

/// One user holds all of the daemon's descriptors: another user's request is refused, and its session lives.
TEST(Descriptors, ThatHaveRunOutCloseNoSession) {
  if (!is_root()) GTEST_SKIP() << "needs root to lower the daemon's limit and raise it again";
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.ready()) << daemon.log();
  Tenant tenant(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(tenant.ok()) << tenant.error;
  rlimit before{};
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const Memory refused = tenant.client.register_memfd(tenant.pd, 1 << 20);
  EXPECT_EQ(refused.status, EMFILE);
  EXPECT_FALSE(tenant.client.closed());
  EXPECT_NE(tenant.write_once(), 0u);
  EXPECT_EQ(tenant.client.call(UROCE_CMD_ALLOC_PD).status, 0);
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_EQ(tenant.client.register_memfd(tenant.pd, 1 << 20).status, 0);
}

}  // namespace
}  // namespace uroce::hostile
