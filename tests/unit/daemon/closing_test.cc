// Descriptors whose close(2) waits as long as a client wants: they count as their user's until they are closed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using platform::Peer;

namespace {

constexpr uid_t kUser = 4711, kOther = 4712;

/// A TCP socket whose last close(2) waits until let_go(): SO_LINGER, and a peer that reads nothing.
class LingeringSocket {
 public:
  LingeringSocket() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    UniqueFd file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const linger wait{1, 600};
    ::setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
    if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), any, &length) != 0 ||
        (::connect(file.get(), any, length) != 0 && errno != EINPROGRESS)) {
      return;
    }
    peer_.reset(::accept(listener.get(), nullptr, nullptr));
    const std::vector<char> bytes(1 << 16);
    while (::send(file.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) continue;
    ::fcntl(file.get(), F_SETFL, 0);  // close(2) of a nonblocking socket does not wait
    if (errno == EAGAIN) file_ = std::move(file);
  }
  ~LingeringSocket() { let_go(); }
  LingeringSocket(const LingeringSocket&) = delete;
  LingeringSocket& operator=(const LingeringSocket&) = delete;

  bool valid() const { return file_.valid(); }
  UniqueFd take() { return std::move(file_); }
  void let_go() {
    const linger reset{1, 0};
    ::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    peer_.reset();
  }

 private:
  UniqueFd file_, peer_;
};

class ClosingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(stuck.valid()) << std::strerror(errno); }
  void TearDown() override {
    stuck.let_go();
    EXPECT_TRUE(daemon.nothing_is_held());
  }

  /// A request that takes no descriptors, with `count` of which the first does not close.
  void send_stuck(TestClient& client, std::size_t count = 1) {
    std::vector<UniqueFd> fds;
    fds.push_back(stuck.take());
    while (fds.size() < count) fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
    EXPECT_EQ(client.send(UROCE_CMD_ALLOC_PD, std::span<const std::byte>{}, std::move(fds)).status, EINVAL);
  }
  std::uint64_t held(uid_t user) {
    state.process().users().count_closing();
    const auto& users = state.quotas().users();
    const auto it = users.find(user);
    return it != users.end() ? it->second.usage.descriptors : 0;
  }
  bool becomes(uid_t user, std::uint64_t descriptors) {
    const Nanos end = monotonic_now() + 60 * kSecond;
    while (held(user) != descriptors && monotonic_now() < end) std::this_thread::yield();
    return held(user) == descriptors;
  }

  LingeringSocket stuck;
  TestDaemon daemon;
  Conductor& conductor = *daemon.conductor;
  control::ControlState& state = conductor.state();
};

/// Both ends of what a client and the daemon talk on.
struct Connection {
  Connection() {
    int ends[2] = {-1, -1};
    static_cast<void>(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    client.reset(ends[0]), daemon.reset(ends[1]);
  }
  bool send(const UniqueFd& attached) const {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part, header.msg_iovlen = 1;
    header.msg_control = control, header.msg_controllen = sizeof(control);
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    *c = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    const int fd = attached.get();
    std::memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    return ::sendmsg(client.get(), &header, MSG_NOSIGNAL) == 1;
  }
  UniqueFd client, daemon;
};

TEST_F(ClosingTest, ADescriptorCountsAgainstItsUserUntilItIsClosed) {
  {
    TestClient client(conductor, kUser);
    client.hello();
    const std::uint64_t before = held(kUser);
    send_stuck(client, 7);
    EXPECT_EQ(held(kUser), before + 7);
  }
  EXPECT_TRUE(becomes(kUser, 7)) << held(kUser);
  EXPECT_EQ(state.quotas().total().descriptors, 7u);
  stuck.let_go();
  EXPECT_TRUE(becomes(kUser, 0)) << held(kUser);
}

TEST_F(ClosingTest, SocketsOfTheDaemonDoNotStandBehindThoseOfClients) {
  TestClient client(conductor, kUser);
  client.hello();
  const std::uint64_t before = held(kUser);
  send_stuck(client);
  for (int i = 0; i < 50; ++i) {
    Connection connection;
    TestClient other(conductor, Peer{::getpid(), kUser, UniqueFd()}, std::move(connection.daemon));
    other.hello();
    other.send(UROCE_CMD_CREATE_CHANNEL, std::span<const std::byte>{});
  }
  EXPECT_TRUE(becomes(kUser, before + 1)) << held(kUser);
}

TEST_F(ClosingTest, ASocketWithAMessageStandsWithThem) {
  {
    Connection connection;
    {
      const UniqueFd file = stuck.take();
      ASSERT_TRUE(connection.send(file));
    }
    TestClient client(conductor, Peer{::getpid(), kUser, UniqueFd()}, std::move(connection.daemon));
  }
  EXPECT_TRUE(becomes(kUser, 1)) << held(kUser);
  {
    Connection other;
    TestClient client(conductor, Peer{::getpid(), kUser, UniqueFd()}, std::move(other.daemon));
  }
  EXPECT_TRUE(becomes(kUser, 1)) << held(kUser);
}

TEST_F(ClosingTest, AUserWhoseCloserIsFullGetsNoSessionAndOthersDo) {
  {
    TestClient client(conductor, kUser);
    client.hello();
    send_stuck(client, mapping::Closer::kFull);
    EXPECT_TRUE(client.session().close_pending);
  }
  EXPECT_EQ(conductor.open_session(Peer{::getpid(), kUser, UniqueFd()}, UniqueFd()), nullptr);
  EXPECT_NE(state.quotas().last_refusal().find("user 4711 gets no new session: "), std::string::npos);
  EXPECT_NE(state.quotas().last_refusal().find(" descriptors that its programs passed do not close"),
            std::string::npos);
  { TestClient client(conductor, kOther), root(conductor); }
  stuck.let_go();
  EXPECT_TRUE(becomes(kUser, 0)) << held(kUser);
  TestClient client(conductor, kUser);
  EXPECT_NE(client.hello().workers, 0u);
}

TEST_F(ClosingTest, RefusedConnectionsWithMessagesTakeNoMoreThanTheUserMayHave) {
  {
    TestClient client(conductor, kUser);
    client.hello();
    send_stuck(client, mapping::Closer::kFull);
  }
  const std::uint64_t limit = state.quotas().limit(control::kResources[13], false);
  ASSERT_STREQ(control::kResources[13].name, "descriptors");
  const control::Charge most = state.quotas().charge(kUser, {.descriptors = limit - mapping::Closer::kFull - 8});
  ASSERT_TRUE(most);
  const UniqueFd file(::eventfd(0, EFD_CLOEXEC));
  for (int i = 0; i < 20; ++i) {
    Connection connection;
    ASSERT_TRUE(connection.send(file));
    EXPECT_EQ(conductor.open_session(Peer{::getpid(), kUser, UniqueFd()}, std::move(connection.daemon)), nullptr);
  }
  EXPECT_LE(held(kUser), limit);
  EXPECT_GE(held(kUser), limit - 8);
}

}  // namespace
}  // namespace uroce::daemon::testing
