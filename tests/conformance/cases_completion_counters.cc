// Completion counters of rdma-core 65 (ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3)). The program finds the
// functions at run time, as those in cases_later.cc.
#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "fixtures.h"

namespace conformance {
namespace {

/// enum ibv_qp_attach_comp_cntr_op.
enum Operation : std::uint32_t {
  kSend = 1,
  kRecv = 2,
  kRead = 4,
  kRemoteRead = 8,
  kWrite = 16,
  kRemoteWrite = 32,
  kAllOperations = 63,
};
constexpr Operation kEach[] = {kSend, kRecv, kRead, kRemoteRead, kWrite, kRemoteWrite};
constexpr bool kBytes = true;
using Values = std::vector<std::uint64_t>;

/// struct ibv_comp_cntr_init_attr, ibv_qp_attach_comp_cntr_attr, ibv_comp_cntr_caps.
struct CounterInit {
  std::uint32_t comp_mask = 0, type = 0, flags = 0;
};
struct AttachTo {
  std::uint32_t comp_mask = 0, op_mask = 0;
};
struct Caps {
  std::uint64_t max_value = 0;
  std::uint32_t max_counters = 0, supported_qp_attach_ops = 0;
};

template <class F>
F* counter_call(const char* name) {
  return found<F>(name, "IBVERBS_1.18");
}
Caps caps_of(const End& end) {
  Caps caps;
  const int error = counter_call<int(ibv_context*, Caps*, std::size_t)>("_ibv_query_comp_cntr_caps")(
      end.context, &caps, sizeof(caps));
  if (error == EOPNOTSUPP) throw Skipped{"the device has no completion counters"};
  CHECK_OK(error);
  return caps;
}
int destroy_counter(void* counter) { return counter_call<int(void*)>("ibv_destroy_comp_cntr")(counter); }

class Counter {
 public:
  explicit Counter(const End& end, bool bytes = false) {
    caps_of(end);
    CounterInit init;
    init.type = bytes ? 1 : 0;
    object_ = Owned<void, destroy_counter>(CHECK_MADE(make(end, init)));
  }
  static void* make(const End& end, CounterInit init) {
    return counter_call<void*(ibv_context*, CounterInit*)>("ibv_create_comp_cntr")(end.context, &init);
  }
  int attach(ibv_qp* qp, std::uint32_t operations, std::uint32_t comp_mask = 0) {
    AttachTo attr{comp_mask, operations};
    return counter_call<int(ibv_qp*, void*, AttachTo*)>("ibv_qp_attach_comp_cntr")(qp, object_.get(), &attr);
  }
  int change(const char* call, std::uint64_t by) {
    return counter_call<int(void*, std::uint64_t)>(call)(object_.get(), by);
  }
  std::uint64_t done() const { return read("ibv_read_comp_cntr"); }
  std::uint64_t failed() const { return read("ibv_read_err_comp_cntr"); }
  int destroy() { return object_.destroy(); }

