// verbs_cost DEVICE measure PID
//   prints `POST_NS WR_NS SETUP_US`, medians: a work request by ibv_post_send; one by ibv_wr_start ...
//   ibv_wr_complete; opening the device, creating PD, CQ and QP, and destroying them.
// verbs_cost DEVICE hold QPS
//   creates QPS queue pairs, prints `made`, and keeps them until it is killed.
//
// The work requests are posted to a QP in SQD while the daemon, process PID, is stopped: only the time of the
// program is measured.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "verbs_setup.h"

namespace {

using bench::require;
using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kPosts = 1024;
constexpr int kRounds = 200;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double median(std::vector<double>& values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Domain {
  explicit Domain(const char* device)
      : context(bench::open(device)),
        pd(ibv_alloc_pd(context)),
        cq(ibv_create_cq(context, 16, nullptr, nullptr, 0)) {
    require(pd != nullptr && cq != nullptr, "making PD and CQ");
  }
  void close() const {
    require(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "destroying");
  }
  ibv_qp* make(std::uint32_t depth) const {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {depth, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    ibv_qp* const qp = ibv_create_qp_ex(context, &init);
    require(qp != nullptr, "ibv_create_qp_ex");
    return qp;
  }
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
};

void to_sqd(const Domain& domain, ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  require(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "RESET");
  bench::connect(domain.context, qp, qp->qp_num);
  attr.qp_state = IBV_QPS_SQD;
  require(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "SQD");
}

struct Target {
  std::uint64_t address;
  std::uint32_t lkey, rkey;
};

double post(ibv_qp* qp, const Target& target) {
  ibv_sge sge{target.address, 8, target.lkey};
  const auto start = Clock::now();
  for (std::uint32_t i = 0; i < kPosts; ++i) {
    ibv_send_wr wr{}, *bad;
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {target.address, target.rkey};
    if (ibv_post_send(qp, &wr, &bad) != 0) [[unlikely]]
      require(false, "ibv_post_send");
  }
  return since(start) / kPosts;
}

double build(ibv_qp* qp, const Target& target) {
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
  ex->wr_flags = 0;
  const auto start = Clock::now();
  for (std::uint32_t i = 0; i < kPosts; ++i) {
    ibv_wr_start(ex);
    ex->wr_id = i;
    ibv_wr_rdma_write(ex, target.rkey, target.address);
    ibv_wr_set_sge(ex, target.lkey, target.address, 8);
    if (ibv_wr_complete(ex) != 0) [[unlikely]]
      require(false, "ibv_wr_complete");
  }
  return since(start) / kPosts;
}

/// Stops a process (SIGSTOP) during its lifetime.
class Stopped {
 public:
  explicit Stopped(pid_t pid) : pid_(pid) {
    require(kill(pid_, SIGSTOP) == 0, "stopping the daemon");
    for (char is = state(); is != 'T'; is = state()) {
      require(is != 'Z', "stopping the daemon");
      usleep(100);
    }
    usleep(100);  // until its other threads have stopped, too
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  ~Stopped() { kill(pid_, SIGCONT); }

 private:
  char state() const {
    std::string text;
    std::getline(std::ifstream("/proc/" + std::to_string(pid_) + "/stat"), text);
    const std::size_t name_end = text.rfind(") ");
    require(name_end != std::string::npos, "watching the daemon");
    return text[name_end + 2];
  }
  pid_t pid_;
};

double set_up(const char* device) {
  const auto start = Clock::now();
  const Domain domain(device);
  require(ibv_destroy_qp(domain.make(16)) == 0, "ibv_destroy_qp");
  domain.close();
  return since(start) / 1000;
}

void measure(const char* device, pid_t daemon) {
  const Domain domain(device);
  std::vector<std::uint64_t> memory(8);
  ibv_mr* const mr = ibv_reg_mr(domain.pd, memory.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  require(mr != nullptr, "ibv_reg_mr");
  const Target target{reinterpret_cast<std::uintptr_t>(memory.data()), mr->lkey, mr->rkey};
  ibv_qp* const qp = domain.make(kPosts);
  std::vector<double> posted, built, cycles;
  for (int i = 0; i < kRounds; ++i) {
    to_sqd(domain, qp);
    {
      const Stopped stopped(daemon);
      posted.push_back(post(qp, target));
    }
    to_sqd(domain, qp);
    {
      const Stopped stopped(daemon);
      built.push_back(build(qp, target));
    }
    cycles.push_back(set_up(device));
  }
  std::printf("%.2f %.2f %.1f\n", median(posted), median(built), median(cycles));
  require(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0, "destroying");
  domain.close();
}

void hold(const char* device, int count) {
  const Domain domain(device);
  for (int i = 0; i < count; ++i) domain.make(1);
  std::puts("made");
  std::fflush(stdout);
  pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[2] : "";
  if (what == "hold") {
    hold(argv[1], std::atoi(argv[3]));
  } else if (what == "measure") {
    measure(argv[1], std::atoi(argv[3]));
  } else {
    std::fprintf(stderr, "usage: verbs_cost DEVICE measure PID | verbs_cost DEVICE hold QPS\n");
    return 2;
  }
  return 0;
}
