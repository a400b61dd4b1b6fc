#include "operation.h"

#include <array>
#include <cstddef>

namespace verbs_sequences {
namespace {

struct Row {
  Kind kind;
  const char* name;
  unsigned weight;
};

constexpr std::array<Row, static_cast<std::size_t>(Kind::kCount)> kRows{{
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

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].kind != static_cast<Kind>(i)) return false;
  }
  return true;
}
static_assert(in_order());

unsigned sum_of_weights() {
  unsigned sum = 0;
  for (const Row& row : kRows) sum += row.weight;
  return sum;
}

Kind kind_at(unsigned point) {
  std::size_t i = 0;
  while (point >= kRows[i].weight) point -= kRows[i++].weight;
  return kRows[i].kind;
}

Operation any_of(Kind kind, Random& random) {
  const std::uint64_t bits = random.next();
  return {kind,
          static_cast<std::uint8_t>(bits & 1),
          static_cast<std::uint8_t>(bits >> 8),
          static_cast<std::uint8_t>(bits >> 16),
          static_cast<std::uint8_t>(bits >> 24),
          random.next()};
}

}  // namespace

std::string name_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)].name; }

std::string text_of(const Operation& operation) {
  return name_of(operation.kind) + " side " + std::to_string(operation.side) + " (" + std::to_string(operation.a) +
         ", " + std::to_string(operation.b) + ", " + std::to_string(operation.c) + ") " +
         std::to_string(operation.choices);
}

std::vector<Operation> draw(std::uint64_t seed, unsigned count) {
  Random random(seed);
  std::vector<Operation> all;
  for (const Kind kind : {Kind::kAllocPd, Kind::kCreateChannel, Kind::kCreateCq, Kind::kCreateCq, Kind::kRegMr,
                          Kind::kRegMr, Kind::kCreateAh, Kind::kCreateSrq, Kind::kCreateQp, Kind::kCreateQp}) {
    for (std::uint8_t side = 0; side < 2; ++side) {
      Operation one = any_of(kind, random);
      one.side = side;
      all.push_back(one);
    }
  }
  const unsigned sum = sum_of_weights();
  for (unsigned i = 0; i < count; ++i) all.push_back(any_of(kind_at(random.below(sum)), random));
  return all;
}

}  // namespace verbs_sequences
