// RC and UC: operations, ordering, errors.
#include <cstring>

#include "fixtures.h"

namespace conformance {
namespace {

constexpr std::size_t kHalf = 32768;

void check_send(Bench& bench, ibv_qp_type type, std::size_t bytes) {
  Pair pair(bench, type);
  pair.left.buffer.fill(3);
  CHECK_OK(pair.right.post_recv(kHalf, bytes, 77));
  CHECK_OK(pair.left.send(0, bytes, 78));
  const ibv_wc received = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(received.wr_id, 77u);
  CHECK_EQ(received.byte_len, bytes);
  CHECK_EQ(received.qp_num, pair.right.qp->qp_num);
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_SEND).wr_id, 78u);
  CHECK(pair.right.buffer.holds(3, kHalf, bytes, 0));
}

void check_write(Bench& bench, ibv_qp_type type) {
  Pair pair(bench, type);
  pair.left.buffer.fill(9);
  CHECK_OK(pair.left.write(0, 20000, pair.right.buffer.address(100), pair.right.buffer.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  // UC completes when the message was sent: a later SEND shows that it has arrived.
  CHECK_OK(pair.right.post_recv(kHalf, 8));
  CHECK_OK(pair.left.send(0, 8));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(pair.right.buffer.holds(9, 100, 20000, 0));
  CHECK_EQ(int{pair.right.buffer.data()[99]}, 0);
  CHECK_EQ(int{pair.right.buffer.data()[20100]}, 0);
}

void check_immediate(Bench& bench, ibv_qp_type type) {
  Pair pair(bench, type);
  CHECK_OK(pair.right.post_recv(0, 64, 1));
  CHECK_OK(pair.right.post_recv(64, 64, 2));
  ibv_sge sge = pair.left.buffer.sge(0, 16);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, sge);
  wr.imm_data = htobe32(0xcafe0001);
  CHECK_OK(pair.left.post(wr));
  ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
  CHECK_EQ(wc.imm_data, htobe32(0xcafe0001));
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htobe32(0xcafe0002);
  wr.wr.rdma = {pair.right.buffer.address(256), pair.right.buffer.rkey()};
  CHECK_OK(pair.left.post(wr));
  wc = wait_success(pair.right.cq.get(), IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK_EQ(wc.wr_id, 2u);
  CHECK_EQ(wc.imm_data, htobe32(0xcafe0002));
  CHECK_EQ(wc.byte_len, 16u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
}

CONFORMANCE_CASE(rc_send_of_some_packets, "ibv_post_send(3)") { check_send(bench, IBV_QPT_RC, 20001); }
CONFORMANCE_CASE(rc_send_of_one_byte, "ibv_post_send(3)") { check_send(bench, IBV_QPT_RC, 1); }
CONFORMANCE_CASE(rc_write, "IBTA vol. 1, 9.4.3") { check_write(bench, IBV_QPT_RC); }
CONFORMANCE_CASE(rc_immediate, "ibv_poll_cq(3)") { check_immediate(bench, IBV_QPT_RC); }
CONFORMANCE_CASE(uc_send_of_some_packets, "IBTA vol. 1, 9.8") { check_send(bench, IBV_QPT_UC, 20001); }
CONFORMANCE_CASE(uc_write, "IBTA vol. 1, 9.8") { check_write(bench, IBV_QPT_UC); }
CONFORMANCE_CASE(uc_immediate, "IBTA vol. 1, 9.8") { check_immediate(bench, IBV_QPT_UC); }

CONFORMANCE_CASE(uc_has_no_reads_and_atomics, "ibv_post_send(3), table of opcodes") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Pair pair(bench, IBV_QPT_UC);
    ibv_sge sge = pair.left.buffer.sge(0, 8);
    ibv_send_wr wr = request(opcode, sge);
    wr.wr.atomic = {pair.right.buffer.address(), 1, 0, pair.right.buffer.rkey()};
    if (opcode == IBV_WR_RDMA_READ) wr.wr.rdma = {pair.right.buffer.address(), pair.right.buffer.rkey()};
    CHECK(refused(pair.left, wr));
  }
}

CONFORMANCE_CASE(uc_send_without_receive_is_dropped, "IBTA vol. 1, 9.8.2.2") {
  Pair pair(bench, IBV_QPT_UC);
  pair.left.buffer.fill(5);
  CHECK_OK(pair.left.send(0, 64, 1));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  let_arrive(bench);
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(1)));
  CHECK_OK(pair.right.post_recv(kHalf, 64, 9));
  CHECK_OK(pair.left.send(64, 64, 2));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).wr_id, 9u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(pair.right.buffer.holds(5, kHalf, 64, 64));
}

