// Datagrams through the public functions: the first over UDP, later ones between QPs.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <string>
#include <thread>

#include "fake_rdma.h"

namespace uroce::rdmacm {
namespace {

int bound_socket(sockaddr_in& name) {
  const int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
  name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(name);
  EXPECT_EQ(rbind(socket, reinterpret_cast<sockaddr*>(&name), length), 0);
  EXPECT_EQ(rgetsockname(socket, reinterpret_cast<sockaddr*>(&name), &length), 0);
  return socket;
}

TEST(Datagrams, KeepTheirBoundsAndReportTheirSender) {
  sockaddr_in server_name, client_name;
  const int server = bound_socket(server_name), client = bound_socket(client_name);
  for (int i = 0; i < 50; ++i) {
    const std::string text(static_cast<std::size_t>(1 + i * 40), static_cast<char>('a' + i % 26));
    auto* to = reinterpret_cast<sockaddr*>(&server_name);
    ASSERT_EQ(rsendto(client, text.data(), text.size(), 0, to, sizeof(server_name)),
              static_cast<ssize_t>(text.size()));
    char data[2048];
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    const ssize_t got = rrecvfrom(server, data, sizeof(data), 0, reinterpret_cast<sockaddr*>(&from), &length);
    ASSERT_EQ(got, static_cast<ssize_t>(text.size()));
    EXPECT_EQ(std::string(data, text.size()), text);
    EXPECT_EQ(from.sin_port, client_name.sin_port);
    ASSERT_EQ(rsendto(server, "ok", 2, 0, reinterpret_cast<sockaddr*>(&from), length), 2);
    pollfd fd{client, POLLIN, 0};
    ASSERT_EQ(rpoll(&fd, 1, 5000), 1);
    EXPECT_EQ(rrecv(client, data, sizeof(data), 0), 2);
  }
  EXPECT_EQ(rclose(server), 0);
  EXPECT_EQ(rclose(client), 0);
  EXPECT_EQ(fake::objects(), 0);
}

TEST(Datagrams, GoToThePeerConnectedTo) {
  sockaddr_in server_name;
  const int server = bound_socket(server_name);
  const int client = rsocket(AF_INET, SOCK_DGRAM, 0);
  char data[16];
  EXPECT_EQ(rsend(client, "x", 1, 0), -1);
  EXPECT_EQ(errno, EDESTADDRREQ);
  ASSERT_EQ(rconnect(client, reinterpret_cast<sockaddr*>(&server_name), sizeof(server_name)), 0);
  ASSERT_EQ(rsend(client, "hello", 5, 0), 5);
  EXPECT_EQ(rrecv(server, data, sizeof(data), 0), 5);
  EXPECT_EQ(rrecv(server, data, sizeof(data), MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  const std::string large(2048, 'x');
  EXPECT_EQ(rsend(client, large.data(), large.size(), 0), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_EQ(rclose(server), 0);
  EXPECT_EQ(rclose(client), 0);
  EXPECT_EQ(fake::objects(), 0);
}

}  // namespace
}  // namespace uroce::rdmacm
