// Raw packet QPs: sending and receiving frames.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "frames.h"

namespace conformance {
namespace {

/// Whether the received frame is the sent one, possibly padded to the minimum size.
void check_same(const Bytes& got, const Bytes& sent) {
  CHECK(got.size() >= sent.size());
  CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
}

CONFORMANCE_CASE(raw_frame_arrives, "ibv_post_send(3), IBV_QPT_RAW_PACKET; ibv_create_flow(3)") {
  RawPair pair(bench);
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  for (const std::size_t bytes : {46u, 100u, 999u, 1500u}) {
    const Bytes frame = pair.link.frame(kExperimental, pattern(bytes));
    CHECK_OK(pair.left.send(frame));
    ibv_wc wc{};
    const Bytes got = pair.right.receive(&wc);
    check_same(got, frame);
    CHECK_EQ(wc.byte_len, frame.size());
  }
}

CONFORMANCE_CASE(raw_frame_of_several_pieces, "ibv_post_send(3), ibv_post_recv(3): sg_list") {
  RawPair pair(bench, {}, {.receives = 0});
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  ibv_sge scatter[2] = {pair.right.buffer.sge(0, 31), pair.right.buffer.sge(1000, 1500)};
  ibv_recv_wr receive{1, nullptr, scatter, 2}, *bad_receive;
  CHECK_OK(ibv_post_recv(pair.right.qp.get(), &receive, &bad_receive));
  const Bytes frame = pair.link.frame(kExperimental, pattern(300));
  std::memcpy(pair.left.buffer.data(), frame.data(), 9);
  std::memcpy(pair.left.buffer.data() + 500, frame.data() + 9, 100);
  std::memcpy(pair.left.buffer.data() + 3000, frame.data() + 109, frame.size() - 109);
  ibv_sge gather[3] = {pair.left.buffer.sge(0, 9), pair.left.buffer.sge(500, 100),
                       pair.left.buffer.sge(3000, frame.size() - 109)};
  ibv_send_wr wr = request(IBV_WR_SEND, gather[0]), *bad;
  wr.num_sge = 3;
  CHECK_OK(ibv_post_send(pair.left.qp.get(), &wr, &bad));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK_EQ(wait_success(pair.right.recv, IBV_WC_RECV).byte_len, frame.size());
  CHECK(std::memcmp(pair.right.buffer.data(), frame.data(), 31) == 0);
  CHECK(std::memcmp(pair.right.buffer.data() + 1000, frame.data() + 31, frame.size() - 31) == 0);
}

CONFORMANCE_CASE(raw_frame_inline, "ibv_post_send(3), IBV_SEND_INLINE") {
  RawPair pair(bench, {.inline_bytes = 128});
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  Bytes given = frame;
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(given.data()), static_cast<std::uint32_t>(given.size()), 0};
  ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad;
  wr.send_flags |= IBV_SEND_INLINE;
  CHECK_OK(ibv_post_send(pair.left.qp.get(), &wr, &bad));
  std::fill(given.begin(), given.end(), std::uint8_t{0});
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  check_same(pair.right.receive(), frame);
}

CONFORMANCE_CASE(raw_wr_send, "ibv_wr_post(3), SEND of RAW_PACKET") {
  RawPair pair(bench, {.inline_bytes = 128, .operations = IBV_QP_EX_WITH_SEND});
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(pair.left.qp.get());
  CHECK(ex != nullptr);
  Bytes first = pair.link.frame(kExperimental, pattern(100, 3));
  const Bytes second = pair.link.frame(kExperimental, pattern(700, 5));
  std::memcpy(pair.left.buffer.data(), second.data(), second.size());
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_inline_data(ex, first.data(), first.size());
  ex->wr_id = 2;
  ibv_wr_send(ex);
  const ibv_sge list[2] = {pair.left.buffer.sge(0, 14), pair.left.buffer.sge(14, second.size() - 14)};
  ibv_wr_set_sge_list(ex, 2, list);
  CHECK_OK(ibv_wr_complete(ex));
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_SEND).wr_id, 1u);
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_SEND).wr_id, 2u);
  check_same(pair.right.receive(), first);
  check_same(pair.right.receive(), second);
}

CONFORMANCE_CASE(raw_needs_a_flow, "ibv_create_flow(3)") {
  RawPair pair(bench);
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(frame));
  CHECK(stays_empty(pair.right.recv));
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  CHECK_OK(pair.left.send(frame));
  check_same(pair.right.receive(), frame);
}

