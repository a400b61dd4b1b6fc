// Streams through the public functions, on a device in this process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fake_rdma.h"

namespace uroce::rdmacm {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return in;
}

int connect_to(int socket, std::uint16_t port) {
  const sockaddr_in to = loopback(port);
  return rconnect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
}

int listener_on(std::uint16_t port) {
  const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in at = loopback(port);
  EXPECT_EQ(rbind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  EXPECT_EQ(rlisten(listener, 16), 0);
  return listener;
}

std::string pattern(std::size_t size, unsigned seed) {
  std::string s(size, 0);
  for (std::size_t i = 0; i < size; ++i) s[i] = static_cast<char>((i + seed) * 2654435761u >> 13);
  return s;
}

void send_all(int socket, const std::string& data) {
  for (std::size_t sent = 0; sent < data.size();) {
    const ssize_t n = rsend(socket, data.data() + sent, data.size() - sent, 0);
    ASSERT_GT(n, 0) << std::strerror(errno);
    sent += static_cast<std::size_t>(n);
  }
}

std::string receive_all(int socket, std::size_t size) {
  std::string data(size, 0);
  std::size_t got = 0;
  while (got < size) {
    const ssize_t n = rrecv(socket, data.data() + got, size - got, 0);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  data.resize(got);
  return data;
}

class StreamTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(rclose(a), 0);
    EXPECT_EQ(rclose(b), 0);
    EXPECT_EQ(rclose(listener), 0);
    EXPECT_EQ(fake::objects(), 0);
  }
  void SetUp() override {
    listener = listener_on(7000);
    a = rsocket(AF_INET, SOCK_STREAM, 0);
    configure(listener);
    configure(a);
    ASSERT_EQ(connect_to(a, 7000), 0) << std::strerror(errno);
    b = raccept(listener, nullptr, nullptr);
    ASSERT_GE(b, 0);
  }
  virtual void configure(int) {}

  int listener = -1, a = -1, b = -1;
};

TEST_F(StreamTest, CarriesBytesBothWays) {
  for (const std::size_t size : {1, 63, 64, 65, 2047, 2048, 2049, 65536, 100000}) {
    std::thread sender([&] { send_all(a, pattern(size, 1)); });
    EXPECT_EQ(receive_all(b, size), pattern(size, 1));
    sender.join();
    std::thread back([&] { send_all(b, pattern(size, 2)); });
    EXPECT_EQ(receive_all(a, size), pattern(size, 2));
    back.join();
  }
}

TEST_F(StreamTest, SendsAndReceivesOnOneSocketAtOnce) {
  const std::string forth = pattern(8 << 20, 1), back = pattern(8 << 20, 2);
  std::string at_a, at_b;
  std::thread t1([&] { send_all(a, forth); });
  std::thread t2([&] { send_all(b, back); });
  std::thread t3([&] { at_a = receive_all(a, back.size()); });
  at_b = receive_all(b, forth.size());
  for (std::thread* t : {&t1, &t2, &t3}) t->join();
  EXPECT_TRUE(at_a == back);
  EXPECT_TRUE(at_b == forth);
}

