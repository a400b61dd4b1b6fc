// UD: address handles, Q_Keys, the GRH before the payload, multicast.
#include <array>
#include <cstring>

#include "fixtures.h"

namespace conformance {
namespace {

constexpr std::size_t kHeader = 40;
constexpr std::size_t kHalf = 32768;

int send_datagram(Side& side, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey, std::size_t bytes,
                  std::uint64_t id = 1) {
  ibv_sge sge = side.buffer.sge(0, bytes);
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  wr.wr_id = id;
  wr.wr.ud = {ah, qpn, qkey};
  return side.post(wr);
}

CONFORMANCE_CASE(ud_send, "IBTA vol. 1, 9.8.3; ibv_poll_cq(3)") {
  Pair pair(bench, IBV_QPT_UD);
  pair.left.buffer.fill(7);
  CHECK_OK(pair.right.post_recv(kHalf, kHeader + 500, 3));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 500));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  const ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(wc.byte_len, kHeader + 500);
  CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
  CHECK_EQ(wc.src_qp, pair.left.qp->qp_num);
  CHECK_EQ(wc.qp_num, pair.right.qp->qp_num);
  CHECK(pair.right.buffer.holds(7, kHalf + kHeader, 500, 0));
}

CONFORMANCE_CASE(ud_header_of_ipv4, "IBTA annex A17.4.5.2") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  const std::uint8_t* const ip = pair.right.buffer.data() + 20;
  CHECK_EQ(int{ip[0]}, 0x45);
  CHECK_EQ(int{ip[9]}, 17);
  CHECK(std::memcmp(ip + 12, bench.left.gid.raw + 12, 4) == 0);
  CHECK(std::memcmp(ip + 16, bench.right.gid.raw + 12, 4) == 0);
}

CONFORMANCE_CASE(ud_reply_to_a_completion, "ibv_create_ah_from_wc(3)") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(pair.left.post_recv(kHalf, kHeader + 16));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  auto* const grh = reinterpret_cast<ibv_grh*>(pair.right.buffer.data());
  const Ah back(CHECK_MADE(ibv_create_ah_from_wc(pair.right.pd, &wc, grh, 1)));
  CHECK_OK(send_datagram(pair.right, back.get(), wc.src_qp, kQkey, 16));
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RECV).byte_len, kHeader + 16);
  wait_success(pair.right.cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(ud_header_of_ipv6, "IBTA annex A17.4.5.2; ibv_init_ah_from_wc(3)") {
  const OverIpv6 scope(bench);
  Pair pair(bench, IBV_QPT_UD);
  pair.left.buffer.fill(14);
  CHECK_OK(pair.right.post_recv(0, kHeader + 100));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 100));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(wc.byte_len, kHeader + 100);
  CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
  const std::uint8_t* const ip = pair.right.buffer.data();
  CHECK_EQ(ip[0] >> 4, 6);
  CHECK_EQ(int{ip[6]}, 17);
  CHECK(std::memcmp(ip + 8, bench.left.gid.raw, 16) == 0);
  CHECK(std::memcmp(ip + 24, bench.right.gid.raw, 16) == 0);
  CHECK(pair.right.buffer.holds(14, kHeader, 100, 0));
  auto* const grh = reinterpret_cast<ibv_grh*>(pair.right.buffer.data());
  ibv_ah_attr attr{};
  CHECK_OK(ibv_init_ah_from_wc(bench.right.context, 1, &wc, grh, &attr));
  CHECK_EQ(int{attr.is_global}, 1);
  CHECK_EQ(int{attr.grh.sgid_index}, bench.right.gid_index);
  CHECK(std::memcmp(attr.grh.dgid.raw, bench.left.gid.raw, 16) == 0);
  const Ah back(CHECK_MADE(ibv_create_ah_from_wc(pair.right.pd, &wc, grh, 1)));
  CHECK_OK(pair.left.post_recv(kHalf, kHeader + 16));
  CHECK_OK(send_datagram(pair.right, back.get(), wc.src_qp, kQkey, 16));
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RECV).byte_len, kHeader + 16);
  wait_success(pair.right.cq.get(), IBV_WC_SEND);
}

