// Work queues and completion queues against a plain deque, in one thread and in two, with an honest client and a
// hostile one.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "queue/completion_queue.h"
#include "queue/work_queue.h"

namespace uroce::queue {
namespace {

constexpr std::uint32_t kStride = 64;

struct WorkRing {
  explicit WorkRing(std::uint32_t count)
      : memory(std::size_t{count} * kStride),
        shape{memory.data(), count, kStride},
        client(shape, &producer, &consumer),
        daemon(shape, &producer, &consumer) {}
  std::vector<std::byte> memory;
  RingShape shape;
  alignas(64) std::uint32_t producer = 0;
  alignas(64) std::uint32_t consumer = 0;
  WorkProducer client;
  WorkConsumer daemon;

  bool post(std::uint64_t value) {
    std::byte* slot = client.next();
    if (slot == nullptr) return false;
    for (std::uint32_t at = 0; at < kStride; at += 8) std::memcpy(slot + at, &value, 8);
    client.advance();
    return true;
  }
  /// The value of the next entry, all of whose words agree.
  std::uint64_t take() {
    std::uint64_t words[kStride / 8];
    daemon.copy_next(words, sizeof words);
    for (const std::uint64_t word : words) EXPECT_EQ(word, words[0]);
    return words[0];
  }
};

TEST(WorkQueue, BehavesAsADequeOfBoundedLength) {
  for (const std::uint32_t count : {1u, 2u, 8u, 64u}) {
    WorkRing ring(count);
    std::mt19937 random(count);
    std::deque<std::uint64_t> published, advanced;
    std::uint64_t next = 1;
    std::size_t unreleased = 0;
    for (int step = 0; step < 20'000; ++step) {
      switch (random() % 5) {
        case 0:
        case 1: {
          const bool room = published.size() + advanced.size() + unreleased < count;
          ASSERT_EQ(ring.post(next), room);
          if (room) advanced.push_back(next++);
          break;
        }
        case 2:
          if (random() % 4 == 0) {
            ring.client.rewind();
            advanced.clear();
          } else {
            ring.client.publish();
            published.insert(published.end(), advanced.begin(), advanced.end());
            advanced.clear();
          }
          break;
        case 3:
          ASSERT_EQ(ring.daemon.available(), published.size());
          if (!published.empty()) {
            ASSERT_EQ(ring.take(), published.front());
            published.pop_front();
            ++unreleased;
          }
          break;
        default: ring.daemon.publish_consumed(ring.daemon.next_index()); unreleased = 0;
      }
    }
  }
}

TEST(WorkQueue, CarriesEveryEntryInOrderBetweenThreads) {
  constexpr std::uint64_t kEntries = 200'000;
  WorkRing ring(64);
  std::thread client([&] {
    for (std::uint64_t value = 1; value <= kEntries;) {
      bool posted = false;
      for (std::uint64_t burst = 1 + value % 7; burst != 0 && value <= kEntries && ring.post(value); --burst) {
        ++value;
        posted = true;
      }
      if (posted)
        ring.client.publish();
      else
        std::this_thread::yield();
    }
  });
  for (std::uint64_t expected = 1; expected <= kEntries;) {
    const std::uint32_t n = ring.daemon.available();
    if (n == 0) std::this_thread::yield();
    for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(ring.take(), expected++);
    ring.daemon.publish_consumed(ring.daemon.next_index());
  }
  client.join();
  EXPECT_EQ(ring.daemon.available(), 0u);
}

TEST(WorkQueue, IndicesMayWrap) {
  // As after four billion entries: both ends stand just before the wrap.
  const auto start = static_cast<std::uint32_t>(-13);
  WorkRing ring(8);
  ring.producer = ring.consumer = start;
  ring.client.rewind();
  ring.daemon = WorkConsumer(ring.shape, &ring.producer, &ring.consumer, start);
  ASSERT_NE(ring.client.next(), nullptr);
  for (std::uint64_t value = 1; value <= 100; ++value) {
    ASSERT_TRUE(ring.post(value));
    ring.client.publish();
    ASSERT_EQ(ring.daemon.available(), 1u);
    ASSERT_EQ(ring.take(), value);
    ring.daemon.publish_consumed(ring.daemon.next_index());
  }
  EXPECT_EQ(ring.daemon.next_index(), start + 100);
}

TEST(WorkQueue, AHostileIndexShowsNoMoreThanTheRing) {
  WorkRing ring(16);
  std::mt19937 random(3);
  for (int step = 0; step < 100'000; ++step) {
    ring.producer = static_cast<std::uint32_t>(random());
    ASSERT_LE(ring.daemon.available(), 16u);
    const std::byte* at = ring.daemon.peek_address();
    ASSERT_GE(at, ring.memory.data());
    ASSERT_LE(at + kStride, ring.memory.data() + ring.memory.size());
    std::byte copy[kStride];
    ring.daemon.copy_next(copy, sizeof copy);
  }
}

TEST(WorkQueue, StartsAgainAtZeroWhenReset) {
  WorkRing ring(4);
  for (std::uint64_t value = 1; value <= 3; ++value) ring.post(value);
  ring.client.publish();
  ring.take();
  ring.client.reset();
  ring.daemon.reset();
  EXPECT_EQ(ring.daemon.available(), 0u);
  ASSERT_TRUE(ring.post(9));
  ring.client.publish();
  ASSERT_EQ(ring.daemon.available(), 1u);
  EXPECT_EQ(ring.take(), 9u);
}

struct CqRing {
  explicit CqRing(std::uint32_t count)
      : entries(count), producer(entries.data(), count, &client), consumer(entries.data(), count, &client) {}
  std::vector<uroce_cqe> entries;
  uroce_cq_client_block client{};
  CqProducer producer;
  CqConsumer consumer;

