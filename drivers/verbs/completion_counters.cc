// Completion counters (ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3)), as rdma-core 65 has them. Their
// verbs.h declares the structs that rdma-core 44 lacks; this file builds with either. A counter is memory that this
// process and the daemon's workers share, so that reading and changing it takes no command.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "abi/completion_counters.h"
#include "client/empty_polls.h"
#include "export.h"
#include "objects.h"

struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

namespace uroce::verbs {
namespace {

/// Begins with the fields of struct ibv_comp_cntr.
struct CompCntr {
  ibv_context* context;
  std::uint32_t handle;
  uroce_comp_cntr* shared;
  std::atomic<std::uint64_t> last_read;  ///< of `done`
  client::EmptyPolls unchanged;          ///< reads since it changed
};

/// Of struct ibv_comp_cntr_caps.
struct Caps {
  std::uint64_t max_value;
  std::uint32_t max_counters;
  std::uint32_t supported_qp_attach_ops;
};

/// Of struct ibv_comp_cntr_init_attr.
struct InitAttr {
  std::uint32_t comp_mask, type, flags;
};

/// Of struct ibv_qp_attach_comp_cntr_attr.
struct AttachAttr {
  std::uint32_t comp_mask, op_mask;
};

CompCntr& of(ibv_comp_cntr* counter) { return *reinterpret_cast<CompCntr*>(counter); }

/// Applies `use` to the one of the two values, as long as the daemon lives. errno.
template <class Use>
int with(ibv_comp_cntr* ibv, std::uint64_t uroce_comp_cntr::*value, Use&& use) {
  CompCntr& counter = of(ibv);
  client::Session& session = session_of(counter.context);
  if (session.lost()) return lost_error(session);
  use(std::atomic_ref(counter.shared->*value));
  return 0;
}

int set(ibv_comp_cntr* counter, std::uint64_t uroce_comp_cntr::*which, std::uint64_t value) {
  return with(counter, which, [&](auto count) { count.store(value, std::memory_order_release); });
}
int increment(ibv_comp_cntr* counter, std::uint64_t uroce_comp_cntr::*which, std::uint64_t amount) {
  return with(counter, which, [&](auto count) { count.fetch_add(amount, std::memory_order_release); });
}
int read(ibv_comp_cntr* counter, std::uint64_t uroce_comp_cntr::*which, std::uint64_t* value) {
  return with(counter, which, [&](auto count) { *value = count.load(std::memory_order_acquire); });
}

/// After a read that a program may repeat until the value is another one, as others poll a CQ.
void note_read(CompCntr& counter, std::uint64_t value) {
  client::Session& session = session_of(counter.context);
  if (counter.last_read.load(std::memory_order_relaxed) != value) {
    counter.last_read.store(value, std::memory_order_relaxed);
    counter.unchanged.end(session);
  } else {
    counter.unchanged.count();
    counter.unchanged.pause(session);
  }
}

ibv_comp_cntr* create(ibv_context* context, const InitAttr& attr) {
  if (attr.comp_mask != 0 || attr.flags != 0) return null_with(EINVAL);
  auto counter = std::make_unique<CompCntr>();
  client::Session& session = session_of(context);
  uroce_create_comp_cntr_response made{};
  const uroce_create_comp_cntr_request request{attr.type, 0};
  if (const int error = session.call_and_map(UROCE_CMD_CREATE_COMP_CNTR, request, made); error != 0) {
    return null_with(error);
  }
  counter->context = context;
  counter->handle = made.handle;
  counter->shared = static_cast<uroce_comp_cntr*>(session.at(made.place, sizeof(uroce_comp_cntr)));
  if (counter->shared == nullptr) {
    session.release(UROCE_CMD_DESTROY_COMP_CNTR, made.handle);
    return null_with(EPROTO);
  }
  return reinterpret_cast<ibv_comp_cntr*>(counter.release());
}

int query_caps(ibv_context* context, Caps& caps) {
  uroce_device_response device{};
  const int error =
      session_of(context).call(UROCE_CMD_QUERY_DEVICE, {}, std::as_writable_bytes(std::span(&device, 1)));
  if (error != 0) return error;
  // READs of the peer are counted by bytes only.
  caps = {UINT64_MAX, device.max_cq, UROCE_ALL_COUNTED & ~std::uint32_t{UROCE_COUNTED_REMOTE_READ}};
  return 0;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

UROCE_EXPORT int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* out, std::size_t bytes) {
  const Verb verb("ibv_query_comp_cntr_caps");
  Caps caps{};
  if (bytes < sizeof(caps)) return failed(EINVAL);
  if (const int error = query_caps(context, caps); error != 0) return failed(error);
  // A later version may have more fields.
  std::memset(static_cast<void*>(out), 0, bytes);
  std::memcpy(static_cast<void*>(out), &caps, sizeof(caps));
  return 0;
}

UROCE_EXPORT ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attr) {
  const Verb verb("ibv_create_comp_cntr");
  return guarded<ibv_comp_cntr*>(nullptr,
                                 [&] { return create(context, *reinterpret_cast<const InitAttr*>(attr)); });
}

UROCE_EXPORT int ibv_destroy_comp_cntr(ibv_comp_cntr* ibv) {
  const Verb verb("ibv_destroy_comp_cntr");
  CompCntr& counter = of(ibv);
  const int error = session_of(counter.context).release(UROCE_CMD_DESTROY_COMP_CNTR, counter.handle);
  if (error != 0) return failed(error);
  delete &counter;
  return 0;
}

UROCE_EXPORT int ibv_set_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value) {
  return set(counter, &uroce_comp_cntr::done, value);
}
UROCE_EXPORT int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value) {
  return set(counter, &uroce_comp_cntr::failed, value);
}
UROCE_EXPORT int ibv_inc_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount) {
  return increment(counter, &uroce_comp_cntr::done, amount);
}
UROCE_EXPORT int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount) {
  return increment(counter, &uroce_comp_cntr::failed, amount);
}
UROCE_EXPORT int ibv_read_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value) {
  const int error = read(counter, &uroce_comp_cntr::done, value);
  if (error == 0) note_read(of(counter), *value);
  return error;
}
UROCE_EXPORT int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value) {
  return read(counter, &uroce_comp_cntr::failed, value);
}

UROCE_EXPORT int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* ibv, ibv_qp_attach_comp_cntr_attr* ibv_attr) {
  const Verb verb("ibv_qp_attach_comp_cntr");
  const AttachAttr& attr = *reinterpret_cast<const AttachAttr*>(ibv_attr);
  const CompCntr& counter = of(ibv);
  if (attr.comp_mask != 0 || counter.context != qp->context) return failed(EINVAL);
  if (as_qp(qp)->table != nullptr) return failed(EOPNOTSUPP);  // an RSS QP has no queues
  const uroce_attach_comp_cntr_request request{qp->handle, counter.handle, attr.op_mask, 0};
  const int error =
      session_of(qp->context).call(UROCE_CMD_ATTACH_COMP_CNTR, std::as_bytes(std::span(&request, 1)), {});
  return error == 0 ? 0 : failed(error);
}
