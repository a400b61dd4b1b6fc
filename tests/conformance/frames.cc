#include "frames.h"

#include <endian.h>
#include <unistd.h>

#include <cerrno>

namespace conformance {
namespace {

constexpr std::size_t kEthernet = 14, kTag = 4;

std::uint32_t add_up(const std::uint8_t* data, std::size_t bytes, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i < bytes; ++i) sum += i % 2 == 0 ? std::uint32_t{data[i]} << 8 : data[i];
  return sum;
}
std::uint16_t fold(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// The checksum of a transport header and its payload with the pseudo header (RFC 768, 793, 8200).
std::uint16_t transport_sum(const Bytes& bytes, std::size_t addresses, std::size_t address_bytes, std::size_t at,
                            std::size_t length, std::uint8_t protocol) {
  const std::uint32_t sum =
      add_up(bytes.data() + addresses, address_bytes, protocol + static_cast<std::uint32_t>(length));
  return fold(add_up(bytes.data() + at, length, sum));
}

void put16(Bytes& to, std::size_t at, std::uint16_t value) {
  to[at] = static_cast<std::uint8_t>(value >> 8);
  to[at + 1] = static_cast<std::uint8_t>(value);
}

void append_ipv4(Bytes& out, const Packet& packet, std::size_t content) {
  out.push_back(0x45);
  out.push_back(packet.tos);
  append16(out, static_cast<std::uint16_t>(20 + content));
  append32(out, 0x12344000);  // identification, don't fragment
  out.push_back(64);
  out.push_back(packet.protocol);
  append16(out, 0);
  append32(out, packet.src_ip);
  append32(out, packet.dst_ip);
  if (packet.sums) put16(out, 10, static_cast<std::uint16_t>(~fold(add_up(out.data(), 20))));
}

void append_ipv6(Bytes& out, const Packet& packet, std::size_t content) {
  append32(out, 0x60000000u | std::uint32_t{packet.tos} << 20);
  append16(out, static_cast<std::uint16_t>(content));
  out.push_back(packet.protocol);
  out.push_back(64);
  for (const std::uint32_t last : {packet.src_ip, packet.dst_ip}) {
    append32(out, 0x20010db8);
    append32(out, 0);
    append32(out, 0);
    append32(out, last);
  }
}

}  // namespace

int await_poll(ibv_cq_ex* cq) {
  ibv_poll_cq_attr attr{};
  int found = ENOENT;
  for (int i = 0; i < 5000 && found == ENOENT; ++i) {
    found = ibv_start_poll(cq, &attr);
    if (found == ENOENT) usleep(1000);
  }
  return found;
}

void append(Bytes& to, const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::uint8_t*>(data);
  to.insert(to.end(), from, from + bytes);
}
void append16(Bytes& to, std::uint16_t value) {
  to.push_back(static_cast<std::uint8_t>(value >> 8));
  to.push_back(static_cast<std::uint8_t>(value));
}
void append32(Bytes& to, std::uint32_t value) {
  append16(to, static_cast<std::uint16_t>(value >> 16));
  append16(to, static_cast<std::uint16_t>(value));
}
std::uint16_t read16(const Bytes& from, std::size_t at) {
  return static_cast<std::uint16_t>(from.at(at) << 8 | from.at(at + 1));
}
std::uint32_t read32(const Bytes& from, std::size_t at) {
  return std::uint32_t{read16(from, at)} << 16 | read16(from, at + 2);
}

Bytes pattern(std::size_t bytes, std::uint8_t seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8));
  return out;
}

