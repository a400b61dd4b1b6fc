#include "operation.h"

#include <array>
#include <cstddef>

namespace verbs_sequences {
namespace {

constexpr std::array<sequences::Row<Kind>, static_cast<std::size_t>(Kind::kCount)> kRows{{
    {Kind::kAllocPd, "alloc_pd", 2},
    {Kind::kDeallocPd, "dealloc_pd", 2},
    {Kind::kRegMr, "reg_mr", 8},
    {Kind::kRegBadMr, "reg_mr, wrong", 3},
    {Kind::kRereg, "rereg_mr", 3},
    {Kind::kDeregMr, "dereg_mr", 3},
    {Kind::kCreateChannel, "create_comp_channel", 2},
    {Kind::kDestroyChannel, "destroy_comp_channel", 1},
    {Kind::kCreateCq, "create_cq", 4},
    {Kind::kCreateBadCq, "create_cq, wrong", 2},
    {Kind::kDestroyCq, "destroy_cq", 2},
    {Kind::kResizeCq, "resize_cq", 2},
    {Kind::kArm, "req_notify_cq", 10},
    {Kind::kPoll, "poll_cq", 14},
    {Kind::kTakeEvent, "get_cq_event", 10},
    {Kind::kCreateSrq, "create_srq", 2},
    {Kind::kCreateBadSrq, "create_srq, wrong", 1},
    {Kind::kDestroySrq, "destroy_srq", 1},
    {Kind::kModifySrq, "modify_srq", 3},
    {Kind::kQuerySrq, "query_srq", 2},
    {Kind::kPostSrqRecv, "post_srq_recv", 8},
    {Kind::kCreateQp, "create_qp", 8},
    {Kind::kCreateBadQp, "create_qp, wrong", 2},
    {Kind::kDestroyQp, "destroy_qp", 3},
    {Kind::kConnect, "connect", 16},
    {Kind::kModify, "modify_qp", 8},
    {Kind::kModifyBad, "modify_qp, wrong", 12},
    {Kind::kToError, "modify_qp to ERR", 2},
    {Kind::kToReset, "modify_qp to RESET", 2},
    {Kind::kQueryQp, "query_qp", 4},
    {Kind::kPostSend, "post_send", 60},
    {Kind::kPostBadSend, "post_send, wrong", 8},
    {Kind::kPostRecv, "post_recv", 40},
    {Kind::kCreateAh, "create_ah", 4},
    {Kind::kCreateBadAh, "create_ah, wrong", 3},
    {Kind::kDestroyAh, "destroy_ah", 1},
    {Kind::kAllocMw, "alloc_mw", 3},
    {Kind::kBindMw, "bind_mw", 5},
    {Kind::kDeallocMw, "dealloc_mw", 2},
    {Kind::kAttach, "attach_mcast", 2},
    {Kind::kDetach, "detach_mcast", 2},
    {Kind::kQueryPort, "query_port, gid, pkey", 2},
    {Kind::kTakeAsyncEvent, "get_async_event", 4},
}};

static_assert(sequences::in_order(kRows));

}  // namespace

std::string name_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)].name; }

std::string text_of(const Operation& operation) { return sequences::text_of(kRows, operation); }

std::vector<Operation> draw(std::uint64_t seed, unsigned count) {
  Random random(seed);
  std::vector<Operation> all;
  for (const Kind kind : {Kind::kAllocPd, Kind::kCreateChannel, Kind::kCreateCq, Kind::kCreateCq, Kind::kRegMr,
                          Kind::kRegMr, Kind::kCreateAh, Kind::kCreateSrq, Kind::kCreateQp, Kind::kCreateQp}) {
    for (std::uint8_t side = 0; side < 2; ++side) {
      Operation one = sequences::any_of(kind, random);
      one.side = side;
      all.push_back(one);
    }
  }
  for (unsigned i = 0; i < count; ++i) all.push_back(sequences::draw_one(kRows, random));
  return all;
}

}  // namespace verbs_sequences
