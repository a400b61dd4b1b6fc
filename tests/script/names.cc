#include "tests/script/names.h"

#include <algorithm>
#include <cerrno>

#include "abi/queue_entries.h"
#include "memory/table.h"
#include "proto/transport.h"

namespace uroce::script {
namespace {

constexpr Name kStatusNames[] = {{"SUCCESS", UROCE_WC_SUCCESS},
                                 {"LOC_LEN_ERR", UROCE_WC_LOC_LEN_ERR},
                                 {"LOC_QP_OP_ERR", UROCE_WC_LOC_QP_OP_ERR},
                                 {"LOC_PROT_ERR", UROCE_WC_LOC_PROT_ERR},
                                 {"WR_FLUSH_ERR", UROCE_WC_WR_FLUSH_ERR},
                                 {"MW_BIND_ERR", UROCE_WC_MW_BIND_ERR},
                                 {"BAD_RESP_ERR", UROCE_WC_BAD_RESP_ERR},
                                 {"REM_INV_REQ_ERR", UROCE_WC_REM_INV_REQ_ERR},
                                 {"REM_ACCESS_ERR", UROCE_WC_REM_ACCESS_ERR},
                                 {"REM_OP_ERR", UROCE_WC_REM_OP_ERR},
                                 {"RETRY_EXC_ERR", UROCE_WC_RETRY_EXC_ERR},
                                 {"RNR_RETRY_EXC_ERR", UROCE_WC_RNR_RETRY_EXC_ERR}};
constexpr Name kWcOpcodeNames[] = {{"SEND", UROCE_WC_SEND},
                                   {"RDMA_WRITE", UROCE_WC_RDMA_WRITE},
                                   {"RDMA_READ", UROCE_WC_RDMA_READ},
                                   {"COMP_SWAP", UROCE_WC_COMP_SWAP},
                                   {"FETCH_ADD", UROCE_WC_FETCH_ADD},
                                   {"BIND_MW", UROCE_WC_BIND_MW},
                                   {"LOCAL_INV", UROCE_WC_LOCAL_INV},
                                   {"FLUSH", UROCE_WC_FLUSH},
                                   {"ATOMIC_WRITE", UROCE_WC_ATOMIC_WRITE},
                                   {"REG_MR", UROCE_WC_REG_MR},
                                   {"RECV", UROCE_WC_RECV},
                                   {"RECV_RDMA_WITH_IMM", UROCE_WC_RECV_RDMA_WITH_IMM}};
constexpr Name kOperationNames[] = {{"write", UROCE_WR_RDMA_WRITE},
                                    {"write_imm", UROCE_WR_RDMA_WRITE_WITH_IMM},
                                    {"send", UROCE_WR_SEND},
                                    {"send_imm", UROCE_WR_SEND_WITH_IMM},
                                    {"send_inv", UROCE_WR_SEND_WITH_INV},
                                    {"read", UROCE_WR_RDMA_READ},
                                    {"cmp_swap", UROCE_WR_ATOMIC_CMP_AND_SWP},
                                    {"fetch_add", UROCE_WR_ATOMIC_FETCH_AND_ADD},
                                    {"local_inv", UROCE_WR_LOCAL_INV},
                                    {"bind", UROCE_WR_BIND_MW},
                                    {"flush", UROCE_WR_FLUSH},
                                    {"atomic_write", UROCE_WR_ATOMIC_WRITE},
                                    {"reg_mr", UROCE_WR_REG_MR}};
constexpr Name kSendFlagNames[] = {{"none", 0},
                                   {"fence", UROCE_SEND_FENCE},
                                   {"signaled", UROCE_SEND_SIGNALED},
                                   {"solicited", UROCE_SEND_SOLICITED}};
constexpr Name kAccessNames[] = {{"none", 0},
                                 {"local_write", memory::kLocalWrite},
                                 {"remote_write", memory::kRemoteWrite},
                                 {"remote_read", memory::kRemoteRead},
                                 {"remote_atomic", memory::kRemoteAtomic},
                                 {"mw_bind", memory::kMwBind},
                                 {"zero_based", memory::kZeroBased},
                                 {"flush_global", memory::kFlushGlobal},
                                 {"flush_persistent", memory::kFlushPersistent}};

template <class E>
constexpr std::uint64_t number(E value) {
  return static_cast<std::uint64_t>(value);
}
using proto::AsyncEvent;
using proto::QpState;
using proto::QpType;

constexpr Name kQpTypeNames[] = {{"RC", number(QpType::kRc)},
                                 {"UC", number(QpType::kUc)},
                                 {"UD", number(QpType::kUd)},
                                 {"XRC_SEND", number(QpType::kXrcSend)},
                                 {"XRC_RECV", number(QpType::kXrcRecv)}};
constexpr Name kQpStateNames[] = {{"RESET", number(QpState::kReset)}, {"INIT", number(QpState::kInit)},
                                  {"RTR", number(QpState::kRtr)},     {"RTS", number(QpState::kRts)},
                                  {"SQD", number(QpState::kSqd)},     {"SQE", number(QpState::kSqe)},
                                  {"ERR", number(QpState::kErr)}};
constexpr Name kAsyncEventNames[] = {{"QP_FATAL", number(AsyncEvent::kQpFatal)},
                                     {"QP_REQ_ERR", number(AsyncEvent::kQpRequestError)},
                                     {"QP_ACCESS_ERR", number(AsyncEvent::kQpAccessError)},
                                     {"COMM_EST", number(AsyncEvent::kCommEstablished)},
                                     {"SQ_DRAINED", number(AsyncEvent::kSqDrained)},
                                     {"CQ_ERR", number(AsyncEvent::kCqError)},
                                     {"SRQ_ERR", number(AsyncEvent::kSrqError)},
                                     {"SRQ_LIMIT_REACHED", number(AsyncEvent::kSrqLimitReached)},
                                     {"QP_LAST_WQE_REACHED", number(AsyncEvent::kQpLastWqeReached)}};
constexpr Name kErrnoNames[] = {{"0", 0}, {"EINVAL", EINVAL}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EBUSY", EBUSY}};
constexpr Name kPlacementNames[] = {{"global", 1}, {"persistent", 2}};
constexpr Name kLevelNames[] = {{"range", 0}, {"region", 1}};
constexpr Name kWindowNames[] = {{"type1", number(memory::Kind::kWindow1)},
                                 {"type2", number(memory::Kind::kWindow2)}};
constexpr Name kFlagNames[] = {{"no", 0}, {"yes", 1}, {"bad", 0}};

}  // namespace

const Names kStatuses = kStatusNames;
const Names kWcOpcodes = kWcOpcodeNames;
const Names kOperations = kOperationNames;
const Names kSendFlags = kSendFlagNames;
const Names kAccess = kAccessNames;
const Names kQpTypes = kQpTypeNames;
const Names kQpStates = kQpStateNames;
const Names kAsyncEvents = kAsyncEventNames;
const Names kErrnos = kErrnoNames;

Names names_of(std::string_view field) {
  struct Row {
    std::string_view field;
    Names names;
  };
  static const Row kRows[] = {{"status", kStatuses},
                              {"opcode", kWcOpcodes},
                              {"flags", kSendFlags},
                              {"access", kAccess},
                              {"type", kQpTypes},
                              {"state", kQpStates},
                              {"error", kErrnos},
                              {"sq_sig_all", kFlagNames},
                              {"srq", kFlagNames},
                              {"icrc", kFlagNames},
                              {"notify", kFlagNames},
                              {"inline", kFlagNames},
                              {"placement", kPlacementNames},
                              {"level", kLevelNames},
                              {"kind", kWindowNames}};
  for (const Row& row : kRows) {
    if (row.field == field) return row.names;
  }
  return {};
}

std::uint64_t named_value(const Field& field, Names names) {
  std::uint64_t value = 0;
  std::string_view rest = field.value;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    std::optional<std::uint64_t> found = number_of(part);
    for (const Name& name : names) {
      if (name.text == part) found = name.value;
    }
    if (!found) {
      throw SyntaxError("'" + std::string(part) + "' is not a value of " + field.name +
                        "; allowed: " + (names.empty() ? "a number" : list_of(names) + ", or a number"));
    }
    value |= *found;
  }
  return value;
}

std::string text_of_values(std::string title, const Output& output) {
  for (const auto& [name, value] : output.values) {
    title.append(" ").append(name).append("=").append(text_of(value, names_of(name)));
  }
  return title;
}

void compare(const Field& field, std::uint64_t expected, std::uint64_t actual, Names names) {
  const bool holds = field.relation == Relation::kEqual   ? actual == expected
                     : field.relation == Relation::kBelow ? actual < expected
                                                          : actual > expected;
  if (!holds)
    throw Mismatch("  " + field.name + ": expected " + field.value + ", actual " + text_of(actual, names));
}

}  // namespace uroce::script
