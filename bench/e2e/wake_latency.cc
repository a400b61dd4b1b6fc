// wake_latency DEVICE [ROUNDS]: prints `MEDIAN_US P99_US` from ibv_post_send to the completion of an 8 byte WRITE,
// both ends on DEVICE, 5 ms after the one before: the daemon sleeps by then, and must be woken. A program like any
// other: linked with the libibverbs of the system.
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wake_latency: %s failed\n", what);
  std::exit(1);
}

ibv_context* open(const char* name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) return ibv_open_device(list[i]);
  }
  return nullptr;
}

void connect(ibv_context* context, ibv_qp* qp, std::uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  require(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 1;
  require(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "RTS");
}

double round(ibv_qp* qp, ibv_cq* cq, ibv_send_wr& wr) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ibv_send_wr* bad = nullptr;
  ibv_wc wc{};
  const auto start = Clock::now();
  require(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  const auto time = Clock::now() - start;
  require(wc.status == IBV_WC_SUCCESS, "the WRITE");
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: wake_latency DEVICE [ROUNDS]\n");
    return 2;
  }
  ibv_context* const context = open(argv[1]);
  require(context != nullptr, "ibv_open_device");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  std::vector<std::uint64_t> memory(16);
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* const mr = ibv_reg_mr(pd, memory.data(), 8 * memory.size(), kAccess);
  require(pd != nullptr && cq != nullptr && mr != nullptr, "making PD, CQ, MR");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const one = ibv_create_qp(pd, &init);
  ibv_qp* const other = ibv_create_qp(pd, &init);
  require(one != nullptr && other != nullptr, "ibv_create_qp");
  connect(context, one, other->qp_num);
  connect(context, other, one->qp_num);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), 8, mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(memory.data() + 8), mr->rkey};
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 300;
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(round(one, cq, wr));
  std::ranges::sort(times);
  std::printf("%.2f %.2f\n", times[times.size() / 2], times[times.size() * 99 / 100]);
  return 0;
}
