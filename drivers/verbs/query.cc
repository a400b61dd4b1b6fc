// Attributes of the device and its port (ibv_query_device_ex(3), ibv_query_port(3), ibv_query_gid(3)).
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "export.h"
#include "objects.h"
#include "query.h"

namespace uroce::verbs {
namespace {

// 4.096 us * 2^15 = 134 ms, as in rxe: the scheduler may preempt a daemon that owes an acknowledgement.
constexpr std::uint8_t kAckDelay = 15;

void fill(const uroce_device_response& in, ibv_device_attr& out) {
  out = {};
  std::memcpy(out.fw_ver, in.fw_version, std::min(sizeof(out.fw_ver) - 1, sizeof(in.fw_version)));
  out.node_guid = in.node_guid;
  out.sys_image_guid = in.sys_image_guid;
  out.max_mr_size = in.max_mr_size;
  out.page_size_cap = in.page_size_cap;
  out.vendor_id = in.vendor_id;
  out.vendor_part_id = in.vendor_part_id;
  out.hw_ver = in.hw_version;
  out.max_qp = static_cast<int>(in.max_qp);
  out.max_qp_wr = static_cast<int>(in.max_qp_wr);
  out.device_cap_flags = in.device_cap_flags;
  out.max_raw_ethy_qp = static_cast<int>(in.max_raw_qp);
  out.max_sge = static_cast<int>(in.max_sge);
  out.max_sge_rd = static_cast<int>(in.max_sge_rd);
  out.max_cq = static_cast<int>(in.max_cq);
  out.max_cqe = static_cast<int>(in.max_cqe);
  out.max_mr = static_cast<int>(in.max_mr);
  out.max_pd = static_cast<int>(in.max_pd);
  out.max_qp_rd_atom = static_cast<int>(in.max_qp_rd_atom);
  out.max_res_rd_atom = static_cast<int>(in.max_res_rd_atom);
  out.max_qp_init_rd_atom = static_cast<int>(in.max_qp_init_rd_atom);
  out.atomic_cap = static_cast<ibv_atomic_cap>(in.atomic_cap);
  out.max_mw = static_cast<int>(in.max_mw);
  out.max_mcast_grp = static_cast<int>(in.max_mcast_grp);
  out.max_mcast_qp_attach = static_cast<int>(in.max_mcast_qp_attach);
  out.max_total_mcast_qp_attach = static_cast<int>(in.max_total_mcast_qp_attach);
  out.max_ah = static_cast<int>(in.max_ah);
  out.max_srq = static_cast<int>(in.max_srq);
  out.max_srq_wr = static_cast<int>(in.max_srq_wr);
  out.max_srq_sge = static_cast<int>(in.max_srq_sge);
  out.local_ca_ack_delay = kAckDelay;
  out.max_pkeys = static_cast<std::uint16_t>(in.max_pkeys);
  out.phys_port_cnt = static_cast<std::uint8_t>(in.phys_port_cnt);
}

int ask_gid(ibv_context* context, std::uint32_t port, std::uint32_t index, uroce_gid_response& reply) {
  if (port != 1) return EINVAL;
  const uroce_gid_request request{index, 0};
  return session_of(context).call(UROCE_CMD_QUERY_GID, request, reply);
}

ibv_gid_entry to_entry(const uroce_gid_response& in, std::uint32_t index) {
  ibv_gid_entry entry{};
  std::memcpy(entry.gid.raw, in.gid, sizeof(entry.gid.raw));
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = in.type == 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
  // The index is that of the interface's network namespace, which need not be the program's.
  if (in.ndev_ifindex != 0 && ::if_nametoindex(in.ndev) == in.ndev_ifindex) entry.ndev_ifindex = in.ndev_ifindex;
  return entry;
}

bool empty(const uroce_gid_response& gid) {
  return std::all_of(std::begin(gid.gid), std::end(gid.gid), [](std::uint8_t b) { return b == 0; });
}

/// Of a port, in 100 Mbit/s: lanes times the speed of one (Linux: ib_port_attr_to_speed_info).
std::uint64_t speed_of(std::uint32_t width, std::uint32_t speed) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr std::pair<std::uint32_t, std::uint32_t> kSpeeds[] = {
      {1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000}, {256, 2000}};
  const auto of = [](std::span<const std::pair<std::uint32_t, std::uint32_t>> table, std::uint32_t code) {
    const auto at = std::ranges::find(table, code, &std::pair<std::uint32_t, std::uint32_t>::first);
    return at == table.end() ? std::uint64_t{0} : std::uint64_t{at->second};
  };
  return of(kLanes, width) * of(kSpeeds, speed);
}

void fill_raw_packets(const uroce_device_response& in, ibv_device_attr_ex& out) {
  if (in.max_raw_qp == 0) return;
  constexpr std::uint32_t kRaw = 1u << IBV_QPT_RAW_PACKET;
  out.tso_caps = {UROCE_MAX_TSO, kRaw};
  out.rss_caps.supported_qpts = kRaw;
  out.rss_caps.max_rwq_indirection_tables = in.max_raw_qp;
  out.rss_caps.max_rwq_indirection_table_size = UROCE_MAX_RSS_ENTRIES;
  out.rss_caps.rx_hash_fields_mask = kHashFields;
  out.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  out.max_wq_type_rq = in.max_raw_qp;
  out.packet_pacing_caps.supported_qpts |= kRaw;
  out.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM;
}

}  // namespace

