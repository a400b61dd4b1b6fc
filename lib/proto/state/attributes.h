// The attributes of ibv_modify_qp(3) and ibv_query_qp(3) in the transport's terms. Numbers are those of
// ibv_qp_state, ibv_qp_type and ibv_qp_attr_mask.
#pragma once

#include <cstdint>

#include "abi/queue_entries.h"
#include "base/types.h"
#include "wire/frame_template.h"

namespace uroce::proto {

enum class QpType : std::uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcSend = 9,
  kXrcRecv = 10,
  kWq = UROCE_QPT_WQ,  ///< ibv_wq: receives raw packets and sends nothing
};
constexpr bool has_send_queue(QpType type) { return type != QpType::kXrcRecv && type != QpType::kWq; }
/// Sends or receives whole Ethernet frames; flow rules select the receiver.
constexpr bool is_raw(QpType type) { return type == QpType::kRawPacket || type == QpType::kWq; }
enum class QpState : std::uint8_t { kReset = 0, kInit, kRtr, kRts, kSqd, kSqe, kErr, kUnknown };

enum AttrMask : std::uint32_t {
  kAttrState = 1 << 0,
  kAttrCurState = 1 << 1,
  kAttrSqdNotify = 1 << 2,
  kAttrAccessFlags = 1 << 3,
  kAttrPkeyIndex = 1 << 4,
  kAttrPort = 1 << 5,
  kAttrQkey = 1 << 6,
  kAttrAv = 1 << 7,
  kAttrPathMtu = 1 << 8,
  kAttrTimeout = 1 << 9,
  kAttrRetryCnt = 1 << 10,
  kAttrRnrRetry = 1 << 11,
  kAttrRqPsn = 1 << 12,
  kAttrMaxRdAtomic = 1 << 13,
  kAttrAltPath = 1 << 14,
  kAttrMinRnrTimer = 1 << 15,
  kAttrSqPsn = 1 << 16,
  kAttrMaxDestRdAtomic = 1 << 17,
  kAttrPathMigState = 1 << 18,
  kAttrCap = 1 << 19,
  kAttrDestQpn = 1 << 20,
  kAttrRateLimit = 1 << 25,
};

inline constexpr std::uint32_t kMaxSge = 32;       ///< of a work request
inline constexpr std::uint8_t kMaxRdAtomic = 128;  ///< outstanding READs and atomics, either way

/// Attributes; an AttrMask states which of them are given. The control plane has resolved the address vector into
/// `path` (GID index, next hop, VLAN) and checked port and P_Key index.
struct QpAttr {
  QpState state = QpState::kReset;
  QpState cur_state = QpState::kReset;
  bool sqd_notify = false;
  std::uint32_t access = 0;  ///< memory::Access bits that the QP grants to its peer
  std::uint32_t qkey = 0;
  wire::PathAddress path;
  std::uint32_t path_mtu = 1024;   ///< bytes: 256, 512, 1024, 2048 or 4096
  std::uint8_t timeout = 0;        ///< 4.096 us * 2^timeout; 0: none
  std::uint8_t retry_cnt = 0;      ///< 0-7
  std::uint8_t rnr_retry = 0;      ///< 0-7; 7: forever
  std::uint8_t min_rnr_timer = 0;  ///< RNR code, 0-31
  Psn rq_psn, sq_psn;
  std::uint8_t max_rd_atomic = 0;       ///< as requester
  std::uint8_t max_dest_rd_atomic = 0;  ///< as responder
  Qpn dest_qpn;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint8_t path_mig_state = 0;  ///< ibv_mig_state; only 0 (migrated): alternate paths are not supported
  std::uint32_t rate_kbps = 0;      ///< for everything the requester sends, headers included; 0: no limit
  std::uint32_t rate_burst = 0;     ///< bytes that may leave back to back; 0: the default
};

/// Result of a check with the errno of ibv_modify_qp(3): 0, EINVAL, EOPNOTSUPP. `what` names the attribute for the
/// log.
struct ModifyVerdict {
  int error = 0;
  const char* what = "";  ///< the attribute
  const char* why = "";   ///< what is wrong with it, as the end of a sentence
};

/// The name in ibv_qp_attr of the lowest attribute in the mask.
const char* attribute_name(std::uint32_t mask);

/// Checks whether `mask` may be given for this transition of a QP of this type: required and optional attributes
/// (IBTA vol. 1, 10.3.1 and 11.2.5.2), and the range of each value. Without kAttrState the QP stays in its state.
/// With kAttrCurState, attr.cur_state must equal `current`.
ModifyVerdict check_modify(QpType type, QpState current, const QpAttr& attr, std::uint32_t mask);

}  // namespace uroce::proto
