// Building and parsing of headers: the cost of a packet without its payload.
#include <benchmark/benchmark.h>

#include <array>

#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

PathAddress path(bool v6) {
  PathAddress path;
  path.source_mac = {2, 0, 0, 0, 0, 1};
  path.dest_mac = {2, 0, 0, 0, 0, 2};
  path.source.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  path.dest.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2};
  if (v6) path.source.bytes = path.dest.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return path;
}

constexpr std::uint8_t kWriteOnly = opcode(Service::kRc, Operation::kWriteOnly);

/// Builds a WRITE_ONLY with a RETH, as the requester does. Returns its length.
std::size_t build(const FrameTemplate& frame, std::byte* to, const std::byte* payload, std::size_t bytes, Psn psn,
                  bool icrc) {
  const OpcodeInfo& info = kOpcodes[kWriteOnly];
  const std::size_t ib_bytes = info.header_bytes + bytes + kIcrcBytes;
  std::byte* const bth = to + frame.emit(to, ib_bytes);
  Bth header;
  header.opcode = kWriteOnly;
  header.dest_qpn = Qpn{17};
  header.psn = psn;
  header.emit(bth);
  Reth{0x1000, Key{42}, static_cast<std::uint32_t>(bytes)}.emit(bth + info.reth);
  if (icrc) {
    const std::byte* const ip = to + frame.ip_offset();
    std::uint32_t crc = icrc_begin(ip, frame.ip_bytes(), info.header_bytes);
    crc = crc_engine().copy(crc, bth + info.header_bytes, payload, bytes);
    store_raw(bth + ib_bytes - kIcrcBytes, icrc_finish(crc));
  }
  return frame.header_bytes() + ib_bytes;
}

void template_emit(benchmark::State& state) {
  const FrameTemplate frame(path(state.range(0) == 6));
  std::array<std::byte, 256> out;
  std::size_t bytes = 80;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(frame.emit(out.data(), bytes));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(template_emit)->ArgName("ip")->Arg(4)->Arg(6);

void build_write(benchmark::State& state) {
  const FrameTemplate frame(path(false));
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::array<std::byte, 4400> out{};
  std::array<std::byte, 4096> payload{};
  Psn psn;
  for (auto _ : state) {
    benchmark::DoNotOptimize(build(frame, out.data(), payload.data(), bytes, ++psn, state.range(1) != 0));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(build_write)->ArgNames({"payload", "icrc"})->Args({64, 0})->Args({64, 1})->Args({4096, 1});

void parse_write(benchmark::State& state) {
  const FrameTemplate frame(path(state.range(1) == 6));
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::array<std::byte, 4400> out{};
  std::array<std::byte, 4096> payload{};
  const std::size_t length = build(frame, out.data(), payload.data(), bytes, Psn(7), true);
  ParseOptions options;
  options.check_icrc = state.range(2) != 0;
  RxPacket packet;
  for (auto _ : state) {
    if (parse({out.data(), length}, options, packet) != ParseVerdict::kOk) state.SkipWithError("bad packet");
    benchmark::DoNotOptimize(packet);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(parse_write)
    ->ArgNames({"payload", "ip", "icrc"})
    ->Args({64, 4, 0})
    ->Args({64, 4, 1})
    ->Args({64, 6, 1})
    ->Args({4096, 4, 1});

}  // namespace
}  // namespace uroce::wire
BENCHMARK_MAIN();
