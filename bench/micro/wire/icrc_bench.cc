// The ICRC alone and fused with the copy, for each engine, compared with memcpy() of the same buffers in the same
// run.
//
// Pairs of buffers that cover KiB kibibytes: with 0, one pair in the L1 cache; with 128 and 512 all are in the L2
// cache; with 256 MiB source and destination are in memory. The bar is icrc_copy of 4096 bytes in cache in at most
// 1.25 times the time of memcpy in the same run (512-bit engines), and of vpclmulqdq256 in at most 0.55 times the
// time of pclmulqdq; compare the minima of several repetitions. Buffers are aligned to 64 bytes.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "control/machine/icrc_choice.h"
#include "wire/icrc.h"

namespace uroce::wire {
namespace {

/// `slots` pairs of buffers, used in turn.
class Buffers {
 public:
  Buffers(std::size_t bytes, std::size_t total)
      : stride_((bytes + 127) / 64 * 64),
        slots_(std::max<std::size_t>(1, total / (2 * stride_))),
        memory_(2 * slots_ * stride_ + 64, std::byte{0x5a}),
        base_(memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64) {}
  void next() { at_ = at_ + 1 == slots_ ? 0 : at_ + 1; }
  const std::byte* from() const { return base_ + at_ * stride_; }
  std::byte* to() { return base_ + (slots_ + at_) * stride_; }

 private:
  std::size_t stride_, slots_, at_ = 0;
  std::vector<std::byte> memory_;
  std::byte* base_;
};

std::size_t footprint(const benchmark::State& state) { return static_cast<std::size_t>(state.range(1)) << 10; }

void memcpy_bench(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(bytes, footprint(state));
  for (auto _ : state) {
    std::memcpy(buffers.to(), buffers.from(), bytes);
    benchmark::ClobberMemory();
    buffers.next();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void copy_bench(benchmark::State& state, const CrcEngine* engine) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(bytes, footprint(state));
  std::uint32_t crc = 1;
  for (auto _ : state) {
    // Each packet begins a new CRC, so there is no dependency between packets.
    benchmark::DoNotOptimize(crc = engine->copy(0xdebb20e3, buffers.to(), buffers.from(), bytes));
    benchmark::ClobberMemory();
    buffers.next();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void update_bench(benchmark::State& state, const CrcEngine* engine) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(bytes, footprint(state));
  std::uint32_t crc = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(crc = engine->update(0xdebb20e3, buffers.from(), bytes));
    buffers.next();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

// Both buffers begin right after an unmapped page.
void page_start_bench(benchmark::State& state, const CrcEngine* engine) {
  constexpr std::size_t kPage = 4096;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  void* const area = mmap(nullptr, 4 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const base = static_cast<std::byte*>(area);
  if (area == MAP_FAILED || mprotect(base + kPage, kPage, PROT_READ | PROT_WRITE) != 0 ||
      mprotect(base + 3 * kPage, kPage, PROT_READ | PROT_WRITE) != 0) {
    state.SkipWithError("mmap");
    return;
  }
  std::uint32_t crc = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(crc = engine->copy(0xdebb20e3, base + 3 * kPage, base + kPage, bytes));
    benchmark::ClobberMemory();
  }
  munmap(area, 4 * kPage);
}

// The CRC state of the header continues in the payload: the cost of one transmitted packet.
void packet_bench(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto ip_bytes = static_cast<std::size_t>(state.range(1));
  Buffers buffers(bytes, 0);
  std::array<std::byte, 128> header{};
  header[0] = static_cast<std::byte>(ip_bytes == 40 ? 0x60 : 0x45);
  std::uint32_t crc = 0;
  for (auto _ : state) {
    crc = icrc_begin(header.data(), ip_bytes);
    if (bytes != 0) crc = crc_engine().copy(crc, buffers.to(), buffers.from(), bytes);
    benchmark::DoNotOptimize(crc = icrc_finish(crc));
    benchmark::ClobberMemory();
  }
}

const int registered = [] {
  const std::vector<std::int64_t> sizes = {16, 64, 128, 256, 1024, 2048, 4096, 65536};
  const auto sized = [&](benchmark::internal::Benchmark* bench) {
    bench->ArgNames({"bytes", "KiB"});
    for (const std::int64_t size : sizes) bench->Args({size, 0});
    for (const std::int64_t kib : {128, 512, 4 << 10, 256 << 10}) bench->Args({4096, kib});
  };
  sized(benchmark::RegisterBenchmark("memcpy", memcpy_bench));
  std::string engines;
  for (const CrcEngine* engine : crc_engines()) {
    if (!engine->supported()) continue;
    engines += (engines.empty() ? "" : " ") + std::string(engine->name);
    sized(benchmark::RegisterBenchmark(("icrc_copy/" + std::string(engine->name)).c_str(), copy_bench, engine));
    sized(benchmark::RegisterBenchmark(("icrc/" + std::string(engine->name)).c_str(), update_bench, engine));
    benchmark::RegisterBenchmark(("icrc_copy_at_page/" + std::string(engine->name)).c_str(), page_start_bench,
                                 engine)
        ->ArgName("bytes")
        ->Arg(16)
        ->Arg(60);
  }
  // Of the packets, here and in packet_bench.cc.
  if (const std::string error = control::choose_icrc_engine(); !error.empty()) {
    std::fprintf(stderr, "bench: %s\n", error.c_str());
    std::exit(2);
  }
  benchmark::AddCustomContext("icrc_engine", std::string(crc_engine().name));
  benchmark::AddCustomContext("icrc_engines", engines);
  benchmark::RegisterBenchmark("icrc_of_packet", packet_bench)
      ->ArgNames({"payload", "ip"})
      ->ArgsProduct({{0, 64, 256, 4096}, {20, 40}});
  return 0;
}();

}  // namespace
}  // namespace uroce::wire
