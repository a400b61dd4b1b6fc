#include "proto/state/attributes.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace uroce::proto {
namespace {

struct Named {
  std::uint32_t bit;
  const char* name;
  const char* field;  ///< of ibv_qp_attr, as in error messages
};
constexpr Named kAttrs[] = {
    {kAttrCurState, "CUR_STATE", "cur_state"},
    {kAttrSqdNotify, "SQD_NOTIFY", "en_sqd_async_notify"},
    {kAttrAccessFlags, "ACCESS", "qp_access_flags"},
    {kAttrPkeyIndex, "PKEY", "pkey_index"},
    {kAttrPort, "PORT", "port_num"},
    {kAttrQkey, "QKEY", "qkey"},
    {kAttrAv, "AV", "ah_attr"},
    {kAttrPathMtu, "MTU", "path_mtu"},
    {kAttrTimeout, "TIMEOUT", "timeout"},
    {kAttrRetryCnt, "RETRY", "retry_cnt"},
    {kAttrRnrRetry, "RNR_RETRY", "rnr_retry"},
    {kAttrRqPsn, "RQ_PSN", "rq_psn"},
    {kAttrMaxRdAtomic, "RD_ATOMIC", "max_rd_atomic"},
    {kAttrAltPath, "ALT", "alt_ah_attr"},
    {kAttrMinRnrTimer, "RNR_TIMER", "min_rnr_timer"},
    {kAttrSqPsn, "SQ_PSN", "sq_psn"},
    {kAttrMaxDestRdAtomic, "DEST_RD", "max_dest_rd_atomic"},
    {kAttrPathMigState, "MIG", "path_mig_state"},
    {kAttrCap, "CAP", "cap"},
    {kAttrDestQpn, "DEST_QPN", "dest_qp_num"},
    {kAttrRateLimit, "RATE", "rate_limit"},
};
constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
constexpr struct {
  QpType type;
  const char* name;
} kTypes[] = {{QpType::kRc, "RC"},
              {QpType::kUc, "UC"},
              {QpType::kUd, "UD"},
              {QpType::kXrcSend, "XRC_INI"},
              {QpType::kXrcRecv, "XRC_TGT"}};

/// Attributes that are valid for all transitions.
QpAttr good(QpState current, QpState to) {
  QpAttr attr;
  attr.state = to;
  attr.cur_state = current;
  attr.path.source.bytes[15] = 1;
  attr.path.dest.bytes[15] = 2;
  return attr;
}

/// Whether the table allows the mask; an attribute that this device does not support counts as allowed.
bool allowed(QpType type, QpState from, QpState to, std::uint32_t mask) {
  return check_modify(type, from, good(from, to), mask).error != EINVAL;
}

std::uint32_t bit_named(const std::string& field) {
  for (const Named& attr : kAttrs) {
    if (field == attr.field) return attr.bit;
  }
  return 0;
}

/// The attributes that one transition requires and accepts, found by trial: no required one can be omitted, and no
/// other can be added. Empty: there is no such transition.
std::string probe(QpType type, QpState from, QpState to) {
  std::uint32_t mask = kAttrState;
  for (;;) {
    const ModifyVerdict verdict = check_modify(type, from, good(from, to), mask);
    if (verdict.error != EINVAL) break;
    if (verdict.what == std::string("state")) return "";
    const std::uint32_t missing = bit_named(verdict.what);
    EXPECT_EQ(mask & missing, 0u) << verdict.what;
    if ((mask & missing) != 0 || missing == 0) return " ?";
    mask |= missing;
  }
  std::ostringstream out;
  for (const Named& attr : kAttrs) {
    if ((mask & attr.bit) == 0) continue;
    out << ' ' << attr.name;
    EXPECT_FALSE(allowed(type, from, to, mask & ~attr.bit)) << attr.name;
  }
  out << " |";
  for (const Named& attr : kAttrs) {
    const bool unserved = attr.bit == kAttrCap;
    if ((mask & attr.bit) == 0 && !unserved && allowed(type, from, to, mask | attr.bit)) out << ' ' << attr.name;
  }
  return out.str();
}

std::string matrix() {
  std::ostringstream out;
  for (const auto& type : kTypes) {
    for (int from = 0; from < 7; ++from) {
      for (int to = 0; to < 7; ++to) {
        const std::string row = probe(type.type, static_cast<QpState>(from), static_cast<QpState>(to));
        if (!row.empty()) out << type.name << ' ' << kStates[from] << ">" << kStates[to] << ':' << row << '\n';
      }
    }
  }
  return out.str();
}

// Required attributes before the bar, optional ones after it. UROCE_PRINT=1 prints the table.
constexpr const char* kMatrix = R"(
RC RESET>RESET: |
RC RESET>INIT: ACCESS PKEY PORT |
RC INIT>RESET: |
RC INIT>INIT: | ACCESS PKEY PORT
RC INIT>RTR: AV MTU RQ_PSN RNR_TIMER DEST_RD DEST_QPN | ACCESS PKEY ALT
RC INIT>ERR: |
RC RTR>RESET: |
RC RTR>RTS: TIMEOUT RETRY RNR_RETRY RD_ATOMIC SQ_PSN | CUR_STATE ACCESS ALT RNR_TIMER MIG RATE
RC RTR>ERR: |
RC RTS>RESET: |
RC RTS>RTS: | CUR_STATE ACCESS ALT RNR_TIMER MIG RATE
RC RTS>SQD: | SQD_NOTIFY
RC RTS>ERR: |
RC SQD>RESET: |
RC SQD>RTS: | CUR_STATE ACCESS ALT RNR_TIMER MIG RATE
RC SQD>SQD: | ACCESS PKEY PORT AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC ALT RNR_TIMER DEST_RD MIG
RC SQD>ERR: |
RC SQE>RESET: |
RC SQE>ERR: |
RC ERR>RESET: |
RC ERR>ERR: |
UC RESET>RESET: |
UC RESET>INIT: ACCESS PKEY PORT |
UC INIT>RESET: |
UC INIT>INIT: | ACCESS PKEY PORT
UC INIT>RTR: AV MTU RQ_PSN DEST_QPN | ACCESS PKEY ALT
UC INIT>ERR: |
UC RTR>RESET: |
UC RTR>RTS: SQ_PSN | CUR_STATE ACCESS ALT MIG RATE
UC RTR>ERR: |
UC RTS>RESET: |
UC RTS>RTS: | CUR_STATE ACCESS ALT MIG RATE
UC RTS>SQD: | SQD_NOTIFY
UC RTS>ERR: |
UC SQD>RESET: |
UC SQD>RTS: | CUR_STATE ACCESS ALT MIG RATE
UC SQD>SQD: | ACCESS PKEY AV ALT MIG
UC SQD>ERR: |
UC SQE>RESET: |
UC SQE>RTS: | CUR_STATE ACCESS
UC SQE>ERR: |
UC ERR>RESET: |
UC ERR>ERR: |
UD RESET>RESET: |
UD RESET>INIT: PKEY PORT QKEY |
UD INIT>RESET: |
UD INIT>INIT: | PKEY PORT QKEY
UD INIT>RTR: | PKEY QKEY
UD INIT>ERR: |
UD RTR>RESET: |
UD RTR>RTS: SQ_PSN | CUR_STATE QKEY RATE
UD RTR>ERR: |
UD RTS>RESET: |
UD RTS>RTS: | CUR_STATE QKEY RATE
UD RTS>SQD: | SQD_NOTIFY
UD RTS>ERR: |
UD SQD>RESET: |
UD SQD>RTS: | CUR_STATE QKEY RATE
UD SQD>SQD: | PKEY QKEY
UD SQD>ERR: |
UD SQE>RESET: |
UD SQE>RTS: | CUR_STATE QKEY
UD SQE>ERR: |
UD ERR>RESET: |
UD ERR>ERR: |
XRC_INI RESET>RESET: |
XRC_INI RESET>INIT: ACCESS PKEY PORT |
XRC_INI INIT>RESET: |
XRC_INI INIT>INIT: | ACCESS PKEY PORT
XRC_INI INIT>RTR: AV MTU RQ_PSN DEST_QPN | ACCESS PKEY ALT
XRC_INI INIT>ERR: |
XRC_INI RTR>RESET: |
XRC_INI RTR>RTS: TIMEOUT RETRY RNR_RETRY RD_ATOMIC SQ_PSN | CUR_STATE ACCESS ALT MIG RATE
XRC_INI RTR>ERR: |
XRC_INI RTS>RESET: |
XRC_INI RTS>RTS: | CUR_STATE ACCESS ALT MIG RATE
XRC_INI RTS>SQD: | SQD_NOTIFY
XRC_INI RTS>ERR: |
XRC_INI SQD>RESET: |
XRC_INI SQD>RTS: | CUR_STATE ACCESS ALT MIG RATE
XRC_INI SQD>SQD: | ACCESS PKEY PORT AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC ALT MIG
XRC_INI SQD>ERR: |
XRC_INI SQE>RESET: |
XRC_INI SQE>ERR: |
XRC_INI ERR>RESET: |
XRC_INI ERR>ERR: |
XRC_TGT RESET>RESET: |
XRC_TGT RESET>INIT: ACCESS PKEY PORT |
XRC_TGT INIT>RESET: |
XRC_TGT INIT>INIT: | ACCESS PKEY PORT
XRC_TGT INIT>RTR: AV MTU RQ_PSN RNR_TIMER DEST_RD DEST_QPN | ACCESS PKEY ALT
XRC_TGT INIT>ERR: |
XRC_TGT RTR>RESET: |
XRC_TGT RTR>RTS: TIMEOUT SQ_PSN | CUR_STATE ACCESS ALT RNR_TIMER MIG
XRC_TGT RTR>ERR: |
XRC_TGT RTS>RESET: |
XRC_TGT RTS>RTS: | CUR_STATE ACCESS ALT RNR_TIMER MIG
XRC_TGT RTS>SQD: | SQD_NOTIFY
XRC_TGT RTS>ERR: |
XRC_TGT SQD>RESET: |
XRC_TGT SQD>RTS: | CUR_STATE ACCESS ALT RNR_TIMER MIG
XRC_TGT SQD>SQD: | ACCESS PKEY PORT AV TIMEOUT ALT RNR_TIMER DEST_RD MIG
XRC_TGT SQD>ERR: |
XRC_TGT SQE>RESET: |
XRC_TGT SQE>ERR: |
XRC_TGT ERR>RESET: |
XRC_TGT ERR>ERR: |
)";