// libmlx5 and librxe take the low 20 bits (rdma-core: providers/mlx5/verbs.c, mlx5_create_ah); UCX passes all 32
// (src/uct/ib/base/ib_iface.c, uct_ib_iface_fill_ah_attr_from_gid_lid).
CONFORMANCE_CASE(flow_label_counts_by_its_low_20_bits, "ibv_create_ah(3), ibv_modify_qp(3): grh.flow_label") {
  constexpr std::uint32_t kLabel = 0xfff12345;
  const OverIpv6 scope(bench);
  Pair pair(bench, IBV_QPT_UD);
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.grh = {bench.right.gid, kLabel, static_cast<std::uint8_t>(bench.left.gid_index), 64, 0};
  const Ah ah(CHECK_MADE(ibv_create_ah(pair.left.pd, &path)));
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(send_datagram(pair.left, ah.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  const std::uint8_t* const ip = pair.right.buffer.data();
  CHECK_EQ((ip[1] & 15u) << 16 | ip[2] << 8 | ip[3], kLabel & 0xfffff);

  std::array<std::uint8_t, 6> mac{};
  CHECK_EQ(ibv_resolve_eth_l2_from_gid(bench.left.context, &path, mac.data(), nullptr), 0);

  Side connected(bench.left, IBV_QPT_RC, 4096, {});
  CHECK_OK(to_init(connected.qp.get(), 0));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = bench.mtu();
  attr.dest_qp_num = pair.right.qp->qp_num;
  attr.min_rnr_timer = 12;
  attr.ah_attr = path;
  CHECK_OK(ibv_modify_qp(connected.qp.get(), &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(connected.qp.get(), &now, IBV_QP_AV, &init));
  CHECK_EQ(now.ah_attr.grh.flow_label, kLabel & 0xfffff);
}

// As libmlx5 reports it: the service level of a RoCE completion is the kind of packet, bit 3 for UDP, and 1 for
// IPv6 or 2 for IPv4 (rdma-core: providers/mlx5/cq.c, handle_responder; UCX before 1.19 reads it in
// src/uct/ib/ud/base/ud_iface.h, uct_ud_iface_check_grh). It isn't a priority: replies must not take it as one.
void check_kind_of_packet(Bench& bench, int kind) {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(int{wc.sl}, kind);
  ibv_ah_attr attr{};
  auto* const grh = reinterpret_cast<ibv_grh*>(pair.right.buffer.data());
  CHECK_OK(ibv_init_ah_from_wc(bench.right.context, 1, &wc, grh, &attr));
  CHECK_EQ(int{attr.sl}, 0);
}

CONFORMANCE_CASE(ud_completion_tells_the_kind_of_packet, "IBTA annex A17.4.5.2; ibv_init_ah_from_wc(3)") {
  check_kind_of_packet(bench, 0xa);
  const OverIpv6 scope(bench);
  check_kind_of_packet(bench, 0x9);
}

CONFORMANCE_CASE(ud_inline, "ibv_post_send(3), IBV_SEND_INLINE") {
  QpOptions options;
  options.inline_bytes = 64;
  Pair pair(bench, IBV_QPT_UD, 65536, options);
  char text[] = "inline";
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(text), sizeof(text), 0};
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.ud = {pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey};
  CHECK_OK(pair.right.post_recv(0, kHeader + 64));
  CHECK_OK(pair.left.post(wr));
  std::memset(text, 0, sizeof(text));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, kHeader + sizeof(text));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(std::memcmp(pair.right.buffer.data() + kHeader, "inline", sizeof(text)) == 0);
}

CONFORMANCE_CASE(ud_wrong_qkey_is_dropped, "IBTA vol. 1, 10.2.5; ibv_query_port(3), qkey_viol_cntr") {
  Pair pair(bench, IBV_QPT_UD);
  ibv_port_attr before{}, after{};
  CHECK_OK(ibv_query_port(bench.right.context, 1, &before));
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey + 1, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(stays_empty(pair.right.cq.get()));
  CHECK_OK(ibv_query_port(bench.right.context, 1, &after));
  CHECK_EQ(after.qkey_viol_cntr - before.qkey_viol_cntr, 1u);
  CHECK_EQ(after.bad_pkey_cntr, before.bad_pkey_cntr);
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(ud_controlled_qkey_is_the_qps_own, "IBTA vol. 1, 10.2.5") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  // With the most significant bit set, the QP's own Q_Key is sent.
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, 0x80000000u | 5, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
}

CONFORMANCE_CASE(ud_largest_message, "IBTA vol. 1, 9.8.3: one packet") {
  Pair pair(bench, IBV_QPT_UD);
  const std::size_t most = bench.mtu_bytes();
  pair.left.buffer.fill(4);
  CHECK_OK(pair.right.post_recv(kHalf, kHeader + most));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, most));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, kHeader + most);
  CHECK(pair.right.buffer.holds(4, kHalf + kHeader, most, 0));
}

