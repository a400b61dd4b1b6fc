// Sharing a device, its PDs, MRs and device memory with another process (ibv_import_device(3)) through the
// descriptor in ibv_context.cmd_fd.
#include <memory>
#include <span>

#include "export.h"
#include "memory_kinds.h"
#include "memory_region.h"
#include "objects.h"

using namespace uroce;
using namespace uroce::verbs;

// The descriptor does not identify its daemon, so all are tried.
UROCE_EXPORT ibv_context* ibv_import_device(int fd) {
  const Verb verb("ibv_import_device");
  return guarded<ibv_context*>(nullptr, [&]() -> ibv_context* {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    ibv_context* found = nullptr;
    int error = ENOENT;
    for (int i = 0; i < count && found == nullptr; ++i) {
      ibv_context* const tried = ibv_open_device(list[i]);
      if (tried == nullptr) continue;
      error = session_of(tried).call(UROCE_CMD_IMPORT_DEVICE, {}, {}, std::span(&fd, 1));
      if (error == 0) {
        found = tried;
      } else {
        ibv_close_device(tried);
      }
    }
    ibv_free_device_list(list);
    if (found == nullptr) return null_with(error);
    return found;
  });
}

UROCE_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  const Verb verb("ibv_import_pd");
  return guarded<ibv_pd*>(nullptr, [&]() -> ibv_pd* {
    auto pd = std::make_unique<Pd>();
    const uroce_handle request{handle, 0};
    uroce_handle reply{};
    if (const int error = session_of(context).call(UROCE_CMD_IMPORT_PD, request, reply); error != 0) {
      return null_with(error);
    }
    pd->pd = {context, reply.handle};
    return &pd.release()->pd;
  });
}

UROCE_EXPORT void ibv_unimport_pd(ibv_pd* pd) { ibv_dealloc_pd(pd); }

UROCE_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  const Verb verb("ibv_import_mr");
  return guarded<ibv_mr*>(nullptr, [&]() -> ibv_mr* {
    auto mr = std::make_unique<Mr>();
    const uroce_import_mr_request request{pd->handle, handle};
    uroce_import_mr_response reply{};
    if (const int error = session_of(pd->context).call(UROCE_CMD_IMPORT_MR, request, reply); error != 0) {
      return null_with(error);
    }
    mr->imported = true;
    // The address belongs to the process that registered the region.
    return finish_mr(std::move(mr), pd, nullptr, reply.length, {handle, reply.lkey, reply.rkey, 0});
  });
}

UROCE_EXPORT void ibv_unimport_mr(ibv_mr* mr) { ibv_dereg_mr(mr); }

UROCE_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  const Verb verb("ibv_import_dm");
  return import_dm(context, handle);
}

UROCE_EXPORT void ibv_unimport_dm(ibv_dm* dm) { free_dm(dm); }