TEST(Attributes, TheWholeMatrixOfTransitionsIsAsTheSpecificationSays) {
  const std::string seen = matrix();
  if (std::getenv("UROCE_PRINT") != nullptr) std::puts(seen.c_str());
  EXPECT_EQ(seen, std::string(kMatrix + 1));
}

constexpr std::uint32_t kInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr std::uint32_t kRtrMask =
    kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr std::uint32_t kRtsMask =
    kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic;

TEST(Attributes, NamesWhatIsMissingAndWhatIsTooMuch) {
  const QpAttr to_rtr = good(QpState::kInit, QpState::kRtr);
  const ModifyVerdict missing = check_modify(QpType::kRc, QpState::kInit, to_rtr, kRtrMask & ~kAttrRqPsn);
  EXPECT_EQ(missing.error, EINVAL);
  EXPECT_STREQ(missing.what, "rq_psn");
  const ModifyVerdict surplus = check_modify(QpType::kRc, QpState::kInit, to_rtr, kRtrMask | kAttrSqPsn);
  EXPECT_EQ(surplus.error, EINVAL);
  EXPECT_STREQ(surplus.what, "sq_psn");
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kInit, to_rtr, kRtrMask).error, 0);
  EXPECT_STREQ(check_modify(QpType::kRc, QpState::kInit, to_rtr, kRtrMask | 1u << 30).what, "attr_mask");
}

