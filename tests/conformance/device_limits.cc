// Each limit of ibv_query_device(3) can be reached, and one more is refused. For uroce devices only: on others,
// memory may run out first. tests/e2e runs those that are fast.
#include <algorithm>
#include <cstring>
#include <functional>

#include "frames.h"

namespace conformance {
namespace {

constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;  // as a number: verbs.h mixes enumerations

/// Creates objects until that is refused, and expects exactly `most`.
template <class Object>
void reach(int most, const std::function<Object()>& make) {
  CHECK(most > 0);
  std::vector<Object> made;
  made.reserve(static_cast<std::size_t>(most));
  for (int i = 0; i < most; ++i) {
    Object next = make();
    if (next.get() == nullptr) throw Failed{"refused after " + std::to_string(i) + " of " + std::to_string(most)};
    made.push_back(std::move(next));
  }
  CHECK(make().get() == nullptr);
}

ibv_qp* try_qp(Side& side, const ibv_qp_cap& cap) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq.get();
  init.cap = cap;
  init.qp_type = IBV_QPT_RC;
  return ibv_create_qp(side.pd, &init);
}

std::uint32_t of(int limit) { return static_cast<std::uint32_t>(limit); }

int receive_nothing(ibv_qp* qp) {
  ibv_recv_wr wr{}, *bad;
  return ibv_post_recv(qp, &wr, &bad);
}

CONFORMANCE_CASE(max_qp_wr, "ibv_query_device(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  const std::uint32_t most = of(bench.left.attr.max_qp_wr);
  const QpObject qp(CHECK_MADE(try_qp(side, {most, most, 1, 1, 0})));
  CHECK_OK(to_init(qp.get(), 0));
  for (std::uint32_t i = 0; i < most; ++i) CHECK_OK(receive_nothing(qp.get()));
  CHECK_EQ(receive_nothing(qp.get()), ENOMEM);
  CHECK(try_qp(side, {most + 1, 1, 1, 1, 0}) == nullptr);
  CHECK(try_qp(side, {1, most + 1, 1, 1, 0}) == nullptr);
}

CONFORMANCE_CASE(max_sge, "ibv_query_device(3)") {
  QpOptions options;
  options.send_sge = options.recv_sge = of(bench.left.attr.max_sge);
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  CHECK(try_qp(pair.left, {1, 1, options.send_sge + 1, 1, 0}) == nullptr);
  CHECK(try_qp(pair.left, {1, 1, 1, options.recv_sge + 1, 0}) == nullptr);
  pair.left.buffer.fill(9);
  std::vector<ibv_sge> from, to;
  for (std::uint32_t i = 0; i < options.send_sge; ++i) {
    from.push_back(pair.left.buffer.sge(i * 100, 100));
    to.push_back(pair.right.buffer.sge(i * 200, 100));
  }
  ibv_recv_wr receive{}, *bad_receive;
  receive.sg_list = to.data();
  receive.num_sge = static_cast<int>(to.size());
  CHECK_OK(ibv_post_recv(pair.right.qp.get(), &receive, &bad_receive));
  ibv_send_wr send{};
  send.sg_list = from.data();
  send.num_sge = static_cast<int>(from.size());
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  CHECK_OK(pair.left.post(send));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, options.send_sge * 100);
  for (std::size_t i = 0; i < from.size(); ++i) CHECK(pair.right.buffer.holds(9, i * 200, 100, i * 100));
}

CONFORMANCE_CASE(max_cqe, "ibv_query_device(3)") {
  const int most = bench.left.attr.max_cqe;
  const Cq cq = make_cq(bench.left, most);
  CHECK(cq->cqe >= most);
  CHECK(ibv_create_cq(bench.left.context, most + 1, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_resize_cq(cq.get(), most + 1) != 0);
}

ibv_srq* try_srq(ibv_pd* pd, std::uint32_t entries, std::uint32_t elements) {
  ibv_srq_init_attr init{};
  init.attr = {entries, elements, 0};
  return ibv_create_srq(pd, &init);
}

CONFORMANCE_CASE(max_srq_wr_and_sge, "ibv_query_device(3)") {
  const Pd pd = make_pd(bench.left);
  const std::uint32_t most = of(bench.left.attr.max_srq_wr), elements = of(bench.left.attr.max_srq_sge);
  const Srq srq(CHECK_MADE(try_srq(pd.get(), most, 1))), wide(CHECK_MADE(try_srq(pd.get(), 1, elements)));
  ibv_recv_wr wr{}, *bad;
  for (std::uint32_t i = 0; i < most; ++i) CHECK_OK(ibv_post_srq_recv(srq.get(), &wr, &bad));
  CHECK_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), ENOMEM);
  const std::vector<ibv_sge> list(elements);
  wr.sg_list = const_cast<ibv_sge*>(list.data());
  wr.num_sge = static_cast<int>(elements);
  CHECK_OK(ibv_post_srq_recv(wide.get(), &wr, &bad));
  CHECK(try_srq(pd.get(), most + 1, 1) == nullptr);
  CHECK(try_srq(pd.get(), 1, elements + 1) == nullptr);
}

