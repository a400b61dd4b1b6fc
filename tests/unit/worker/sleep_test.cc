#include "worker/sleep.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "memory/table.h"
#include "platform/clock.h"
#include "worker/worker.h"

namespace uroce::worker {
namespace {

constexpr Nanos kLong = 5 * kSecond, kShort = 20 * kMillisecond;

/// How long a sleep of at most `limit` lasts.
Nanos slept(WorkerSleep& sleep, Nanos limit) {
  const Nanos began = monotonic_now();
  sleep.wait(limit);
  return monotonic_now() - began;
}

UniqueFd bound_socket(sockaddr_in& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  address.sin_family = AF_INET;
  address.sin_port = 0;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return fd;
}

// As a packet socket is in error (ENETDOWN) once its interface was taken down, which may come up again.
TEST(WorkerSleep, LastsAgainAfterAnErrorOfASocketAndEndsWithItsNextFrame) {
  sockaddr_in device_at{}, peer_at{};
  const UniqueFd device = bound_socket(device_at);
  UniqueFd peer = bound_socket(peer_at);
  ASSERT_EQ(::connect(device.get(), reinterpret_cast<sockaddr*>(&peer_at), sizeof peer_at), 0);
  WorkerSleep sleep;
  sleep.watch_device(device.get());
  EXPECT_GE(slept(sleep, kShort), kShort);

  peer.reset();
  ASSERT_EQ(::send(device.get(), "1", 1, 0), 1);  // port unreachable
  EXPECT_LT(slept(sleep, kLong), kLong);
  EXPECT_GE(slept(sleep, kShort), kShort);

  const UniqueFd again(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(again.get(), reinterpret_cast<sockaddr*>(&peer_at), sizeof peer_at), 0);
  ASSERT_EQ(::sendto(again.get(), "2", 1, 0, reinterpret_cast<sockaddr*>(&device_at), sizeof device_at), 1);
  EXPECT_LT(slept(sleep, kLong), kLong);
}

// As a tun device is after `ip link delete`.
TEST(WorkerSleep, IgnoresADescriptorThatStaysInError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd read(ends[0]);
  UniqueFd write(ends[1]);
  WorkerSleep sleep;
  sleep.watch_device(read.get());
  write.reset();
  EXPECT_LT(slept(sleep, kLong), kLong);
  EXPECT_GE(slept(sleep, kShort), kShort);
}

// The link worker has the timers of the link stack. The others would sleep no time at all for one that is never
// set.
TEST(WorkerSleep, HasNoLimitWithoutTimers) {
  WorkerShared shared;
  memory::Table memory(16, 1);
  const WorkerConfig config{
      .index = 1, .workers = 2, .transport = {.max_qps = 4, .max_cqs = 4, .max_srqs = 4, .max_ahs = 4}};
  WorkerCore core(config, shared, memory, nullptr);
  core.advance(kSecond);
  EXPECT_EQ(core.until_timer(kSecond), kNever);
}

}  // namespace
}  // namespace uroce::worker
