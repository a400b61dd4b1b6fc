// The cost of a registration in the program, before the daemon is involved, compared with copying the same pages.

#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "page_sharing/page_sharing.h"

namespace {

using uroce::page_sharing::PageSharing;
using uroce::page_sharing::SharedRange;

constexpr std::size_t kPage = 4096;

struct Memory {
  explicit Memory(std::size_t n)
      : bytes(n),
        at(static_cast<char*>(
            ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~Memory() { ::munmap(at, bytes); }
  std::size_t bytes;
  char* at;
};

/// A sleeping thread: with a second thread, moves must be guarded.
struct Sleeper {
  ~Sleeper() {
    stop = true;
    stop.notify_one();
    thread.join();
  }
  std::atomic<bool> stop = false;
  std::thread thread{[this] { stop.wait(false); }};
};

void share(benchmark::State& state, char* at, std::size_t bytes) {
  SharedRange range;
  if (PageSharing::instance().share(at, bytes, true, range) != 0 || range.pieces.empty()) {
    state.SkipWithError("memory can't be moved here");
  }
}

void BM_share_and_unshare(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::unique_ptr<Sleeper> other;
  if (state.range(1) > 1) other = std::make_unique<Sleeper>();
  Memory memory(bytes);
  std::memset(memory.at, 1, bytes);
  for (auto _ : state) {
    share(state, memory.at, bytes);
    PageSharing::instance().unshare(memory.at, bytes);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(BM_share_and_unshare)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4096, 65536, 1 << 20, 64 << 20}, {1, 2}})
    ->Unit(benchmark::kMicrosecond);

/// Copies into fresh memory and back: the lower bound for two moves of the pages.
void BM_copy_twice_into_fresh_memory(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory memory(bytes);
  std::memset(memory.at, 1, bytes);
  for (auto _ : state) {
    for (int i = 0; i < 2; ++i) {
      Memory fresh(bytes);
      std::memcpy(fresh.at, memory.at, bytes);
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(BM_copy_twice_into_fresh_memory)
    ->ArgName("bytes")
    ->Arg(4096)
    ->Arg(65536)
    ->Arg(1 << 20)
    ->Arg(64 << 20)
    ->Unit(benchmark::kMicrosecond);

/// Memory that is registered already is not moved again.
void BM_share_again(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory memory(bytes);
  std::memset(memory.at, 1, bytes);
  share(state, memory.at, bytes);
  for (auto _ : state) {
    share(state, memory.at, bytes);
    PageSharing::instance().unshare(memory.at, bytes);
  }
  PageSharing::instance().unshare(memory.at, bytes);
}
BENCHMARK(BM_share_again)->ArgName("bytes")->Arg(4096)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);

void BM_share_many_regions(benchmark::State& state) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  const Sleeper other;
  Memory memory(regions * 2 * kPage);
  std::memset(memory.at, 1, memory.bytes);
  for (auto _ : state) {
    for (std::size_t i = 0; i < regions; ++i) share(state, memory.at + i * 2 * kPage, kPage);
    for (std::size_t i = 0; i < regions; ++i) PageSharing::instance().unshare(memory.at + i * 2 * kPage, kPage);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * regions));
}
BENCHMARK(BM_share_many_regions)->ArgName("regions")->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond);

void BM_share_sparse_4GiB(benchmark::State& state) {
  Memory memory(std::size_t{4} << 30);
  for (auto _ : state) {
    share(state, memory.at, memory.bytes);
    PageSharing::instance().unshare(memory.at, memory.bytes);
  }
}
BENCHMARK(BM_share_sparse_4GiB)->Unit(benchmark::kMillisecond);

/// fork(2) and the exit of the child with this much registered memory; 0: without the library.
void BM_fork(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory memory(std::size_t{16} << 20);
  std::memset(memory.at, 1, memory.bytes);
  if (bytes > 0) share(state, memory.at, bytes);
  for (auto _ : state) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    int status = 0;
    ::waitpid(child, &status, 0);
  }
  if (bytes > 0) PageSharing::instance().unshare(memory.at, bytes);
}
BENCHMARK(BM_fork)->ArgName("bytes")->Arg(0)->Arg(4096)->Arg(16 << 20)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
