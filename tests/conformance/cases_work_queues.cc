// Work queues, indirection tables, and RSS QPs.
#include <endian.h>
#include <unistd.h>

#include <algorithm>

#include "frames.h"

namespace conformance {
namespace {

// The example key of Microsoft's description of RSS, which most drivers use.
const std::uint8_t kKey[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                               0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                               0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

std::uint32_t toeplitz(const Bytes& input) {
  std::uint32_t hash = 0;
  for (std::size_t bit = 0; bit < input.size() * 8; ++bit) {
    if ((input[bit / 8] >> (7 - bit % 8) & 1) == 0) continue;
    std::uint32_t window = 0;
    for (std::size_t i = bit; i < bit + 32; ++i) {
      window = window << 1 | (kKey[i / 8 % sizeof(kKey)] >> (7 - i % 8) & 1);
    }
    hash ^= window;
  }
  return hash;
}

std::uint32_t hash_of(const Packet& packet) {
  Bytes input;
  append32(input, packet.src_ip);
  append32(input, packet.dst_ip);
  append16(input, packet.src_port);
  append16(input, packet.dst_port);
  return toeplitz(input);
}

int modify(ibv_wq* wq, ibv_wq_state state) {
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_STATE;
  attr.wq_state = state;
  return ibv_modify_wq(wq, &attr);
}

Wq make_wq(const End& end, ibv_pd* pd, ibv_cq* cq, std::uint32_t flags = 0) {
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 64;
  init.max_sge = 1;
  init.pd = pd;
  init.cq = cq;
  if (flags != 0) init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
  init.create_flags = flags;
  ibv_wq* const made = ibv_create_wq(end.context, &init);
  if (made == nullptr && end.attr.max_raw_ethy_qp == 0) throw Skipped{"max_raw_ethy_qp is 0"};
  return Wq(CHECK_MADE(made));
}

/// Work queues with receives, each with a CQ, for an indirection table.
struct Queues {
  static constexpr std::size_t kSlot = 2048, kReceives = 16;

  Queues(const End& e, std::size_t count, std::uint32_t flags = 0)
      : end(e), pd(make_pd(e)), buffer(pd.get(), count * kReceives * kSlot) {
    for (std::size_t i = 0; i < count; ++i) {
      cqs.push_back(make_cq(end, 64));
      wqs.push_back(make_wq(end, pd.get(), cqs.back().get(), flags));
      CHECK_OK(modify(wqs.back().get(), IBV_WQS_RDY));
      for (std::size_t n = 0; n < kReceives; ++n) CHECK_OK(post(i, i * kReceives + n));
    }
  }
  int post(std::size_t queue, std::size_t slot) {
    ibv_sge sge = buffer.sge(slot * kSlot, kSlot);
    ibv_recv_wr wr{slot, nullptr, &sge, 1}, *bad;
    return ibv_post_wq_recv(wqs[queue].get(), &wr, &bad);
  }
  /// A table of 2^log_size entries that name the work queues in turn.
  Table make_table(std::uint32_t log_size) {
    std::vector<ibv_wq*> entries;
    for (std::size_t i = 0; i < std::size_t{1} << log_size; ++i) entries.push_back(wqs[i % wqs.size()].get());
    ibv_rwq_ind_table_init_attr init{};
    init.log_ind_tbl_size = log_size;
    init.ind_tbl = entries.data();
    return Table(CHECK_MADE(ibv_create_rwq_ind_table(end.context, &init)));
  }

  const End& end;
  Pd pd;
  Buffer buffer;
  std::vector<Cq> cqs;
  std::vector<Wq> wqs;
};

ibv_qp* try_spreading(const End& end, ibv_pd* pd, ibv_rwq_ind_table* table, std::uint64_t fields,
                      std::uint8_t key_bytes = sizeof(kKey)) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  init.pd = pd;
  init.rwq_ind_tbl = table;
  init.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, key_bytes, const_cast<std::uint8_t*>(kKey), fields};
  return ibv_create_qp_ex(end.context, &init);
}

constexpr std::uint64_t kFields =
    IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

QpObject make_spreading(const Queues& queues, const Table& table) {
  return QpObject(CHECK_MADE(try_spreading(queues.end, queues.pd.get(), table.get(), kFields)));
}

CONFORMANCE_CASE(rss_spreads_by_hash, "ibv_create_qp_ex(3), rx_hash_conf; ibv_create_rwq_ind_table(3)") {
  RawPair pair(bench);
  Queues queues(bench.right, 4);
  const Table table = queues.make_table(3);
  const QpObject qp = make_spreading(queues, table);
  Packet packet;
  Rule rule;
  const Flow flow = rule.add(to_mac(pair.link.to))
                        .add(to_ipv4(packet.dst_ip))
                        .add(to_port(IBV_FLOW_SPEC_UDP, packet.dst_port))
                        .apply(qp.get());
  std::size_t used = 0;
  for (std::uint16_t i = 0; i < 32; ++i) {
    packet.src_port = static_cast<std::uint16_t>(5000 + i * 13);
    packet.src_ip = 0xc0000201 + i;
    const Bytes frame = pair.link.frame(packet);
    const std::size_t wanted = (hash_of(packet) & 7) % queues.wqs.size();
    CHECK_OK(pair.left.send(frame));
    const ibv_wc wc = wait_success(queues.cqs[wanted].get(), IBV_WC_RECV);
    CHECK_EQ(wc.byte_len, frame.size());
    CHECK(std::memcmp(queues.buffer.data() + wc.wr_id * Queues::kSlot, frame.data(), frame.size()) == 0);
    CHECK_OK(queues.post(wanted, wc.wr_id));
    used |= std::size_t{1} << wanted;
  }
  CHECK_EQ(used, 15u);
}

CONFORMANCE_CASE(rss_of_frames_to_a_group, "ibv_create_qp_ex(3), rx_hash_conf; multicast of the port itself") {
  RawPair pair(bench);
  Queues queues(bench.left, 4);
  const Table table = queues.make_table(2);
  const QpObject qp = make_spreading(queues, table);
  const Link link{pair.link.from, {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7}};
  const Flow flow = Rule().add(to_mac(link.to, kIpv4)).apply(qp.get());
  for (std::uint32_t i = 0; i < 8; ++i) {
    Packet packet;
    packet.src_ip += i;
    CHECK_OK(pair.left.send(link.frame(packet)));
    wait_success(queues.cqs[hash_of(packet) % 4].get(), IBV_WC_RECV);
  }
}

CONFORMANCE_CASE(rss_without_what_is_hashed, "ibv_create_qp_ex(3), rx_hash_conf") {
  RawPair pair(bench);
  Queues queues(bench.right, 2);
  const Table table = queues.make_table(1);
  const QpObject qp = make_spreading(queues, table);
  const Flow flow = pair.rule().apply(qp.get());
  for (std::uint8_t i = 0; i < 4; ++i) {
    CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(100, i))));
    wait_success(queues.cqs[0].get(), IBV_WC_RECV);
  }
  CHECK(stays_empty(queues.cqs[1].get()));
}

