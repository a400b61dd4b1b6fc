#include "control/machine/port.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/version.h"
#include "proto/transport.h"
#include "wire/network_headers.h"

namespace uroce::control {
namespace {

enum DeviceCap : std::uint32_t {  // ibv_device_cap_flags
  kUdAvPortEnforce = 1u << 6,
  kPortActiveEvent = 1u << 10,
  kSysImageGuid = 1u << 11,
  kRcRnrNakGen = 1u << 12,
  kSrqResize = 1u << 13,
  kMemWindow = 1u << 17,
  kXrc = 1u << 20,
  kMemMgtExtensions = 1u << 21,
  kMemWindow2B = 1u << 24,
  kRawIpCsum = 1u << 26,
  kManagedFlowSteering = 1u << 29,
};
enum DeviceCapEx : std::uint64_t {  // device_cap_flags_ex
  kFlushGlobal = 1ull << 38,
  kAtomicWrite = 1ull << 40,
};
enum OdpCap : std::uint32_t {  // ibv_odp_transport_cap_bits
  kOdpSend = 1,
  kOdpReceive = 2,
  kOdpWrite = 4,
  kOdpRead = 8,
  kOdpAtomic = 16,
  kOdpSrqReceive = 32,
};
constexpr std::uint64_t kOdpSupport = 1, kOdpImplicit = 2;  // ibv_odp_general_caps
constexpr std::uint64_t kNanosecondsInKhz = 1'000'000;
constexpr std::uint32_t kCmSupported = 1u << 16;  // port capability
constexpr std::uint32_t kStateDown = 1, kStateActive = 4;
constexpr std::uint32_t kPhysPolling = 2, kPhysDisabled = 3, kPhysLinkUp = 5;
constexpr std::uint32_t kMtu4096 = 5;

std::uint64_t eui64(const wire::Mac& mac) {
  const std::uint8_t bytes[8] = {
      static_cast<std::uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  std::uint64_t guid;
  std::memcpy(&guid, bytes, sizeof(guid));
  return guid;
}

struct Speed {
  std::uint64_t mbps;
  std::uint32_t speed, width;  // as ibv_port_attr encodes them
};
// The highest InfiniBand rate that is not above the port's.
constexpr Speed kSpeeds[] = {{100'000, 32, 2}, {56'000, 16, 2}, {40'000, 4, 2}, {25'000, 32, 1},
                             {14'000, 16, 1},  {10'000, 4, 1},  {5'000, 2, 1},  {0, 1, 1}};
constexpr std::uint64_t kSpeedOfMemory = 25'000;  // for ports without a link speed (loopback)

}  // namespace

std::uint32_t max_frame_of_link(std::uint32_t link_mtu) {
  return link_mtu + static_cast<std::uint32_t>(wire::EthernetHeader::kBytes + wire::VlanTag::kBytes);
}

std::uint32_t path_mtu_of_link(std::uint32_t link_mtu) {
  std::uint32_t mtu = 1;
  while (mtu < kMtu4096 && (128u << (mtu + 1)) + 80 <= link_mtu) ++mtu;
  return mtu;
}

std::string gid_text(std::span<const std::uint8_t, 16> gid) {
  char text[40];
  char* at = text;
  for (std::size_t i = 0; i < 16; i += 2) {
    at += std::snprintf(at, 6, "%02x%02x%s", gid[i], gid[i + 1], i == 14 ? "" : ":");
  }
  return text;
}

std::string mac_text(const wire::Mac& mac) {
  char text[18];
  std::snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
                mac[5]);
  return text;
}

std::string address_text(const wire::Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.is_v4()) {
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof(text));
  }
  return text;
}

std::string guid_text(std::uint64_t big_endian) {
  std::uint8_t b[8];
  std::memcpy(b, &big_endian, sizeof(b));
  char text[24];
  std::snprintf(text, sizeof(text), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6],
                b[7]);
  return text;
}

Port::Port(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t workers)
    : mac_(device.mac),
      netdev_(config.netdev_port != nullptr ? config.netdev_port->index() : device.netdev),
      netdev_port_(config.netdev_port),
      sockets_only_(device.sockets_only),
      link_mtu_(config.mtu != 0 ? config.mtu : device.mtu),
      most_mtu_(link_mtu_),
      gids_(config.addresses, config.gid_layout) {
  describe_device(config, workers);
  describe_port(device);
}

