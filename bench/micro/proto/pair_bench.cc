// One QP pair over an in-memory wire, both ends on one core, ICRC checked on each packet; and many QPs.
#include <benchmark/benchmark.h>
#include <time.h>

#include <chrono>
#include <cstring>
#include <string>

#include "bench/micro/proto/wire_pair.h"
#include "control/machine/icrc_choice.h"
#include "wire/icrc.h"

namespace {

using namespace uroce;
using bench::Side;

/// Time that this thread was on a core: others on the machine do not count.
struct Clock {
  using duration = std::chrono::nanoseconds;
  static duration now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

/// The ICRC engine is that of a daemon started from here: UROCE_ICRC counts.
const bool kEngineChosen = [] {
  const std::string error = control::choose_icrc_engine();
  bench::require(error.empty(), error.c_str());
  benchmark::AddCustomContext("icrc_engine", std::string(wire::crc_engine().name));
  return true;
}();

constexpr std::uint32_t kBatch = 64;  // one signaled in 64
constexpr std::size_t kMemory = 1u << 20;

Nanos now() {
  return static_cast<Nanos>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

/// Both ends take turns until the requester has seen `due` completions.
void run_until(Side& requester, Side& responder, std::uint32_t due) {
  std::uint32_t idle = 0;
  for (std::uint32_t seen = requester.poll(); seen < due; seen += requester.poll()) {
    const Nanos time = now();
    requester.step(time);
    responder.step(time);
    bench::require(++idle < 10'000'000, "no progress");
  }
}

struct Pair {
  explicit Pair(std::uint32_t mtu = 4096, std::uint32_t qps = 1, const bench::Queues& queues = {})
      : a(0, qps, kMemory), b(1, qps, kMemory) {
    a.connect(b);
    b.connect(a);
    bench::Queues shaped = queues;
    shaped.mtu = mtu;
    for (std::uint32_t i = 0; i < qps; ++i) {
      a.add_qp(i, shaped);
      b.add_qp(i, shaped);
    }
  }
  ~Pair() {
    a.expect_no_refusals();
    b.expect_no_refusals();
  }
  Side a, b;
};

void report(benchmark::State& state, std::uint64_t messages, Clock::duration spent) {
  state.SetItemsProcessed(static_cast<std::int64_t>(messages));
  state.counters["ns_per_message"] =
      std::chrono::duration<double, std::nano>(spent).count() / static_cast<double>(messages);
}

void small_messages(benchmark::State& state, std::uint8_t opcode) {
  Pair pair;
  std::uint64_t messages = 0;
  Clock::duration spent{};
  for (auto _ : state) {
    const auto start = Clock::now();
    if (opcode == UROCE_WR_SEND) {
      for (std::uint32_t i = 0; i < kBatch; ++i) pair.b.post_receive(0, 4096 + i * 64, 64);
      pair.b.publish_receives(0);
    }
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      pair.a.post(0, opcode, i + 1 == kBatch, i * 64, 64, pair.b.key(), i);
    }
    pair.a.ring(0);
    run_until(pair.a, pair.b, 1);
    if (opcode == UROCE_WR_SEND) bench::require(pair.b.poll() == kBatch, "a receive completion is missing");
    spent += Clock::now() - start;
    messages += kBatch;
  }
  report(state, messages, spent);
}
void BM_Write64(benchmark::State& state) { small_messages(state, UROCE_WR_RDMA_WRITE); }
void BM_Send64(benchmark::State& state) { small_messages(state, UROCE_WR_SEND); }
void BM_Read64(benchmark::State& state) { small_messages(state, UROCE_WR_RDMA_READ); }

void BM_UdSend64(benchmark::State& state) {
  Pair pair(4096, 1, {.type = proto::QpType::kUd});
  std::uint64_t messages = 0;
  Clock::duration spent{};
  for (auto _ : state) {
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < kBatch; ++i) pair.b.post_receive(0, 4096 + i * 128, 128);
    pair.b.publish_receives(0);
    for (std::uint32_t i = 0; i < kBatch; ++i) pair.a.post_datagram(0, i + 1 == kBatch, i * 64, 64);
    pair.a.ring(0);
    run_until(pair.a, pair.b, 1);
    bench::require(pair.b.poll() == kBatch, "a receive completion is missing");
    spent += Clock::now() - start;
    messages += kBatch;
  }
  report(state, messages, spent);
}
BENCHMARK(BM_UdSend64);
BENCHMARK(BM_Write64);
BENCHMARK(BM_Send64);
BENCHMARK(BM_Read64);

/// What a 64 KiB message costs at the least: each packet's payload copied with its CRC into a frame and out of it.
Clock::duration two_fused_copies(Pair& pair, std::uint32_t messages, std::uint32_t bytes, std::uint32_t mtu) {
  const auto& engine = wire::crc_engine();
  const auto start = Clock::now();
  std::uint32_t sum = 0, packet = 0;
  for (std::uint32_t at = 0; at < messages * bytes; at += mtu, ++packet) {
    std::byte* frame = pair.a.frame(packet) + 70;
    sum ^= engine.copy(sum, frame, pair.a.memory() + at, mtu);
    sum ^= engine.copy(sum, pair.b.memory() + at, frame, mtu);
  }
  benchmark::DoNotOptimize(sum);
  return Clock::now() - start;
}

void large_messages(benchmark::State& state, std::uint8_t opcode) {
  constexpr std::uint32_t kBytes = 65536, kMtu = 4096, kMessages = 8;
  Pair pair(kMtu);
  std::uint64_t messages = 0;
  Clock::duration spent{}, copies{};
  for (auto _ : state) {
    const auto start = Clock::now();
    if (opcode == UROCE_WR_SEND) {
      for (std::uint32_t i = 0; i < kMessages; ++i) pair.b.post_receive(0, i * kBytes, kBytes);
      pair.b.publish_receives(0);
    }
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      pair.a.post(0, opcode, i + 1 == kMessages, i * kBytes, kBytes, pair.b.key(), i);
    }
    pair.a.ring(0);
    run_until(pair.a, pair.b, 1);
    pair.b.poll();
    spent += Clock::now() - start;
    copies += two_fused_copies(pair, kMessages, kBytes, kMtu);
    messages += kMessages;
  }
  bench::require(std::memcmp(pair.a.memory(), pair.b.memory(), kBytes) == 0, "the bytes differ");
  report(state, messages, spent);
  const double seconds = std::chrono::duration<double>(spent).count();
  state.counters["gbit_per_s"] = static_cast<double>(messages) * kBytes * 8 / seconds / 1e9;
  state.counters["of_two_fused_copies"] = std::chrono::duration<double>(copies).count() / seconds;
}
void BM_Write64K(benchmark::State& state) { large_messages(state, UROCE_WR_RDMA_WRITE); }
void BM_Send64K(benchmark::State& state) { large_messages(state, UROCE_WR_SEND); }
void BM_Read64K(benchmark::State& state) { large_messages(state, UROCE_WR_RDMA_READ); }
BENCHMARK(BM_Write64K);
BENCHMARK(BM_Send64K);
BENCHMARK(BM_Read64K);