int ask_device(ibv_context* context, uroce_device_response& reply) {
  return session_of(context).call(UROCE_CMD_QUERY_DEVICE, {}, std::as_writable_bytes(std::span(&reply, 1)));
}

int query_port_ex(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes) {
  const Verb verb("ibv_query_port");
  if (port != 1) return noted(EINVAL, "the device has one port, with number 1");
  uroce_port_response in{};
  const int error = session_of(context).call(UROCE_CMD_QUERY_PORT, {}, std::as_writable_bytes(std::span(&in, 1)));
  if (error != 0) return noted(error);
  ibv_port_attr out{};
  out.state = static_cast<ibv_port_state>(in.state);
  out.max_mtu = static_cast<ibv_mtu>(in.max_mtu);
  out.active_mtu = static_cast<ibv_mtu>(in.active_mtu);
  out.gid_tbl_len = static_cast<int>(in.gid_tbl_len);
  out.port_cap_flags = in.port_cap_flags;
  out.port_cap_flags2 = static_cast<std::uint16_t>(in.port_cap_flags2);
  out.max_msg_sz = in.max_msg_sz;
  out.pkey_tbl_len = static_cast<std::uint16_t>(in.pkey_tbl_len);
  out.max_vl_num = 1;
  out.active_width = static_cast<std::uint8_t>(in.active_width);
  out.active_speed = static_cast<std::uint8_t>(in.active_speed);
  out.phys_state = static_cast<std::uint8_t>(in.phys_state);
  out.bad_pkey_cntr = in.bad_pkeys;
  out.qkey_viol_cntr = in.bad_qkeys;
  out.link_layer = IBV_LINK_LAYER_ETHERNET;
  out.flags = IBV_QPF_GRH_REQUIRED;  // RoCE packets always carry a GRH: there are no LIDs
  std::memset(attr, 0, bytes);
  std::memcpy(attr, &out, std::min(bytes, sizeof(out)));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t bytes) {
  const Verb verb("ibv_query_device_ex");
  if (input != nullptr && input->comp_mask != 0) return noted(EINVAL);
  if (bytes < sizeof(attr->orig_attr)) return noted(EINVAL);
  uroce_device_response in{};
  if (const int error = ask_device(context, in); error != 0) return noted(error);
  ibv_device_attr_ex out{};
  fill(in, out.orig_attr);
  out.odp_caps.general_caps = in.odp_general_caps;
  out.odp_caps.per_transport_caps = {in.rc_odp_caps, in.uc_odp_caps, in.ud_odp_caps};
  out.xrc_odp_caps = in.xrc_odp_caps;
  out.max_dm_size = in.max_dm_size;
  out.cq_mod_caps = {UINT16_MAX, UINT16_MAX};
  constexpr std::uint32_t kSenders =
      1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND;
  out.packet_pacing_caps = {1, UROCE_MAX_RATE_KBPS, kSenders};
  out.completion_timestamp_mask = ~std::uint64_t{0};
  out.hca_core_clock = 1'000'000;  // kHz: timestamps are in nanoseconds
  out.device_cap_flags_ex = in.device_cap_flags_ex != 0 ? in.device_cap_flags_ex : in.device_cap_flags;
  fill_raw_packets(in, out);
  out.phys_port_cnt_ex = in.phys_port_cnt;
  std::memset(attr, 0, bytes);
  std::memcpy(attr, &out, std::min(bytes, sizeof(out)));
  return 0;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  const Verb verb("ibv_query_rt_values");
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return noted(EOPNOTSUPP);
  clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
  return 0;
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT int query_device(ibv_context* context, ibv_device_attr* attr) {
  const Verb verb("ibv_query_device");
  uroce_device_response in{};
  if (const int error = ask_device(context, in); error != 0) return failed(error);
  fill(in, *attr);
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(query_device, ibv_query_device);

UROCE_EXPORT int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) {
  const Verb verb("ibv_query_port");
  // Callers of this symbol version may pass the struct without port_cap_flags2.
  constexpr std::size_t kOldBytes = offsetof(ibv_port_attr, port_cap_flags2);
  static_assert(kOldBytes == 48);
  return failed(query_port_ex(context, port, attr, kOldBytes));
}
UROCE_VERSIONS_1_0_AND_1_1(query_port, ibv_query_port);

UROCE_EXPORT int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  const Verb verb("ibv_query_gid");
  uroce_gid_response in{};
  if (const int error = ask_gid(context, port, static_cast<std::uint32_t>(index), in); error != 0) {
    errno = noted(error);
    return -1;
  }
  std::memcpy(gid->raw, in.gid, sizeof(gid->raw));
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(query_gid, ibv_query_gid);

UROCE_EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                   ibv_gid_entry* out, std::uint32_t flags, std::size_t entry_size) {
  const Verb verb("_ibv_query_gid_ex");
  if (flags != 0) return noted(EOPNOTSUPP);
  uroce_gid_response in{};
  if (const int error = ask_gid(context, port, index, in); error != 0) return noted(error);
  if (empty(in)) return noted(ENODATA, "the table has no GID at this index");
  const ibv_gid_entry entry = to_entry(in, index);
  std::memset(out, 0, entry_size);
  std::memcpy(out, &entry, std::min(entry_size, sizeof(entry)));
  return 0;
}