CONFORMANCE_CASE(rc_read, "IBTA vol. 1, 9.4.4") {
  Pair pair(bench);
  pair.right.buffer.fill(21);
  CHECK_OK(pair.left.read(kHalf, 20000, pair.right.buffer.address(5), pair.right.buffer.rkey(), 8));
  const ibv_wc wc = wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
  CHECK_EQ(wc.wr_id, 8u);
  CHECK(pair.left.buffer.holds(21, kHalf, 20000, 5));
}

CONFORMANCE_CASE(rc_more_reads_than_resources, "ibv_modify_qp(3), max_rd_atomic") {
  QpOptions options;
  options.reads = 1;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  pair.right.buffer.fill(2);
  for (unsigned i = 0; i < 8; ++i) {
    CHECK_OK(pair.left.read(i * 100, 100, pair.right.buffer.address(i * 100), pair.right.buffer.rkey(), i));
  }
  for (unsigned i = 0; i < 8; ++i) CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ).wr_id, i);
  CHECK(pair.left.buffer.holds(2, 0, 800, 0));
}

CONFORMANCE_CASE(rc_zero_bytes, "IBTA vol. 1, 9.7.5.2.8") {
  Pair pair(bench);
  // A zero-length operation checks no key.
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {0, 0};
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK_OK(pair.right.post_recv(0, 10));
  wr.opcode = IBV_WR_SEND;
  CHECK_OK(pair.left.post(wr));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, 0u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(rc_compare_and_swap, "IBTA vol. 1, 9.4.5") {
  Pair pair(bench);
  std::uint64_t value = 40;
  std::memcpy(pair.right.buffer.data() + 8, &value, 8);
  ibv_sge sge = pair.left.buffer.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, sge);
  wr.wr.atomic = {pair.right.buffer.address(8), 40, 50, pair.right.buffer.rkey()};
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_COMP_SWAP);
  std::uint64_t old = 0;
  std::memcpy(&old, pair.left.buffer.data(), 8);
  CHECK_EQ(old, 40u);
  wr.wr.atomic.swap = 60;  // the value is 50 now, so this
  CHECK_OK(pair.left.post(wr));
  wait_success(pair.left.cq.get(), IBV_WC_COMP_SWAP);
  std::memcpy(&old, pair.left.buffer.data(), 8);
  CHECK_EQ(old, 50u);
  std::memcpy(&value, pair.right.buffer.data() + 8, 8);
  CHECK_EQ(value, 50u);
}

CONFORMANCE_CASE(rc_fetch_and_add, "IBTA vol. 1, 9.4.5") {
  Pair pair(bench);
  ibv_sge sge = pair.left.buffer.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
  wr.wr.atomic = {pair.right.buffer.address(16), 7, 0, pair.right.buffer.rkey()};
  for (std::uint64_t i = 0; i < 10; ++i) {
    CHECK_OK(pair.left.post(wr));
    wait_success(pair.left.cq.get(), IBV_WC_FETCH_ADD);
    std::uint64_t old = 0;
    std::memcpy(&old, pair.left.buffer.data(), 8);
    CHECK_EQ(old, 7 * i);
  }
}

CONFORMANCE_CASE(rc_atomic_at_odd_address, "IBTA vol. 1, 9.7.4.1.6") {
  Pair pair(bench);
  ibv_sge sge = pair.left.buffer.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
  wr.wr.atomic = {pair.right.buffer.address(12) | 4, 7, 0, pair.right.buffer.rkey()};
  CHECK_OK(pair.left.post(wr));
  wait_status(pair.left.cq.get(), IBV_WC_REM_INV_REQ_ERR);
}

void check_inline(Bench& bench, ibv_qp_type type) {
  QpOptions options;
  options.inline_bytes = 64;
  Pair pair(bench, type, 65536, options);
  std::uint8_t local[64];
  std::memset(local, 0xab, sizeof(local));
  // Inline data needs no registration: the key is ignored.
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(local), sizeof(local), 0};
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  CHECK_OK(pair.right.post_recv(0, 64));
  CHECK_OK(pair.left.post(wr));
  std::memset(local, 0, sizeof(local));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  for (int i = 0; i < 64; ++i) CHECK_EQ(int{pair.right.buffer.data()[i]}, 0xab);
}

