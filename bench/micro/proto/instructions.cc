// A QP pair that sends a fixed number of messages in virtual time, with the portable ICRC engine: what
// bench/instructions.sh counts the instructions of. Nothing here depends on the machine or on the clock.
#include <cstdlib>
#include <cstring>

#include "bench/micro/proto/wire_pair.h"
#include "wire/icrc.h"

namespace {

using namespace uroce;
using bench::Side;

struct Case {
  const char* name;
  std::uint8_t opcode;
  std::uint32_t bytes, batch;  ///< messages a batch, the last of them signaled
};
constexpr Case kCases[] = {
    {"write64", UROCE_WR_RDMA_WRITE, 64, 64},   {"send64", UROCE_WR_SEND, 64, 64},
    {"read64", UROCE_WR_RDMA_READ, 64, 64},     {"write64k", UROCE_WR_RDMA_WRITE, 65536, 8},
    {"write64one", UROCE_WR_RDMA_WRITE, 64, 1},
};
constexpr std::size_t kMemory = 1u << 20;
constexpr Nanos kRound = kMicrosecond;

void run_batch(const Case& what, Side& a, Side& b, Nanos& now) {
  const bool receives = what.opcode == UROCE_WR_SEND;
  if (receives) {
    for (std::uint32_t i = 0; i < what.batch; ++i) b.post_receive(0, 4096 + i * what.bytes, what.bytes);
    b.publish_receives(0);
  }
  for (std::uint32_t i = 0; i < what.batch; ++i) {
    a.post(0, what.opcode, i + 1 == what.batch, i * what.bytes, what.bytes, b.key(), i);
  }
  a.ring(0);
  while (a.poll() == 0) {
    now += kRound;
    a.step(now);
    b.step(now);
  }
  if (receives) bench::require(b.poll() == what.batch, "a receive completion is missing");
}

}  // namespace

int main(int argc, char** argv) {
  const Case* what = nullptr;
  for (const Case& candidate : kCases) {
    if ((argc == 3 || argc == 4) && std::strcmp(argv[1], candidate.name) == 0) what = &candidate;
  }
  if (what == nullptr) {
    std::fprintf(stderr, "usage: instructions write64|send64|read64|write64k|write64one MESSAGES [latency]\n");
    return 2;
  }
  bench::require(wire::force_crc_engine("portable"), "no portable engine");
  Side a(0, 1, kMemory), b(1, 1, kMemory);
  a.connect(b);
  b.connect(a);
  a.add_qp(0, {});
  b.add_qp(0, {});
  if (argc == 4) {
    a.measure_latency();
    b.measure_latency();
  }
  Nanos now = kRound;
  for (long left = std::atol(argv[2]); left > 0; left -= what->batch) run_batch(*what, a, b, now);
  return 0;
}
