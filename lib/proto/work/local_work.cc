#include "proto/work/local_work.h"

namespace uroce::proto {
namespace {

memory::Binding binding_of(const Qp& qp, const Wqe& wqe) {
  return {.window = Key{wqe.mw_handle},
          .new_key = Key{wqe.rkey},
          .mr = Key{wqe.bind.lkey},
          .pd = qp.common.pd,
          .qpn = qp.common.qpn,
          .address = wqe.remote_addr,
          .length = wqe.bind.length,
          .access = wqe.bind.access};
}

memory::FastRegistration registration_of(const Qp& qp, const Wqe& wqe) {
  return {.key = Key{wqe.mw_handle},
          .new_key = Key{wqe.rkey},
          .pd = qp.common.pd,
          .address = wqe.remote_addr,
          .length = wqe.bind.length,
          .access = wqe.bind.access};
}

}  // namespace

bool execute_locally(Context& context, const Qp& qp, const Wqe& wqe) {
  using memory::Verdict;
  switch (wqe.kind) {
    case Kind::kLocalInvalidate:
      return context.memory.invalidate(Key{wqe.imm_data}, qp.common.pd, qp.common.qpn) == Verdict::kOk;
    case Kind::kBind: return context.memory.bind(binding_of(qp, wqe)) == Verdict::kOk;
    case Kind::kRegister: return context.memory.register_fast(registration_of(qp, wqe)) == Verdict::kOk;
    default: return false;
  }
}

}  // namespace uroce::proto
