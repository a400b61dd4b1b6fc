// OPEN_XRCD, CLOSE_XRCD, OPEN_QP, and the life of XRC target QPs.
#include <fcntl.h>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "mapping/untrusted_fd.h"

namespace uroce::control::commands {
namespace {

/// A descriptor that was opened for access. One of open(2)'s O_PATH needs no permission on the file, so it does not
/// show that its owner may use the file.
bool opened_for_access(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_PATH) == 0;
}

int open_domain(Call& call, std::uint32_t flags, std::shared_ptr<XrcDomain>& out) {
  mapping::FileFacts info;
  const bool of_file = !call.fds.empty();
  if (of_file) {
    if (call.fds.size() != 1) return EINVAL;
    if (!opened_for_access(call.fds[0].get())) return EBADF;
    const int error = mapping::examine(call.fds[0].get(), call.session.stall_budget, info);
    if (error != 0) return error == ETIMEDOUT || error == EMFILE ? error : EINVAL;
    out = call.state.find_xrc_domain(info.device, info.inode);
  }
  if (out != nullptr) return (flags & O_EXCL) != 0 ? EINVAL : 0;
  if ((flags & O_CREAT) == 0) return EAGAIN;
  out = call.state.new_xrc_domain();
  if (!of_file) return 0;
  out->device = info.device;
  out->inode = info.inode;
  out->file = {std::move(call.fds[0]), call.session.stall_budget};
  call.state.publish_xrc_domain(out);
  return 0;
}

}  // namespace

int open_xrcd(Call& call) {
  uroce_open_xrcd_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if ((request.oflags & ~static_cast<std::uint32_t>(O_CREAT | O_EXCL)) != 0) return EINVAL;
  Session& session = call.session;
  Charge charge = call.state.charge(session, {.pds = 1, .descriptors = call.fds.size()});
  if (!charge) return ENOMEM;
  auto object = std::make_unique<XrcdObject>();
  object->charge = std::move(charge);
  if (const int error = open_domain(call, request.oflags, object->domain)) return error;
  call.reply.put(uroce_handle{session.xrcds.add(std::move(object)), 0});
  return 0;
}

int close_xrcd(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const XrcdObject* xrcd = call.session.xrcds.find(request.handle);
  if (xrcd == nullptr) return ENOENT;
  if (xrcd->users != 0) return call.in_use("XRC domain", xrcd->users, "QPs or SRQs");
  call.session.xrcds.erase(request.handle);
  return 0;
}

int open_qp(Call& call) {
  uroce_open_qp_request request;
  if (!call.read(request)) return EINVAL;
  Session& session = call.session;
  auto qp = std::make_unique<QpObject>();
  qp->type = proto::QpType::kXrcRecv;
  qp->xrcd = session.xrcds.find(request.xrcd);
  if (qp->xrcd == nullptr) return EINVAL;
  const auto& targets = qp->xrcd->domain->targets;
  const auto found = targets.find(request.qpn);
  qp->target = found != targets.end() ? found->second.lock() : nullptr;
  if (qp->target == nullptr) return EINVAL;
  // The handle would permit MODIFY_QP. Access to the domain's file shares its SRQs, not the QPs of other tenants,
  // which look as if they did not exist.
  if (!call.state.owns_qp(session.peer.tenant(), qp->target->qpn)) return EINVAL;
  qp->charge = call.state.charge(session, {.qps = 1});
  if (!qp->charge) return ENOMEM;
  call.reply.put(add_target(call.events, session, std::move(qp), request.cookie));
  return 0;
}

int make_xrc_target(ControlState& state, const Session& session, std::shared_ptr<XrcDomain> domain,
                    std::shared_ptr<XrcTarget>& out) {
  auto target = std::make_shared<XrcTarget>();
  target->responder_resources = state.responder_slots().allocate();
  if (!target->responder_resources) return ENOMEM;
  target->worker = state.choose_worker();
  const auto qpn = state.allocate_qpn(target->worker, session.peer.tenant());
  if (!qpn) return ENOMEM;
  target->qpn = *qpn;
  proto::QpCreate create;
  create.type = proto::QpType::kXrcRecv;
  create.qpn = *qpn;
  create.xrcd = domain->id;
  create.responder_resources = state.responder_slots().span(target->responder_resources);
  create.owner = kNoSession;
  create.user = session.peer.uid;
  create.share = state.share_of(session.peer.uid);
  worker_commands::CreateQp on_worker{create};
  state.worker(target->worker).call(on_worker);
  target->index = on_worker.index;
  if (on_worker.error != 0) {
    state.release_qpn(target->worker, *qpn);
    return on_worker.error;
  }
  ++state.qps_of_worker(target->worker);
  domain->targets[qpn->value] = target;
  target->domain = std::move(domain);
  out = std::move(target);
  return 0;
}

void release_xrc_target(ControlState& state, XrcTarget& target) {
  if (--target.users != 0) return;
  state.worker(target.worker).call(worker_commands::DestroyQp{target.qpn, target.index});
  state.release_qpn(target.worker, target.qpn);
  --state.qps_of_worker(target.worker);
  target.domain->targets.erase(target.qpn.value);
}

}  // namespace uroce::control::commands