CONFORMANCE_CASE(max_qp_rd_atom, "ibv_query_device(3)") {
  QpOptions options;
  options.reads = static_cast<std::uint8_t>(bench.left.attr.max_qp_rd_atom);
  options.send_wr = 2u * options.reads;
  CHECK_EQ(bench.left.attr.max_qp_init_rd_atom, bench.left.attr.max_qp_rd_atom);
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  pair.right.buffer.fill(4);
  for (std::uint32_t i = 0; i < options.send_wr; ++i) {
    CHECK_OK(pair.left.read(i * 64, 64, pair.right.buffer.address(i * 64), pair.right.buffer.rkey(), i));
  }
  for (std::uint32_t i = 0; i < options.send_wr; ++i) {
    CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ).wr_id, i);
  }
  CHECK(pair.left.buffer.holds(4, 0, options.send_wr * 64, 0));
  QpOptions beyond = options;
  beyond.reads = static_cast<std::uint8_t>(options.reads + 1);
  Side side(bench.left, IBV_QPT_RC, 64, {});
  CHECK_OK(to_init(side.qp.get(), kAll));
  CHECK(to_rtr(bench.left, side.qp.get(), bench.right, 1, bench.mtu(), beyond) != 0);
}

CONFORMANCE_CASE(max_dm_size, "ibv_query_device_ex(3)") {
  ibv_alloc_dm_attr attr{};
  attr.length = bench.left.extended.max_dm_size;
  const Dm dm(CHECK_MADE(ibv_alloc_dm(bench.left.context, &attr)));
  const char last = 7;
  CHECK_OK(ibv_memcpy_to_dm(dm.get(), attr.length - 1, &last, 1));
  ++attr.length;
  CHECK(ibv_alloc_dm(bench.left.context, &attr) == nullptr);
}

CONFORMANCE_CASE(max_ah, "ibv_query_device(3)") {
  const Pd pd = make_pd(bench.left);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = bench.right.gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(bench.left.gid_index);
  attr.grh.hop_limit = 1;
  reach<Ah>(bench.left.attr.max_ah, [&] { return Ah(ibv_create_ah(pd.get(), &attr)); });
}

/// An IPv4 group: 239.1.x.y.
ibv_gid group(int number) {
  ibv_gid gid{};
  const std::uint8_t last[] = {0xff, 0xff, 239, 1};
  std::ranges::copy(last, gid.raw + 10);
  gid.raw[14] = static_cast<std::uint8_t>(number >> 8);
  gid.raw[15] = static_cast<std::uint8_t>(number);
  return gid;
}

constexpr int kGroupsOfQp = 1024;

/// One QP in each group.
CONFORMANCE_CASE(max_mcast_grp, "ibv_query_device(3)") {
  const int most = bench.left.attr.max_mcast_grp;
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  std::vector<QpObject> qps;
  for (int i = 0; i <= most; ++i) {
    if (i % kGroupsOfQp == 0) {
      qps.push_back(make_qp(bench.left, pd.get(), cq.get(), cq.get(), IBV_QPT_UD));
      CHECK_OK(to_init(qps.back().get(), 0));
    }
    const ibv_gid gid = group(i);
    const int error = ibv_attach_mcast(qps.back().get(), &gid, 0);
    if (i < most) CHECK_OK(error);
    if (i == most) CHECK(error != 0);
  }
  for (int i = 0; i < most; ++i) {
    const ibv_gid gid = group(i);
    CHECK_OK(ibv_detach_mcast(qps[static_cast<std::size_t>(i / kGroupsOfQp)].get(), &gid, 0));
  }
}

