// wake_latency DEVICE [ROUNDS]: prints `MEDIAN_US P99_US BARE_US`. The first two are the time from ibv_post_send to
// the completion of an 8-byte WRITE, both sides on DEVICE, 5 ms after the previous one: the daemon sleeps by then
// and must be woken. The third is the median time in which this machine wakes a thread on another CPU by an
// eventfd(2). The program is linked with the libibverbs of the system.
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

constexpr auto kPause = std::chrono::milliseconds(5);

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double round(ibv_qp* qp, ibv_cq* cq, ibv_send_wr& wr) {
  std::this_thread::sleep_for(kPause);
  ibv_send_wr* bad = nullptr;
  ibv_wc wc{};
  const auto start = Clock::now();
  require(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  const double time = microseconds_since(start);
  require(wc.status == IBV_WC_SUCCESS, "the WRITE");
  return time;
}

/// Pins the calling thread to the first or last CPU of its affinity mask.
void keep_one_cpu(bool first) {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  CPU_ZERO(&one);
  ::sched_getaffinity(0, sizeof(all), &all);
  int chosen = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &all) && (chosen < 0 || !first)) chosen = cpu;
  }
  CPU_SET(static_cast<unsigned>(chosen), &one);
  ::sched_setaffinity(0, sizeof(one), &one);
}

/// Sorted.
std::vector<double> bare_wakes(int rounds) {
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  std::atomic<int> woken{0};
  std::thread sleeper([&] {
    keep_one_cpu(false);
    for (eventfd_t value = 0; woken < rounds && ::eventfd_read(fd, &value) == 0; ++woken) {
    }
  });
  keep_one_cpu(true);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    std::this_thread::sleep_for(kPause);
    const auto start = Clock::now();
    require(::eventfd_write(fd, 1) == 0, "eventfd_write");
    while (woken == i) {
    }
    times.push_back(microseconds_since(start));
  }
  sleeper.join();
  ::close(fd);
  std::ranges::sort(times);
  return times;
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
  const std::vector<double> bare = bare_wakes(rounds);
  std::printf("%.2f %.2f %.2f\n", times[times.size() / 2], times[times.size() * 99 / 100], bare[bare.size() / 2]);
  return 0;
}