void Port::describe_device(const DaemonConfig& config, std::uint32_t workers) {
  uroce_device_response& d = device_;
  std::snprintf(d.name, sizeof(d.name), "%s", config.name.c_str());
  std::snprintf(d.fw_version, sizeof(d.fw_version), "%s", UROCE_VERSION);
  d.node_guid = d.sys_image_guid = eui64(mac_);
  d.max_mr_size = kMaxMrBytes;
  d.page_size_cap = 0xfffff000;
  d.vendor_id = 0xffffff;
  d.max_qp = workers * config.max_qps;
  d.max_qp_wr = kMaxQpWr;
  d.device_cap_flags = kUdAvPortEnforce | kPortActiveEvent | kSysImageGuid | kRcRnrNakGen | kSrqResize |
                       kMemWindow | kXrc | kMemMgtExtensions | kMemWindow2B | kRawIpCsum | kManagedFlowSteering;
  d.device_cap_flags_ex = d.device_cap_flags | kFlushGlobal | kAtomicWrite;
  d.max_sge = d.max_sge_rd = kMaxSge;
  d.max_cq = config.max_cqs;
  d.max_cqe = kMaxCqe;
  // One table holds both.
  d.max_mr = config.max_mrs - config.max_mrs / 2;
  d.max_mw = config.max_mrs / 2;
  d.max_pd = kMaxPd;
  d.max_qp_rd_atom = d.max_qp_init_rd_atom = proto::Transport::kMaxRdAtomic;
  d.max_res_rd_atom = d.max_qp * proto::Transport::kMaxRdAtomic;
  d.atomic_cap = 1;
  d.max_ah = kMaxAh - 1;
  d.max_srq = config.max_srqs - 1;
  d.max_srq_wr = kMaxSrqWr;
  d.max_srq_sge = kMaxSge;
  d.max_xrcd = kMaxXrcd;
  d.max_mcast_grp = kMaxGroups;
  d.max_mcast_qp_attach = std::min(kMaxAttachments, config.max_qps * workers);
  d.max_total_mcast_qp_attach = kMaxAttachments;
  d.odp_general_caps = kOdpSupport | kOdpImplicit;
  d.rc_odp_caps = d.xrc_odp_caps = kOdpSend | kOdpReceive | kOdpWrite | kOdpRead | kOdpAtomic | kOdpSrqReceive;
  d.uc_odp_caps = kOdpSend | kOdpReceive | kOdpWrite | kOdpSrqReceive;
  d.ud_odp_caps = kOdpSend | kOdpReceive | kOdpSrqReceive;
  d.completion_timestamp_mask = ~std::uint64_t{0};
  d.core_clock_khz = kNanosecondsInKhz;
  d.max_dm_size = kMaxDeviceMemory;
  d.max_pkeys = 1;
  d.phys_port_cnt = 1;
  d.max_inline = kMaxInline;
  d.max_raw_qp = config.max_qps;
  d.max_frame = max_frame_of_link(most_mtu_);
  if (!sockets_only_) return;
  d.device_cap_flags &= ~(kRawIpCsum | kManagedFlowSteering);
  d.device_cap_flags_ex = d.device_cap_flags | kFlushGlobal | kAtomicWrite;
  d.max_raw_qp = d.max_mcast_grp = d.max_mcast_qp_attach = d.max_total_mcast_qp_attach = 0;
}

void Port::describe_port(const net::DeviceInfo& device) {
  uroce_port_response& p = port_;
  set_link(device.link);
  p.max_mtu = kMtu4096;
  p.active_mtu = path_mtu_of_link(link_mtu_);
  p.gid_tbl_len = static_cast<std::uint32_t>(gids_.size());
  p.port_cap_flags = kCmSupported;
  p.max_msg_sz = 1u << 31;
  p.pkey_tbl_len = 1;
  set_speed(device.speed_mbps);
}

bool Port::set_speed(std::uint64_t mbps) {
  if (mbps == 0) mbps = kSpeedOfMemory;
  const Speed& speed = *std::ranges::find_if(kSpeeds, [mbps](const Speed& s) { return mbps >= s.mbps; });
  const bool changed = port_.active_speed != speed.speed || port_.active_width != speed.width;
  port_.active_speed = speed.speed;
  port_.active_width = speed.width;
  return changed;
}

std::string Port::netdev() const {
  if (netdev_port_ != nullptr) return netdev_port_->name();
  char name[IF_NAMESIZE];
  return netdev_ != 0 && ::if_indextoname(netdev_, name) != nullptr ? name : "";
}

bool Port::up() const { return port_.state == kStateActive; }

// As rxe_query_port() (drivers/infiniband/sw/rxe/rxe_verbs.c): "polling" without a carrier.
bool Port::set_link(net::LinkState link) {
  const bool up = link == net::LinkState::kUp;
  port_.state = up ? kStateActive : kStateDown;
  port_.phys_state = up ? kPhysLinkUp : link == net::LinkState::kNoCarrier ? kPhysPolling : kPhysDisabled;
  return std::exchange(link_, link) != link;
}

bool Port::set_link_mtu(std::uint32_t bytes) {
  if (bytes < kLeastMtu || bytes > most_mtu_) return false;
  link_mtu_ = bytes;
  port_.active_mtu = path_mtu_of_link(bytes);
  return true;
}

bool Port::add_gid(const net::InterfaceAddress& gid) {
  const bool added = gids_.add(gid);
  port_.gid_tbl_len = static_cast<std::uint32_t>(gids_.size());
  return added;
}

bool Port::remove_gid(const wire::Address& gid) {
  const bool removed = gids_.remove(gid);
  port_.gid_tbl_len = static_cast<std::uint32_t>(gids_.size());
  return removed;
}

bool Port::gid(std::uint32_t index, uroce_gid_response& out) const {
  if (index >= gids_.size()) return false;
  const wire::Address gid = gids_.at(index).value_or(wire::Address{});
  out = {};
  std::memcpy(out.gid, gid.bytes.data(), sizeof(out.gid));
  out.type = 1;
  std::memcpy(out.mac, mac_.data(), sizeof(out.mac));
  out.vlan = gids_.vlan(index) != 0 ? gids_.vlan(index) : std::uint16_t{0xffff};
  out.ndev_ifindex = netdev_;
  std::snprintf(out.ndev, sizeof(out.ndev), "%s", netdev().c_str());
  return true;
}

}  // namespace uroce::control