  bool push(std::uint64_t wr_id, bool solicited = false, std::uint8_t status = UROCE_WC_SUCCESS) {
    uroce_cqe entry{};
    entry.wr_id = wr_id;
    entry.timestamp = ~wr_id;
    entry.status = status;
    entry.phase = 0xee;  // whatever it says, push sets it
    return producer.push(entry, solicited);
  }
  bool pop(std::uint64_t& wr_id) {
    const uroce_cqe* entry = consumer.peek();
    if (entry == nullptr) return false;
    wr_id = entry->wr_id;
    EXPECT_EQ(entry->timestamp, ~wr_id);
    consumer.pop();
    return true;
  }
};

TEST(CompletionQueue, BehavesAsADequeOverManyLaps) {
  for (const std::uint32_t count : {1u, 2u, 16u, 256u}) {
    CqRing ring(count);
    std::mt19937 random(count);
    std::deque<std::uint64_t> model;
    std::uint64_t next = 1;
    std::size_t unpublished = 0;
    for (int step = 0; step < 50'000; ++step) {
      if (random() % 2 == 0 && model.size() + unpublished < count) {
        ASSERT_TRUE(ring.push(next));
        model.push_back(next++);
      } else {
        std::uint64_t got = 0;
        ASSERT_EQ(ring.pop(got), !model.empty());
        if (!model.empty()) {
          ASSERT_EQ(got, model.front());
          model.pop_front();
          ++unpublished;
        }
        if (random() % 3 == 0 || unpublished == count) {
          ring.consumer.publish();
          unpublished = 0;
        }
      }
    }
    EXPECT_FALSE(ring.producer.in_error());
  }
}

TEST(CompletionQueue, IgnoredOverrunLosesWhatFindsNoRoomAndGoesOn) {
  CqRing ring(4);
  ring.producer.set_ignore_overrun(true);
  for (std::uint64_t i = 1; i <= 6; ++i) EXPECT_TRUE(ring.push(i));
  EXPECT_FALSE(ring.producer.in_error());
  std::uint64_t got = 0;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(ring.pop(got));
    EXPECT_EQ(got, i);
  }
  EXPECT_FALSE(ring.pop(got));
  ring.consumer.publish();
  EXPECT_TRUE(ring.push(7));
  ASSERT_TRUE(ring.pop(got));
  EXPECT_EQ(got, 7u);
}

Nanos ticks() {
  static Nanos now = 1000;
  return ++now;
}

/// The workers of a CQ have times of their own, which are those of their duty cycles.
TEST(CompletionQueue, TimesOfAClockNeverGoBack) {
  CqRing ring(16);
  ring.producer.set_shared(true);
  ring.producer.set_clock(ticks);
  uroce_cqe entry{};
  std::uint64_t last = 1000;
  for (const std::uint64_t cycle : {5u, 3u, 9u, 1u}) {
    entry.timestamp = cycle;
    ASSERT_TRUE(ring.producer.push(entry, false));
    const uroce_cqe* const got = ring.consumer.peek();
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->timestamp, last + 1);
    last = got->timestamp;
    ring.consumer.pop();
  }
}

TEST(CompletionQueue, OverrunIsAnErrorAndOverwritesNothing) {
  CqRing ring(4);
  for (std::uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(ring.push(i));
  EXPECT_FALSE(ring.push(5));
  EXPECT_TRUE(ring.producer.in_error());
  std::uint64_t got = 0;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(ring.pop(got));
    EXPECT_EQ(got, i);
  }
  EXPECT_FALSE(ring.pop(got));
  ring.consumer.publish();
  EXPECT_FALSE(ring.push(6)) << "an error stays";
}

