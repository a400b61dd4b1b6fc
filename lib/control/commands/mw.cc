// ALLOC_MW, DEALLOC_MW. Binding is a work request, handled by the workers.
#include "control/commands/command.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {

int alloc_mw(Call& call) {
  uroce_alloc_mw_request request;
  if (!call.read(request) || !call.within("window type", request.type, 1, 2)) return EINVAL;
  Session& session = call.session;
  PdObject* pd = session.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  if (call.state.closing_pds().contains(pd->id.value)) {
    return call.refuse(EINVAL, "the session from which PD %u was imported is being closed", request.pd);
  }
  Charge charge = call.state.charge(session, {.mrs = 1});
  if (!charge) return ENOMEM;
  const memory::Kind kind = request.type == 1 ? memory::Kind::kWindow1 : memory::Kind::kWindow2;
  const auto key = call.state.memory().allocate_window(pd->id, kind);
  if (!key) return ENOMEM;
  auto mw = std::make_unique<MwObject>();
  mw->key = *key;
  mw->pd = pd;
  mw->charge = std::move(charge);
  ++pd->users;
  call.reply.put(uroce_alloc_mw_response{session.mws.add(std::move(mw)), key->value});
  return 0;
}

int dealloc_mw(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  MwObject* mw = session.mws.find(request.handle);
  if (mw == nullptr) return ENOENT;
  if (!mw->retired) call.state.memory().retire(mw->key);
  call.state.on_all_workers(worker_commands::Quiesce{});
  call.state.memory().release(mw->key);
  --mw->pd->users;
  session.mws.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
