// Rings and doorbells: the cost of a post, a fetch, a completion and a doorbell, on one core and between two cores.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "queue/completion_queue.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"

namespace uroce::queue {
namespace {

constexpr std::uint32_t kStride = 128;

struct WorkRing {
  explicit WorkRing(std::uint32_t count)
      : memory(std::size_t{count} * kStride), shape{memory.data(), count, kStride} {}
  std::vector<std::byte> memory;
  RingShape shape;
  alignas(64) std::uint32_t producer = 0;
  alignas(64) std::uint32_t consumer = 0;
};

// One entry is posted, published, fetched and released, in one thread.
void work_entry(benchmark::State& state) {
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  WorkRing ring(256);
  WorkProducer client(ring.shape, &ring.producer, &ring.consumer);
  WorkConsumer daemon(ring.shape, &ring.producer, &ring.consumer);
  uroce_sq_entry entry{};
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < batch; ++i) {
      std::byte* slot = client.next();
      if (slot == nullptr)
        state.SkipWithError("full");
      else
        std::memcpy(slot, &entry, sizeof entry);
      client.advance();
    }
    client.publish();
    for (std::uint32_t n = daemon.available(); n != 0; --n) daemon.copy_next(&entry, sizeof entry);
    benchmark::DoNotOptimize(entry);
    daemon.publish_consumed(daemon.next_index());
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(work_entry)->ArgName("batch")->Arg(1)->Arg(16);

// One completion is pushed, requested as event, polled and released, in one thread.
void completion(benchmark::State& state) {
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  std::vector<uroce_cqe> entries(256);
  uroce_cq_client_block block{};
  CqProducer producer(entries.data(), 256, &block);
  producer.set_shared(state.range(1) != 0);
  CqConsumer consumer(entries.data(), 256, &block);
  uroce_cqe entry{};
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < batch; ++i) producer.push(entry, false);
    benchmark::DoNotOptimize(producer.take_event());
    while (const uroce_cqe* found = consumer.peek()) {
      benchmark::DoNotOptimize(found->wr_id);
      consumer.pop();
    }
    consumer.publish();
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(completion)->ArgNames({"batch", "shared"})->Args({1, 0})->Args({16, 0})->Args({16, 1});

void doorbell_ring(benchmark::State& state) {
  auto bells = std::make_unique<uroce_doorbells>();
  uroce_worker_line line{};
  DoorbellRinger ringer(bells.get(), &line);
  for (auto _ : state) benchmark::DoNotOptimize(ringer.ring(77));
}
BENCHMARK(doorbell_ring);

// The cost of one session for an idle worker, independent of the number of its QPs.
void doorbell_drain_idle(benchmark::State& state) {
  auto bells = std::make_unique<uroce_doorbells>();
  DoorbellReader reader(bells.get());
  for (auto _ : state) {
    reader.drain([](std::uint32_t bit) { benchmark::DoNotOptimize(bit); });
    benchmark::ClobberMemory();
  }
}
BENCHMARK(doorbell_drain_idle);

// The doorbells of `rung` QPs with distant numbers are rung and found.
void doorbell_ring_and_drain(benchmark::State& state) {
  auto bells = std::make_unique<uroce_doorbells>();
  uroce_worker_line line{};
  DoorbellRinger ringer(bells.get(), &line);
  DoorbellReader reader(bells.get());
  const auto rung = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < rung; ++i) ringer.ring(i * (UROCE_MAX_SESSION_QPS / rung));
    reader.drain([](std::uint32_t bit) { benchmark::DoNotOptimize(bit); });
  }
  state.SetItemsProcessed(state.iterations() * rung);
}
BENCHMARK(doorbell_ring_and_drain)->ArgName("rung")->Arg(1)->Arg(64)->Arg(4096);

// An entry goes to a thread on another core, which answers with a completion. Both sides poll, and yield when they
// find nothing, since the machine may have fewer cores than threads.
void round_trip(benchmark::State& state) {
  WorkRing ring(64);
  WorkProducer client(ring.shape, &ring.producer, &ring.consumer);
  std::vector<uroce_cqe> entries(64);
  uroce_cq_client_block block{};
  CqConsumer consumer(entries.data(), 64, &block);
  auto bells = std::make_unique<uroce_doorbells>();
  uroce_worker_line line{};
  DoorbellRinger ringer(bells.get(), &line);
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    WorkConsumer daemon(ring.shape, &ring.producer, &ring.consumer);
    CqProducer producer(entries.data(), 64, &block);
    DoorbellReader reader(bells.get());
    while (!stop.load(std::memory_order_relaxed)) {
      bool idle = true;
      reader.drain([&](std::uint32_t) {
        idle = false;
        for (std::uint32_t n = daemon.available(); n != 0; --n) {
          uroce_sq_entry entry;
          daemon.copy_next(&entry, sizeof entry);
          uroce_cqe done{};
          done.wr_id = entry.wr_id;
          producer.push(done, false);
        }
        daemon.publish_consumed(daemon.next_index());
      });
      if (idle) std::this_thread::yield();
    }
  });
  uroce_sq_entry entry{};
  for (auto _ : state) {
    ++entry.wr_id;
    std::memcpy(client.next(), &entry, sizeof entry);
    client.advance();
    client.publish();
    ringer.ring(0);
    while (consumer.peek() == nullptr) std::this_thread::yield();
    consumer.pop();
    consumer.publish();
  }
  stop = true;
  worker.join();
}
BENCHMARK(round_trip)->UseRealTime();

}  // namespace
}  // namespace uroce::queue

BENCHMARK_MAIN();
