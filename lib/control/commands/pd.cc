// ALLOC_PD, DEALLOC_PD.
#include "control/commands/command.h"

namespace uroce::control::commands {

int alloc_pd(Call& call) {
  if (!call.no_body()) return EINVAL;
  Session& session = call.session;
  Charge charge = call.state.charge(session, {.pds = 1});
  if (!charge) return ENOMEM;
  auto pd = std::make_unique<PdObject>();
  pd->number = call.state.new_pd();
  if (pd->number == nullptr) return ENOMEM;
  pd->id = pd->number->id();
  pd->charge = std::move(charge);
  call.state.stall_watch().add(proto::mark_of(pd->id), session);
  call.reply.put(uroce_handle{session.pds.add(std::move(pd)), 0});
  return 0;
}

int dealloc_pd(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const PdObject* pd = call.session.pds.find(request.handle);
  if (pd == nullptr) return ENOENT;
  if (pd->users != 0) return call.in_use("PD", pd->users, "objects");
  call.state.stall_watch().remove(proto::mark_of(pd->id), call.session.id);
  call.session.pds.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