Bytes to_bytes(const Packet& packet) {
  const bool udp = packet.protocol == 17;
  const std::size_t length = (udp ? 8 : 20) + packet.payload.size();
  Bytes out;
  packet.ipv6 ? append_ipv6(out, packet, length) : append_ipv4(out, packet, length);
  const std::size_t at = out.size();
  append16(out, packet.src_port);
  append16(out, packet.dst_port);
  if (udp) {
    append16(out, static_cast<std::uint16_t>(length));
  } else {
    append32(out, packet.sequence);
    append32(out, 0);
    append16(out, static_cast<std::uint16_t>(0x5000 | packet.tcp_flags));
    append16(out, 0xffff);
  }
  const std::size_t sum_at = out.size();
  append16(out, 0);
  if (!udp) append16(out, 0);
  append(out, packet.payload.data(), packet.payload.size());
  if (!packet.sums) return out;
  const std::size_t addresses = packet.ipv6 ? 8 : 12, address_bytes = packet.ipv6 ? 32 : 8;
  const auto sum =
      static_cast<std::uint16_t>(~transport_sum(out, addresses, address_bytes, at, length, packet.protocol));
  put16(out, sum_at, udp && sum == 0 ? 0xffff : sum);
  return out;
}

bool sums_hold(const Bytes& frame, std::size_t at) {
  const Bytes ip(frame.begin() + static_cast<std::ptrdiff_t>(at), frame.end());
  const bool ipv6 = ip.at(0) >> 4 == 6;
  if (!ipv6 && fold(add_up(ip.data(), 20)) != 0xffff) return false;
  const std::size_t header = ipv6 ? 40 : 20;
  const std::size_t length = ipv6 ? read16(ip, 4) : read16(ip, 2) - header;
  if (header + length > ip.size()) return false;
  return transport_sum(ip, ipv6 ? 8 : 12, ipv6 ? 32 : 8, header, length, ip[ipv6 ? 6 : 9]) == 0xffff;
}

Bytes Link::frame(std::uint16_t ether_type, const Bytes& content, std::optional<std::uint16_t> tag) const {
  Bytes out(to.begin(), to.end());
  append(out, from.data(), from.size());
  if (tag) append16(out, 0x8100), append16(out, *tag);
  append16(out, ether_type);
  append(out, content.data(), content.size());
  out.resize(std::max(out.size(), kEthernet + kTag + 46));
  return out;
}

Rule::Rule(ibv_flow_attr_type type, std::uint16_t priority, std::uint32_t flags) : bytes_(sizeof(ibv_flow_attr)) {
  attr().type = type;
  attr().size = sizeof(ibv_flow_attr);
  attr().priority = priority;
  attr().port = 1;
  attr().flags = flags;
}

Rule& Rule::add_sized(const void* spec, std::size_t bytes) {
  append(bytes_, spec, bytes);
  attr().size = static_cast<std::uint16_t>(bytes_.size());
  ++attr().num_of_specs;
  return *this;
}

int Rule::refusal(ibv_qp* qp) {
  ibv_flow* const made = ibv_create_flow(qp, &attr());
  if (made == nullptr) return errno;
  ibv_destroy_flow(made);
  return 0;
}

ibv_flow_spec_eth to_mac(const Mac& mac) {
  ibv_flow_spec_eth spec{};
  spec.type = IBV_FLOW_SPEC_ETH;
  std::memcpy(spec.val.dst_mac, mac.data(), mac.size());
  std::memset(spec.mask.dst_mac, 0xff, mac.size());
  return spec;
}
ibv_flow_spec_eth to_mac(const Mac& mac, std::uint16_t ether_type) {
  ibv_flow_spec_eth spec = to_mac(mac);
  spec.val.ether_type = htobe16(ether_type);
  spec.mask.ether_type = 0xffff;
  return spec;
}
ibv_flow_spec_ipv4 to_ipv4(std::uint32_t address) {
  ibv_flow_spec_ipv4 spec{};
  spec.type = IBV_FLOW_SPEC_IPV4;
  spec.val.dst_ip = htobe32(address);
  spec.mask.dst_ip = 0xffffffff;
  return spec;
}
ibv_flow_spec_tcp_udp to_port(ibv_flow_spec_type type, std::uint16_t port) {
  ibv_flow_spec_tcp_udp spec{};
  spec.type = type;
  spec.val.dst_port = htobe16(port);
  spec.mask.dst_port = 0xffff;
  return spec;
}