/// All QPs have `depth` WRITEs of 64 B waiting, the last of them signaled; a round serves them all. With one QP a
/// round is repeated, so that each measurement has as many messages.
void BM_ManyQps(benchmark::State& state) {
  const auto qps = static_cast<std::uint32_t>(state.range(0));
  const auto depth = static_cast<std::uint32_t>(state.range(1));
  Pair pair(1024, qps, {.sq_entries = 16, .rq_entries = 2});
  std::uint64_t messages = 0;
  Clock::duration spent{};
  const std::uint32_t rounds = std::max(1u, 1000 / qps);
  for (auto _ : state) {
    const auto start = Clock::now();
    for (std::uint32_t round = 0; round < rounds; ++round) {
      std::uint32_t due = 0;
      for (std::uint32_t qp = 0; qp < qps; ++qp) {
        for (std::uint32_t i = 0; i < depth; ++i) {
          pair.a.post(qp, UROCE_WR_RDMA_WRITE, i + 1 == depth, (qp % 4096 + i) * 64, 64, pair.b.key(), i);
        }
        pair.a.ring(qp);
        ++due;
      }
      run_until(pair.a, pair.b, due);
    }
    spent += Clock::now() - start;
    messages += std::uint64_t{rounds} * qps * depth;
  }
  report(state, messages, spent);
}
BENCHMARK(BM_ManyQps)->ArgsProduct({{1, 100, 10'000}, {1, 16}})->ArgNames({"qps", "depth"});

}  // namespace

BENCHMARK_MAIN();
