// CREATE_COMP_CNTR, DESTROY_COMP_CNTR, ATTACH_COMP_CNTR: completion counters.
#include <bit>

#include "abi/completion_counters.h"
#include "control/commands/command.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {
namespace {

/// Counts one more user of `object` for each operation.
void count_for(QpObject& qp, CompCntrObject& object, std::uint32_t operations) {
  for (std::uint32_t i = 0; i < UROCE_COUNTED_OPERATIONS; ++i) {
    if ((operations >> i & 1) != 0) qp.counters->objects[i] = &object;
  }
  object.users += static_cast<std::uint32_t>(std::popcount(operations));
}

std::uint32_t counted(const QpObject& qp) {
  std::uint32_t operations = 0;
  for (std::uint32_t i = 0; qp.counters && i < UROCE_COUNTED_OPERATIONS; ++i) {
    if (qp.counters->objects[i] != nullptr) operations |= 1u << i;
  }
  return operations;
}

}  // namespace

int create_comp_cntr(Call& call) {
  uroce_create_comp_cntr_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if (!call.within("type", request.type, UROCE_COMP_CNTR_WRS, UROCE_COMP_CNTR_BYTES)) return EOPNOTSUPP;
  Session& session = call.session;
  auto object = std::make_unique<CompCntrObject>();
  object->bytes = request.type == UROCE_COMP_CNTR_BYTES;
  object->charge = call.state.charge(session, {.cqs = 1});
  if (!object->charge) return ENOMEM;
  const auto shared = session.arena.allocate(mapping::ChunkKind::kClientWrites, sizeof(uroce_comp_cntr));
  if (!shared) return ENOMEM;
  object->shared = *shared;
  *reinterpret_cast<uroce_comp_cntr*>(shared->data) = {};
  uroce_create_comp_cntr_response response{};
  response.place = shared->place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  response.handle = session.comp_cntrs.add(std::move(object));
  call.reply.put(response);
  return 0;
}

int destroy_comp_cntr(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  const CompCntrObject* const object = session.comp_cntrs.find(request.handle);
  if (object == nullptr) return ENOENT;
  if (object->users != 0) return call.in_use("completion counter", object->users, "operations of QPs");
  session.arena.free(object->shared);
  session.comp_cntrs.erase(request.handle);
  return 0;
}

int attach_comp_cntr(Call& call) {
  uroce_attach_comp_cntr_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  QpObject* const qp = call.session.qps.find(request.qp);
  CompCntrObject* const object = call.session.comp_cntrs.find(request.counter);
  if (qp == nullptr || object == nullptr) return EINVAL;
  if (request.operations == 0) return call.refuse(EINVAL, "no operation is to be counted");
  if ((request.operations & ~UROCE_ALL_COUNTED) != 0) {
    return call.refuse(EOPNOTSUPP, "op_mask 0x%x; allowed are bits of 0x%x", request.operations, UROCE_ALL_COUNTED);
  }
  if (!object->bytes && (request.operations & UROCE_COUNTED_REMOTE_READ) != 0) {
    return call.refuse(EOPNOTSUPP, "a READ of the peer may be several requests; count its bytes");
  }
  if (qp->target) {
    return call.refuse(EOPNOTSUPP, "QP 0x%06x is an XRC target, which is not of one process", qp->qpn.value);
  }
  if ((request.operations & counted(*qp)) != 0) {
    return call.refuse(EBUSY, "operations 0x%x of QP 0x%06x have a counter", request.operations & counted(*qp),
                       qp->qpn.value);
  }
  const bool first = !qp->counters;
  if (first) qp->counters = std::make_unique<QpObject::Counters>();
  worker_commands::AttachCounter attach{qp->qpn,
                                        qp->index,
                                        qp->counters->table,
                                        request.operations,
                                        {reinterpret_cast<uroce_comp_cntr*>(object->shared.data), object->bytes}};
  call.state.worker(qp->worker).call(attach);
  if (attach.error != 0) {
    if (first) qp->counters.reset();
    return call.refuse(attach.error, "QP 0x%06x is neither in RESET nor in INIT", qp->qpn.value);
  }
  count_for(*qp, *object, request.operations);
  return 0;
}

void release_counters(const QpObject& qp) {
  if (!qp.counters) return;
  for (CompCntrObject* const object : qp.counters->objects) {
    if (object != nullptr) --object->users;
  }
}

}  // namespace uroce::control::commands
