// IMPORT_DEVICE, IMPORT_PD, IMPORT_MR.
#include <sys/stat.h>

#include "engine/commands/commands.h"

namespace uroce::engine::commands {

// Whoever holds the memfd of a session's first chunk was given it by that session's process.
int import_device(Call& call) {
  struct stat info {};
  if (!call.no_body() || call.fds.size() != 1 || ::fstat(call.fds[0].get(), &info) != 0) return EINVAL;
  for (const auto& [id, session] : call.conductor.sessions()) {
    if (session.get() == &call.session || !session->greeted) continue;
    if (!session->arena.is_first_chunk(info.st_dev, info.st_ino)) continue;
    call.session.imported = id;
    return 0;
  }
  return ENOENT;
}

int import_pd(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const Session* from = call.conductor.session(call.session.imported);
  const PdObject* pd = from != nullptr ? from->pds.find(request.handle) : nullptr;
  if (pd == nullptr) return EINVAL;
  if (call.session.pds.size() >= kMaxPd) return ENOMEM;
  auto imported = std::make_unique<PdObject>();
  imported->id = pd->id;
  call.reply.put(uroce_handle{call.session.pds.add(std::move(imported)), 0});
  return 0;
}

int import_mr(Call& call) {
  uroce_import_mr_request request;
  if (!call.read(request)) return EINVAL;
  const PdObject* pd = call.session.pds.find(request.pd);
  const Session* from = call.conductor.session(call.session.imported);
  const MrObject* mr = pd != nullptr && from != nullptr ? from->mrs.find(request.mr) : nullptr;
  if (mr == nullptr || mr->pd->id != pd->id) return EINVAL;
  call.reply.put(uroce_import_mr_response{mr->key.value, mr->key.value, mr->addr, mr->length});
  return 0;
}

}  // namespace uroce::engine::commands