CONFORMANCE_CASE(ud_too_large_a_message, "IBTA vol. 1, 10.8.3.3; ibv_post_send(3)") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, 20000));
  const int error =
      send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, bench.mtu_bytes() + 1, 6);
  // Either the post fails or the work request completes; the message is never delivered, and the QP still works.
  if (error == 0) CHECK_EQ(wait(pair.left.cq.get()).wr_id, 6u);
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(20)));
}

CONFORMANCE_CASE(ud_without_receive_is_dropped, "IBTA vol. 1, 9.8.3") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  let_arrive(bench);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8, 4));
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(20)));
}

CONFORMANCE_CASE(ud_receive_too_small, "IBTA vol. 1, 9.8.3.2") {
  Pair pair(bench, IBV_QPT_UD);
  CHECK_OK(pair.right.post_recv(0, kHeader + 8, 4));
  CHECK_OK(pair.right.post_recv(kHalf, kHeader + 100, 5));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 100));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  // Either a local length error, or the message is dropped and the receive stays posted.
  let_arrive(bench);
  ibv_wc wc{};
  if (ibv_poll_cq(pair.right.cq.get(), 1, &wc) != 0) {
    CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQ(wc.wr_id, 4u);
    return;
  }
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wc = wait(pair.right.cq.get());
  CHECK_EQ(wc.wr_id, 4u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(ud_has_sends_only, "ibv_post_send(3), table of opcodes") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair pair(bench, IBV_QPT_UD);
    ibv_sge sge = pair.left.buffer.sge(0, 8);
    ibv_send_wr wr = request(opcode, sge);
    // A driver may check the address handle before the opcode.
    wr.wr.ud = {pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey};
    CHECK(refused(pair.left, wr));
  }
}

CONFORMANCE_CASE(ud_to_several, "ibv_create_ah(3)") {
  Pair pair(bench, IBV_QPT_UD);
  Side third(bench.right, IBV_QPT_UD, 4096, {});
  CHECK_OK(to_init(third.qp.get(), 0));
  CHECK_OK(to_rtr(bench.right, third.qp.get(), bench.left, 0, bench.mtu()));
  CHECK_OK(third.post_recv(0, 100, 33));
  CHECK_OK(pair.right.post_recv(0, 100, 22));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), third.qp->qp_num, kQkey, 8, 1));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8, 2));
  CHECK_EQ(wait_success(third.cq.get(), IBV_WC_RECV).wr_id, 33u);
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).wr_id, 22u);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

/// Port numbers that the device does not have.
std::vector<std::uint8_t> absent_ports(const End& end) {
  return {0, static_cast<std::uint8_t>(end.attr.phys_port_cnt + 1), 255};
}

CONFORMANCE_CASE(ah_of_a_port_that_is_not_there, "ibv_create_ah(3), port_num") {
  Pair pair(bench, IBV_QPT_UD);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.grh.dgid = bench.right.gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(bench.left.gid_index);
  attr.grh.hop_limit = 64;
  for (const std::uint8_t port : absent_ports(bench.left)) {
    attr.port_num = port;
    CHECK(ibv_create_ah(pair.left.pd, &attr) == nullptr);
    CHECK_EQ(errno, EINVAL);
  }
  CHECK_OK(pair.right.post_recv(0, kHeader + 8));
  CHECK_OK(send_datagram(pair.left, pair.ah_to_right.get(), pair.right.qp->qp_num, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  auto* const grh = reinterpret_cast<ibv_grh*>(pair.right.buffer.data());
  for (const std::uint8_t port : absent_ports(bench.right)) {
    CHECK(ibv_create_ah_from_wc(pair.right.pd, &wc, grh, port) == nullptr);
  }
}

CONFORMANCE_CASE(qp_path_of_a_port_that_is_not_there, "ibv_modify_qp(3), ah_attr.port_num") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    Side side(bench.left, type, 64, {});
    CHECK_OK(to_init(side.qp.get(), IBV_ACCESS_REMOTE_WRITE));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = bench.mtu();
    attr.dest_qp_num = side.qp->qp_num;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = bench.right.gid;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(bench.left.gid_index);
    attr.ah_attr.grh.hop_limit = 64;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    for (const std::uint8_t port : absent_ports(bench.left)) {
      attr.ah_attr.port_num = port;
      CHECK_EQ(ibv_modify_qp(side.qp.get(), &attr, mask), EINVAL);
    }
    attr.ah_attr.port_num = 1;
    CHECK_OK(ibv_modify_qp(side.qp.get(), &attr, mask));
  }
}