UROCE_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t most,
                                          std::uint32_t flags, std::size_t entry_size) {
  const Verb verb("_ibv_query_gid_table");
  if (flags != 0) return -EOPNOTSUPP;
  if (entry_size == 0) return -EINVAL;
  ibv_port_attr port{};
  if (const int error = query_port_ex(context, 1, &port, sizeof(port)); error != 0) return -error;
  std::size_t found = 0;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    uroce_gid_response in{};
    const auto index = static_cast<std::uint32_t>(i);
    if (const int error = ask_gid(context, 1, index, in); error != 0) return -error;
    if (empty(in)) continue;
    if (found == most) return -EINVAL;
    const ibv_gid_entry entry = to_entry(in, index);
    auto* const out = reinterpret_cast<std::byte*>(entries) + found++ * entry_size;
    std::memset(out, 0, entry_size);
    std::memcpy(out, &entry, std::min(entry_size, sizeof(entry)));
  }
  return static_cast<ssize_t>(found);
}

/// A private interface of rdma-core; `type` is enum ibv_gid_type_sysfs: 0 IB or RoCE v1, 1 RoCE v2.
UROCE_EXPORT int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  const Verb verb("ibv_query_gid_type");
  uroce_gid_response in{};
  if (const int error = ask_gid(context, port, index, in); error != 0) {
    errno = noted(error);
    return -1;
  }
  *type = in.type == 1 ? 1 : 0;
  return 0;
}
UROCE_PRIVATE_VERSIONS(query_gid_type, ibv_query_gid_type);

// ibv_query_port_speed(3), since rdma-core 62.
UROCE_EXPORT int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* hundreds_of_mbps) {
  const Verb verb("ibv_query_port_speed");
  if (port != 1) return failed(EINVAL, "the device has one port, with number 1");
  uroce_port_response in{};
  const int error = session_of(context).call(UROCE_CMD_QUERY_PORT, {}, std::as_writable_bytes(std::span(&in, 1)));
  if (error != 0) return failed(error);
  *hundreds_of_mbps = speed_of(in.active_width, in.active_speed);
  return 0;
}

// The only P_Key is the default one with full membership, as on every RoCE port.
UROCE_EXPORT int query_pkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
  const Verb verb("ibv_query_pkey");
  if (port != 1 || index != 0) {
    errno = noted(EINVAL, "the device has port 1 only, with one P_Key at index 0");
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(query_pkey, ibv_query_pkey);

UROCE_EXPORT int ibv_get_pkey_index(ibv_context*, std::uint8_t port, __be16 pkey) {
  const Verb verb("ibv_get_pkey_index");
  // The top bit of a P_Key is the membership, which is not compared.
  if (port == 1 && (pkey & htobe16(0x7fff)) == htobe16(0x7fff)) return 0;
  errno = noted(EINVAL);
  return -1;
}
