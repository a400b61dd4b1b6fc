// Protection domains, thread domains, and parent domains that combine the two. Objects of a parent domain with a
// thread domain take no locks: the program promises to use them from one thread at a time (ibv_alloc_td(3)).
#include <memory>
#include <span>

#include "domain.h"
#include "export.h"
#include "objects.h"

namespace uroce::verbs {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  const Verb verb("ibv_alloc_td");
  return guarded<ibv_td*>(nullptr, [&]() -> ibv_td* {
    if (attr->comp_mask != 0) return null_with(EOPNOTSUPP);
    auto td = std::make_unique<Td>();
    td->td.context = context;
    return &td.release()->td;
  });
}

int dealloc_td(ibv_td* td) {
  const Verb verb("ibv_dealloc_td");
  auto* const freed = reinterpret_cast<Td*>(td);
  if (freed->users.load() != 0) return failed(EBUSY, "objects of this domain still exist");
  delete freed;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  const Verb verb("ibv_alloc_parent_domain");
  return guarded<ibv_pd*>(nullptr, [&]() -> ibv_pd* {
    // Drivers decide for which memory they call the allocator. This one never does: queues are in memory that the
    // daemon shares.
    constexpr std::uint32_t kUnprotected = 1 << 2;  // ..._ALLOW_CC_UNPROTECTED_ALLOC (rdma-core 64): all memory is
    constexpr std::uint32_t kKnown =
        IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | kUnprotected;
    if ((attr->comp_mask & ~kKnown) != 0) return null_with(EOPNOTSUPP);
    const bool allocators = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
    if (allocators && (attr->alloc == nullptr || attr->free == nullptr)) return null_with(EINVAL);
    if (attr->pd == nullptr || as_pd(attr->pd)->parent != nullptr) return null_with(EINVAL);
    auto pd = std::make_unique<Pd>();
    pd->pd = {context, attr->pd->handle};
    pd->parent = as_pd(attr->pd);
    pd->td = reinterpret_cast<Td*>(attr->td);
    pd->parent->children.fetch_add(1);
    if (pd->td != nullptr) pd->td->users.fetch_add(1);
    return &pd.release()->pd;
  });
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_pd* alloc_pd(ibv_context* context) {
  const Verb verb("ibv_alloc_pd");
  return guarded<ibv_pd*>(nullptr, [&]() -> ibv_pd* {
    auto pd = std::make_unique<Pd>();
    uroce_handle reply{};
    const int error =
        session_of(context).call(UROCE_CMD_ALLOC_PD, {}, std::as_writable_bytes(std::span(&reply, 1)));
    if (error != 0) return null_with(error);
    pd->pd = {context, reply.handle};
    return &pd.release()->pd;
  });
}
UROCE_VERSIONS_1_0_AND_1_1(alloc_pd, ibv_alloc_pd);

UROCE_EXPORT int dealloc_pd(ibv_pd* pd) {
  const Verb verb("ibv_dealloc_pd");
  Pd* const freed = as_pd(pd);
  if (freed->children.load() != 0) return failed(EBUSY, "parent domains of this PD still exist");
  if (freed->parent != nullptr) {
    if (freed->users.load() != 0) return failed(EBUSY);
    freed->parent->children.fetch_sub(1);
    if (freed->td != nullptr) freed->td->users.fetch_sub(1);
  } else if (const int error = session_of(pd->context).release(UROCE_CMD_DEALLOC_PD, pd->handle); error != 0) {
    return failed(error);
  }
  delete freed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(dealloc_pd, ibv_dealloc_pd);