TEST(CompletionQueue, AHostileConsumerIndexHarmsItsOwnRingOnly) {
  std::vector<uroce_cqe> memory(8 + 2);
  std::memset(memory.data(), 0xa5, memory.size() * sizeof(uroce_cqe));
  const uroce_cqe fence = memory[0];
  uroce_cq_client_block client{};
  CqProducer producer(&memory[1], 8, &client);
  std::mt19937 random(5);
  for (int step = 0; step < 10'000 && !producer.in_error(); ++step) {
    client.consumer = step < 5'000 ? producer.produced() - static_cast<std::uint32_t>(random() % 8)
                                   : static_cast<std::uint32_t>(random());
    producer.push(uroce_cqe{}, false);
  }
  EXPECT_TRUE(producer.in_error());
  EXPECT_EQ(std::memcmp(&memory[0], &fence, sizeof fence), 0);
  EXPECT_EQ(std::memcmp(&memory[9], &fence, sizeof fence), 0);
}

TEST(CompletionQueue, PhaseAlternatesAcrossTheWrapOfTheIndex) {
  for (const std::uint32_t count : {1u, 2u, 1024u}) {
    for (std::uint32_t index = static_cast<std::uint32_t>(-3) * count; index != 3 * count; ++index) {
      ASSERT_NE(cqe_phase(index, count), cqe_phase(index + count, count)) << index;
    }
  }
  EXPECT_EQ(cqe_phase(0, 8), 1) << "a fresh ring is all zero";
}

TEST(CompletionQueue, CarriesEveryEntryFromTwoWorkersToOneProgram) {
  constexpr std::uint64_t kEach = 50'000;
  CqRing ring(64);
  ring.producer.set_shared(true);
  std::atomic<std::uint64_t> room{64};
  const auto worker = [&](std::uint64_t id) {
    for (std::uint64_t i = 1; i <= kEach; ++i) {
      std::uint64_t seen = room.load();
      while (seen == 0 || !room.compare_exchange_weak(seen, seen - 1)) {
        if (seen == 0) std::this_thread::yield();
        if (seen == 0) seen = room.load();
      }
      ASSERT_TRUE(ring.push(id << 32 | i));
    }
  };
  std::thread first(worker, 1), second(worker, 2);
  std::uint64_t last[3] = {};
  for (std::uint64_t count = 0; count < 2 * kEach;) {
    std::uint64_t got = 0;
    if (!ring.pop(got)) {
      std::this_thread::yield();
      continue;
    }
    ring.consumer.publish();
    room.fetch_add(1);
    ASSERT_EQ(static_cast<std::uint32_t>(got), ++last[got >> 32]) << "each worker's in its order";
    ++count;
  }
  first.join();
  second.join();
}