CONFORMANCE_CASE(max_total_mcast_qp_attach, "ibv_query_device(3)") {
  const int most = bench.left.attr.max_total_mcast_qp_attach, groups = bench.left.attr.max_mcast_grp;
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  std::vector<QpObject> qps;
  for (int i = 0; i < most; ++i) {
    if (i % kGroupsOfQp == 0) {
      qps.push_back(make_qp(bench.left, pd.get(), cq.get(), cq.get(), IBV_QPT_UD));
      CHECK_OK(to_init(qps.back().get(), 0));
    }
    const ibv_gid gid = group(i % groups);
    CHECK_OK(ibv_attach_mcast(qps.back().get(), &gid, 0));
  }
  const QpObject beyond = make_qp(bench.left, pd.get(), cq.get(), cq.get(), IBV_QPT_UD);
  CHECK_OK(to_init(beyond.get(), 0));
  const ibv_gid gid = group(0);
  CHECK(ibv_attach_mcast(beyond.get(), &gid, 0) != 0);
  for (int i = most - 1; i >= 0; --i) {
    const ibv_gid last = group(i % groups);
    CHECK_OK(ibv_detach_mcast(qps[static_cast<std::size_t>(i / kGroupsOfQp)].get(), &last, 0));
  }
}

CONFORMANCE_CASE(max_qp, "ibv_query_device(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  // The side uses one, too.
  reach<QpObject>(bench.left.attr.max_qp - 1, [&] { return QpObject(try_qp(side, {1, 1, 1, 1, 0})); });
}

CONFORMANCE_CASE(max_raw_ethy_qp, "ibv_query_device(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RAW_PACKET;
  reach<QpObject>(bench.left.attr.max_raw_ethy_qp, [&] { return QpObject(ibv_create_qp(pd.get(), &init)); });
}

CONFORMANCE_CASE(max_wq_type_rq, "ibv_query_device_ex(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = init.max_sge = 1;
  init.pd = pd.get();
  init.cq = cq.get();
  reach<Wq>(static_cast<int>(bench.left.extended.max_wq_type_rq),
            [&] { return Wq(ibv_create_wq(bench.left.context, &init)); });
}

CONFORMANCE_CASE(max_mcast_qp_attach, "ibv_query_device(3)") {
  const int most = bench.left.attr.max_mcast_qp_attach;
  CHECK(most <= bench.left.attr.max_qp);
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  ibv_gid gid{};
  const std::uint8_t last[] = {0xff, 0xff, 239, 2, 2, 2};
  std::ranges::copy(last, gid.raw + 10);
  std::vector<QpObject> qps;
  QpOptions small;
  small.send_wr = small.recv_wr = 1;
  for (int i = 0; i < most; ++i) {
    qps.push_back(make_qp(bench.left, pd.get(), cq.get(), cq.get(), IBV_QPT_UD, small));
    CHECK_OK(to_init(qps.back().get(), 0));
    CHECK_OK(ibv_attach_mcast(qps.back().get(), &gid, 0));
  }
  for (const QpObject& qp : qps) CHECK_OK(ibv_detach_mcast(qp.get(), &gid, 0));
}

CONFORMANCE_CASE(max_cq, "ibv_query_device(3)") {
  reach<Cq>(bench.left.attr.max_cq, [&] { return Cq(ibv_create_cq(bench.left.context, 1, nullptr, nullptr, 0)); });
}

CONFORMANCE_CASE(max_srq, "ibv_query_device(3)") {
  const Pd pd = make_pd(bench.left);
  reach<Srq>(bench.left.attr.max_srq, [&] { return Srq(try_srq(pd.get(), 1, 1)); });
}

CONFORMANCE_CASE(max_pd, "ibv_query_device(3)") {
  reach<Pd>(bench.left.attr.max_pd, [&] { return Pd(ibv_alloc_pd(bench.left.context)); });
}

// Both share a table, so one may exceed its limit while there are fewer of the other.
CONFORMANCE_CASE(max_mr_and_mw, "ibv_query_device(3)") {
  const Pd pd = make_pd(bench.left);
  std::vector<std::uint8_t> memory(4096);
  std::vector<Mr> mrs;
  std::vector<Mw> mws;
  for (int i = 0; i < bench.left.attr.max_mw; ++i) {
    mws.emplace_back(CHECK_MADE(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2)));
  }
  for (int i = 0; i < bench.left.attr.max_mr; ++i) {
    mrs.emplace_back(CHECK_MADE(ibv_reg_mr(pd.get(), memory.data(), memory.size(), kLocalWrite)));
  }
  CHECK(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2) == nullptr);
  CHECK(ibv_reg_mr(pd.get(), memory.data(), memory.size(), kLocalWrite) == nullptr);
}

}  // namespace
}  // namespace conformance