 private:
  std::uint64_t read(const char* call) const {
    std::uint64_t value = ~std::uint64_t{0};
    CHECK_OK(counter_call<int(void*, std::uint64_t*)>(call)(object_.get(), &value));
    return value;
  }
  Owned<void, destroy_counter> object_;
};

/// A counter of its own for each operation of a QP.
struct EachCounted {
  EachCounted(const End& end, ibv_qp* qp, bool bytes = false) {
    const std::uint32_t supported = caps_of(end).supported_qp_attach_ops;
    for (const Operation operation : kEach) {
      counters.emplace_back(end, bytes);
      const int error = counters.back().attach(qp, operation);
      if (error != EOPNOTSUPP || (supported & operation) != 0) CHECK_OK(error);
    }
  }
  Values done() const {
    Values values;
    for (const Counter& each : counters) values.push_back(each.done());
    return values;
  }
  Values failed() const {
    Values values;
    for (const Counter& each : counters) values.push_back(each.failed());
    return values;
  }
  std::vector<Counter> counters;
};

std::string text(const Values& values) {
  std::string out;
  for (const std::uint64_t value : values) out += std::to_string(value) + " ";
  return out;
}

/// The values once they have become `expected`, or after the timeout. Nothing else tells when an operation has been
/// counted at the other end.
template <class Read>
Values values_of(const Values& expected, Read&& read) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  Values values = read();
  while (values != expected && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    values = read();
  }
  return values;
}
template <class Counted>
void expect_done(const Counted& counted, const Values& expected) {
  CHECK_EQ(text(values_of(expected, [&] { return counted.done(); })), text(expected));
}

/// Two sides that are not connected yet, so that counters can be attached. Their QPs are destroyed before the
/// counters.
struct Sides {
  explicit Sides(Bench& b, ibv_qp_type type = IBV_QPT_RC, const QpOptions& o = {})
      : bench(b), options(o), left(b.left, type, 65536, o), right(b.right, type, 65536, o) {}
  void join() { connect(bench, left, right, options); }
  /// Two SENDs, a WRITE, a WRITE with immediate data, a READ, an atomic, with lengths that are powers of ten.
  void one_of_each(unsigned flags = IBV_SEND_SIGNALED) {
    for (std::uint64_t i = 0; i < 3; ++i) CHECK_OK(right.post_recv(32768, 16384, i));
    const auto go = [&](ibv_wr_opcode opcode, std::uint32_t bytes) {
      ibv_sge sge = left.buffer.sge(0, bytes);
      ibv_send_wr wr = request(opcode, sge);
      wr.send_flags = flags;
      wr.wr.rdma.remote_addr = right.buffer.address();
      wr.wr.rdma.rkey = right.buffer.rkey();
      if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = right.buffer.address();
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.rkey = right.buffer.rkey();
      }
      CHECK_OK(left.post(wr));
    };
    go(IBV_WR_SEND, 1);
    go(IBV_WR_SEND_WITH_IMM, 10);
    go(IBV_WR_RDMA_WRITE, 100);
    go(IBV_WR_RDMA_WRITE_WITH_IMM, 1000);
    go(IBV_WR_RDMA_READ, 10000);
    go(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  }
  Bench& bench;
  QpOptions options;
  Side left, right;
};

CONFORMANCE_CASE(later_counters_of_each_operation, "ibv_qp_attach_comp_cntr(3)") {
  Sides sides(bench);
  const EachCounted here(bench.left, sides.left.qp.get()), there(bench.right, sides.right.qp.get());
  sides.join();
  sides.one_of_each();
  for (int i = 0; i < 6; ++i) CHECK_EQ(int{wait(sides.left.cq.get()).status}, int{IBV_WC_SUCCESS});
  // What has a completion has been counted.
  CHECK_EQ(text(here.done()), text({2, 0, 1, 0, 2, 0}));
  const std::uint64_t reads = (caps_of(bench.right).supported_qp_attach_ops & kRemoteRead) != 0;
  expect_done(there, {0, 3, 0, reads, 0, 2});
  CHECK_EQ(text(here.failed()), text(Values(6)));
  CHECK_OK(sides.left.qp.destroy());
  CHECK_OK(sides.right.qp.destroy());
}

CONFORMANCE_CASE(later_counters_of_bytes, "ibv_create_comp_cntr(3): IBV_COMP_CNTR_TYPE_BYTES") {
  Sides sides(bench);
  const EachCounted here(bench.left, sides.left.qp.get(), kBytes), there(bench.right, sides.right.qp.get(), kBytes);
  sides.join();
  sides.one_of_each();
  expect_done(here, {11, 0, 10000, 0, 1100, 0});
  expect_done(there, {0, 1011, 0, 10000, 0, 1100});
  CHECK_OK(sides.left.qp.destroy());
  CHECK_OK(sides.right.qp.destroy());
}

// They are an alternative to completion queues: no CQE is made, and the work queue never fills.
CONFORMANCE_CASE(later_counters_without_completions, "ibv_create_comp_cntr(3)") {
  constexpr std::uint64_t kRounds = 50;
  Sides sides(bench);
  const EachCounted here(bench.left, sides.left.qp.get());
  sides.join();
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    for (std::uint32_t i = 0; i < sides.options.send_wr; ++i) {
      CHECK_OK(sides.left.write(0, 64, sides.right.buffer.address(), sides.right.buffer.rkey(), i, 0));
    }
    expect_done(here, {0, 0, 0, 0, round * sides.options.send_wr, 0});
  }
  CHECK(stays_empty(sides.left.cq.get(), std::chrono::milliseconds(1)));
  CHECK_OK(sides.left.qp.destroy());
}

// Who reads the count sees the data.
CONFORMANCE_CASE(later_counters_follow_the_data, "ibv_qp_attach_comp_cntr(3): REMOTE_RDMA_WRITE") {
  Sides sides(bench);
  const EachCounted there(bench.right, sides.right.qp.get());
  sides.join();
  for (std::uint8_t round = 1; round <= 100; ++round) {
    const std::size_t bytes = round % 2 == 0 ? 60000 : 8;
    sides.left.buffer.fill(round);
    CHECK_OK(sides.left.write(0, bytes, sides.right.buffer.address(), sides.right.buffer.rkey()));
    expect_done(there, {0, 0, 0, 0, 0, round});
    CHECK(sides.right.buffer.holds(round, 0, bytes, 0));
    wait_success(sides.left.cq.get(), IBV_WC_RDMA_WRITE);
  }
  CHECK_OK(sides.right.qp.destroy());
}