/// Whether a work request is refused, by the post or by an error completion.
bool refused(RawSide& side, ibv_send_wr& wr) {
  ibv_send_wr* bad;
  return ibv_post_send(side.qp.get(), &wr, &bad) != 0 || wait(side.cq.get()).status != IBV_WC_SUCCESS;
}

CONFORMANCE_CASE(raw_frame_too_long, "ibv_post_send(3): what the port does not take") {
  RawSide side(bench.left);
  ibv_sge sge = side.buffer.sge(0, 65536);
  ibv_send_wr wr = request(IBV_WR_SEND, sge);
  CHECK(refused(side, wr));
}

CONFORMANCE_CASE(raw_operations, "ibv_post_send(3): a raw packet QP sends, and no more") {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    RawSide side(bench.left);
    ibv_sge sge = side.buffer.sge(0, 100);
    ibv_send_wr wr = request(opcode, sge);
    wr.wr.rdma = {side.buffer.address(1000), side.buffer.rkey()};
    CHECK(refused(side, wr));
  }
}

CONFORMANCE_CASE(raw_states, "ibv_modify_qp(3), ibv_query_qp(3)") {
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  const QpObject qp = make_raw_qp(bench.left, pd.get(), cq.get(), cq.get(), {});
  Buffer buffer(pd.get(), 4096);
  ibv_sge sge = buffer.sge(0, 100);
  ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad;
  ibv_recv_wr receive{7, nullptr, &sge, 1}, *bad_receive;
  CHECK(ibv_post_send(qp.get(), &wr, &bad) != 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE) != 0);
  start(qp.get());
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CAP, &init));
  CHECK_EQ(static_cast<int>(attr.qp_state), int{IBV_QPS_RTS});
  CHECK_EQ(int{attr.port_num}, 1);
  CHECK_EQ(static_cast<int>(init.qp_type), int{IBV_QPT_RAW_PACKET});
  CHECK(init.cap.max_send_wr >= 64);
  CHECK_OK(ibv_post_recv(qp.get(), &receive, &bad_receive));
  CHECK_OK(to_error(qp.get()));
  CHECK_EQ(wait_status(cq.get(), IBV_WC_WR_FLUSH_ERR).wr_id, 7u);
}

CONFORMANCE_CASE(raw_checksums, "ibv_post_send(3), IBV_SEND_IP_CSUM; ibv_poll_cq(3), IBV_WC_IP_CSUM_OK") {
  if ((bench.left.extended.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) == 0) throw Skipped{"no such capability"};
  RawPair pair(bench);
  for (const bool ipv6 : {false, true}) {
    for (const std::uint8_t protocol : {6, 17}) {
      Packet packet;
      packet.ipv6 = ipv6;
      packet.protocol = protocol;
      packet.payload = pattern(101);
      const Flow flow = pair.rule(ipv6 ? kIpv6 : kIpv4)
                            .add(to_port(protocol == 6 ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP, packet.dst_port))
                            .apply(pair.right.qp.get());
      const Bytes good = pair.link.frame(packet);
      packet.sums = false;
      Bytes frame = pair.link.frame(packet);
      CHECK_OK(pair.left.send(frame, IBV_SEND_IP_CSUM));
      ibv_wc wc{};
      check_same(pair.right.receive(&wc), good);
      CHECK((wc.wc_flags & IBV_WC_IP_CSUM_OK) != 0);
      frame = good;
      frame.back() ^= 1;
      CHECK_OK(pair.left.send(frame));
      check_same(pair.right.receive(&wc), frame);
      CHECK((wc.wc_flags & IBV_WC_IP_CSUM_OK) == 0);
    }
  }
}

CONFORMANCE_CASE(raw_qp_of_large_requests, "ibv_create_qp_ex(3), max_tso_header; cap") {
  const End& end = bench.left;
  const Pd pd = make_pd(end);
  const Cq cq = make_cq(end, 100);
  const auto wrs = static_cast<std::uint32_t>(end.attr.max_qp_wr / 8),
             sges = static_cast<std::uint32_t>(end.attr.max_sge / 2);
  std::vector<std::uint32_t> headers{0};
  if ((end.extended.tso_caps.supported_qpts >> IBV_QPT_RAW_PACKET & 1) != 0) {
    headers.insert(headers.end(), {16, 192, 193, end.extended.tso_caps.max_tso / 800});
  }
  for (const std::uint32_t header : headers) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {std::min(wrs, 2500u), wrs, header != 0 ? 2 : sges, sges, 0};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.pd = pd.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    if (header != 0) init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    init.max_tso_header = static_cast<std::uint16_t>(header);
    ibv_qp* const made = ibv_create_qp_ex(end.context, &init);
    if (made == nullptr && end.attr.max_raw_ethy_qp == 0) throw Skipped{"max_raw_ethy_qp is 0"};
    const QpObject qp(CHECK_MADE(made));
    CHECK_EQ(static_cast<int>(qp->state), int{IBV_QPS_RESET});
    CHECK(init.cap.max_recv_wr >= wrs && init.cap.max_recv_sge >= sges);
  }
}

