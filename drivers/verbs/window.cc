// Memory windows (ibv_alloc_mw(3)). Binding is a work request: post.cc and post_ex.cc.
#include <memory>

#include "export.h"
#include "objects.h"
#include "window.h"

namespace uroce::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const Verb verb("ibv_alloc_mw");
  return guarded<ibv_mw*>(nullptr, [&]() -> ibv_mw* {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return null_with(EINVAL);
    auto mw = std::make_unique<Mw>();
    const uroce_alloc_mw_request request{pd->handle, static_cast<std::uint32_t>(type)};
    uroce_alloc_mw_response reply{};
    if (const int error = session_of(pd->context).call(UROCE_CMD_ALLOC_MW, request, reply); error != 0) {
      return null_with(error);
    }
    mw->mw = {pd->context, pd, reply.rkey, reply.handle, type};
    as_pd(pd)->users.fetch_add(1);
    return &mw.release()->mw;
  });
}

int dealloc_mw(ibv_mw* mw) {
  const Verb verb("ibv_dealloc_mw");
  const int error = session_of(mw->context).release(UROCE_CMD_DEALLOC_MW, mw->handle);
  if (error != 0) return failed(error);
  as_pd(mw->pd)->users.fetch_sub(1);
  delete reinterpret_cast<Mw*>(mw);
  return 0;
}

}  // namespace uroce::verbs