CONFORMANCE_CASE(ud_domain_of_the_handle, "IBTA vol. 1, 10.2.3") {
  Pair pair(bench, IBV_QPT_UD);
  const Pd other = make_pd(bench.left);
  const Ah foreign = make_ah(bench.left, other.get(), bench.right);
  CHECK_OK(pair.right.post_recv(0, 100));
  if (send_datagram(pair.left, foreign.get(), pair.right.qp->qp_num, kQkey, 8, 5) == 0) {
    CHECK(wait(pair.left.cq.get()).status != IBV_WC_SUCCESS);
  }
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(20)));
}

ibv_gid group(std::uint8_t last) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 239;
  gid.raw[13] = 18;
  gid.raw[15] = last;
  return gid;
}

Ah group_handle(const End& from, ibv_pd* pd, const ibv_gid& gid) {
  End to;
  to.gid = gid;
  return make_ah(from, pd, to);
}

ibv_ah_attr towards(const End& from, const ibv_gid& gid) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = static_cast<std::uint8_t>(from.gid_index);
  attr.grh.dgid = gid;
  return attr;
}
using Mac = std::array<std::uint8_t, 6>;
Mac resolved(const End& from, const ibv_gid& gid) {
  ibv_ah_attr attr = towards(from, gid);
  Mac mac{};
  std::uint16_t vlan = 0;
  CHECK_OK(ibv_resolve_eth_l2_from_gid(from.context, &attr, mac.data(), &vlan));
  CHECK_EQ(vlan, 0xffff);
  return mac;
}

CONFORMANCE_CASE(ethernet_address_of_the_peer, "ibv_resolve_eth_l2_from_gid of infiniband/verbs.h") {
  const Mac mac = resolved(bench.left, bench.right.gid);
  CHECK((mac[0] & 1) == 0 && mac != Mac{});
  CHECK(resolved(bench.left, bench.right.gid) == mac);
  CHECK(resolved(bench.right, bench.right.gid) == mac);
  const bool one_port = std::memcmp(bench.left.gid.raw, bench.right.gid.raw, 16) == 0;
  CHECK_EQ(resolved(bench.right, bench.left.gid) == mac, one_port);
  const OverIpv6 scope(bench);
  CHECK(resolved(bench.left, bench.right.gid) == mac);
}

CONFORMANCE_CASE(ethernet_address_of_a_group, "RFC 1112, 6.4") {
  CHECK((resolved(bench.left, group(5)) == Mac{0x01, 0x00, 0x5e, 18, 0, 5}));
}

CONFORMANCE_CASE(ethernet_address_of_nobody, "ibv_resolve_eth_l2_from_gid of infiniband/verbs.h") {
  resolved(bench.left, bench.left.gid);
  Mac mac{};
  ibv_gid far = group(5);
  far.raw[12] = 198;
  far.raw[13] = 51;
  far.raw[14] = 100;
  ibv_ah_attr attr = towards(bench.left, far);
  CHECK_EQ(ibv_resolve_eth_l2_from_gid(bench.left.context, &attr, mac.data(), nullptr), -EHOSTUNREACH);
  attr = towards(bench.left, bench.right.gid);
  attr.grh.sgid_index = 255;
  CHECK(ibv_resolve_eth_l2_from_gid(bench.left.context, &attr, mac.data(), nullptr) < 0);
}