constexpr std::size_t kTsoHeader = 54, kMss = 1000;

/// The frames of one TSO request: `payload` from the sequence number of the TCP header on.
void check_segments(RawPair& pair, const Packet& first, const Bytes& payload) {
  const std::size_t count = (payload.size() + kMss - 1) / kMss;
  Bytes got;
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes frame = pair.right.receive();
    CHECK(sums_hold(frame, 14));
    const std::size_t bytes = read16(frame, 16) - 40u;
    CHECK_EQ(bytes, i + 1 < count ? kMss : payload.size() - i * kMss);
    CHECK_EQ(read32(frame, 38), static_cast<std::uint32_t>(first.sequence + got.size()));
    // FIN and PSH are set in the last segment only.
    constexpr std::uint8_t kAtEnd = 0x09;
    CHECK_EQ(frame.at(47), i + 1 < count ? first.tcp_flags & ~kAtEnd : first.tcp_flags);
    append(got, frame.data() + kTsoHeader, bytes);
  }
  CHECK(got == payload);
}

Packet tso_packet() {
  Packet packet;
  packet.protocol = 6;
  packet.sequence = 0xfffffff0;
  packet.tcp_flags = 0x19;
  packet.payload.clear();
  return packet;
}

void need_tso(const Bench& bench) {
  if ((bench.left.extended.tso_caps.supported_qpts >> IBV_QPT_RAW_PACKET & 1) == 0) throw Skipped{"no TSO"};
}

CONFORMANCE_CASE(raw_tso, "ibv_post_send(3), IBV_WR_TSO") {
  need_tso(bench);
  RawPair pair(bench, {.max_tso_header = 96}, {.receives = 40});
  const Packet packet = tso_packet();
  const Flow flow = pair.rule(kIpv4).add(to_port(IBV_FLOW_SPEC_TCP, packet.dst_port)).apply(pair.right.qp.get());
  Bytes header = pair.link.frame(packet);
  header.resize(kTsoHeader);
  for (const std::size_t bytes : {20'000u, 20'001u, 999u}) {
    const Bytes payload = pattern(bytes);
    std::memcpy(pair.left.buffer.data(), payload.data(), bytes);
    ibv_sge list[2] = {pair.left.buffer.sge(0, 333), pair.left.buffer.sge(333, bytes - 333)};
    ibv_send_wr wr = request(IBV_WR_TSO, list[0]), *bad;
    wr.num_sge = 2;
    wr.send_flags |= IBV_SEND_IP_CSUM;
    wr.tso.hdr = header.data();
    wr.tso.hdr_sz = static_cast<std::uint16_t>(header.size());
    wr.tso.mss = kMss;
    CHECK_OK(ibv_post_send(pair.left.qp.get(), &wr, &bad));
    wait_success(pair.left.cq.get(), IBV_WC_TSO);
    check_segments(pair, packet, payload);
  }
}

CONFORMANCE_CASE(raw_wr_send_tso, "ibv_wr_post(3), TSO of RAW_PACKET") {
  need_tso(bench);
  RawPair pair(bench, {.inline_bytes = 128, .operations = IBV_QP_EX_WITH_TSO, .max_tso_header = 96});
  const Packet packet = tso_packet();
  const Flow flow = pair.rule(kIpv4).add(to_port(IBV_FLOW_SPEC_TCP, packet.dst_port)).apply(pair.right.qp.get());
  Bytes header = pair.link.frame(packet);
  header.resize(kTsoHeader);
  Bytes payload = pattern(3500);
  std::memcpy(pair.left.buffer.data(), payload.data(), payload.size());
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(pair.left.qp.get());
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
  ibv_wr_send_tso(ex, header.data(), static_cast<std::uint16_t>(header.size()), kMss);
  const ibv_sge list[2] = {pair.left.buffer.sge(0, 1), pair.left.buffer.sge(1, payload.size() - 1)};
  ibv_wr_set_sge_list(ex, 2, list);
  ibv_wr_send_tso(ex, header.data(), static_cast<std::uint16_t>(header.size()), kMss);
  ibv_wr_set_inline_data(ex, payload.data(), 100);
  CHECK_OK(ibv_wr_complete(ex));
  wait_success(pair.left.cq.get(), IBV_WC_TSO);
  wait_success(pair.left.cq.get(), IBV_WC_TSO);
  check_segments(pair, packet, payload);
  payload.resize(100);
  check_segments(pair, packet, payload);
}

