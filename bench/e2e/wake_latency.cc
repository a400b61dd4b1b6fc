// wake_latency DEVICE [ROUNDS]: prints `MEDIAN_US P99_US` from ibv_post_send to the completion of an 8 byte WRITE,
// both ends on DEVICE, 5 ms after the one before: the daemon sleeps by then, and must be woken. A program like any
// other: linked with the libibverbs of the system.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "verbs_setup.h"

namespace {

using bench::connect;
using bench::require;
using Clock = std::chrono::steady_clock;

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
  ibv_context* const context = bench::open(argv[1]);
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