CONFORMANCE_CASE(later_counters_of_long_reads, "ibv_qp_attach_comp_cntr(3): REMOTE_RDMA_READ") {
  Sides sides(bench);
  const EachCounted there(bench.right, sides.right.qp.get(), kBytes);
  sides.join();
  for (std::uint8_t round = 1; round <= 100; ++round) {
    sides.right.buffer.fill(round);
    CHECK_OK(sides.left.read(0, 60000, sides.right.buffer.address(), sides.right.buffer.rkey()));
    wait_success(sides.left.cq.get(), IBV_WC_RDMA_READ);
    CHECK(sides.left.buffer.holds(round, 0, 60000, 0));
    CHECK_EQ(text(there.done()),
             text({0, 0, 0, round * std::uint64_t{60000}, 0, 0}));  // before the last of it left
  }
  CHECK_OK(sides.right.qp.destroy());
}

CONFORMANCE_CASE(later_counters_of_failures, "ibv_create_comp_cntr(3)") {
  Sides sides(bench);
  const EachCounted here(bench.left, sides.left.qp.get()), there(bench.right, sides.right.qp.get());
  sides.join();
  CHECK_OK(sides.left.post_recv(0, 64));
  CHECK_OK(sides.left.post_recv(0, 64));
  CHECK_OK(sides.right.post_recv(0, 64));
  const auto to = sides.right.buffer.address();
  CHECK_OK(sides.left.write(0, 8, to, sides.right.buffer.rkey() ^ 0x80));
  CHECK_OK(sides.left.write(0, 8, to, sides.right.buffer.rkey()));
  CHECK_OK(sides.left.send(0, 8));
  CHECK_OK(sides.left.read(0, 8, to, sides.right.buffer.rkey()));
  const Values flushed{1, 2, 1, 0, 2, 0};
  CHECK_EQ(text(values_of(flushed, [&] { return here.failed(); })), text(flushed));
  const Values other{0, 1, 0, 0, 0, 0};
  CHECK_EQ(text(values_of(other, [&] { return there.failed(); })), text(other));
  CHECK_EQ(text(here.done()), text(Values(6)));
  CHECK_EQ(text(there.done()), text(Values(6)));
  CHECK_OK(sides.left.qp.destroy());
  CHECK_OK(sides.right.qp.destroy());
}

