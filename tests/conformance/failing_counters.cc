#include "failing_calls.h"

namespace conformance {
namespace {

/// struct ibv_comp_cntr_init_attr, ibv_qp_attach_comp_cntr_attr of rdma-core 65.
struct CounterInit {
  std::uint32_t comp_mask = 0, type = 0, flags = 0;
};
struct AttachTo {
  std::uint32_t comp_mask = 0, op_mask = 1;  // sends
};

template <class F>
F* function(const char* name) {
  return found<F>(name, "IBVERBS_1.18");
}
int destroy(void* counter) { return function<int(void*)>("ibv_destroy_comp_cntr")(counter); }
using Counter = Owned<void, destroy>;

void* make(Bench& bench) {
  CounterInit init;
  return function<void*(ibv_context*, CounterInit*)>("ibv_create_comp_cntr")(bench.right.context, &init);
}

int create_comp_cntr(Bench& bench) {
  const Counter counter(make(bench));
  return errno_of(counter.get());
}
int destroy_comp_cntr(Bench& bench) {
  Counter counter(CHECK_MADE(make(bench)));
  return errno_of(counter.destroy());
}
int attach_comp_cntr(Bench& bench) {
  const Counter counter(CHECK_MADE(make(bench)));
  Side side(bench.right, IBV_QPT_RC, 64, {});
  AttachTo attr;
  return errno_of(
      function<int(ibv_qp*, void*, AttachTo*)>("ibv_qp_attach_comp_cntr")(side.qp.get(), counter.get(), &attr));
}

}  // namespace

std::map<std::string, FailingCall> failing_counters() {
  return {{"create_comp_cntr", create_comp_cntr},
          {"destroy_comp_cntr", destroy_comp_cntr},
          {"attach_comp_cntr", attach_comp_cntr}};
}

}  // namespace conformance
