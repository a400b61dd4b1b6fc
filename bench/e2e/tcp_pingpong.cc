// tcp_pingpong PORT                       serves one client
// tcp_pingpong PORT HOST ROUNDS SIZE...   prints `SIZE P50_US P99_US`, half a round trip, for each size
// Blocking sockets with TCP_NODELAY, messages in alternating directions: ib_send_lat over TCP.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "tcp_pingpong: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void send_all(int fd, const std::vector<char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) fail("send");
    done += static_cast<std::size_t>(n);
  }
}

/// False: the peer has closed the connection.
bool receive_all(int fd, std::vector<char>& bytes) {
  const ssize_t n = recv(fd, bytes.data(), bytes.size(), MSG_WAITALL);
  if (n == 0) return false;
  if (n != static_cast<ssize_t>(bytes.size())) fail("recv");
  return true;
}

void no_delay(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) fail("TCP_NODELAY");
}

sockaddr_in address_of(const char* host, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  if (host != nullptr && inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

/// The client announces each series by its size in 8 bytes; 0 ends the program.
void serve(const char* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = address_of(nullptr, port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail("bind");
  if (listen(listener, 1) != 0) fail("listen");
  const int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) fail("accept");
  no_delay(fd);
  std::vector<char> head(16);
  while (receive_all(fd, head)) {
    std::uint64_t size = 0, rounds = 0;
    std::memcpy(&size, head.data(), 8);
    std::memcpy(&rounds, head.data() + 8, 8);
    std::vector<char> message(size);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (!receive_all(fd, message)) return;
      send_all(fd, message);
    }
  }
}

void measure(int fd, std::uint64_t size, std::uint64_t rounds) {
  std::vector<char> head(16), message(size, 'x');
  std::memcpy(head.data(), &size, 8);
  std::memcpy(head.data() + 8, &rounds, 8);
  send_all(fd, head);
  std::vector<double> halves;
  halves.reserve(rounds);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const auto began = std::chrono::steady_clock::now();
    send_all(fd, message);
    if (!receive_all(fd, message)) fail("the other end is gone");
    const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - began;
    halves.push_back(whole.count() / 2);
  }
  std::ranges::sort(halves);
  std::printf("%llu %.3f %.3f\n", static_cast<unsigned long long>(size), halves[halves.size() / 2],
              halves[halves.size() * 99 / 100]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    serve(argv[1]);
    return 0;
  }
  if (argc < 5) {
    std::fprintf(stderr, "usage: tcp_pingpong PORT [HOST ROUNDS SIZE...]\n");
    return 2;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(argv[2], argv[1]);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
  no_delay(fd);
  const std::uint64_t rounds = std::strtoull(argv[3], nullptr, 10);
  for (int i = 4; i < argc; ++i) {
    const std::uint64_t size = std::strtoull(argv[i], nullptr, 10);
    if (size == 0 || rounds == 0) fail("sizes and rounds are numbers above 0");
    // At least the same number of bytes, so that large messages are measured long enough.
    measure(fd, size, size > 65536 ? std::max<std::uint64_t>(rounds / 10, 1) : rounds);
  }
  close(fd);
  return 0;
}
