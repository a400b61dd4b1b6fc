// Raw packets: frames, flows, and two ends that exchange frames.
#pragma once

#include <array>
#include <optional>

#include "fixtures.h"

namespace conformance {

using Bytes = std::vector<std::uint8_t>;
using Mac = std::array<std::uint8_t, 6>;

constexpr std::uint16_t kExperimental = 0x88b5;  ///< Local Experimental EtherType (IEEE 802, 9.2.3)
constexpr std::uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd;

inline int destroy_flow(ibv_flow* flow) { return ibv_destroy_flow(flow); }
inline int destroy_wq(ibv_wq* wq) { return ibv_destroy_wq(wq); }
inline int destroy_table(ibv_rwq_ind_table* table) { return ibv_destroy_rwq_ind_table(table); }
inline int destroy_counters(ibv_counters* counters) { return ibv_destroy_counters(counters); }
using Flow = Owned<ibv_flow, destroy_flow>;
using Wq = Owned<ibv_wq, destroy_wq>;
using Table = Owned<ibv_rwq_ind_table, destroy_table>;
using Counters = Owned<ibv_counters, destroy_counters>;

/// Repeats ibv_start_poll until there is an entry or 5 s have passed.
int await_poll(ibv_cq_ex* cq);

void append(Bytes& to, const void* data, std::size_t bytes);
void append16(Bytes& to, std::uint16_t value);  ///< big-endian
void append32(Bytes& to, std::uint32_t value);
std::uint16_t read16(const Bytes& from, std::size_t at);
std::uint32_t read32(const Bytes& from, std::size_t at);
/// Bytes, each of which differs from its neighbours.
Bytes pattern(std::size_t bytes, std::uint8_t seed = 1);

/// The fields of an IP packet with UDP or TCP.
struct Packet {
  bool ipv6 = false;
  std::uint8_t protocol = 17;
  std::uint32_t src_ip = 0xc0000265, dst_ip = 0xc0000266;  ///< for IPv6 the last 32 bits
  std::uint16_t src_port = 7001, dst_port = 7002;
  std::uint8_t tos = 0;
  std::uint32_t sequence = 0;  ///< TCP
  std::uint8_t tcp_flags = 0x10;
  Bytes payload = pattern(64);
  bool sums = true;  ///< false: checksums are 0
};
Bytes to_bytes(const Packet& packet);
/// Whether the checksums of the packet at this offset are correct.
bool sums_hold(const Bytes& frame, std::size_t at);

/// Source and destination.
struct Link {
  Mac from, to;
  Bytes frame(std::uint16_t ether_type, const Bytes& content, std::optional<std::uint16_t> tag = {}) const;
  Bytes frame(const Packet& packet, std::optional<std::uint16_t> tag = {}) const {
    return frame(packet.ipv6 ? kIpv6 : kIpv4, to_bytes(packet), tag);
  }
};

/// A flow rule and its specs, contiguous in memory.
class Rule {
 public:
  explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, std::uint16_t priority = 0,
                std::uint32_t flags = 0);
  template <class Spec>
  Rule& add(Spec spec) {
    spec.size = sizeof(Spec);
    return add_sized(&spec, sizeof(Spec));
  }
  Rule& add_sized(const void* spec, std::size_t bytes);
  ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }
  Flow apply(ibv_qp* qp) { return Flow(CHECK_MADE(ibv_create_flow(qp, &attr()))); }
  /// errno of creating it; 0 if it was created (and destroyed again).
  int refusal(ibv_qp* qp);

 private:
  Bytes bytes_;
};

ibv_flow_spec_eth to_mac(const Mac& mac);
ibv_flow_spec_eth to_mac(const Mac& mac, std::uint16_t ether_type);
ibv_flow_spec_ipv4 to_ipv4(std::uint32_t address);
/// IBV_FLOW_SPEC_UDP or IBV_FLOW_SPEC_TCP.
ibv_flow_spec_tcp_udp to_port(ibv_flow_spec_type type, std::uint16_t port);

struct RawOptions {
  std::uint32_t inline_bytes = 0, create_flags = 0;
  std::uint64_t operations = 0;
  std::uint16_t max_tso_header = 0;
  ibv_cq* recv_cq = nullptr;  ///< to use in place of its own
  int receives = 16;          ///< posted
};

/// A raw packet QP with its CQs and buffer.
struct RawSide {
  static constexpr std::size_t kSlot = 2048, kSlots = 64;

  explicit RawSide(const End& end, const RawOptions& options = {});
  const End& end;
  Pd pd;
  Cq cq;          ///< of sends
  Cq own_recv;    ///< of receives, unless the options name another
  ibv_cq* recv;   ///< of receives
  Buffer buffer;  ///< receive slots, then the frames to send
  QpObject qp;

  int post_recv(std::size_t slot);
  /// Sends and waits for the completion. errno of the post.
  int send(const Bytes& frame, unsigned flags = 0);
  /// Returns the next frame and posts its slot again.
  Bytes receive(ibv_wc* out = nullptr);
  Bytes slot(std::uint64_t index, std::size_t bytes);
};

QpObject make_raw_qp(const End& end, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, const RawOptions& options);
/// RESET to RTS.
void start(ibv_qp* qp);

/// Left sends to right. Throws Skipped if the device does not support raw packets.
struct RawPair {
  explicit RawPair(Bench& bench, const RawOptions& left = {}, const RawOptions& right = {});
  RawSide left, right;
  Link link;
  /// A rule for frames to the right side with that EtherType.
  Rule rule(std::uint16_t ether_type = kExperimental, std::uint16_t priority = 0, std::uint32_t flags = 0) const;
};

/// The addresses of frames from `from` to this end.
Mac mac_of(const End& from, const End& to);

}  // namespace conformance
