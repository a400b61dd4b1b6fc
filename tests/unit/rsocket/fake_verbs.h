// Shared by fake_verbs.cc and fake_cm.cc.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <mutex>
#include <vector>

namespace uroce::fake {

struct Channel : ibv_comp_channel {
  int pipe_end;
  std::deque<ibv_cq*> events;
};

struct Cq : ibv_cq {
  std::deque<ibv_wc> completions;
  bool armed = false;
};

struct SendWork {
  ibv_send_wr wr;
  std::vector<std::byte> data;
};
struct ReceiveWork {
  std::uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

struct Qp : ibv_qp {
  Qp* peer = nullptr;
  bool error = false;
  std::deque<SendWork> sends;
  std::deque<ReceiveWork> receives;
};

std::mutex& mutex();
ibv_context* context();
int& live();
/// To be called with the mutex held.
ibv_qp* make_qp(ibv_pd* pd, const ibv_qp_init_attr& attr);
void destroy_qp(ibv_qp* qp);
void fail_qp(Qp& qp);
void link(Qp& a, Qp& b);

}  // namespace uroce::fake