TEST(CompletionEvent, ComesOnceForEachArming) {
  CqRing ring(16);
  EXPECT_FALSE(ring.producer.take_event()) << "nothing";
  ring.push(1);
  EXPECT_FALSE(ring.producer.take_event()) << "not armed";
  ring.consumer.arm(false);
  EXPECT_FALSE(ring.producer.take_event()) << "nothing new";
  ring.push(2);
  EXPECT_TRUE(ring.producer.take_event());
  ring.push(3);
  EXPECT_FALSE(ring.producer.take_event()) << "armed once";
  ring.consumer.arm(true);
  ring.push(4);
  EXPECT_FALSE(ring.producer.take_event()) << "not solicited";
  ring.push(5, true);
  EXPECT_TRUE(ring.producer.take_event());
  ring.consumer.arm(true);
  ring.push(6, false, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(ring.producer.take_event()) << "a failure counts as solicited";
  ring.consumer.arm(true);
  ring.consumer.arm(false);
  ring.push(7);
  EXPECT_TRUE(ring.producer.take_event()) << "the later arming widens the earlier";
}

TEST(CompletionEvent, ARequestLastsUntilItsEventIsTaken) {
  CqRing ring(16);
  const auto push_and_poll = [&ring](std::uint32_t i, bool solicited = false) {
    ring.push(i, solicited);
    ring.consumer.pop();
    ring.consumer.publish();
  };
  ring.consumer.arm(false);
  push_and_poll(1);
  ring.consumer.arm(false);
  EXPECT_TRUE(ring.producer.take_event()) << "the entry came after the first request";
  ring.consumer.arm(true);
  push_and_poll(2);
  EXPECT_TRUE(ring.producer.take_event()) << "the second request has its own event, and is not narrowed";
  ring.consumer.arm(true);
  push_and_poll(3);
  EXPECT_FALSE(ring.producer.take_event()) << "a new request";
  ring.consumer.arm(true);
  push_and_poll(4, true);
  ring.consumer.arm(false);
  EXPECT_TRUE(ring.producer.take_event()) << "solicited, and before it was widened";
  push_and_poll(5);
  EXPECT_TRUE(ring.producer.take_event()) << "of the wider request";
  EXPECT_FALSE(ring.producer.take_event());
}

TEST(CompletionEvent, OfARequestWithoutASolicitedEntryIsNotOwed) {
  CqRing ring(16);
  ring.consumer.arm(true);
  ring.push(1);
  ring.consumer.arm(true);
  EXPECT_FALSE(ring.producer.take_event());
  ring.push(2, true);
  EXPECT_TRUE(ring.producer.take_event());
  ring.push(3, true);
  EXPECT_FALSE(ring.producer.take_event()) << "one request is left";
}

TEST(CompletionEvent, WhatIsOwedComesWithTheOneThatIsDue) {
  CqRing ring(16);
  ring.consumer.arm(false);
  ring.push(1);
  ring.consumer.arm(false);
  ring.push(2);
  EXPECT_TRUE(ring.producer.take_event());
  ring.push(3);
  EXPECT_FALSE(ring.producer.take_event());
  ring.consumer.arm(false);
  ring.push(4);
  ring.consumer.arm(false);
  EXPECT_TRUE(ring.consumer.take_event());
  EXPECT_FALSE(ring.producer.take_event()) << "the client has both";
}

TEST(CompletionEvent, IsShownByWhoeverTakesItFirst) {
  CqRing ring(16);
  EXPECT_FALSE(ring.consumer.take_event()) << "not armed";
  ring.push(1);
  ring.consumer.arm(false);
  EXPECT_TRUE(ring.consumer.take_event());
  EXPECT_FALSE(ring.consumer.take_event()) << "armed once";
  ring.push(2);
  EXPECT_FALSE(ring.producer.take_event()) << "the client has it";
  ring.consumer.arm(false);
  ring.push(3);
  EXPECT_TRUE(ring.producer.take_event());
  EXPECT_FALSE(ring.consumer.take_event()) << "the daemon has it";
}

TEST(CompletionEvent, IsNotShownForWhatWasThereWhenTheCqWasArmed) {
  CqRing ring(16);
  ring.push(1);
  ring.consumer.arm(false);
  EXPECT_FALSE(ring.producer.take_event()) << "looks late";
  ring.push(2);
  ring.consumer.pop();
  ring.consumer.pop();
  ring.consumer.publish();
  EXPECT_TRUE(ring.producer.take_event()) << "came after arming, polled or not";
}

TEST(CompletionEvent, NoneOfManyEntriesThatArmingFoundIsForgotten) {
  CqRing ring(512);
  for (std::uint32_t i = 0; i < 400; ++i) ring.push(i);
  EXPECT_FALSE(ring.producer.take_event()) << "the daemon is done before the CQ is armed";
  ring.consumer.arm(false);
  for (int i = 0; i < 300; ++i) ring.consumer.pop();
  ring.consumer.publish();
  EXPECT_TRUE(ring.consumer.armed_with_pending());
  EXPECT_TRUE(ring.consumer.take_event());
}

// Its event keeps its place among those of other CQs: perftest takes the next event for that of the CQ that it
// waits for.
TEST(CompletionEvent, AnEntryThatComesAfterArmingIsTheDaemonsToReport) {
  CqRing ring(16);
  ring.push(1);
  ring.consumer.arm(false);
  EXPECT_TRUE(ring.consumer.armed_with_pending());
  ring.consumer.pop();
  ring.consumer.publish();
  ring.push(2);
  EXPECT_FALSE(ring.consumer.armed_with_pending());
  EXPECT_TRUE(ring.producer.take_event());
}

// An entry that comes while the CQ is armed has one event, neither none nor two.
TEST(CompletionEvent, ComesOnceHoweverArmingAndPushingMeet) {
  constexpr std::uint32_t kRounds = 20'000;
  CqRing ring(16);
  std::atomic<std::uint32_t> round{0}, answered{0};
  std::atomic<bool> daemon_shows{false};
  std::thread daemon([&] {
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
      while (round.load() != i) std::this_thread::yield();
      ring.push(i);
      daemon_shows = ring.producer.take_event();
      answered = i;
    }
  });
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    round = i;
    ring.consumer.arm(false);
    // As in ibv_get_cq_event(): only over entries that arming found is there anything for the client to take.
    const bool client_shows = ring.consumer.armed_with_pending() && ring.consumer.take_event();
    while (answered.load() != i) std::this_thread::yield();
    ASSERT_NE(client_shows, daemon_shows.load()) << "round " << i;
    ring.consumer.pop();
    ring.consumer.publish();
  }
  daemon.join();
}

}  // namespace
}  // namespace uroce::queue