CONFORMANCE_CASE(ud_multicast_reaches_each_member_once, "ibv_attach_mcast(3)") {
  if (bench.right.attr.max_mcast_grp == 0) throw Skipped{"max_mcast_grp is 0"};
  Pair pair(bench, IBV_QPT_UD);
  Side third(bench.right, IBV_QPT_UD, 4096, {});
  CHECK_OK(to_init(third.qp.get(), 0));
  CHECK_OK(to_rtr(bench.right, third.qp.get(), bench.left, 0, bench.mtu()));
  const ibv_gid gid = group(5);
  CHECK_OK(ibv_attach_mcast(pair.right.qp.get(), &gid, 0));
  CHECK_OK(ibv_attach_mcast(third.qp.get(), &gid, 0));
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(pair.right.post_recv(0, 100, 22));
    CHECK_OK(third.post_recv(0, 100, 33));
    CHECK_OK(pair.left.post_recv(0, 100, 11));
  }
  const Ah to_group = group_handle(bench.left, pair.left.pd, gid);
  CHECK_OK(send_datagram(pair.left, to_group.get(), 0xffffff, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).wr_id, 22u);
  CHECK_EQ(wait_success(third.cq.get(), IBV_WC_RECV).wr_id, 33u);
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(20)));
  CHECK(stays_empty(pair.left.cq.get(), std::chrono::milliseconds(1)));
  CHECK_OK(ibv_detach_mcast(third.qp.get(), &gid, 0));
  CHECK_OK(send_datagram(pair.left, to_group.get(), 0xffffff, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK(stays_empty(third.cq.get(), std::chrono::milliseconds(20)));
  CHECK_OK(ibv_detach_mcast(pair.right.qp.get(), &gid, 0));
}

CONFORMANCE_CASE(ud_multicast_over_ipv6, "ibv_attach_mcast(3)") {
  if (bench.right.attr.max_mcast_grp == 0) throw Skipped{"max_mcast_grp is 0"};
  const OverIpv6 scope(bench);
  Pair pair(bench, IBV_QPT_UD);
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x0e;
  gid.raw[15] = 9;
  ibv_gid other = gid;
  other.raw[15] = 10;
  CHECK_OK(ibv_attach_mcast(pair.right.qp.get(), &gid, 0));
  CHECK_OK(pair.right.post_recv(0, 100, 22));
  CHECK_OK(pair.right.post_recv(100, 100, 23));
  const Ah to_group = group_handle(bench.left, pair.left.pd, gid),
           to_other = group_handle(bench.left, pair.left.pd, other);
  CHECK_OK(send_datagram(pair.left, to_other.get(), 0xffffff, kQkey, 16));
  CHECK_OK(send_datagram(pair.left, to_group.get(), 0xffffff, kQkey, 8));
  for (int i = 0; i < 2; ++i) wait_success(pair.left.cq.get(), IBV_WC_SEND);
  const ibv_wc wc = wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK_EQ(wc.byte_len, kHeader + 8);
  CHECK(std::memcmp(pair.right.buffer.data() + 24, gid.raw, 16) == 0);
  CHECK_OK(ibv_detach_mcast(pair.right.qp.get(), &gid, 0));
  CHECK_OK(send_datagram(pair.left, to_group.get(), 0xffffff, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(stays_empty(pair.right.cq.get(), std::chrono::milliseconds(20)));
}

CONFORMANCE_CASE(ud_multicast_not_to_oneself, "ibv_create_qp_ex(3), IBV_QP_CREATE_BLOCK_SELF_MCAST_LB") {
  if (bench.left.attr.max_mcast_grp == 0) throw Skipped{"max_mcast_grp is 0"};
  QpOptions blocked;
  blocked.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  Pair pair(bench, IBV_QPT_UD, 4096, blocked);
  Side third(bench.left, IBV_QPT_UD, 4096, {}, pair.left.pd);
  CHECK_OK(to_init(third.qp.get(), 0));
  CHECK_OK(to_rtr(bench.left, third.qp.get(), bench.right, 0, bench.mtu()));
  CHECK_OK(to_rts(third.qp.get()));
  const ibv_gid gid = group(7);
  for (Side* const side : {&pair.left, &pair.right, &third}) {
    CHECK_OK(ibv_attach_mcast(side->qp.get(), &gid, 0));
    CHECK_OK(side->post_recv(0, 100, 1));
    CHECK_OK(side->post_recv(0, 100, 2));
  }
  const Ah to_group = group_handle(bench.left, pair.left.pd, gid);
  CHECK_OK(send_datagram(pair.left, to_group.get(), 0xffffff, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait_success(third.cq.get(), IBV_WC_RECV);
  CHECK(stays_empty(pair.left.cq.get(), std::chrono::milliseconds(20)));
  // Messages of other QPs arrive, and a QP without the flag receives its own.
  CHECK_OK(send_datagram(third, to_group.get(), 0xffffff, kQkey, 8));
  wait_success(pair.left.cq.get(), IBV_WC_RECV);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  wait(third.cq.get());
  wait(third.cq.get());
  for (Side* const side : {&pair.left, &pair.right, &third}) CHECK_OK(ibv_detach_mcast(side->qp.get(), &gid, 0));
}

CONFORMANCE_CASE(ud_multicast_takes_a_ud_qp, "ibv_attach_mcast(3)") {
  if (bench.left.attr.max_mcast_grp == 0) throw Skipped{"max_mcast_grp is 0"};
  const ibv_gid gid = group(6);
  Side connected(bench.left, IBV_QPT_RC, 4096, {});
  CHECK(ibv_attach_mcast(connected.qp.get(), &gid, 0) != 0);
  Side datagram(bench.left, IBV_QPT_UD, 4096, {});
  CHECK(ibv_detach_mcast(datagram.qp.get(), &gid, 0) != 0);
}

}  // namespace
}  // namespace conformance