CONFORMANCE_CASE(raw_tso_refused, "ibv_create_qp_ex(3), max_tso_header; ibv_post_send(3)") {
  need_tso(bench);
  Bytes header = Link{}.frame(tso_packet());
  header.resize(kTsoHeader);
  struct Wrong {
    std::uint16_t header_bytes, mss;
    std::uint32_t bytes;
  };
  const std::uint32_t most = bench.left.extended.tso_caps.max_tso;
  for (const Wrong wrong : {Wrong{kTsoHeader + 3, kMss, 9000}, Wrong{kTsoHeader, 65000, 100'000},
                            Wrong{3, kMss, 9000}, Wrong{kTsoHeader, kMss, most + 1}}) {
    RawSide side(bench.left, {.max_tso_header = kTsoHeader});
    const Buffer payload(side.pd.get(), wrong.bytes);
    ibv_sge sge = payload.sge(0, wrong.bytes);
    ibv_send_wr wr = request(IBV_WR_TSO, sge);
    wr.tso.hdr = header.data();
    wr.tso.hdr_sz = wrong.header_bytes;
    wr.tso.mss = wrong.mss;
    CHECK(refused(side, wr));
  }
}

CONFORMANCE_CASE(raw_tso_of_the_most_payload, "ibv_query_device_ex(3), tso_caps; ibv_post_send(3), IBV_WR_TSO") {
  need_tso(bench);
  RawPair pair(bench, {.max_tso_header = kTsoHeader});
  const std::uint32_t most = bench.left.extended.tso_caps.max_tso;
  const Buffer payload(pair.left.pd.get(), most);
  Bytes header = pair.link.frame(tso_packet());
  ibv_sge sge = payload.sge(0, most);
  ibv_send_wr wr = request(IBV_WR_TSO, sge), *bad;
  wr.tso.hdr = header.data();
  wr.tso.hdr_sz = kTsoHeader;
  wr.tso.mss = kMss;
  CHECK_OK(ibv_post_send(pair.left.qp.get(), &wr, &bad));
  wait_success(pair.left.cq.get(), IBV_WC_TSO);
}

CONFORMANCE_CASE(raw_vlan_stripped, "ibv_create_qp_ex(3), IBV_QP_CREATE_CVLAN_STRIPPING; ibv_wc_read_cvlan(3)") {
  ibv_cq_init_attr_ex init{};
  init.cqe = 64;
  init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_CVLAN;
  ibv_cq_ex* const ex = CHECK_MADE(ibv_create_cq_ex(bench.right.context, &init));
  const Cq cq(ibv_cq_ex_to_cq(ex));
  RawPair pair(bench, {}, {.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING, .recv_cq = cq.get()});
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  constexpr std::uint16_t kTag = 0xa123;
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(100), kTag)));
  CHECK_EQ(await_poll(ex), 0);
  CHECK_EQ(static_cast<int>(ex->status), int{IBV_WC_SUCCESS});
  CHECK_EQ(ibv_wc_read_cvlan(ex), kTag);
  const Bytes got = pair.right.slot(ex->wr_id, ibv_wc_read_byte_len(ex));
  ibv_end_poll(ex);
  CHECK(got == pair.link.frame(kExperimental, pattern(100)));
}

/// In a child without CAP_NET_RAW: 0 if raw packet QPs are refused with EPERM.
int try_without_right(const std::string& device) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return 2;
  data[0].effective &= ~(1u << CAP_NET_RAW);
  data[0].permitted &= ~(1u << CAP_NET_RAW);
  data[0].inheritable &= ~(1u << CAP_NET_RAW);
  if (syscall(SYS_capset, &header, data) != 0) return 3;
  const Bench own(device, device);
  const Pd pd = make_pd(own.left);
  const Cq cq = make_cq(own.left, 16);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RAW_PACKET;
  ibv_qp* const made = ibv_create_qp(pd.get(), &init);
  if (made == nullptr) return errno == EPERM ? 0 : 4;
  ibv_destroy_qp(made);
  return 5;
}

CONFORMANCE_CASE(raw_without_the_capability, "capabilities(7), CAP_NET_RAW") {
  const RawSide with(bench.left);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int result = 1;
    try {
      result = try_without_right(ibv_get_device_name(bench.left.context->device));
    } catch (...) {
    }
    _exit(result);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace conformance