CONFORMANCE_CASE(later_counters_are_set, "ibv_set_comp_cntr(3), ibv_inc_comp_cntr(3)") {
  const Caps caps = caps_of(bench.left);
  CHECK(caps.max_counters > 0 && (caps.supported_qp_attach_ops & ~kAllOperations) == 0);
  Counter counter(bench.left);
  CHECK_EQ(counter.done(), 0u);
  CHECK_EQ(counter.failed(), 0u);
  CHECK_OK(counter.change("ibv_set_comp_cntr", 5));
  CHECK_OK(counter.change("ibv_inc_comp_cntr", 7));
  CHECK_OK(counter.change("ibv_set_err_comp_cntr", caps.max_value));
  CHECK_OK(counter.change("ibv_inc_err_comp_cntr", 1));
  CHECK_EQ(counter.done(), 12u);
  CHECK_EQ(counter.failed(), 0u);  // wraps
  Sides sides(bench);
  CHECK_OK(counter.attach(sides.left.qp.get(), kWrite));
  sides.join();
  CHECK_OK(counter.change("ibv_set_comp_cntr", 1000));
  CHECK_OK(sides.left.write(0, 8, sides.right.buffer.address(), sides.right.buffer.rkey()));
  wait_success(sides.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK_EQ(counter.done(), 1001u);
  CHECK_OK(sides.left.qp.destroy());
}

CONFORMANCE_CASE(later_counters_are_attached_once, "ibv_qp_attach_comp_cntr(3): ERRORS") {
  Counter counter(bench.left), other(bench.left);
  Sides sides(bench);
  ibv_qp* const qp = sides.left.qp.get();
  CHECK_EQ(counter.attach(qp, 0), EINVAL);
  CHECK_EQ(counter.attach(qp, kSend | 64), EOPNOTSUPP);
  CHECK_EQ(counter.attach(qp, kSend, 1), EINVAL);
  CHECK_OK(counter.attach(qp, kSend | kRead));
  CHECK_EQ(counter.attach(qp, kSend), EBUSY);
  CHECK_EQ(other.attach(qp, kRead | kWrite), EBUSY);
  CHECK_OK(to_init(qp, kAll));
  CHECK_OK(other.attach(qp, kWrite));  // in INIT
  CHECK_EQ(counter.destroy(), EBUSY);
  {
    Sides connected(bench);
    connected.join();
    CHECK_EQ(other.attach(connected.left.qp.get(), kSend), EINVAL);  // in RTS
    CHECK_OK(to_error(connected.left.qp.get()));
    CHECK_EQ(other.attach(connected.left.qp.get(), kSend), EINVAL);
  }
  CHECK_OK(sides.left.qp.destroy());
  CHECK_OK(counter.destroy());
  CHECK_OK(other.destroy());
}

CONFORMANCE_CASE(later_counters_refuse_what_is_unknown, "ibv_create_comp_cntr(3): ERRORS") {
  caps_of(bench.left);
  for (const CounterInit& init : {CounterInit{1, 0, 0}, CounterInit{0, 0, 1}, CounterInit{0, 2, 0}}) {
    errno = 0;
    CHECK(Counter::make(bench.left, init) == nullptr);
    CHECK_EQ(errno, init.type == 2 ? EOPNOTSUPP : EINVAL);
  }
}

// Several QPs, which may be on several threads of a device, add to one counter.
CONFORMANCE_CASE(later_counters_shared_by_qps, "ibv_qp_attach_comp_cntr(3)") {
  constexpr std::uint64_t kEachQp = 200;
  Counter writes(bench.left), arrived(bench.right);
  std::vector<std::unique_ptr<Sides>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<Sides>(bench));
    CHECK_OK(writes.attach(all.back()->left.qp.get(), kWrite));
    CHECK_OK(arrived.attach(all.back()->right.qp.get(), kRemoteWrite));
    all.back()->join();
  }
  for (std::uint64_t i = 0; i < kEachQp; ++i) {
    for (const auto& sides : all) {
      CHECK_OK(sides->left.write(0, 8, sides->right.buffer.address(), sides->right.buffer.rkey()));
    }
    if (i % 8 != 7) continue;
    for (const auto& sides : all) {
      for (int k = 0; k < 8; ++k) wait_success(sides->left.cq.get(), IBV_WC_RDMA_WRITE);
    }
  }
  CHECK_EQ(writes.done(), 4 * kEachQp);
  CHECK_EQ(arrived.done(), 4 * kEachQp);
  all.clear();
}

CONFORMANCE_CASE(later_counters_of_an_srq_and_of_datagrams, "ibv_qp_attach_comp_cntr(3)") {
  const Pd pd = make_pd(bench.right);
  ibv_srq_init_attr init{};
  init.attr.max_wr = 8, init.attr.max_sge = 1;
  const Srq srq(CHECK_MADE(ibv_create_srq(pd.get(), &init)));
  Counter received(bench.right), datagrams(bench.right, kBytes);
  {
    const Buffer buffer(pd.get(), 4096);
    QpOptions options;
    options.srq = srq.get();
    Side left(bench.left, IBV_QPT_RC, 4096, {});
    Side right(bench.right, IBV_QPT_RC, 4096, options, pd.get());
    CHECK_OK(received.attach(right.qp.get(), kRecv));
    connect(bench, left, right);
    CHECK_OK(post_srq_recv(srq.get(), buffer, 0, 64, 1));
    CHECK_OK(left.send(0, 8));
    wait_success(right.cq.get(), IBV_WC_RECV);
    CHECK_EQ(received.done(), 1u);
  }
  Sides ud(bench, IBV_QPT_UD);
  CHECK_OK(datagrams.attach(ud.right.qp.get(), kRecv | kSend));
  ud.join();
  const Ah ah = make_ah(bench.left, ud.left.pd, bench.right);
  CHECK_OK(ud.right.post_recv(0, 4096));
  ibv_sge sge = ud.left.buffer.sge(0, 100);
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  wr.wr.ud = {ah.get(), ud.right.qp->qp_num, kQkey};
  CHECK_OK(ud.left.post(wr));
  wait_success(ud.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(datagrams.done(), 140u);  // with the GRH, as in wc.byte_len
  CHECK_OK(ud.right.qp.destroy());
}

CONFORMANCE_CASE(later_counters_not_of_xrc_targets, "ibv_qp_attach_comp_cntr(3): ERRORS") {
  if ((bench.left.attr.device_cap_flags & IBV_DEVICE_XRC) == 0) throw Skipped{"the device has no XRC"};
  Counter counter(bench.left);
  const Xrcd domain = make_xrcd(bench.left);
  const QpObject target = make_target(bench.left, domain.get());
  CHECK_EQ(counter.attach(target.get(), kRemoteWrite), EOPNOTSUPP);
}

}  // namespace
}  // namespace conformance