CONFORMANCE_CASE(rss_refused, "ibv_create_qp_ex(3), rx_hash_conf; ibv_create_rwq_ind_table(3)") {
  Queues queues(bench.left, 1);
  const Table table = queues.make_table(0);
  const auto refusal = [&](std::uint64_t fields, std::uint8_t key_bytes) {
    ibv_qp* const made = try_spreading(queues.end, queues.pd.get(), table.get(), fields, key_bytes);
    if (made != nullptr) ibv_destroy_qp(made);
    return made != nullptr ? 0 : errno;
  };
  CHECK_EQ(refusal(kFields, sizeof(kKey)), 0);
  CHECK_EQ(refusal(kFields, 39), EINVAL);
  const int unknown = refusal(std::uint64_t{1} << 40, sizeof(kKey));
  CHECK(unknown == EINVAL || unknown == EOPNOTSUPP);
  ibv_rwq_ind_table_init_attr init{};
  const std::uint32_t most = bench.left.extended.rss_caps.max_rwq_indirection_table_size;
  std::vector<ibv_wq*> entries(std::size_t{2} * most, queues.wqs[0].get());
  init.ind_tbl = entries.data();
  while ((2u << init.log_ind_tbl_size) <= most) ++init.log_ind_tbl_size;
  const Table largest(CHECK_MADE(ibv_create_rwq_ind_table(bench.left.context, &init)));
  const QpObject over_largest = make_spreading(queues, largest);
  ++init.log_ind_tbl_size;
  CHECK(ibv_create_rwq_ind_table(bench.left.context, &init) == nullptr);
  init.comp_mask = 1;
  init.log_ind_tbl_size = 0;
  CHECK(ibv_create_rwq_ind_table(bench.left.context, &init) == nullptr);
}

CONFORMANCE_CASE(rss_has_no_queues, "ibv_create_qp_ex(3): the work queues receive, and nothing is sent") {
  Queues queues(bench.left, 1);
  const Table table = queues.make_table(0);
  const QpObject qp = make_spreading(queues, table);
  ibv_sge sge = queues.buffer.sge(0, 100);
  ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad = nullptr;
  CHECK(ibv_post_send(qp.get(), &wr, &bad) != 0);
  CHECK(bad == &wr);
  ibv_recv_wr receive{1, nullptr, &sge, 1}, *bad_receive = nullptr;
  CHECK(ibv_post_recv(qp.get(), &receive, &bad_receive) != 0);
  CHECK(bad_receive == &receive);
}