TEST(Attributes, ValuesAreHeldToTheirRanges) {
  struct Case {
    const char* what;
    void (*set)(QpAttr&);
    bool fits;
  };
  const Case rtr[] = {
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 255; }, false},
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 256; }, true},
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 1500; }, false},
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 4096; }, true},
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 8192; }, false},
      {"path_mtu", [](QpAttr& a) { a.path_mtu = 0; }, false},
      {"min_rnr_timer", [](QpAttr& a) { a.min_rnr_timer = 31; }, true},
      {"min_rnr_timer", [](QpAttr& a) { a.min_rnr_timer = 32; }, false},
      {"max_dest_rd_atomic", [](QpAttr& a) { a.max_dest_rd_atomic = 128; }, true},
      {"max_dest_rd_atomic", [](QpAttr& a) { a.max_dest_rd_atomic = 129; }, false},
      {"dest_qp_num", [](QpAttr& a) { a.dest_qpn = Qpn{0xffffff}; }, true},
      {"dest_qp_num", [](QpAttr& a) { a.dest_qpn = Qpn{0x1000000}; }, false},
      {"ah_attr",
       [](QpAttr& a) {
         a.path.dest.bytes = {0xff, 2};
       },
       false},
      {"ah_attr", [](QpAttr& a) { a.path.dest.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4}; },
       false},
      {"ah_attr", [](QpAttr& a) { a.path.flow_label = 0x100000; }, false},
  };
  for (const Case& c : rtr) {
    QpAttr attr = good(QpState::kInit, QpState::kRtr);
    c.set(attr);
    const ModifyVerdict verdict = check_modify(QpType::kRc, QpState::kInit, attr, kRtrMask);
    EXPECT_EQ(verdict.error, c.fits ? 0 : EINVAL) << c.what;
    EXPECT_STREQ(verdict.what, c.fits ? "" : c.what);
  }
  const Case rts[] = {
      {"timeout", [](QpAttr& a) { a.timeout = 31; }, true},
      {"timeout", [](QpAttr& a) { a.timeout = 32; }, false},
      {"retry_cnt", [](QpAttr& a) { a.retry_cnt = 7; }, true},
      {"retry_cnt", [](QpAttr& a) { a.retry_cnt = 8; }, false},
      {"rnr_retry", [](QpAttr& a) { a.rnr_retry = 7; }, true},
      {"rnr_retry", [](QpAttr& a) { a.rnr_retry = 8; }, false},
      {"max_rd_atomic", [](QpAttr& a) { a.max_rd_atomic = 128; }, true},
      {"max_rd_atomic", [](QpAttr& a) { a.max_rd_atomic = 129; }, false},
  };
  for (const Case& c : rts) {
    QpAttr attr = good(QpState::kRtr, QpState::kRts);
    c.set(attr);
    const ModifyVerdict verdict = check_modify(QpType::kRc, QpState::kRtr, attr, kRtsMask);
    EXPECT_EQ(verdict.error, c.fits ? 0 : EINVAL) << c.what;
    EXPECT_STREQ(verdict.what, c.fits ? "" : c.what);
  }
  const Case init[] = {
      {"port_num", [](QpAttr& a) { a.port = 0; }, false},
      {"port_num", [](QpAttr& a) { a.port = 2; }, false},
      {"pkey_index", [](QpAttr& a) { a.pkey_index = 1; }, false},
      {"qp_access_flags", [](QpAttr& a) { a.access = 0xf; }, true},
      {"qp_access_flags", [](QpAttr& a) { a.access = 1u << 31; }, false},
  };
  for (const Case& c : init) {
    QpAttr attr = good(QpState::kReset, QpState::kInit);
    c.set(attr);
    const ModifyVerdict verdict = check_modify(QpType::kRc, QpState::kReset, attr, kInitMask);
    EXPECT_EQ(verdict.error, c.fits ? 0 : EINVAL) << c.what;
    EXPECT_STREQ(verdict.what, c.fits ? "" : c.what);
  }
}

