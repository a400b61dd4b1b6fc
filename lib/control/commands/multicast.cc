// ATTACH_MCAST, DETACH_MCAST.
#include <algorithm>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {
namespace {

struct Attachment {
  QpObject* qp = nullptr;
  wire::Address group;
};

int read(Call& call, Attachment& out) {
  uroce_mcast_request request;
  if (!call.read(request)) return EINVAL;
  std::ranges::copy(request.gid, out.group.bytes.begin());
  out.qp = call.session.qps.find(request.qp);
  if (out.qp == nullptr) return EINVAL;
  if (out.qp->type != proto::QpType::kUd) {
    return call.refuse(EINVAL, "QP 0x%06x is not a UD QP", out.qp->qpn.value);
  }
  if (!out.group.is_multicast()) {
    return call.refuse(EINVAL, "%s is not a multicast address", address_text(out.group).c_str());
  }
  return 0;
}

}  // namespace

int attach_mcast(Call& call) {
  Attachment a;
  if (const int error = read(call, a)) return error;
  if (call.state.port().sockets_only()) {
    return call.refuse(EOPNOTSUPP, "port %s receives no multicast packets; use another kind of port",
                       call.state.config().port.c_str());
  }
  auto& groups = a.qp->groups;
  if (std::ranges::find(groups, a.group, &QpObject::Group::address) != groups.end()) return 0;
  if (groups.size() >= kMaxGroupsOfQp) {
    return call.refuse(ENOMEM, "QP 0x%06x is attached to %zu groups, the most that a QP may have", a.qp->qpn.value,
                       groups.size());
  }
  Charge charge = call.state.charge(call.session, {.attachments = 1});
  if (!charge || !call.link.join_group(call.session.peer.uid, a.group)) return ENOMEM;
  worker_commands::AttachMulticast attach{a.qp->qpn, a.qp->index, a.group};
  call.state.worker(a.qp->worker).call(attach);
  if (attach.error != 0) {
    call.link.leave_group(call.session.peer.uid, a.group);
    return attach.error;
  }
  groups.push_back({a.group, std::move(charge)});
  return 0;
}

int detach_mcast(Call& call) {
  Attachment a;
  if (const int error = read(call, a)) return error;
  const auto is_it = [&](const QpObject::Group& group) { return group.address == a.group; };
  if (std::erase_if(a.qp->groups, is_it) == 0) {
    return call.refuse(EINVAL, "QP 0x%06x is not attached to %s", a.qp->qpn.value, address_text(a.group).c_str());
  }
  call.state.worker(a.qp->worker).call(worker_commands::DetachMulticast{a.qp->qpn, a.qp->index, a.group});
  call.link.leave_group(call.session.peer.uid, a.group);
  return 0;
}

}  // namespace uroce::control::commands
