#include "worker/channel.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

namespace uroce::worker {
namespace {

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(Channel, KeepsOrderAndItsLimit) {
  Channel<int> channel(3, ChannelReader::kPolls);
  EXPECT_FALSE(channel.waiting());
  EXPECT_TRUE(channel.put(1));
  const int more[] = {2, 3, 4};
  EXPECT_EQ(channel.put(more), 2u);
  EXPECT_FALSE(channel.put(5));
  EXPECT_TRUE(channel.waiting());
  EXPECT_EQ(channel.take(), (std::vector{1, 2, 3}));
  EXPECT_FALSE(channel.waiting());
  EXPECT_TRUE(channel.take().empty());
  EXPECT_EQ(channel.fd(), -1);
}

TEST(Channel, ItsDescriptorIsReadableWhileSomethingWaits) {
  Channel<int> channel(10, ChannelReader::kSleepsOnFd);
  EXPECT_FALSE(readable(channel.fd()));
  for (int round = 0; round < 3; ++round) {
    channel.put(1);
    channel.put(2);
    EXPECT_TRUE(readable(channel.fd()));
    EXPECT_EQ(channel.take().size(), 2u);
    EXPECT_FALSE(readable(channel.fd()));
  }
}

TEST(Channel, LosesNothingBetweenThreadsAndWakesItsReader) {
  constexpr int kWriters = 3, kEach = 20'000;
  Channel<int> channel(1u << 20, ChannelReader::kSleepsOnFd);
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&channel, w] {
      for (int i = 0; i < kEach; ++i) channel.put(w * kEach + i);
    });
  }
  std::vector<int> next(kWriters), items;
  for (int count = 0; count < kWriters * kEach;) {
    pollfd entry{channel.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1) << "the reader was not woken";
    channel.take(items);
    for (const int item : items) EXPECT_EQ(item % kEach, next[static_cast<std::size_t>(item / kEach)]++);
    count += static_cast<int>(items.size());
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace uroce::worker
