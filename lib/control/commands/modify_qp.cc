// MODIFY_QP, QUERY_QP.
#include "control/commands/command.h"
#include "control/session/privilege.h"
#include "control/state/worker_commands.h"
#include "platform/log.h"
#include "wire/frame_template.h"

namespace uroce::control::commands {
namespace {

/// Of controlled Q_Keys, such as that of QP 1, which only privileged programs may use (IBTA vol. 1, 10.2.5).
constexpr std::uint32_t kControlledQkey = 0x80000000;

bool connected(proto::QpState state) {
  return state == proto::QpState::kRtr || state == proto::QpState::kRts || state == proto::QpState::kSqd;
}

template <class T>
bool narrow(std::uint32_t value, T& out) {
  out = static_cast<T>(value);
  return out == value;
}

// Values that do not fit their fields are refused here; check_modify() checks their ranges. nullptr, or the name of
// the attribute that does not fit.
const char* convert(const uroce_qp_attr& from, std::uint32_t mask, proto::QpAttr& to) {
  const auto given = [mask](proto::AttrMask bit) { return (mask & bit) != 0; };
  const char* wrong = nullptr;
  const auto check = [&](proto::AttrMask bit, bool fits) {
    if (!fits && wrong == nullptr) wrong = proto::attribute_name(bit);
  };
  const auto take = [&](proto::AttrMask bit, std::uint32_t value, auto& field) {
    if (given(bit)) check(bit, narrow(value, field));
  };
  const auto state = [&](proto::AttrMask bit, std::uint32_t value, proto::QpState& field) {
    if (!given(bit)) return;
    check(bit, value <= static_cast<std::uint32_t>(proto::QpState::kErr));
    field = static_cast<proto::QpState>(value);
  };
  state(proto::kAttrState, from.state, to.state);
  state(proto::kAttrCurState, from.cur_state, to.cur_state);
  to.sqd_notify = given(proto::kAttrSqdNotify) && from.sqd_notify != 0;
  take(proto::kAttrAccessFlags, from.access_flags, to.access);
  take(proto::kAttrPkeyIndex, from.pkey_index, to.pkey_index);
  take(proto::kAttrPort, from.port, to.port);
  take(proto::kAttrQkey, from.qkey, to.qkey);
  take(proto::kAttrTimeout, from.timeout, to.timeout);
  take(proto::kAttrRetryCnt, from.retry_cnt, to.retry_cnt);
  take(proto::kAttrRnrRetry, from.rnr_retry, to.rnr_retry);
  take(proto::kAttrMinRnrTimer, from.min_rnr_timer, to.min_rnr_timer);
  take(proto::kAttrMaxRdAtomic, from.max_rd_atomic, to.max_rd_atomic);
  take(proto::kAttrMaxDestRdAtomic, from.max_dest_rd_atomic, to.max_dest_rd_atomic);
  take(proto::kAttrRateLimit, from.rate_limit, to.rate_kbps);
  take(proto::kAttrRateLimit, from.rate_burst, to.rate_burst);
  if (given(proto::kAttrRateLimit)) check(proto::kAttrRateLimit, from.rate_limit <= UROCE_MAX_RATE_KBPS);
  to.rq_psn = Psn(from.rq_psn);
  to.sq_psn = Psn(from.sq_psn);
  to.dest_qpn = Qpn{from.dest_qpn};
  if (given(proto::kAttrDestQpn)) check(proto::kAttrDestQpn, from.dest_qpn <= Psn::kMask);
  if (given(proto::kAttrPathMtu)) {
    check(proto::kAttrPathMtu, from.path_mtu >= 1 && from.path_mtu <= 5);
    to.path_mtu = 128u << (from.path_mtu & 7);
  }
  return wrong;
}

// The attributes that the port limits.
const char* check_port(const ControlState& state, const uroce_qp_attr& attr, std::uint32_t mask) {
  if ((mask & proto::kAttrPort) != 0 && attr.port != 1) return "port_num: only 1 is allowed";
  if ((mask & proto::kAttrPkeyIndex) != 0 && attr.pkey_index != 0) return "pkey_index: only 0 is allowed";
  if ((mask & proto::kAttrPathMtu) != 0 && attr.path_mtu > state.port().port().active_mtu) {
    return "path_mtu is larger than the port's active MTU";
  }
  return nullptr;
}

// Keeps the attributes as the client set them, for QUERY_QP.
void remember(QpObject& qp, const uroce_qp_attr& from, std::uint32_t mask) {
  uroce_qp_attr& to = qp.attr();
  const auto keep = [mask](proto::AttrMask bit, auto value, auto& field) {
    if ((mask & bit) != 0) field = value;
  };
  keep(proto::kAttrPathMtu, from.path_mtu, to.path_mtu);
  keep(proto::kAttrQkey, from.qkey, to.qkey);
  keep(proto::kAttrDestQpn, from.dest_qpn, to.dest_qpn);
  keep(proto::kAttrAccessFlags, from.access_flags, to.access_flags);
  keep(proto::kAttrPkeyIndex, from.pkey_index, to.pkey_index);
  keep(proto::kAttrPort, from.port, to.port);
  keep(proto::kAttrTimeout, from.timeout, to.timeout);
  keep(proto::kAttrRetryCnt, from.retry_cnt, to.retry_cnt);
  keep(proto::kAttrRnrRetry, from.rnr_retry, to.rnr_retry);
  keep(proto::kAttrMinRnrTimer, from.min_rnr_timer, to.min_rnr_timer);
  keep(proto::kAttrMaxRdAtomic, from.max_rd_atomic, to.max_rd_atomic);
  keep(proto::kAttrMaxDestRdAtomic, from.max_dest_rd_atomic, to.max_dest_rd_atomic);
  keep(proto::kAttrAv, from.av, to.av);
}

void note_state(ControlState& state, Session& session, QpObject& qp, proto::QpState reached) {
  const bool now = connected(reached);
  if (now == qp.connected) return;
  qp.connected = now;
  session.connected_qps += now ? 1u : ~0u;
  state.note_pollers_changed();
}

int refuse(const Call& call, const QpObject& qp, int error, const char* what, const char* why = "") {
  platform::log(platform::LogLevel::kInfo, "%s: modify of QP 0x%06x refused: %s%s%s", call.session.program.c_str(),
                qp.qpn.value, what, *why != '\0' ? " " : "", why);
  return call.refuse(error, "QP 0x%06x: %s%s%s", qp.qpn.value, what, *why != '\0' ? " " : "", why);
}

/// `attr.path` is set if the mask has kAttrAv.
int apply(Call& call, const uroce_modify_qp_request& request, const proto::QpAttr& attr) {
  QpObject* const qp = call.session.qps.find(request.handle);
  if (qp == nullptr) return EINVAL;
  worker_commands::ModifyQp modify{qp->qpn, qp->index, attr, request.mask};
  call.state.worker(qp->worker).call(modify);
  if (modify.verdict.error != 0) {
    return refuse(call, *qp, modify.verdict.error, modify.verdict.what, modify.verdict.why);
  }
  remember(*qp, request.attr, request.mask);
  note_state(call.state, call.session, *qp, modify.after.state);
  release_sent_handles(call.state, call.session, *qp);  // a reset restarts the indices
  return 0;
}

int apply_with_path(Call& call, const uroce_modify_qp_request& request, proto::QpAttr attr,
                    const wire::PathAddress& path) {
  const QpObject* const qp = call.session.qps.find(request.handle);
  if (qp == nullptr) return EINVAL;
  const bool renamed = (request.mask & proto::kAttrDestQpn) != 0;
  const Qpn remote{renamed ? request.attr.dest_qpn : qp->attr().dest_qpn};
  attr.path = path;
  attr.path.source_port = wire::source_port(path.flow_label, qp->qpn, remote);
  return apply(call, request, attr);
}

}  // namespace

int modify_qp(Call& call) {
  uroce_modify_qp_request request;
  if (!call.read(request)) return EINVAL;
  Session& session = call.session;
  QpObject* qp = session.qps.find(request.handle);
  if (qp == nullptr) return EINVAL;
  if ((request.mask & proto::kAttrCap) != 0) {
    return refuse(call, *qp, EOPNOTSUPP, "cap", "cannot be changed: the queues keep their sizes");
  }
  proto::QpAttr attr;
  if (const char* wrong = convert(request.attr, request.mask, attr)) {
    return refuse(call, *qp, EINVAL, wrong, "is out of range (ibv_modify_qp(3))");
  }
  if (const char* what = check_port(call.state, request.attr, request.mask)) {
    return refuse(call, *qp, EINVAL, what);
  }
  if ((request.mask & proto::kAttrQkey) != 0 && (attr.qkey & kControlledQkey) != 0 &&
      !may_use_raw_packets(session)) {
    return refuse(call, *qp, EPERM, "a Q_Key with its highest bit set takes CAP_NET_RAW");
  }
  // UD packets take their path from address handles; check_modify() refuses a path for UD QPs.
  if ((request.mask & proto::kAttrAv) == 0 || qp->type == proto::QpType::kUd) return apply(call, request, attr);
  return with_path(call, request.attr.av, [request, attr](Call& later, const wire::PathAddress& path) {
    return apply_with_path(later, request, attr, path);
  });
}

int query_qp(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const QpObject* qp = call.session.qps.find(request.handle);
  if (qp == nullptr) return EINVAL;
  worker_commands::QueryQp query{qp->qpn, qp->index};
  call.state.worker(qp->worker).call(query);
  if (!query.found) return EINVAL;
  const proto::QpSnapshot& now = query.snapshot;
  uroce_query_qp_response response{};
  response.attr = qp->attr();
  response.attr.state = response.attr.cur_state = static_cast<std::uint32_t>(now.state);
  response.attr.rq_psn = now.attr.rq_psn.value();
  response.attr.sq_psn = now.attr.sq_psn.value();
  response.attr.rate_limit = now.attr.rate_kbps;
  response.attr.rate_burst = now.attr.rate_burst;
  response.sq_draining = now.sq_draining;
  call.reply.put(response);
  return 0;
}

}  // namespace uroce::control::commands
