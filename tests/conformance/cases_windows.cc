// Memory windows of both types.
#include "fixtures.h"

namespace conformance {
namespace {

ibv_send_wr bind_request(ibv_mw* mw, std::uint32_t key, const Buffer& buffer, std::size_t offset,
                         std::size_t length) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = key;
  wr.bind_mw.bind_info = {buffer.mr(), buffer.address(offset), length,
                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  return wr;
}

constexpr int kBindable = kAll | IBV_ACCESS_MW_BIND;

void need_windows(const Bench& bench, unsigned flag) {
  if ((bench.right.attr.device_cap_flags & flag) == 0) throw Skipped{"the device has no such windows"};
}

CONFORMANCE_CASE(mw_type_1, "ibv_bind_mw(3)") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 8192, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_1)));
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {buffer.mr(), buffer.address(1000), 2000, IBV_ACCESS_REMOTE_WRITE};
  CHECK_OK(ibv_bind_mw(pair.right.qp.get(), mw.get(), &bind));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  pair.left.buffer.fill(6);
  CHECK_EQ(poll_write(pair, buffer.address(1000), mw->rkey), int{IBV_WC_SUCCESS});
  CHECK(buffer.holds(6, 1000, 64, 0));
  // A window with length 0 gives no access.
  bind.bind_info.length = 0;
  CHECK_OK(ibv_bind_mw(pair.right.qp.get(), mw.get(), &bind));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  CHECK_EQ(poll_write(pair, buffer.address(1000), mw->rkey), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mw_type_2, "ibv_post_send(3), IBV_WR_BIND_MW") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 8192, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_send_wr wr = bind_request(mw.get(), key, buffer, 1000, 2000);
  CHECK_OK(pair.right.post(wr));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  CHECK_EQ(poll_write(pair, buffer.address(2936), key), int{IBV_WC_SUCCESS});
  CHECK_EQ(poll_write(pair, buffer.address(2937), key), int{IBV_WC_REM_ACCESS_ERR});
}

// librxe and libmlx5 take 8 bits of the key and ignore rights other than remote ones (Linux:
// drivers/infiniband/sw/rxe/rxe_mw.c, rxe_do_bind_mw; rdma-core: providers/mlx5/qp.c, set_umr_mkey_seg).
CONFORMANCE_CASE(mw_key_counts_by_its_low_8_bits, "ibv_post_send(3), IBV_WR_BIND_MW: mw.rkey") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 8192, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  std::uint32_t key = mw->rkey;
  for (const std::uint32_t wanted : {(key + 7) & 0xffu, 0xabcdef00u | ((key + 8) & 0xff)}) {
    ibv_send_wr wr = bind_request(mw.get(), wanted, buffer, 0, 4096);
    wr.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    CHECK_OK(pair.right.post(wr));
    wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
    key = (key & ~0xffu) | (wanted & 0xff);
    CHECK_EQ(poll_write(pair, buffer.address(), key), int{IBV_WC_SUCCESS});
    CHECK_OK(pair.right.post_recv(0, 64));
    ibv_send_wr invalidate{};
    invalidate.opcode = IBV_WR_SEND_WITH_INV;
    invalidate.send_flags = IBV_SEND_SIGNALED;
    invalidate.invalidate_rkey = key;
    CHECK_OK(pair.left.post(invalidate));
    CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).invalidated_rkey, key);
    wait_success(pair.left.cq.get(), IBV_WC_SEND);
    mw->rkey = key;
  }
  CHECK_EQ(poll_write(pair, buffer.address(), key), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mw_type_2_of_length_0, "ibv_post_send(3), IBV_WR_BIND_MW: mw.bind_info.length") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  // Only an invalidation frees such a window (IBTA vol. 1, o10-37.2.40).
  for (const bool bound : {false, true}) {
    Pair pair(bench);
    Buffer buffer(pair.right.pd, 8192, kBindable);
    const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
    if (bound) {
      ibv_send_wr wr = bind_request(mw.get(), ibv_inc_rkey(mw->rkey), buffer, 0, 4096);
      CHECK_OK(pair.right.post(wr));
      wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
      mw->rkey = wr.bind_mw.rkey;
      CHECK_EQ(poll_write(pair, buffer.address(), mw->rkey), int{IBV_WC_SUCCESS});
    }
    ibv_send_wr wr = bind_request(mw.get(), ibv_inc_rkey(mw->rkey), buffer, 0, 0);
    const int error = pair.right.post(wr);
    if (error == 0) wait_status(pair.right.cq.get(), IBV_WC_MW_BIND_ERR);
  }
}

CONFORMANCE_CASE(mw_invalidated_by_the_peer, "ibv_post_send(3), IBV_WR_SEND_WITH_INV") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 8192, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_send_wr wr = bind_request(mw.get(), key, buffer, 0, 4096);
  CHECK_OK(pair.right.post(wr));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  CHECK_EQ(poll_write(pair, buffer.address(), key), int{IBV_WC_SUCCESS});
  CHECK_OK(pair.right.post_recv(0, 64));
  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_SEND_WITH_INV;
  invalidate.send_flags = IBV_SEND_SIGNALED;
  invalidate.invalidate_rkey = key;
  CHECK_OK(pair.left.post(invalidate));
  const ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK((wc.wc_flags & IBV_WC_WITH_INV) != 0);
  CHECK_EQ(wc.invalidated_rkey, key);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(poll_write(pair, buffer.address(), key), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mw_invalidated_locally, "ibv_post_send(3), IBV_WR_LOCAL_INV") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 8192, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_send_wr wr = bind_request(mw.get(), key, buffer, 0, 4096);
  CHECK_OK(pair.right.post(wr));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.send_flags = IBV_SEND_SIGNALED;
  invalidate.invalidate_rkey = key;
  CHECK_OK(pair.right.post(invalidate));
  wait_success(pair.right.cq.get(), IBV_WC_LOCAL_INV);
  // It can be bound again with another key. The program maintains the rkey field of the window.
  mw->rkey = key;
  const std::uint32_t next = ibv_inc_rkey(key);
  wr = bind_request(mw.get(), next, buffer, 4096, 4096);
  CHECK_OK(pair.right.post(wr));
  wait_success(pair.right.cq.get(), IBV_WC_BIND_MW);
  CHECK_EQ(poll_write(pair, buffer.address(4096), next), int{IBV_WC_SUCCESS});
  CHECK_EQ(poll_write(pair, buffer.address(), key), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(mw_region_without_the_right, "ibv_bind_mw(3), IBV_ACCESS_MW_BIND") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  ibv_send_wr wr = bind_request(mw.get(), ibv_inc_rkey(mw->rkey), buffer, 0, 4096);
  const int error = pair.right.post(wr);
  if (error == 0) wait_status(pair.right.cq.get(), IBV_WC_MW_BIND_ERR);
}

CONFORMANCE_CASE(mw_past_its_region, "ibv_bind_mw(3)") {
  need_windows(bench, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  Pair pair(bench);
  Buffer buffer(pair.right.pd, 4096, kBindable);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.right.pd, IBV_MW_TYPE_2)));
  ibv_send_wr wr = bind_request(mw.get(), ibv_inc_rkey(mw->rkey), buffer, 8, 4096);
  const int error = pair.right.post(wr);
  if (error == 0) wait_status(pair.right.cq.get(), IBV_WC_MW_BIND_ERR);
}

}  // namespace
}  // namespace conformance
