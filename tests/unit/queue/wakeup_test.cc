// Doorbells, and the two protocols in which one side may sleep: none may be lost. Each thread that sleeps here
// sleeps for good when it was not woken, and the test's watchdog says so.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "queue/completion_queue.h"
#include "queue/doorbell.h"

namespace uroce::queue {
namespace {

/// An eventfd; wait() fails after ten seconds.
class Event {
 public:
  Event() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  ~Event() { close(fd_); }
  void set() {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  bool wait() {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, 10'000) != 1) return false;
    std::uint64_t count;
    return read(fd_, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }

 private:
  int fd_;
};

struct Bells {
  std::unique_ptr<uroce_doorbells> memory = std::make_unique<uroce_doorbells>();
  uroce_worker_line line{};
  DoorbellRinger ringer{memory.get(), &line};
  DoorbellReader reader{memory.get()};
};

TEST(Doorbell, EachRungBitIsFoundOnce) {
  Bells bells;
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::set<std::uint32_t> rung, found;
    for (unsigned i = 0; i < random() % 200; ++i) {
      const std::uint32_t bit = static_cast<std::uint32_t>(random()) % UROCE_MAX_SESSION_QPS;
      EXPECT_FALSE(bells.ringer.ring(bit)) << "the worker is awake";
      rung.insert(bit);
    }
    EXPECT_EQ(bells.reader.any(), !rung.empty());
    bells.reader.drain([&](std::uint32_t bit) { EXPECT_TRUE(found.insert(bit).second); });
    EXPECT_EQ(found, rung);
    EXPECT_FALSE(bells.reader.any());
  }
}

TEST(Doorbell, FirstAndLastBitWork) {
  Bells bells;
  for (const std::uint32_t bit : {0u, 63u, 64u, 4095u, 4096u, UROCE_MAX_SESSION_QPS - 1}) {
    bells.ringer.ring(bit);
    int calls = 0;
    bells.reader.drain([&](std::uint32_t found) {
      EXPECT_EQ(found, bit);
      ++calls;
    });
    EXPECT_EQ(calls, 1);
  }
}

TEST(Doorbell, AClientThatSetsEveryBitStaysInRange) {
  Bells bells;
  for (std::uint64_t& word : bells.memory->summary) word = ~std::uint64_t{0};
  for (std::uint64_t& word : bells.memory->leaf) word = ~std::uint64_t{0};
  std::uint32_t next = 0;
  bells.reader.drain([&](std::uint32_t bit) { EXPECT_EQ(bit, next++); });
  EXPECT_EQ(next, UROCE_MAX_SESSION_QPS);
  for (std::uint64_t& word : bells.memory->summary) word = ~std::uint64_t{0};
  bells.reader.drain([](std::uint32_t) { FAIL() << "summary bits without a leaf"; });
}

TEST(Doorbell, WhoSeesTheBitSeesWhatWasPublishedBefore) {
  Bells bells;
  constexpr std::uint32_t kClients = 2, kRings = 20'000;
  std::uint32_t published[kClients] = {};  // plain but for atomic_ref, as in shared memory
  std::vector<std::thread> clients;
  for (std::uint32_t c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (std::uint32_t i = 1; i <= kRings; ++i) {
        std::atomic_ref(published[c]).store(i, std::memory_order_relaxed);
        bells.ringer.ring(c * 64);
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  std::uint32_t seen[kClients] = {};
  while (seen[0] < kRings || seen[1] < kRings) {
    bool any = false;
    bells.reader.drain([&](std::uint32_t bit) {
      const std::uint32_t now = std::atomic_ref(published[bit / 64]).load(std::memory_order_relaxed);
      ASSERT_GE(now, seen[bit / 64]);
      seen[bit / 64] = now;
      any = true;
    });
    if (!any) std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(seen[0], kRings);
  EXPECT_EQ(seen[1], kRings);
}

// One side rings and waits for the answer; the other sleeps as soon as it finds nothing. A lost wake stops both.
TEST(Doorbell, NoWakeIsLost) {
  Bells bells;
  Event worker_event, client_event;
  constexpr std::uint32_t kRounds = 20'000;
  std::atomic<bool> lost{false};
  std::thread worker([&] {
    for (std::uint32_t served = 0; served < kRounds && !lost;) {
      std::uint32_t found = 0;
      bells.reader.drain([&](std::uint32_t) { ++found; });
      for (std::uint32_t i = 0; i < found; ++i) client_event.set();
      served += found;
      if (found != 0 || served == kRounds) continue;
      std::atomic_ref(bells.line.sleeping).store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!bells.reader.any() && !worker_event.wait()) lost = true;
      std::atomic_ref(bells.line.sleeping).store(0, std::memory_order_relaxed);
    }
  });
  for (std::uint32_t round = 0; round < kRounds && !lost; ++round) {
    if (bells.ringer.ring(round % UROCE_MAX_SESSION_QPS)) worker_event.set();
    if (!client_event.wait()) lost = true;
  }
  worker.join();
  EXPECT_FALSE(lost);
}

// A program that arms, polls once more, and waits for the event; a daemon that pushes, and asks whether one is due.
TEST(CompletionEvent, NoneIsLostBetweenArmAndPoll) {
  constexpr std::uint32_t kCount = 64;
  constexpr std::uint64_t kEntries = 40'000;
  std::vector<uroce_cqe> entries(kCount);
  uroce_cq_client_block block{};
  CqProducer producer(entries.data(), kCount, &block);
  CqConsumer consumer(entries.data(), kCount, &block);
  Event channel;
  std::atomic<std::uint64_t> polled{0};
  std::atomic<bool> lost{false};
  std::thread daemon([&] {
    for (std::uint64_t i = 0; i < kEntries && !lost;) {
      std::uint64_t burst = 1 + i % 3;
      for (; burst != 0 && i < kEntries && i - polled.load() < kCount; --burst, ++i) {
        uroce_cqe entry{};
        entry.wr_id = i;
        ASSERT_TRUE(producer.push(entry, false));
      }
      if (producer.take_event()) channel.set();
      if (burst != 0 || i % 5 == 0) std::this_thread::yield();
    }
  });
  std::uint64_t next = 0;
  const auto poll = [&] {
    const std::uint64_t before = next;
    while (const uroce_cqe* entry = consumer.peek()) {
      EXPECT_EQ(entry->wr_id, next);
      ++next;
      consumer.pop();
      consumer.publish();
      polled.store(next);
    }
    return next != before;
  };
  while (next < kEntries && !lost) {
    if (poll()) continue;
    consumer.arm(false);
    if (poll()) continue;
    if (!channel.wait()) lost = true;
  }
  daemon.join();
  EXPECT_FALSE(lost) << next << " of " << kEntries;
}

}  // namespace
}  // namespace uroce::queue
