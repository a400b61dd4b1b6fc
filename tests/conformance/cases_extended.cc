// ibv_wr_*: work requests built call by call (ibv_wr_post(3)).
#include <cstring>

#include "fixtures.h"

namespace conformance {
namespace {

constexpr std::size_t kHalf = 32768;

struct Extended {
  explicit Extended(Bench& bench, ibv_qp_type type, std::uint64_t operations)
      : pair(bench, type, 65536, with(operations)) {
    qp = ibv_qp_to_qp_ex(pair.left.qp.get());
    CHECK(qp != nullptr);
    qp->wr_flags = IBV_SEND_SIGNALED;
  }
  static QpOptions with(std::uint64_t operations) {
    QpOptions options;
    options.operations = operations;
    options.inline_bytes = 64;
    return options;
  }
  void set(std::size_t offset, std::size_t length) {
    ibv_wr_set_sge(qp, pair.left.buffer.mr()->lkey, pair.left.buffer.address(offset),
                   static_cast<std::uint32_t>(length));
  }
  std::uint32_t max_send_wr() {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    CHECK_OK(ibv_query_qp(pair.left.qp.get(), &attr, IBV_QP_CAP, &init));
    return init.cap.max_send_wr;
  }
  /// `count` WRITEs of 8 bytes, in one batch.
  void add_writes(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      ibv_wr_rdma_write(qp, pair.right.buffer.rkey(), pair.right.buffer.address());
      set(0, 8);
    }
  }
  Pair pair;
  ibv_qp_ex* qp;
};

CONFORMANCE_CASE(wr_batch_of_all_kinds, "ibv_wr_post(3)") {
  Extended x(bench, IBV_QPT_RC,
             IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_IMM |
                 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
  Pair& pair = x.pair;
  pair.left.buffer.fill(11);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK_OK(pair.right.post_recv(kHalf + i * 100, 100, i));
  ibv_wr_start(x.qp);
  x.qp->wr_id = 1;
  ibv_wr_rdma_write(x.qp, pair.right.buffer.rkey(), pair.right.buffer.address(0));
  x.set(0, 4096);
  x.qp->wr_id = 2;
  ibv_wr_send(x.qp);
  x.set(0, 50);
  x.qp->wr_id = 3;
  ibv_wr_send_imm(x.qp, htobe32(99));
  x.set(0, 50);
  x.qp->wr_id = 4;
  ibv_wr_rdma_write_imm(x.qp, pair.right.buffer.rkey(), pair.right.buffer.address(4096), htobe32(98));
  x.set(0, 10);
  x.qp->wr_id = 5;
  ibv_wr_rdma_read(x.qp, pair.right.buffer.rkey(), pair.right.buffer.address(0));
  x.set(kHalf, 4096);
  x.qp->wr_id = 6;
  ibv_wr_atomic_fetch_add(x.qp, pair.right.buffer.rkey(), pair.right.buffer.address(8192), 5);
  x.set(kHalf + 8192, 8);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  const ibv_wc_opcode expected[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND,      IBV_WC_SEND,
                                    IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD};
  for (std::uint64_t i = 0; i < 6; ++i) CHECK_EQ(wait_success(pair.left.cq.get(), expected[i]).wr_id, i + 1);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).imm_data, htobe32(99));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV_RDMA_WITH_IMM).imm_data, htobe32(98));
  CHECK(pair.left.buffer.holds(11, kHalf, 4096, 0));
}

CONFORMANCE_CASE(wr_abort_leaves_nothing, "ibv_wr_post(3), ibv_wr_abort") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_wr_start(x.qp);
  x.qp->wr_id = 1;
  x.add_writes(1);
  ibv_wr_abort(x.qp);
  ibv_wr_start(x.qp);
  x.qp->wr_id = 2;
  x.add_writes(1);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  CHECK_EQ(wait_success(x.pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, 2u);
  CHECK(stays_empty(x.pair.left.cq.get(), std::chrono::milliseconds(5)));
}

CONFORMANCE_CASE(wr_error_posts_nothing, "ibv_wr_post(3), ibv_wr_complete") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_wr_start(x.qp);
  x.add_writes(x.max_send_wr() + 1);
  CHECK(ibv_wr_complete(x.qp) != 0);
  CHECK(stays_empty(x.pair.left.cq.get(), std::chrono::milliseconds(5)));
}