CONFORMANCE_CASE(rc_inline_data_may_be_reused_at_once, "ibv_post_send(3), IBV_SEND_INLINE") {
  check_inline(bench, IBV_QPT_RC);
}
CONFORMANCE_CASE(uc_inline_data_may_be_reused_at_once, "ibv_post_send(3), IBV_SEND_INLINE") {
  check_inline(bench, IBV_QPT_UC);
}

CONFORMANCE_CASE(rc_scatter_and_gather, "ibv_post_send(3), sg_list") {
  Pair pair(bench);
  pair.left.buffer.fill(17);
  ibv_sge out[2] = {pair.left.buffer.sge(0, 1001), pair.left.buffer.sge(5000, 999)};
  ibv_sge in[2] = {pair.right.buffer.sge(0, 3), pair.right.buffer.sge(kHalf, 3000)};
  ibv_recv_wr receive{5, nullptr, in, 2}, *bad_receive;
  CHECK_OK(ibv_post_recv(pair.right.qp.get(), &receive, &bad_receive));
  ibv_send_wr wr{};
  wr.sg_list = out;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  CHECK_OK(pair.left.post(wr));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, 2000u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(pair.right.buffer.holds(17, 0, 3, 0));
  CHECK(pair.right.buffer.holds(17, kHalf, 998, 3));
  CHECK(pair.right.buffer.holds(17, kHalf + 998, 999, 5000));
}

CONFORMANCE_CASE(rc_unsignaled_makes_no_completion, "ibv_post_send(3), IBV_SEND_SIGNALED") {
  Pair pair(bench);
  for (std::uint64_t i = 0; i < 5; ++i) {
    CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), i,
                             i == 4 ? IBV_SEND_SIGNALED : 0));
  }
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, 4u);
  CHECK(stays_empty(pair.left.cq.get(), std::chrono::milliseconds(10)));
}

CONFORMANCE_CASE(rc_signal_all, "ibv_create_qp(3), sq_sig_all") {
  QpOptions options;
  options.signal_all = true;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), 1, 0));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
}

CONFORMANCE_CASE(rc_full_queue_is_refused, "ibv_post_send(3), RETURN VALUE") {
  QpOptions options;
  options.send_wr = 4;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(pair.left.qp.get(), &attr, IBV_QP_CAP, &init));
  CHECK(init.cap.max_send_wr >= 4);
  // No receive is posted: the SENDs stay outstanding.
  int error = 0;
  std::uint32_t posted = 0;
  for (; posted <= init.cap.max_send_wr + 64 && error == 0; ++posted) error = pair.left.send(0, 8, posted);
  CHECK_EQ(error, ENOMEM);
  CHECK(posted > init.cap.max_send_wr);
}

CONFORMANCE_CASE(rc_wrong_remote_key, "IBTA vol. 1, 9.7.5.2.4") {
  Pair pair(bench);
  CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey() ^ 0x5500, 1));
  CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), 2));
  CHECK_EQ(wait_status(pair.left.cq.get(), IBV_WC_REM_ACCESS_ERR).wr_id, 1u);
  CHECK_EQ(wait_status(pair.left.cq.get(), IBV_WC_WR_FLUSH_ERR).wr_id, 2u);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(pair.left.qp.get(), &attr, IBV_QP_STATE, &init));
  CHECK_EQ(static_cast<int>(attr.qp_state), static_cast<int>(IBV_QPS_ERR));
}

