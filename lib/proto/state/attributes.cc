#include "proto/state/attributes.h"

#include <bit>
#include <cerrno>

#include "wire/frame_template.h"

namespace uroce::proto {
namespace {

constexpr std::uint32_t kLastAttr = 25;

// Sets of QP types.
enum TypeSet : std::uint8_t { kRc = 1, kUc = 2, kUd = 4, kXi = 8, kXt = 16, kRaw = 32, kWq = 64 };
constexpr std::uint8_t kConnected = kRc | kUc | kXi | kXt;
constexpr std::uint8_t kSendTypes = kConnected | kUd | kRaw;
constexpr std::uint8_t kAllTypes = kSendTypes | kWq;

constexpr std::uint8_t set_of(QpType type) {
  switch (type) {
    case QpType::kRc: return kRc;
    case QpType::kUc: return kUc;
    case QpType::kUd: return kUd;
    case QpType::kXrcSend: return kXi;
    case QpType::kXrcRecv: return kXt;
    case QpType::kRawPacket: return kRaw;
    case QpType::kWq: return kWq;
  }
  return 0;
}

// Attributes that are given together.
constexpr std::uint32_t kNothing = 0;
constexpr std::uint32_t kPlace = kAttrPkeyIndex | kAttrPort;
constexpr std::uint32_t kPeer = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr std::uint32_t kResponder = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr std::uint32_t kRequester = kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxRdAtomic;
constexpr std::uint32_t kMigration = kAttrAltPath | kAttrPathMigState;
constexpr std::uint32_t kRunning = kAttrCurState | kAttrAccessFlags | kMigration | kAttrRateLimit;
constexpr std::uint32_t kDatagrams = kAttrCurState | kAttrQkey | kAttrRateLimit;
constexpr std::uint32_t kDrained = kAttrAv | kAttrAccessFlags | kAttrPkeyIndex | kMigration;

struct Row {
  QpState from, to;
  std::uint8_t types;  // TypeSet
  std::uint32_t required, optional;
};

// IBTA vol. 1, 11.2.5.2, as Linux applies it. Transitions to RESET and to ERR take no attributes; find_row() has
// them. A transition without a row is refused. Only the types that can be in SQE leave it.
constexpr Row kRows[] = {
    {QpState::kReset, QpState::kInit, kConnected, kPlace | kAttrAccessFlags, kNothing},
    {QpState::kReset, QpState::kInit, kUd, kPlace | kAttrQkey, kNothing},

    {QpState::kReset, QpState::kInit, kRaw, kAttrPort, kNothing},
    {QpState::kReset, QpState::kRtr, kWq, kNothing, kNothing},

    {QpState::kInit, QpState::kInit, kConnected, kNothing, kPlace | kAttrAccessFlags},
    {QpState::kInit, QpState::kInit, kUd, kNothing, kPlace | kAttrQkey},

    {QpState::kInit, QpState::kRtr, kRc | kXt, kPeer | kResponder,
     kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    {QpState::kInit, QpState::kRtr, kUc | kXi, kPeer, kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    {QpState::kInit, QpState::kRtr, kUd, kNothing, kAttrPkeyIndex | kAttrQkey},
    {QpState::kInit, QpState::kRtr, kRaw, kNothing, kNothing},

    {QpState::kRtr, QpState::kRts, kRc, kRequester | kAttrSqPsn, kRunning | kAttrMinRnrTimer},
    {QpState::kRtr, QpState::kRts, kXi, kRequester | kAttrSqPsn, kRunning},
    {QpState::kRtr, QpState::kRts, kXt, kAttrTimeout | kAttrSqPsn, kRunning | kAttrMinRnrTimer},
    {QpState::kRtr, QpState::kRts, kUc, kAttrSqPsn, kRunning},
    {QpState::kRtr, QpState::kRts, kUd, kAttrSqPsn, kDatagrams},
    {QpState::kRtr, QpState::kRts, kRaw, kNothing, kAttrRateLimit},

    {QpState::kRts, QpState::kRts, kRc | kXt, kNothing, kRunning | kAttrMinRnrTimer},
    {QpState::kRts, QpState::kRts, kUc | kXi, kNothing, kRunning},
    {QpState::kRts, QpState::kRts, kUd, kNothing, kDatagrams},
    {QpState::kRts, QpState::kRts, kRaw, kNothing, kAttrRateLimit},

    {QpState::kRts, QpState::kSqd, kSendTypes, kNothing, kAttrSqdNotify},

    {QpState::kSqd, QpState::kRts, kRc | kXt, kNothing, kRunning | kAttrMinRnrTimer},
    {QpState::kSqd, QpState::kRts, kUc | kXi, kNothing, kRunning},
    {QpState::kSqd, QpState::kRts, kUd, kNothing, kDatagrams},
    {QpState::kSqd, QpState::kRts, kRaw, kNothing, kAttrRateLimit},

    {QpState::kSqd, QpState::kSqd, kRc, kNothing, kDrained | kAttrPort | kRequester | kResponder},
    {QpState::kSqd, QpState::kSqd, kXi, kNothing, kDrained | kAttrPort | kRequester},
    {QpState::kSqd, QpState::kSqd, kXt, kNothing, kDrained | kAttrPort | kAttrTimeout | kResponder},
    {QpState::kSqd, QpState::kSqd, kUc, kNothing, kDrained},
    {QpState::kSqd, QpState::kSqd, kUd, kNothing, kAttrPkeyIndex | kAttrQkey},
    {QpState::kSqd, QpState::kSqd, kRaw, kNothing, kNothing},

    {QpState::kSqe, QpState::kRts, kUc, kNothing, kAttrCurState | kAttrAccessFlags},
    {QpState::kSqe, QpState::kRts, kUd, kNothing, kAttrCurState | kAttrQkey},
};

constexpr Row kToReset{QpState::kReset, QpState::kReset, kAllTypes, kNothing, kNothing};
constexpr Row kToError{QpState::kErr, QpState::kErr, kAllTypes, kNothing, kNothing};

const Row* find_row(QpType type, QpState from, QpState to) {
  if (from > QpState::kErr) return nullptr;
  if (to == QpState::kReset) return &kToReset;
  if (to == QpState::kErr) return from == QpState::kReset ? nullptr : &kToError;
  const std::uint8_t types = set_of(type);
  for (const Row& row : kRows) {
    if (row.from == from && row.to == to && (row.types & types) != 0) return &row;
  }
  return nullptr;
}

const char* name_of(std::uint32_t bit) {
  constexpr const char* kNames[] = {"state",
                                    "cur_state",
                                    "en_sqd_async_notify",
                                    "qp_access_flags",
                                    "pkey_index",
                                    "port_num",
                                    "qkey",
                                    "ah_attr",
                                    "path_mtu",
                                    "timeout",
                                    "retry_cnt",
                                    "rnr_retry",
                                    "rq_psn",
                                    "max_rd_atomic",
                                    "alt_ah_attr",
                                    "min_rnr_timer",
                                    "sq_psn",
                                    "max_dest_rd_atomic",
                                    "path_mig_state",
                                    "cap",
                                    "dest_qp_num",
                                    "attr_mask",
                                    "attr_mask",
                                    "attr_mask",
                                    "attr_mask",
                                    "rate_limit"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kLastAttr + 1);
  return bit <= kLastAttr ? kNames[bit] : "attr_mask";
}

// ibv_access_flags: 0-9, and the optional ones in bits 20-29.
constexpr std::uint32_t kKnownAccess = 0x3ff003ff;

bool path_fits(QpType type, const wire::PathAddress& path) {
  if (path.flow_label > wire::kFlowLabelMask) return false;
  if (path.source.is_v4() != path.dest.is_v4()) return false;
  return type == QpType::kUd || !path.dest.is_multicast();
}

bool value_fits(QpType type, const QpAttr& attr, std::uint32_t bit) {
  switch (bit) {
    case kAttrAccessFlags: return (attr.access & ~kKnownAccess) == 0;
    case kAttrPkeyIndex: return attr.pkey_index == 0;  // the table has a single P_Key, 0xffff
    case kAttrPort: return attr.port == 1;
    case kAttrAv: return path_fits(type, attr.path);
    case kAttrPathMtu: return std::has_single_bit(attr.path_mtu) && attr.path_mtu >= 256 && attr.path_mtu <= 4096;
    case kAttrTimeout: return attr.timeout < 32;
    case kAttrRetryCnt: return attr.retry_cnt < 8;
    case kAttrRnrRetry: return attr.rnr_retry < 8;
    case kAttrMinRnrTimer: return attr.min_rnr_timer < 32;
    case kAttrMaxRdAtomic: return attr.max_rd_atomic <= kMaxRdAtomic;
    case kAttrMaxDestRdAtomic: return attr.max_dest_rd_atomic <= kMaxRdAtomic;
    case kAttrDestQpn: return attr.dest_qpn.value <= 0xffffff;
    default: return true;
  }
}

const char* allowed_values(std::uint32_t bit) {
  static_assert(kMaxRdAtomic == 128);
  switch (bit) {
    case kAttrAccessFlags: return "has bits that are not ibv_access_flags";
    case kAttrPkeyIndex: return "is out of range: only 0 is allowed";
    case kAttrPort: return "is out of range: only 1 is allowed";
    case kAttrAv: return "needs a GID of the family of the port's, and a group is for UD only";
    case kAttrPathMtu: return "is out of range: allowed are IBV_MTU_256 to IBV_MTU_4096";
    case kAttrTimeout:
    case kAttrMinRnrTimer: return "is out of range: allowed are 0 to 31";
    case kAttrRetryCnt:
    case kAttrRnrRetry: return "is out of range: allowed are 0 to 7";
    case kAttrMaxRdAtomic:
    case kAttrMaxDestRdAtomic: return "is out of range: allowed are 0 to 128";
    case kAttrDestQpn: return "is out of range: QP numbers have 24 bits";
    default: return "is out of range";
  }
}

bool can_be_current(QpState state) {
  return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd || state == QpState::kSqe;
}

}  // namespace

const char* attribute_name(std::uint32_t mask) {
  return name_of(static_cast<std::uint32_t>(std::countr_zero(mask)));
}

ModifyVerdict check_modify(QpType type, QpState current, const QpAttr& attr, std::uint32_t mask) {
  if ((mask & kAttrCurState) != 0 && (!can_be_current(attr.cur_state) || attr.cur_state != current)) {
    return {EINVAL, "cur_state", "is not the QP's state"};
  }
  const Row* row = find_row(type, current, (mask & kAttrState) != 0 ? attr.state : current);
  if (row == nullptr) return {EINVAL, "state", "cannot follow the QP's present state (ibv_modify_qp(3))"};

  // Known attributes that this device does not support: resizing of queues and a second path.
  if ((mask & kAttrCap) != 0) return {EOPNOTSUPP, "cap", "cannot be changed: the queues keep their sizes"};
  if ((mask & kAttrRateLimit) != 0 && !has_send_queue(type)) {
    return {EINVAL, "rate_limit", "is not for a queue that does not send"};
  }
  if (const std::uint32_t missing = row->required & ~mask; missing != 0) {
    return {EINVAL, attribute_name(missing), "is required for this transition and is not in attr_mask"};
  }
  const std::uint32_t surplus = mask & ~(row->required | row->optional | kAttrState);
  if (surplus != 0) {
    return {EINVAL, attribute_name(surplus), "is in attr_mask and is not allowed for this transition and QP type"};
  }
  if ((mask & kAttrAltPath) != 0) return {EOPNOTSUPP, "alt_ah_attr", "is not supported: QPs have one path"};
  if ((mask & kAttrPathMigState) != 0 && attr.path_mig_state != 0) {
    return {EOPNOTSUPP, "path_mig_state", "is not supported: QPs have one path"};
  }

  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto bit = static_cast<std::uint32_t>(std::countr_zero(rest));
    if (!value_fits(type, attr, 1u << bit)) return {EINVAL, name_of(bit), allowed_values(1u << bit)};
  }
  return {};
}

}  // namespace uroce::proto