QpObject make_raw_qp(const End& end, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, const RawOptions& options) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.cap = {64, 64, 4, 2, options.inline_bytes};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.pd = pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (options.operations != 0) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (options.create_flags != 0) init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if (options.max_tso_header != 0) init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  init.send_ops_flags = options.operations;
  init.create_flags = options.create_flags;
  init.max_tso_header = options.max_tso_header;
  ibv_qp* const made = ibv_create_qp_ex(end.context, &init);
  if (made == nullptr && end.attr.max_raw_ethy_qp == 0) throw Skipped{"max_raw_ethy_qp is 0"};
  return QpObject(CHECK_MADE(made));
}

void start(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
  attr.qp_state = IBV_QPS_RTR;
  CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  attr.qp_state = IBV_QPS_RTS;
  CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

RawSide::RawSide(const End& e, const RawOptions& options)
    : end(e),
      pd(make_pd(e)),
      cq(make_cq(e, 256)),
      own_recv(make_cq(e, 256)),
      recv(options.recv_cq != nullptr ? options.recv_cq : own_recv.get()),
      buffer(pd.get(), kSlots * kSlot + (std::size_t{1} << 18)),
      qp(make_raw_qp(e, pd.get(), cq.get(), recv, options)) {
  start(qp.get());
  for (int i = 0; i < options.receives; ++i) CHECK_OK(post_recv(static_cast<std::size_t>(i)));
}

int RawSide::post_recv(std::size_t slot) {
  ibv_sge sge = buffer.sge(slot * kSlot, kSlot);
  ibv_recv_wr wr{slot, nullptr, &sge, 1}, *bad;
  return ibv_post_recv(qp.get(), &wr, &bad);
}

int RawSide::send(const Bytes& frame, unsigned flags) {
  std::memcpy(buffer.data() + kSlots * kSlot, frame.data(), frame.size());
  ibv_sge sge = buffer.sge(kSlots * kSlot, frame.size());
  ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad;
  wr.send_flags |= flags;
  const int error = ibv_post_send(qp.get(), &wr, &bad);
  if (error == 0) wait_success(cq.get(), IBV_WC_SEND);
  return error;
}

Bytes RawSide::slot(std::uint64_t index, std::size_t bytes) {
  const std::uint8_t* const at = buffer.data() + index * kSlot;
  return Bytes(at, at + bytes);
}

Bytes RawSide::receive(ibv_wc* out) {
  const ibv_wc wc = wait_success(recv, IBV_WC_RECV);
  CHECK_EQ(wc.qp_num, qp->qp_num);
  const Bytes frame = slot(wc.wr_id, wc.byte_len);
  CHECK_OK(post_recv(wc.wr_id));
  if (out != nullptr) *out = wc;
  return frame;
}

Mac mac_of(const End& from, const End& to) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = to.gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(from.gid_index);
  Mac mac{};
  std::uint16_t vlan = 0;
  const int error = ibv_resolve_eth_l2_from_gid(from.context, &attr, mac.data(), &vlan);
  if (error != 0) throw Failed{"ibv_resolve_eth_l2_from_gid: " + std::string(std::strerror(std::abs(error)))};
  return mac;
}

RawPair::RawPair(Bench& bench, const RawOptions& l, const RawOptions& r)
    : left(bench.left, l),
      right(bench.right, r),
      link{mac_of(bench.right, bench.left), mac_of(bench.left, bench.right)} {}

Rule RawPair::rule(std::uint16_t ether_type, std::uint16_t priority, std::uint32_t flags) const {
  return Rule(IBV_FLOW_ATTR_NORMAL, priority, flags).add(to_mac(link.to, ether_type));
}

}  // namespace conformance