CONFORMANCE_CASE(wr_inline_list, "ibv_wr_post(3), ibv_wr_set_inline_data_list") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  char first[] = "abcdef", second[] = "ghij";
  ibv_data_buf list[2] = {{first, 6}, {second, 4}};
  CHECK_OK(x.pair.right.post_recv(0, 64));
  ibv_wr_start(x.qp);
  ibv_wr_send(x.qp);
  ibv_wr_set_inline_data_list(x.qp, 2, list);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  CHECK_EQ(wait_success(x.pair.right.cq.get(), IBV_WC_RECV).byte_len, 10u);
  wait_success(x.pair.left.cq.get(), IBV_WC_SEND);
  CHECK(std::memcmp(x.pair.right.buffer.data(), "abcdefghij", 10) == 0);
}

CONFORMANCE_CASE(wr_compare_and_swap, "ibv_wr_post(3), ibv_wr_atomic_cmp_swp") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
  const std::uint64_t before = 5, after = 77;
  std::uint64_t found = 0;
  for (const std::uint64_t expected : {before, after}) {  // the first swap returns 5
    if (expected == before) std::memcpy(x.pair.right.buffer.data(), &before, 8);
    ibv_wr_start(x.qp);
    ibv_wr_atomic_cmp_swp(x.qp, x.pair.right.buffer.rkey(), x.pair.right.buffer.address(), before, after);
    x.set(kHalf, 8);
    CHECK_EQ(ibv_wr_complete(x.qp), 0);
    wait_success(x.pair.left.cq.get(), IBV_WC_COMP_SWAP);
    std::memcpy(&found, x.pair.left.buffer.data() + kHalf, 8);
    CHECK_EQ(found, expected);
  }
  std::memcpy(&found, x.pair.right.buffer.data(), 8);
  CHECK_EQ(found, after);
}

CONFORMANCE_CASE(wr_sge_list, "ibv_wr_post(3), ibv_wr_set_sge_list") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  x.pair.left.buffer.fill(21);
  const ibv_sge list[2] = {x.pair.left.buffer.sge(100, 50), x.pair.left.buffer.sge(1000, 70)};
  CHECK_OK(x.pair.right.post_recv(0, 200));
  ibv_wr_start(x.qp);
  ibv_wr_send(x.qp);
  ibv_wr_set_sge_list(x.qp, 2, list);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(wait_success(x.pair.right.cq.get(), IBV_WC_RECV).byte_len, 120u);
  CHECK(x.pair.right.buffer.holds(21, 0, 50, 100));
  CHECK(x.pair.right.buffer.holds(21, 50, 70, 1000));
}

CONFORMANCE_CASE(wr_inline_data, "ibv_wr_post(3), ibv_wr_set_inline_data") {
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  char text[] = "gone as soon as it is set";
  ibv_wr_start(x.qp);
  ibv_wr_rdma_write(x.qp, x.pair.right.buffer.rkey(), x.pair.right.buffer.address(8));
  ibv_wr_set_inline_data(x.qp, text, sizeof(text));
  std::memset(text, 0, sizeof(text));
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(std::memcmp(x.pair.right.buffer.data() + 8, "gone as soon as it is set", sizeof(text)) == 0);
}

