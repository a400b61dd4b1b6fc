// Rate limits of QPs (ibv_modify_qp_rate_limit(3)).
#include <chrono>
#include <functional>

#include "fixtures.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

void need_pacing(const End& end, ibv_qp_type type) {
  const ibv_packet_pacing_caps& caps = end.extended.packet_pacing_caps;
  if (caps.qp_rate_limit_max == 0 || (caps.supported_qpts & 1u << type) == 0) throw Skipped{"packet_pacing_caps"};
}

int limit(ibv_qp* qp, std::uint32_t kbps, std::uint32_t burst = 0, std::uint16_t packet = 0) {
  ibv_qp_rate_limit_attr attr{};
  attr.rate_limit = kbps;
  attr.max_burst_sz = burst;
  attr.typical_pkt_sz = packet;
  return ibv_modify_qp_rate_limit(qp, &attr);
}

constexpr int kMessages = 16;

/// The number of messages of `bytes` each that are sent in 50 ms.
void hold_to_rate(Pair& pair, std::uint32_t bytes, const std::function<int()>& post) {
  constexpr std::uint32_t kMilliseconds = 50, kLargestPacket = 4300;
  const std::uint32_t total = kMessages * bytes, kbps = total * 8 / kMilliseconds, burst = total / 4;
  const auto send_all = [&] {
    for (int i = 0; i < kMessages; ++i) CHECK_OK(post());
    for (int i = 0; i < kMessages; ++i) CHECK_EQ(int{wait(pair.left.cq.get()).status}, int{IBV_WC_SUCCESS});
  };
  CHECK_OK(limit(pair.left.qp.get(), kbps, burst));
  const auto begin = Clock::now();
  send_all();
  const double taken = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  // Not earlier; how much later depends on the machine.
  CHECK(taken >= (total - burst - kLargestPacket) * 8.0 / kbps);
  CHECK_OK(limit(pair.left.qp.get(), 0));
  send_all();
}

void write_paced(Bench& bench, ibv_qp_type type) {
  need_pacing(bench.left, type);
  Pair pair(bench, type);
  hold_to_rate(pair, 65536,
               [&] { return pair.left.write(0, 65536, pair.right.buffer.address(), pair.right.buffer.rkey()); });
}

CONFORMANCE_CASE(rc_rate_limit, "ibv_modify_qp_rate_limit(3)") { write_paced(bench, IBV_QPT_RC); }
CONFORMANCE_CASE(uc_rate_limit, "ibv_modify_qp_rate_limit(3)") { write_paced(bench, IBV_QPT_UC); }

CONFORMANCE_CASE(ud_rate_limit, "ibv_modify_qp_rate_limit(3)") {
  need_pacing(bench.left, IBV_QPT_UD);
  Pair pair(bench, IBV_QPT_UD);
  hold_to_rate(pair, 1024, [&] {
    ibv_sge sge = pair.left.buffer.sge(0, 1024);
    ibv_send_wr wr = request(IBV_WR_SEND, sge);
    wr.wr.ud = {pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey};
    return pair.left.post(wr);
  });
}

CONFORMANCE_CASE(rate_limit_is_an_attribute, "ibv_modify_qp(3), IBV_QP_RATE_LIMIT; ibv_query_qp(3)") {
  need_pacing(bench.left, IBV_QPT_RC);
  Pair pair(bench);
  const std::uint32_t most = bench.left.extended.packet_pacing_caps.qp_rate_limit_max;
  const std::uint32_t least = bench.left.extended.packet_pacing_caps.qp_rate_limit_min;
  ibv_qp* const qp = pair.left.qp.get();
  for (const std::uint32_t rate : {least, most, 0u}) {
    ibv_qp_attr attr{};
    attr.rate_limit = rate;
    CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_RATE_LIMIT));
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    CHECK_OK(ibv_query_qp(qp, &now, IBV_QP_RATE_LIMIT, &init));
    CHECK_EQ(now.rate_limit, rate);
  }
  if (most != UINT32_MAX) CHECK_EQ(limit(qp, most + 1), EINVAL);
  CHECK_EQ(limit(qp, 0, 4096), EINVAL);
  CHECK_EQ(limit(qp, 0, 0, 64), EINVAL);
  ibv_qp_rate_limit_attr unknown{};
  unknown.rate_limit = most;
  unknown.comp_mask = 1;
  CHECK_EQ(ibv_modify_qp_rate_limit(qp, &unknown), EINVAL);
  const Side fresh(bench.left, IBV_QPT_RC, 64, {});
  CHECK_EQ(limit(fresh.qp.get(), most), EINVAL);  // in RESET
}

}  // namespace
}  // namespace conformance
