// repoll_create(), repoll_ctl() and repoll_wait(): epoll(7) for rsockets and ordinary descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fake_rdma.h"

// Since rdma-core 61.
extern "C" int repoll_create(int flags);
extern "C" int repoll_ctl(int epfd, int op, int fd, struct epoll_event* event);
extern "C" int repoll_wait(int epfd, struct epoll_event* events, int maxevents, int timeout);

namespace uroce::rdmacm {
namespace {

class EpollTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(7100);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(rbind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    ASSERT_EQ(rlisten(listener, 16), 0);
    a = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(rconnect(a, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    b = raccept(listener, nullptr, nullptr);
    ASSERT_GE(b, 0);
    ASSERT_EQ(pipe2(pipe, O_CLOEXEC | O_NONBLOCK), 0);
    set = repoll_create(EPOLL_CLOEXEC);
    ASSERT_GE(set, 0);
  }
  void TearDown() override {
    for (const int each : {a, b, listener, set}) {
      if (each < 0) continue;
      EXPECT_EQ(rclose(each), 0);
    }
    for (const int each : pipe) close(each);
    EXPECT_EQ(fake::objects(), 0);
  }
  int ctl(int operation, int fd, std::uint32_t events, std::uint64_t data = 0) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return repoll_ctl(set, operation, fd, &event);
  }
  /// The events of one wait, as (data, events).
  std::vector<std::pair<std::uint64_t, std::uint32_t>> wait(int timeout, int most = 8) {
    std::vector<epoll_event> events(static_cast<std::size_t>(most));
    const int found = repoll_wait(set, events.data(), most, timeout);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> told;
    for (int i = 0; i < found; ++i) {
      const epoll_event& each = events[static_cast<std::size_t>(i)];
      told.emplace_back(std::uint64_t{each.data.u64}, std::uint32_t{each.events});  // it is packed
    }
    return told;
  }
  using Told = std::vector<std::pair<std::uint64_t, std::uint32_t>>;
  int listener = -1, a = -1, b = -1, set = -1, pipe[2];
};

TEST_F(EpollTest, ReportsRsocketsAndOrdinaryDescriptors) {
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLIN, 11), 0);
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, pipe[0], EPOLLIN, 22), 0);
  EXPECT_EQ(wait(0), Told{});
  EXPECT_EQ(wait(20), Told{});
  ASSERT_EQ(rsend(a, "x", 1, 0), 1);
  EXPECT_EQ(wait(5000), (Told{{11, EPOLLIN}}));
  EXPECT_EQ(wait(0), (Told{{11, EPOLLIN}})) << "it still holds";
  ASSERT_EQ(write(pipe[1], "y", 1), 1);
  EXPECT_EQ(wait(5000).size(), 2u);
  char byte;
  ASSERT_EQ(rrecv(b, &byte, 1, 0), 1);
  EXPECT_EQ(wait(5000), (Told{{22, EPOLLIN}}));
}

TEST_F(EpollTest, ChangesAndRemovesMembers) {
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLIN, 1), 0);
  EXPECT_EQ(wait(0), Told{});
  ASSERT_EQ(ctl(EPOLL_CTL_MOD, b, EPOLLOUT, 2), 0);
  EXPECT_EQ(wait(5000), (Told{{2, EPOLLOUT}}));
  ASSERT_EQ(ctl(EPOLL_CTL_DEL, b, 0), 0);
  EXPECT_EQ(wait(0), Told{});
}

TEST_F(EpollTest, ReportsOnceIfAsked) {
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLOUT | EPOLLONESHOT, 1), 0);
  EXPECT_EQ(wait(5000), (Told{{1, EPOLLOUT}}));
  EXPECT_EQ(wait(0), Told{});
  ASSERT_EQ(ctl(EPOLL_CTL_MOD, b, EPOLLOUT | EPOLLONESHOT, 2), 0);
  EXPECT_EQ(wait(5000), (Told{{2, EPOLLOUT}}));
}

TEST_F(EpollTest, TakesTurnsWhenThereIsRoomForOne) {
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, a, EPOLLOUT, 1), 0);
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLOUT, 2), 0);
  const Told first = wait(0, 1), second = wait(0, 1);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(first[0].first, second[0].first);
}

TEST_F(EpollTest, AMemberThatIsAddedEndsAWait) {
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLOUT, 3), 0);
  });
  EXPECT_EQ(wait(-1), (Told{{3, EPOLLOUT}}));
  other.join();
}

TEST_F(EpollTest, EachOfSeveralWaitersIsWoken) {
  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { woken += static_cast<int>(wait(20'000).size()); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, pipe[1], EPOLLOUT, 4), 0);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 3);
}

TEST_F(EpollTest, ClosingTheSetEndsAWait) {
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(rclose(set), 0);
  });
  epoll_event event;
  EXPECT_EQ(repoll_wait(set, &event, 1, -1), -1);
  EXPECT_EQ(errno, EBADF);
  other.join();
  set = -1;
}

TEST_F(EpollTest, AClosedDescriptorLeavesTheSet) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, ends[1], EPOLLOUT, 1), 0);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(wait(10), Told{});
  EXPECT_EQ(ctl(EPOLL_CTL_DEL, ends[1], 0), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(EpollTest, ErrorsAreThoseOfEpoll) {
  const auto error = [](int result) { return result == -1 ? errno : 0; };
  ASSERT_EQ(ctl(EPOLL_CTL_ADD, b, EPOLLIN), 0);
  EXPECT_EQ(error(ctl(EPOLL_CTL_ADD, b, EPOLLIN)), EEXIST);
  EXPECT_EQ(error(ctl(EPOLL_CTL_MOD, a, EPOLLIN)), ENOENT);
  EXPECT_EQ(error(ctl(EPOLL_CTL_DEL, a, EPOLLIN)), ENOENT);
  EXPECT_EQ(error(ctl(EPOLL_CTL_ADD, 4000, EPOLLIN)), EBADF);
  EXPECT_EQ(error(ctl(EPOLL_CTL_ADD, set, EPOLLIN)), EINVAL);
  EXPECT_EQ(error(ctl(77, b, EPOLLIN)), EINVAL);
  EXPECT_EQ(error(repoll_ctl(set, EPOLL_CTL_ADD, a, nullptr)), EFAULT);
  EXPECT_EQ(error(repoll_create(1 << 5)), EINVAL);
  epoll_event event{};
  EXPECT_EQ(error(repoll_wait(set, &event, 0, 0)), EINVAL);
  EXPECT_EQ(error(repoll_wait(pipe[0], &event, 1, 0)), EINVAL);
  EXPECT_EQ(error(repoll_ctl(4000, EPOLL_CTL_ADD, a, &event)), EBADF);
  EXPECT_EQ(error(rclose(pipe[0])), EBADF);
}

}  // namespace
}  // namespace uroce::rdmacm