TEST(Attributes, AValueThatTheMaskDoesNotNameIsNotLookedAt) {
  QpAttr attr = good(QpState::kRts, QpState::kErr);
  attr.path_mtu = 7;
  attr.timeout = attr.retry_cnt = attr.min_rnr_timer = 255;
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, kAttrState).error, 0);
}

TEST(Attributes, CurStateMustBeTheCurrentStateAndOneInWhichItCounts) {
  QpAttr attr = good(QpState::kRts, QpState::kRts);
  const std::uint32_t mask = kAttrState | kAttrCurState;
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, mask).error, 0);
  attr.cur_state = QpState::kSqd;
  EXPECT_STREQ(check_modify(QpType::kRc, QpState::kRts, attr, mask).what, "cur_state");
  attr.cur_state = QpState::kInit;
  attr.state = QpState::kInit;
  EXPECT_STREQ(check_modify(QpType::kRc, QpState::kInit, attr, mask).what, "cur_state");
}

TEST(Attributes, WithoutAStateTheQpStaysInItsOwn) {
  QpAttr attr = good(QpState::kRts, QpState::kReset);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, kAttrAccessFlags).error, 0);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRtr, attr, kAttrAccessFlags).error, EINVAL);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, kAttrState | kAttrAccessFlags).error, EINVAL);
}

TEST(Attributes, WhatTheDeviceDoesNotServeIsNotSupported) {
  QpAttr attr = good(QpState::kRtr, QpState::kRts);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRtr, attr, kRtsMask | kAttrAltPath).error, EOPNOTSUPP);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRtr, attr, kRtsMask | kAttrCap).error, EOPNOTSUPP);
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRtr, attr, kRtsMask | kAttrPathMigState).error, 0);
  attr.path_mig_state = 1;
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRtr, attr, kRtsMask | kAttrPathMigState).error, EOPNOTSUPP);
}

TEST(Attributes, UnknownStatesAndTypesHaveNoTransition) {
  QpAttr attr = good(QpState::kRts, static_cast<QpState>(200));
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, kAttrState).error, EINVAL);
  attr.state = QpState::kUnknown;
  EXPECT_EQ(check_modify(QpType::kRc, QpState::kRts, attr, kAttrState).error, EINVAL);
  attr.state = QpState::kInit;
  EXPECT_EQ(check_modify(static_cast<QpType>(8), QpState::kReset, attr, kInitMask).error, EINVAL);
}

}  // namespace
}  // namespace uroce::proto