CONFORMANCE_CASE(wr_to_a_datagram_address, "ibv_wr_post(3), ibv_wr_set_ud_addr") {
  Extended x(bench, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
  x.pair.left.buffer.fill(12);
  CHECK_OK(x.pair.right.post_recv(0, 200));
  ibv_wr_start(x.qp);
  ibv_wr_send_imm(x.qp, htobe32(5));
  ibv_wr_set_ud_addr(x.qp, x.pair.ah_to_right.get(), x.pair.right.qp->qp_num, kQkey);
  x.set(0, 100);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_SEND);
  const ibv_wc wc = wait_success(x.pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(wc.imm_data, htobe32(5));
  CHECK(x.pair.right.buffer.holds(12, 40, 100, 0));
}

CONFORMANCE_CASE(wr_operation_that_the_type_lacks, "ibv_create_qp_ex(3), send_ops_flags") {
  ibv_qp_init_attr_ex init{};
  Side side(bench.left, IBV_QPT_RC, 64, {});
  init.qp_type = IBV_QPT_UD;
  init.pd = side.pd;
  init.send_cq = init.recv_cq = side.cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
  CHECK(ibv_create_qp_ex(bench.left.context, &init) == nullptr);
}

/// A region of the left side, and a window on it that is not bound yet.
struct Windowed : Extended {
  Windowed(Bench& bench, std::uint64_t operations) : Extended(supporting(bench), IBV_QPT_RC, operations) {}
  static Bench& supporting(Bench& bench) {
    if ((bench.left.attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) == 0) {
      throw Skipped{"the device has no such windows"};
    }
    return bench;
  }
  void bind(std::uint32_t to) { ibv_wr_bind_mw(qp, mw.get(), to, &info); }
  Buffer buffer{pair.left.pd, 4096, kAll | IBV_ACCESS_MW_BIND};
  const Mw mw{CHECK_MADE(ibv_alloc_mw(pair.left.pd, IBV_MW_TYPE_2))};
  const std::uint32_t before = mw->rkey, key = ibv_inc_rkey(before);
  const ibv_mw_bind_info info{buffer.mr(), buffer.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
};

CONFORMANCE_CASE(wr_window_bound, "ibv_wr_post(3), ibv_wr_bind_mw") {
  Windowed x(bench, IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV);
  ibv_wr_start(x.qp);
  x.bind(x.key);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_BIND_MW);
  x.pair.right.buffer.fill(1);
  CHECK_OK(x.pair.right.write(0, 64, x.buffer.address(), x.key));
  wait_success(x.pair.right.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(x.buffer.holds(1, 0, 64, 0));
}

/// A bound window that the peer may access.
struct Bound : Windowed {
  Bound(Bench& bench, std::uint64_t operations) : Windowed(bench, operations | IBV_QP_EX_WITH_BIND_MW) {
    ibv_wr_start(qp);
    bind(key);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    wait_success(pair.left.cq.get(), IBV_WC_BIND_MW);
    CHECK_EQ(write(), int{IBV_WC_SUCCESS});
  }
  int write() {
    CHECK_OK(pair.right.write(0, 64, buffer.address(), key));
    return wait(pair.right.cq.get()).status;
  }
};

CONFORMANCE_CASE(wr_window_invalidated, "ibv_wr_post(3), ibv_wr_local_inv") {
  Bound x(bench, IBV_QP_EX_WITH_LOCAL_INV);
  ibv_wr_start(x.qp);
  ibv_wr_local_inv(x.qp, x.key);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_LOCAL_INV);
  CHECK_EQ(x.write(), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(wr_send_invalidates, "ibv_wr_post(3), ibv_wr_send_inv") {
  Bound x(bench, IBV_QP_EX_WITH_SEND_WITH_INV);
  ibv_qp_ex* const peer = ibv_qp_to_qp_ex(x.pair.right.qp.get());
  CHECK_OK(x.pair.left.post_recv(0, 64));
  ibv_wr_start(peer);
  peer->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_inv(peer, x.key);
  ibv_wr_set_sge(peer, x.pair.right.buffer.mr()->lkey, x.pair.right.buffer.address(), 8);
  CHECK_EQ(ibv_wr_complete(peer), 0);
  wait_success(x.pair.right.cq.get(), IBV_WC_SEND);
  const ibv_wc wc = wait_success(x.pair.left.cq.get(), IBV_WC_RECV);
  CHECK((wc.wc_flags & IBV_WC_WITH_INV) != 0);
  CHECK_EQ(wc.invalidated_rkey, x.key);
  CHECK_EQ(x.write(), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(wr_abort_keeps_the_key_of_a_window, "ibv_wr_post(3), ibv_wr_abort") {
  Windowed x(bench, IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_wr_start(x.qp);
  x.bind(x.key);
  x.bind(ibv_inc_rkey(x.key));
  ibv_wr_abort(x.qp);
  CHECK_EQ(x.mw->rkey, x.before);
  // A batch that is too long posts nothing, either.
  ibv_wr_start(x.qp);
  x.bind(x.key);
  x.add_writes(x.max_send_wr());
  CHECK(ibv_wr_complete(x.qp) != 0);
  CHECK_EQ(x.mw->rkey, x.before);
  ibv_wr_start(x.qp);
  x.bind(x.key);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_BIND_MW);
}

CONFORMANCE_CASE(wr_atomic_write, "IBTA vol. 1, annex A19; ibv_wr_atomic_write of later rdma-core") {
  // IBV_DEVICE_ATOMIC_WRITE of later versions of rdma-core
  constexpr std::uint64_t kAtomicWrite = std::uint64_t{1} << 40;
  if ((bench.left.extended.device_cap_flags_ex & kAtomicWrite) == 0) throw Skipped{"no IBV_DEVICE_ATOMIC_WRITE"};
  Extended x(bench, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE);
  const std::uint64_t value = 0x1122334455667788;
  ibv_wr_start(x.qp);
  ibv_wr_atomic_write(x.qp, x.pair.right.buffer.rkey(), x.pair.right.buffer.address(64), &value);
  CHECK_EQ(ibv_wr_complete(x.qp), 0);
  wait_success(x.pair.left.cq.get(), IBV_WC_ATOMIC_WRITE);
  CHECK(std::memcmp(x.pair.right.buffer.data() + 64, &value, 8) == 0);
}

}  // namespace
}  // namespace conformance
