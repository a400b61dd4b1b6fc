// Lookup of memory keys with 1 to 100,000 MRs in the table, in random order.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "memory/table.h"

namespace {

using namespace uroce;

void BM_Resolve(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  memory::Table table(1u << 17, 7);
  std::vector<std::byte> bytes(4096);
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < count; ++i) {
    keys.push_back(*table.insert(
        {.pd = PdId{1}, .access = memory::kRemoteWrite, .iova = 0x1000, .length = 4096, .base = bytes.data()}));
  }
  std::mt19937 random(3);
  std::vector<Key> order(4096);
  for (Key& key : order) key = keys[random() % count];
  std::size_t i = 0;
  for (auto _ : state) {
    memory::Span span;
    const auto verdict =
        table.resolve(order[i & 4095], PdId{1}, 0x1000 + (i & 1023), 64, memory::kRemoteWrite, span);
    ++i;
    benchmark::DoNotOptimize(verdict);
    benchmark::DoNotOptimize(span);
  }
}
BENCHMARK(BM_Resolve)->Arg(1)->Arg(1'000)->Arg(100'000);

void BM_InsertAndRetire(benchmark::State& state) {
  memory::Table table(1u << 17, 7);
  for (auto _ : state) {
    const auto key = table.insert({.pd = PdId{1}, .length = 4096});
    table.retire(*key);
    table.release(*key);
  }
}
BENCHMARK(BM_InsertAndRetire);

}  // namespace

BENCHMARK_MAIN();