CONFORMANCE_CASE(rc_write_past_the_end, "IBTA vol. 1, 9.7.5.2.4") {
  Pair pair(bench);
  CHECK_OK(pair.left.write(0, 16, pair.right.buffer.address(65536 - 8), pair.right.buffer.rkey()));
  wait_status(pair.left.cq.get(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_CASE(rc_region_without_the_right, "ibv_reg_mr(3), access") {
  Pair pair(bench);
  Buffer readable_only(pair.right.pd, 4096, IBV_ACCESS_REMOTE_READ);
  CHECK_OK(pair.left.read(0, 8, readable_only.address(), readable_only.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
  CHECK_OK(pair.left.write(0, 8, readable_only.address(), readable_only.rkey()));
  wait_status(pair.left.cq.get(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_CASE(rc_qp_without_the_right, "ibv_modify_qp(3), qp_access_flags") {
  QpOptions options;
  options.access = IBV_ACCESS_REMOTE_WRITE;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  CHECK_OK(pair.left.read(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey()));
  const ibv_wc wc = wait(pair.left.cq.get());
  CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_CASE(rc_key_of_another_domain, "IBTA vol. 1, 10.2.3") {
  Pair pair(bench);
  const Pd other = make_pd(bench.right);
  Buffer foreign(other.get(), 4096);
  CHECK_OK(pair.left.write(0, 8, foreign.address(), foreign.rkey()));
  wait_status(pair.left.cq.get(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_CASE(rc_wrong_local_key, "IBTA vol. 1, 10.8.3.3") {
  Pair pair(bench);
  ibv_sge sge = pair.left.buffer.sge(0, 8);
  sge.lkey ^= 0x5500;
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  CHECK_OK(pair.right.post_recv(0, 64));
  CHECK_OK(pair.left.post(wr));
  wait_status(pair.left.cq.get(), IBV_WC_LOC_PROT_ERR);
  CHECK_OK(to_error(pair.right.qp.get()));
  wait_status(pair.right.cq.get(), IBV_WC_WR_FLUSH_ERR);
}

CONFORMANCE_CASE(rc_receive_too_small, "IBTA vol. 1, 9.7.5.1.6") {
  Pair pair(bench);
  CHECK_OK(pair.right.post_recv(0, 10));
  CHECK_OK(pair.left.send(0, 100));
  wait_status(pair.right.cq.get(), IBV_WC_LOC_LEN_ERR);
  wait_status(pair.left.cq.get(), IBV_WC_REM_INV_REQ_ERR);
}

CONFORMANCE_CASE(rc_receiver_not_ready_for_good, "ibv_modify_qp(3), rnr_retry") {
  QpOptions options;
  options.rnr_retries = 2;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  CHECK_OK(pair.left.send(0, 8));
  wait_status(pair.left.cq.get(), IBV_WC_RNR_RETRY_EXC_ERR);
}

CONFORMANCE_CASE(rc_receiver_not_ready_for_a_while, "ibv_modify_qp(3), rnr_retry 7") {
  Pair pair(bench);
  pair.left.buffer.fill(1);
  CHECK_OK(pair.left.send(0, 5000));
  CHECK(stays_empty(pair.left.cq.get(), std::chrono::milliseconds(20)));
  CHECK_OK(pair.right.post_recv(kHalf, 5000));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(pair.right.buffer.holds(1, kHalf, 5000, 0));
}

CONFORMANCE_CASE(rc_no_such_peer, "ibv_modify_qp(3), retry_cnt") {
  QpOptions options;
  options.retries = 1;
  options.timeout = 10;
  Side side(bench.left, IBV_QPT_RC, 4096, options);
  Pair pair(bench);
  // The peer's QP is connected to another QP and does not answer this one.
  CHECK_OK(to_init(side.qp.get(), options.access));
  CHECK_OK(to_rtr(bench.left, side.qp.get(), bench.right, 0xabcdef, bench.mtu(), options));
  CHECK_OK(to_rts(side.qp.get(), options));
  CHECK_OK(side.write(0, 8, 0, 0));
  wait_status(side.cq.get(), IBV_WC_RETRY_EXC_ERR);
}

CONFORMANCE_CASE(rc_error_state_flushes, "IBTA vol. 1, 10.3.1.5") {
  Pair pair(bench);
  CHECK_OK(pair.right.post_recv(0, 64, 1));
  CHECK_OK(pair.right.post_recv(0, 64, 2));
  CHECK_OK(to_error(pair.right.qp.get()));
  CHECK_EQ(wait_status(pair.right.cq.get(), IBV_WC_WR_FLUSH_ERR).wr_id, 1u);
  CHECK_EQ(wait_status(pair.right.cq.get(), IBV_WC_WR_FLUSH_ERR).wr_id, 2u);
  CHECK_OK(pair.right.post_recv(0, 64, 3));
  CHECK_OK(pair.right.send(0, 8, 4));
  ibv_wc first = wait_status(pair.right.cq.get(), IBV_WC_WR_FLUSH_ERR);
  ibv_wc second = wait_status(pair.right.cq.get(), IBV_WC_WR_FLUSH_ERR);
  CHECK_EQ(first.wr_id + second.wr_id, 7u);
}

// The QP goes from RTR to ERR because of its peer's request: ibv_post_send is legal then, and its requests flush.
CONFORMANCE_CASE(rc_error_before_rts_flushes_sends, "IBTA vol. 1, 10.3.1.5") {
  Side left(bench.left, IBV_QPT_RC, 4096, {}), right(bench.right, IBV_QPT_RC, 4096, {});
  for (Side* side : {&left, &right}) {
    Side& peer = side == &left ? right : left;
    CHECK_OK(to_init(side->qp.get(), kAll));
    CHECK_OK(to_rtr(side->end, side->qp.get(), peer.end, peer.qp->qp_num, bench.mtu()));
  }
  CHECK_OK(to_rts(left.qp.get()));
  CHECK_OK(right.post_recv(0, 64));
  CHECK_EQ(right.send(0, 8), EINVAL);
  CHECK_OK(left.write(0, 8, right.buffer.address(), right.buffer.rkey() + 0x100));
  wait_status(left.cq.get(), IBV_WC_REM_ACCESS_ERR);
  wait_status(right.cq.get(), IBV_WC_WR_FLUSH_ERR);
  CHECK_OK(right.send(0, 8, 7));
  CHECK_EQ(wait_status(right.cq.get(), IBV_WC_WR_FLUSH_ERR).wr_id, 7u);
}

CONFORMANCE_CASE(rc_reset_and_again, "ibv_modify_qp(3)") {
  Pair pair(bench);
  CHECK_OK(to_error(pair.left.qp.get()));
  CHECK_OK(to_error(pair.right.qp.get()));
  for (Side* side : {&pair.left, &pair.right}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    CHECK_OK(ibv_modify_qp(side->qp.get(), &attr, IBV_QP_STATE));
  }
  for (Side* side : {&pair.left, &pair.right}) {
    Side& peer = side == &pair.left ? pair.right : pair.left;
    CHECK_OK(to_init(side->qp.get(), kAll));
    CHECK_OK(to_rtr(side->end, side->qp.get(), peer.end, peer.qp->qp_num, bench.mtu()));
    CHECK_OK(to_rts(side->qp.get()));
  }
  CHECK_OK(pair.right.post_recv(0, 64));
  CHECK_OK(pair.left.send(0, 64));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

void reset(Side& side) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  CHECK_OK(ibv_modify_qp(side.qp.get(), &attr, IBV_QP_STATE));
}

// The specification refuses it (10.3.1); libmlx5, libmlx4 and librxe do not look at the state (rdma-core:
// providers/mlx5/qp.c, mlx5_post_recv).
CONFORMANCE_CASE(rc_receive_posted_in_reset, "ibv_post_recv(3)") {
  Pair pair(bench);
  for (Side* side : {&pair.left, &pair.right}) reset(*side);
  CHECK_OK(pair.right.post_recv(64, 64, 17));
  connect(bench, pair.left, pair.right);
  CHECK_OK(pair.left.send(0, 64));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).wr_id, 17u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

// As libmlx5, libmlx4 and libhns do (rdma-core: providers/mlx5/cq.c, mlx5_cq_clean).
CONFORMANCE_CASE(rc_reset_removes_completions, "ibv_modify_qp(3), IBV_QPS_RESET") {
  Pair pair(bench);
  Side other(bench.right, IBV_QPT_RC, 4096, {}, pair.right.pd);
  const QpObject second = make_qp(bench.right, pair.right.pd, pair.right.cq.get(), pair.right.cq.get(), IBV_QPT_RC);
  // Completions of both QPs wait in one CQ.
  CHECK_OK(to_init(second.get(), kAll));
  ibv_sge sge = pair.right.buffer.sge(0, 8);
  ibv_recv_wr wr{5, nullptr, &sge, 1}, *bad;
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(pair.right.post_recv(0, 8, 1));
    CHECK_OK(ibv_post_recv(second.get(), &wr, &bad));
  }
  CHECK_OK(to_error(pair.right.qp.get()));
  CHECK_OK(to_error(second.get()));
  CHECK_OK(pair.right.post_recv(0, 8, 2));
  let_arrive(bench);
  reset(pair.right);
  for (int i = 0; i < 3; ++i) {
    const ibv_wc wc = wait(pair.right.cq.get());
    CHECK_EQ(wc.qp_num, second->qp_num);
    CHECK_EQ(wc.wr_id, 5u);
  }
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(10)));
  // Later completions of the QP arrive.
  reset(pair.left);
  connect(bench, pair.left, pair.right);
  CHECK_OK(pair.right.post_recv(0, 64, 9));
  CHECK_OK(pair.left.send(0, 64));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).wr_id, 9u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

// mlx5 takes a list of 8 bytes only: the old value has this length.
CONFORMANCE_CASE(rc_atomic_of_other_lengths, "IBTA vol. 1, 9.4.5; ibv_post_send(3)") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, std::size_t{16}}) {
    Pair pair(bench);
    ibv_sge sge = pair.left.buffer.sge(0, bytes);
    ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
    wr.wr.atomic = {pair.right.buffer.address(), 1, 0, pair.right.buffer.rkey()};
    CHECK(refused(pair.left, wr));
  }
}

CONFORMANCE_CASE(rc_send_before_rts_is_refused, "ibv_post_send(3)") {
  Side side(bench.left, IBV_QPT_RC, 4096, {});
  CHECK(side.send(0, 8) != 0);
  CHECK_OK(to_init(side.qp.get(), kAll));
  CHECK(side.send(0, 8) != 0);
  CHECK_OK(side.post_recv(0, 8));
}

CONFORMANCE_CASE(rc_fence_waits_for_the_read, "ibv_post_send(3), IBV_SEND_FENCE") {
  Pair pair(bench);
  pair.right.buffer.fill(33);
  // The data of the READ is sent back by the fenced WRITE that follows it.
  CHECK_OK(pair.left.read(0, 4096, pair.right.buffer.address(), pair.right.buffer.rkey(), 1));
  CHECK_OK(pair.left.write(0, 4096, pair.right.buffer.address(kHalf), pair.right.buffer.rkey(), 2,
                           IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(std::memcmp(pair.right.buffer.data(), pair.right.buffer.data() + kHalf, 4096) == 0);
}

// Without a fence: programs rely on it.
CONFORMANCE_CASE(rc_read_is_older_than_the_write_after_it, "Linux rxe; IBTA vol. 1, 10.8.3.3 asks for a fence") {
  Pair pair(bench);
  const auto there = pair.right.buffer.address();
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, kHalf}) {
    for (int value = 1; value <= 50; ++value) {
      std::memset(pair.left.buffer.data(), value, 2 * kHalf);
      std::memset(pair.right.buffer.data(), 0, kHalf);
      CHECK_OK(pair.left.read(0, bytes, there, pair.right.buffer.rkey()));
      CHECK_OK(pair.left.write(kHalf, 8, there + bytes - 8, pair.right.buffer.rkey()));
      wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
      wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
      const int read[] = {pair.left.buffer.data()[0], pair.left.buffer.data()[bytes - 1]};
      CHECK_EQ(read[0], 0);
      CHECK_EQ(read[1], 0);
      CHECK_EQ(int{pair.right.buffer.data()[bytes - 1]}, value);
    }
  }
}

CONFORMANCE_CASE(rc_read_is_older_than_the_atomic_after_it, "Linux rxe; IBTA vol. 1, 10.8.3.3 asks for a fence") {
  Pair pair(bench);
  ibv_sge sge = pair.left.buffer.sge(8, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
  wr.wr.atomic = {pair.right.buffer.address(), 1, 0, pair.right.buffer.rkey()};
  std::memset(pair.right.buffer.data(), 0, 8);
  for (std::uint64_t count = 0; count < 50; ++count) {
    CHECK_OK(pair.left.read(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey()));
    CHECK_OK(pair.left.post(wr));
    wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ);
    wait_success(pair.left.cq.get(), IBV_WC_FETCH_ADD);
    std::uint64_t words[2];
    std::memcpy(words, pair.left.buffer.data(), sizeof words);
    CHECK_EQ(words[0], count);
    CHECK_EQ(words[1], count);
  }
}

}  // namespace
}  // namespace conformance