CONFORMANCE_CASE(wq_lives_while_it_is_used, "ibv_destroy_wq(3), ibv_destroy_rwq_ind_table(3), ibv_destroy_qp(3)") {
  Queues queues(bench.left, 2);
  Table table = queues.make_table(1);
  QpObject qp = make_spreading(queues, table);
  Flow flow = Rule().add(to_mac({2, 0, 0, 0, 0, 9})).apply(qp.get());
  CHECK_EQ(queues.wqs[0].destroy(), EBUSY);
  CHECK_EQ(table.destroy(), EBUSY);
  CHECK_EQ(qp.destroy(), EBUSY);
  CHECK_EQ(queues.cqs[0].destroy(), EBUSY);
  CHECK_OK(flow.destroy());
  CHECK_OK(qp.destroy());
  CHECK_EQ(queues.wqs[0].destroy(), EBUSY);
  CHECK_OK(table.destroy());
  CHECK_OK(queues.wqs[0].destroy());
  CHECK_OK(queues.cqs[0].destroy());
}

CONFORMANCE_CASE(wq_states, "ibv_modify_wq(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 64);
  const Buffer buffer(pd.get(), 4096);
  const Wq wq = make_wq(bench.left, pd.get(), cq.get());
  ibv_sge sge = buffer.sge(0, 2048);
  ibv_recv_wr wr{7, nullptr, &sge, 1}, *bad;
  CHECK_EQ(static_cast<int>(wq->state), int{IBV_WQS_RESET});
  CHECK(modify(wq.get(), IBV_WQS_ERR) != 0);
  CHECK_OK(modify(wq.get(), IBV_WQS_RDY));
  CHECK_EQ(static_cast<int>(wq->state), int{IBV_WQS_RDY});
  CHECK_OK(ibv_post_wq_recv(wq.get(), &wr, &bad));
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
  attr.curr_wq_state = IBV_WQS_RESET;
  attr.wq_state = IBV_WQS_ERR;
  CHECK(ibv_modify_wq(wq.get(), &attr) != 0);
  attr.curr_wq_state = IBV_WQS_RDY;
  CHECK_OK(ibv_modify_wq(wq.get(), &attr));
  const ibv_wc flushed = wait_status(cq.get(), IBV_WC_WR_FLUSH_ERR);
  CHECK_EQ(flushed.wr_id, 7u);
  CHECK_EQ(flushed.qp_num, wq->wq_num);
  CHECK(modify(wq.get(), IBV_WQS_RDY) != 0);
  CHECK_OK(modify(wq.get(), IBV_WQS_RESET));
  CHECK_OK(modify(wq.get(), IBV_WQS_RDY));
  CHECK_OK(ibv_post_wq_recv(wq.get(), &wr, &bad));
  CHECK_OK(modify(wq.get(), IBV_WQS_RESET));
  CHECK(stays_empty(cq.get(), std::chrono::milliseconds(20)));
}

CONFORMANCE_CASE(wq_full, "ibv_post_wq_recv(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  const Buffer buffer(pd.get(), 4096);
  const Wq wq = make_wq(bench.left, pd.get(), cq.get());
  CHECK_OK(modify(wq.get(), IBV_WQS_RDY));
  ibv_sge sge[2] = {buffer.sge(0, 2048), buffer.sge(2048, 2048)};
  ibv_recv_wr wr{7, nullptr, sge, 1}, *bad = nullptr;
  int posted = 0;
  while (posted <= 65536 && ibv_post_wq_recv(wq.get(), &wr, &bad) == 0) ++posted;
  CHECK(posted >= 64 && posted <= 65536);
  CHECK(bad == &wr);
}

CONFORMANCE_CASE(wq_strips_the_vlan, "ibv_create_wq(3), IBV_WQ_FLAGS_CVLAN_STRIPPING") {
  RawPair pair(bench);
  Queues queues(bench.right, 1, IBV_WQ_FLAGS_CVLAN_STRIPPING);
  const Table table = queues.make_table(0);
  const QpObject qp = make_spreading(queues, table);
  const Flow flow = pair.rule().apply(qp.get());
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(100), 0xa123)));
  const ibv_wc wc = wait_success(queues.cqs[0].get(), IBV_WC_RECV);
  const Bytes wanted = pair.link.frame(kExperimental, pattern(100));
  CHECK_EQ(wc.byte_len, wanted.size());
  CHECK(std::memcmp(queues.buffer.data() + wc.wr_id * Queues::kSlot, wanted.data(), wanted.size()) == 0);
}

CONFORMANCE_CASE(wq_refused, "ibv_create_wq(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  make_wq(bench.left, pd.get(), cq.get());
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 0xffffffff;
  init.max_sge = 1;
  init.pd = pd.get();
  init.cq = cq.get();
  CHECK(ibv_create_wq(bench.left.context, &init) == nullptr);
  init.max_wr = 16;
  init.max_sge = 0x10000;
  CHECK(ibv_create_wq(bench.left.context, &init) == nullptr);
  init.max_sge = 1;
  init.comp_mask = 1u << 30;
  CHECK(ibv_create_wq(bench.left.context, &init) == nullptr);
}

}  // namespace
}  // namespace conformance