TEST_F(StreamTest, GivesEndOfFileAfterTheLastByteOfAPeerThatShutDown) {
  send_all(a, "last words");
  EXPECT_EQ(rshutdown(a, SHUT_WR), 0);
  EXPECT_EQ(receive_all(b, 100), "last words");
  char byte;
  EXPECT_EQ(rrecv(b, &byte, 1, 0), 0);
  EXPECT_EQ(rsend(a, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  // The other direction is still open.
  send_all(b, "answer");
  EXPECT_EQ(receive_all(a, 6), "answer");
}

TEST_F(StreamTest, ReportsToPollersThatThePeerHasClosed) {
  send_all(a, "bye");
  const int gone = a;
  a = rsocket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(rclose(gone), 0);
  pollfd fd{b, POLLIN, 0};
  EXPECT_EQ(rpoll(&fd, 1, 5000), 1);
  EXPECT_EQ(receive_all(b, 100), "bye");
  EXPECT_EQ(rpoll(&fd, 1, 5000), 1);
  EXPECT_NE(fd.revents & (POLLIN | POLLHUP), 0);
  EXPECT_EQ(rsend(b, "x", 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(StreamTest, WakesAPollerWhenDataArrives) {
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    send_all(a, "x");
  });
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  pollfd both[] = {{fds[0], POLLIN, 0}, {b, POLLIN, 0}};
  EXPECT_EQ(rpoll(both, 2, 5000), 1);
  EXPECT_EQ(both[0].revents, 0);
  EXPECT_EQ(both[1].revents, POLLIN);
  sender.join();
  EXPECT_EQ(receive_all(b, 1), "x");
  EXPECT_EQ(rpoll(both, 2, 20), 0);
  // An ordinary descriptor wakes it, too.
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(write(fds[1], "y", 1), 1);
  });
  fd_set read;
  FD_ZERO(&read);
  FD_SET(fds[0], &read);
  FD_SET(b, &read);
  timeval timeout{5, 0};
  EXPECT_EQ(rselect(std::max(fds[0], b) + 1, &read, nullptr, nullptr, &timeout), 1);
  EXPECT_TRUE(FD_ISSET(fds[0], &read));
  EXPECT_FALSE(FD_ISSET(b, &read));
  writer.join();
  close(fds[0]);
  close(fds[1]);
}

TEST_F(StreamTest, DoesNotBlockWhenNonBlocking) {
  char byte;
  EXPECT_EQ(rrecv(b, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(rfcntl(a, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(rfcntl(a, F_GETFL), O_NONBLOCK);
  const std::string data = pattern(16 << 20, 3);
  std::size_t sent = 0;
  ssize_t n;
  while ((n = rsend(a, data.data() + sent, data.size() - sent, 0)) > 0) sent += static_cast<std::size_t>(n);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GT(sent, 60000u);
  EXPECT_LT(sent, data.size());
  pollfd fd{a, POLLOUT, 0};
  EXPECT_EQ(rpoll(&fd, 1, 0), 0);
  EXPECT_EQ(receive_all(b, sent), data.substr(0, sent));
  EXPECT_EQ(rpoll(&fd, 1, 5000), 1);
  EXPECT_EQ(fd.revents, POLLOUT);
}

TEST_F(StreamTest, PeeksWaitsForAllAndFillsVectors) {
  send_all(a, "abcdef");
  char peeked[4] = {};
  pollfd fd{b, POLLIN, 0};
  ASSERT_EQ(rpoll(&fd, 1, 5000), 1);
  EXPECT_EQ(rrecv(b, peeked, 4, MSG_PEEK), 4);
  EXPECT_EQ(std::string(peeked, 4), "abcd");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    send_all(a, "ghij");
  });
  char all[10];
  EXPECT_EQ(rrecv(b, all, 10, MSG_WAITALL), 10);
  EXPECT_EQ(std::string(all, 10), "abcdefghij");
  later.join();
  char one[] = "12", two[] = "345";
  const iovec out[] = {{one, 2}, {nullptr, 0}, {two, 3}};
  EXPECT_EQ(rwritev(a, out, 3), 5);
  char in1[4], in2[4];
  const iovec in[] = {{in1, 4}, {in2, 4}};
  ASSERT_EQ(rpoll(&fd, 1, 5000), 1);
  EXPECT_EQ(rreadv(b, in, 2), 5);
  EXPECT_EQ(std::string(in1, 4) + in2[0], "12345");
}

TEST_F(StreamTest, NamesBothEnds) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  ASSERT_EQ(rgetpeername(a, reinterpret_cast<sockaddr*>(&name), &length), 0);
  EXPECT_EQ(ntohs(name.sin_port), 7000);
  sockaddr_in own{};
  ASSERT_EQ(rgetsockname(a, reinterpret_cast<sockaddr*>(&own), &length), 0);
  ASSERT_EQ(rgetpeername(b, reinterpret_cast<sockaddr*>(&name), &length), 0);
  EXPECT_EQ(name.sin_port, own.sin_port);
  length = 0;
  EXPECT_EQ(rgetsockname(a, nullptr, &length), 0);
  EXPECT_EQ(length, sizeof(sockaddr_in));
}

TEST_F(StreamTest, NoticesWithAKeepaliveThatThePeerIsGone) {
  const int on = 1, seconds = 1;
  ASSERT_EQ(rsetsockopt(b, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds)), 0);
  ASSERT_EQ(rsetsockopt(b, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), 0);
  fake::break_connections();
  pollfd fd{b, POLLIN, 0};
  EXPECT_EQ(rpoll(&fd, 1, 10000), 1);
  EXPECT_NE(fd.revents & POLLERR, 0);
  char byte;
  EXPECT_EQ(rrecv(b, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
}

TEST_F(StreamTest, RefusesUnsupportedCalls) {
  int value = 1;
  EXPECT_EQ(rsetsockopt(a, SOL_SOCKET, SO_MARK, &value, sizeof(value)), -1);
  EXPECT_EQ(errno, ENOTSUP);
  EXPECT_EQ(rsetsockopt(a, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)), -1);  // connected
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rsend(12345, "x", 1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, ENOTSUP);
  EXPECT_EQ(riomap(a, &value, sizeof(value), PROT_WRITE, 0, -1), -1);  // the peer has no iomap entries
  EXPECT_EQ(errno, ENOMEM);
}

class SmallStreamTest : public StreamTest {
  void configure(int socket) override {
    const int small = 2048, queue = 16, none = 0;
    ASSERT_EQ(rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    ASSERT_EQ(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    ASSERT_EQ(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &queue, sizeof(queue)), 0);
    ASSERT_EQ(rsetsockopt(socket, SOL_RDMA, RDMA_RQSIZE, &queue, sizeof(queue)), 0);
    ASSERT_EQ(rsetsockopt(socket, SOL_RDMA, RDMA_INLINE, &none, sizeof(none)), 0);
  }
};

TEST_F(SmallStreamTest, WorksWithTheSmallestQueuesAndNothingInline) {
  const std::string data = pattern(200000, 5);
  std::thread sender([&] { send_all(a, data); });
  std::thread echo([&] { send_all(b, receive_all(b, data.size())); });
  EXPECT_TRUE(receive_all(a, data.size()) == data);
  sender.join();
  echo.join();
}

class MappedStreamTest : public StreamTest {
  void configure(int socket) override {
    const int entries = 4;
    ASSERT_EQ(rsetsockopt(socket, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)), 0);
  }
};

TEST_F(MappedStreamTest, WritesDirectlyIntoThePeersMapping) {
  std::string target(100000, 0);
  EXPECT_EQ(riomap(b, target.data(), target.size(), PROT_WRITE, 0, 4096), 4096);
  send_all(b, "mapped");
  EXPECT_EQ(receive_all(a, 6), "mapped");
  const std::string data = pattern(50000, 9);
  EXPECT_EQ(riowrite(a, data.data(), data.size(), 4096 + 1000, 0), data.size());
  send_all(a, "done");
  EXPECT_EQ(receive_all(b, 4), "done");
  EXPECT_TRUE(target.substr(1000, data.size()) == data);
  EXPECT_EQ(riowrite(a, data.data(), 10, 4096 + 100000, 0), 0u);
  EXPECT_EQ(riounmap(b, target.data(), target.size()), 0);
  EXPECT_EQ(riounmap(b, target.data(), target.size()), -1);
}

TEST(Connecting, IsRefusedWithoutAListener) {
  const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect_to(socket, 7001), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(rclose(socket), 0);
  EXPECT_EQ(fake::objects(), 0);
}

TEST(Connecting, ContinuesInTheBackground) {
  const int listener = listener_on(7002);
  ASSERT_EQ(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(raccept(listener, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  EXPECT_EQ(connect_to(client, 7002), -1);
  EXPECT_EQ(errno, EINPROGRESS);
  pollfd fds[] = {{client, POLLOUT, 0}, {listener, POLLIN, 0}};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(rpoll(&fds[i], 1, 5000), 1);
  int error = -1;
  socklen_t length = sizeof(error);
  EXPECT_EQ(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length), 0);
  EXPECT_EQ(error, 0);
  const int server = raccept(listener, nullptr, nullptr);
  ASSERT_GE(server, 0);
  send_all(client, "hello");
  EXPECT_EQ(receive_all(server, 5), "hello");
  for (const int s : {server, client, listener}) EXPECT_EQ(rclose(s), 0);
  EXPECT_EQ(fake::objects(), 0);
}

TEST(Connecting, ClosesStreamsThatWereNotAccepted) {
  const int listener = listener_on(7003);
  std::vector<int> clients(8);
  for (int& client : clients) {
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect_to(client, 7003), 0);
  }
  EXPECT_EQ(rclose(listener), 0);
  char byte;
  for (const int client : clients) EXPECT_EQ(rrecv(client, &byte, 1, 0), 0);
  for (const int client : clients) EXPECT_EQ(rclose(client), 0);
  EXPECT_EQ(fake::objects(), 0);
}

TEST(Connecting, ServesManyAtOnce) {
  const int listener = listener_on(7004);
  constexpr int kClients = 16;
  std::thread server([&] {
    std::vector<std::thread> echoes;
    for (int i = 0; i < kClients; ++i) {
      const int s = raccept(listener, nullptr, nullptr);
      ASSERT_GE(s, 0);
      echoes.emplace_back([s] {
        send_all(s, receive_all(s, 30000));
        char byte;
        EXPECT_EQ(rrecv(s, &byte, 1, 0), 0);
        EXPECT_EQ(rclose(s), 0);
      });
    }
    for (std::thread& t : echoes) t.join();
  });
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < kClients; ++i) {
    clients.emplace_back([i] {
      const int s = rsocket(AF_INET, SOCK_STREAM, 0);
      ASSERT_EQ(connect_to(s, 7004), 0) << std::strerror(errno);
      send_all(s, pattern(30000, i));
      EXPECT_TRUE(receive_all(s, 30000) == pattern(30000, i));
      EXPECT_EQ(rclose(s), 0);
    });
  }
  for (std::thread& t : clients) t.join();
  server.join();
  EXPECT_EQ(rclose(listener), 0);
  EXPECT_EQ(fake::objects(), 0);
}

}  // namespace
}  // namespace uroce::rdmacm
