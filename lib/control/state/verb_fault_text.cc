// The grammar of `urocectl fault verbs`.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>

#include "abi/cm.h"
#include "abi/control.h"
#include "base/errno_name.h"
#include "base/parse_time.h"
#include "base/printable.h"
#include "control/diagnosis/rejections.h"
#include "control/session/cm_event_types.h"
#include "control/state/verb_faults.h"

namespace uroce::control {
namespace {

constexpr std::size_t kLongest = 512;
constexpr const char* kExample =
    "for example prog=nccl*,op=WRITE,nth=100,status=RETRY_EXC_ERR; see urocectl --help for the keys";

struct Name {
  std::string_view name;
  std::uint64_t value;
};

constexpr std::uint64_t bit(int opcode) { return std::uint64_t{1} << opcode; }

constexpr Name kOperations[] = {
    {"SEND", bit(UROCE_WR_SEND) | bit(UROCE_WR_SEND_WITH_IMM) | bit(UROCE_WR_SEND_WITH_INV)},
    {"WRITE", bit(UROCE_WR_RDMA_WRITE) | bit(UROCE_WR_RDMA_WRITE_WITH_IMM)},
    {"READ", bit(UROCE_WR_RDMA_READ)},
    {"ATOMIC", bit(UROCE_WR_ATOMIC_CMP_AND_SWP) | bit(UROCE_WR_ATOMIC_FETCH_AND_ADD)},
    {"ATOMIC_WRITE", bit(UROCE_WR_ATOMIC_WRITE)},
    {"FLUSH", bit(UROCE_WR_FLUSH)},
    {"LOCAL_INV", bit(UROCE_WR_LOCAL_INV)},
    {"BIND_MW", bit(UROCE_WR_BIND_MW)},
    {"REG_MR", bit(UROCE_WR_REG_MR)},
    {"TSO", bit(UROCE_WR_TSO)},
    {"RECV", proto::FaultPlan::kReceives},
};

/// ibv_wc_status, but success.
constexpr Name kStatuses[] = {
    {"LOC_LEN_ERR", UROCE_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", UROCE_WC_LOC_QP_OP_ERR},
    {"LOC_EEC_OP_ERR", UROCE_WC_LOC_EEC_OP_ERR},
    {"LOC_PROT_ERR", UROCE_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", UROCE_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", UROCE_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", UROCE_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", UROCE_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", UROCE_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", UROCE_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", UROCE_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", UROCE_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", UROCE_WC_RNR_RETRY_EXC_ERR},
    {"LOC_RDD_VIOL_ERR", UROCE_WC_LOC_RDD_VIOL_ERR},
    {"REM_INV_RD_REQ_ERR", UROCE_WC_REM_INV_RD_REQ_ERR},
    {"REM_ABORT_ERR", UROCE_WC_REM_ABORT_ERR},
    {"INV_EECN_ERR", UROCE_WC_INV_EECN_ERR},
    {"INV_EEC_STATE_ERR", UROCE_WC_INV_EEC_STATE_ERR},
    {"FATAL_ERR", UROCE_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", UROCE_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", UROCE_WC_GENERAL_ERR},
    {"TM_ERR", UROCE_WC_TM_ERR},
    {"TM_RNDV_INCOMPLETE", UROCE_WC_TM_RNDV_INCOMPLETE},
};

constexpr std::uint64_t number(proto::AsyncEvent event) { return static_cast<std::uint64_t>(event); }

/// ibv_event_type.
constexpr Name kEvents[] = {
    {"CQ_ERR", number(proto::AsyncEvent::kCqError)},
    {"QP_FATAL", number(proto::AsyncEvent::kQpFatal)},
    {"QP_REQ_ERR", number(proto::AsyncEvent::kQpRequestError)},
    {"QP_ACCESS_ERR", number(proto::AsyncEvent::kQpAccessError)},
    {"COMM_EST", number(proto::AsyncEvent::kCommEstablished)},
    {"SQ_DRAINED", number(proto::AsyncEvent::kSqDrained)},
    {"PATH_MIG", number(proto::AsyncEvent::kPathMigrated)},
    {"PATH_MIG_ERR", number(proto::AsyncEvent::kPathMigrationError)},
    {"DEVICE_FATAL", number(proto::AsyncEvent::kDeviceFatal)},
    {"PORT_ACTIVE", number(proto::AsyncEvent::kPortActive)},
    {"PORT_ERR", number(proto::AsyncEvent::kPortError)},
    {"LID_CHANGE", number(proto::AsyncEvent::kLidChange)},
    {"PKEY_CHANGE", number(proto::AsyncEvent::kPkeyChange)},
    {"SM_CHANGE", number(proto::AsyncEvent::kSmChange)},
    {"SRQ_ERR", number(proto::AsyncEvent::kSrqError)},
    {"SRQ_LIMIT_REACHED", number(proto::AsyncEvent::kSrqLimitReached)},
    {"QP_LAST_WQE_REACHED", number(proto::AsyncEvent::kQpLastWqeReached)},
    {"CLIENT_REREGISTER", number(proto::AsyncEvent::kClientReregister)},
    {"GID_CHANGE", number(proto::AsyncEvent::kGidChange)},
    {"WQ_FATAL", number(proto::AsyncEvent::kWqFatal)},
};

/// The events of connection management that may take the place of a call.
struct CmFault {
  std::string_view name;
  std::uint64_t value;                 ///< CmEventType
  int status;                          ///< unless the rule has another one
  std::array<std::uint32_t, 5> calls;  ///< uroce_cm_command, the rest 0
};

constexpr std::array<std::uint32_t, 5> kConnecting = {UROCE_CMD_CM_CONNECT, UROCE_CMD_CM_ACCEPT};
constexpr std::array<std::uint32_t, 5> kWithId = {UROCE_CMD_CM_RESOLVE_ADDRESS, UROCE_CMD_CM_RESOLVE_ROUTE,
                                                  UROCE_CMD_CM_CONNECT, UROCE_CMD_CM_ACCEPT, UROCE_CMD_CM_JOIN};
constexpr CmFault kCmEvents[] = {
    {"ADDR_ERROR", kAddrError, -ETIMEDOUT, {UROCE_CMD_CM_RESOLVE_ADDRESS}},
    {"ROUTE_ERROR", kRouteError, -ETIMEDOUT, {UROCE_CMD_CM_RESOLVE_ROUTE}},
    {"CONNECT_ERROR", kConnectError, -EINVAL, kConnecting},
    {"UNREACHABLE", kUnreachable, -ETIMEDOUT, kConnecting},
    {"REJECTED", kRejected, 28, kConnecting},  // "consumer defined": what rdma_reject sends
    {"DEVICE_REMOVAL", kDeviceRemoval, 0, kWithId},
    {"MULTICAST_ERROR", kMulticastError, -ENETUNREACH, {UROCE_CMD_CM_JOIN}},
    {"ADDR_CHANGE", kAddrChange, 0, kWithId},
};

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return out;
}

/// Of a name, as in verbs.h with or without the prefix, in any case.
template <class Row, std::size_t kNames>
const Row* find(const Row (&names)[kNames], std::string_view text, std::string_view prefix) {
  const std::string wanted = upper(text);
  const std::size_t skip = wanted.starts_with(prefix) ? prefix.size() : 0;
  const auto* const found = std::ranges::find(names, std::string_view(wanted).substr(skip), &Row::name);
  return found != std::end(names) ? found : nullptr;
}

template <class Row, std::size_t kNames>
std::string list(const Row (&names)[kNames]) {
  std::string all;
  for (const Row& each : names) all += (all.empty() ? "" : ", ") + std::string(each.name);
  return all;
}

/// Decimal, or hexadecimal after 0x.
bool read(std::string_view text, std::uint64_t least, std::uint64_t most, std::uint64_t& out) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, hex ? 16 : 10);
  return error == std::errc{} && end == text.data() + text.size() && out >= least && out <= most;
}

bool read_address(const std::string& text, wire::Address& out) {
  if (::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1) return true;
  std::copy(wire::Address::kIpv4Prefix.begin(), wire::Address::kIpv4Prefix.end(), out.bytes.begin());
  return ::inet_pton(AF_INET, text.c_str(), out.bytes.data() + wire::Address::kIpv4Prefix.size()) == 1;
}

/// uroce_command or uroce_cm_command of a client; 0: none that a rule may refuse.
std::uint32_t command_of(std::string_view text) {
  const std::string wanted = upper(text);
  const auto search = [&](std::uint32_t first, std::uint32_t end) {
    while (first != end && command_name(first) != wanted) ++first;
    return first != end ? first : 0;
  };
  const std::uint32_t found = search(UROCE_CMD_HELLO + 1, UROCE_CMD_END);
  if (found == UROCE_CMD_ADMIN || found == UROCE_CMD_EXPLAIN) return 0;
  return found != 0 ? found : search(UROCE_CMD_CM_FIRST, UROCE_CMD_CM_END);
}

/// Of a name, or of the number itself; 0: none.
int error_of(std::string_view text) {
  constexpr std::uint64_t kLastErrno = 4095;
  std::uint64_t number = 0;
  if (read(text, 1, kLastErrno, number)) return static_cast<int>(number);
  const std::string wanted = upper(text);
  for (int error = 1; error < 256; ++error) {
    if (const char* const name = errno_name(error); name != nullptr && wanted == name) return error;
  }
  return 0;
}

/// Reads the pairs of one rule into a VerbFault.
class Reader {
  static constexpr Nanos kSwapWait = 10 * kMillisecond;

 public:
  explicit Reader(VerbFault& out) : out_(out), plan_(out.plan) {}

  /// Empty: done. Else what is allowed.
  std::string set(std::string_view key, std::string_view value) {
    if (!keys_.insert(std::string(key)).second) return "given once";
    constexpr std::uint64_t kAny = ~std::uint64_t{0};
    std::uint64_t number = 0;
    if (key == "prog") {
      out_.program = value;
      return value.empty() ? "the name of a program, or a pattern such as nccl*" : "";
    }
    if (key == "pid") return read_into(value, 1, INT32_MAX, out_.pid) ? "" : "the number of a process";
    if (key == "user") return read_into(value, 0, ~uid_t{0}, out_.user) ? "" : "the number of a user, as of id -u";
    if (key == "qpn") {
      if (!read(value, 1, 0xffffff, number)) return kQpn;
      out_.qpn = Qpn{static_cast<std::uint32_t>(number)};
      return {};
    }
    if (key == "peer") return set_peer(std::string(value));
    if (key == "op") return set_operations(value);
    if (key == "nth") return read(value, 1, kAny, plan_.nth) ? "" : kCount;
    if (key == "every") return read(value, 1, kAny, plan_.every) ? "" : kCount;
    if (key == "count") return read(value, 1, kAny, plan_.most) ? "" : kCount;
    if (key == "seed") return read(value, 0, kAny, plan_.seed) ? "" : "a whole number";
    if (key == "probability") return set_probability(value);
    return set_effect(key, value);
  }

  /// What is missing, or cannot be combined. Empty: nothing.
  std::string check() {
    if (std::string problem = has("call") ? check_call() : check_effect(); !problem.empty()) return problem;
    if (has("nth") && has("every")) return "nth= and every= exclude each other";
    if (has("seed") && !has("probability")) return "seed= needs probability=";
    if (has("nth") && !has("count")) plan_.most = 1;
    if (plan_.fatal && plan_.failure == 0) plan_.failure = proto::injected_failure(UROCE_WC_WR_FLUSH_ERR);
    return {};
  }

 private:
  static constexpr const char* kQpn = "a QPN from 1 to 0xffffff, as of urocectl show qps";
  static constexpr const char* kCount = "a whole number from 1 on";

  bool has(const char* key) const { return keys_.contains(key); }

  template <class T>
  static bool read_into(std::string_view text, std::uint64_t least, std::uint64_t most, std::optional<T>& out) {
    std::uint64_t number = 0;
    if (!read(text, least, most, number)) return false;
    out = static_cast<T>(number);
    return true;
  }

  std::string set_peer(const std::string& value) {
    wire::Address address{};
    std::uint64_t number = 0;
    if (read(value, 1, 0xffffff, number)) {
      plan_.peer = Qpn{static_cast<std::uint32_t>(number)};
    } else if (read_address(value, address)) {
      plan_.peer_address = address;
    } else {
      return "the QPN or the address of the peer of a connected QP, such as 0x12 or 192.0.2.1";
    }
    return {};
  }

  std::string set_operations(std::string_view value) {
    plan_.operations = 0;
    for (;;) {
      const std::size_t at = std::min(value.find('|'), value.size());
      const Name* const name = find(kOperations, value.substr(0, at), "");
      if (name == nullptr) return "one of " + list(kOperations) + ", or several such as SEND|WRITE";
      plan_.operations |= name->value;
      if (at == value.size()) return {};
      value.remove_prefix(at + 1);
    }
  }

  std::string set_probability(std::string_view value) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), plan_.probability);
    const bool whole = error == std::errc{} && end == value.data() + value.size();
    return whole && plan_.probability > 0 && plan_.probability <= 1 ? "" : "a probability above 0, at most 1";
  }

  std::string set_effect(std::string_view key, std::string_view value) {
    if (key == "status") {
      const Name* const name = find(kStatuses, value, "IBV_WC_");
      if (name == nullptr) return "one of " + list(kStatuses);
      plan_.failure = proto::injected_failure(static_cast<std::uint8_t>(name->value));
      return {};
    }
    if (key == "event") {
      const Name* const name = find(kEvents, value, "IBV_EVENT_");
      if (name == nullptr) return "one of " + list(kEvents);
      plan_.event = static_cast<proto::AsyncEvent>(name->value);
      return {};
    }
    if (key == "qp") {
      plan_.fatal = true;
      return value == "error" ? "" : "error";
    }
    if (key == "completion") return set_completion(value);
    if (key == "answer") {
      plan_.hides = true;
      return upper(value) == "RNR_NAK" ? "" : "RNR_NAK";
    }
    if (key == "cm") {
      const CmFault* const name = find(kCmEvents, value, "RDMA_CM_EVENT_");
      if (name == nullptr) return "one of " + list(kCmEvents);
      out_.cm = static_cast<std::uint32_t>(name->value);
      return {};
    }
    if (key == "cm_status") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out_.error);
      const bool whole = error == std::errc{} && end == value.data() + value.size();
      return whole && out_.error >= -4095 && out_.error <= 0xffff
                 ? ""
                 : "an error number such as -110, or a reason such as 28";
    }
    if (key == "call") {
      out_.call = command_of(value);
      return out_.call != 0 ? "" : "a control command such as create_qp, reg_mr, modify_qp or cm_connect";
    }
    if (key == "errno") {
      out_.error = error_of(value);
      return out_.error != 0 ? "" : "an error number, or the name of one such as ENOMEM, EINVAL or EAGAIN";
    }
    return "one of prog, pid, user, qpn, peer, op, nth, every, count, probability, seed, status, event, qp, "
           "completion, answer, call, errno, cm, cm_status";
  }

  std::string set_completion(std::string_view value) {
    using Kind = proto::CompletionFault::Kind;
    constexpr std::string_view kLate = "late:";
    proto::CompletionFault& fault = plan_.completion;
    if (value == "lost") {
      fault.kind = Kind::kLost;
      return {};
    }
    if (value == "swapped") {
      fault = {Kind::kSwapped, kSwapWait};
      return {};
    }
    fault.kind = Kind::kLate;
    const bool late =
        value.starts_with(kLate) && base::parse_time(value.substr(kLate.size()), fault.delay) && fault.delay != 0;
    return late ? "" : "lost, swapped, or late: with a time of at most 10s, such as late:50ms";
  }

  /// Of a rule for work requests.
  std::string check_effect() {
    if (has("errno") || has("cm") || has("cm_status")) {
      return "errno=, cm= and cm_status= need call=, such as call=create_qp,errno=ENOMEM";
    }
    const int ends = (has("status") || has("qp") ? 1 : 0) + (has("completion") ? 1 : 0) + (has("answer") ? 1 : 0);
    if (ends == 0 && !has("event")) {
      return "a rule needs an effect: status=, event=, qp=error, completion=, answer=, or call= with errno= or cm=";
    }
    if (ends > 1) return "a work request ends in one way: status= and qp=error, completion= or answer=";
    if (has("answer") && plan_.operations != proto::FaultPlan::kReceives) {
      return "answer= is for receives, and needs op=RECV";
    }
    return {};
  }

  /// Of a rule for control commands.
  std::string check_call() {
    const bool effect = has("status") || has("event") || has("qp") || has("completion") || has("answer");
    if (has("errno") == has("cm")) {
      return "call= takes errno=, such as call=create_qp,errno=ENOMEM, or cm=, such as "
             "call=cm_connect,cm=REJECTED";
    }
    if (effect || has("op") || has("qpn") || has("peer")) {
      return "a rule with call= is for control commands: it has no op=, qpn=, peer=, status=, event=, qp=, "
             "completion= and answer=";
    }
    if (!has("cm")) return has("cm_status") ? "cm_status= needs cm=" : "";
    const CmFault& fault = *std::ranges::find(kCmEvents, *out_.cm, &CmFault::value);
    if (std::ranges::find(fault.calls, out_.call) == std::end(fault.calls)) {
      return "no such event follows that call: cm=ADDR_ERROR follows cm_resolve_address, ROUTE_ERROR "
             "cm_resolve_route, MULTICAST_ERROR cm_join, CONNECT_ERROR, UNREACHABLE and REJECTED cm_connect or "
             "cm_accept, DEVICE_REMOVAL and ADDR_CHANGE any of them";
    }
    if (!has("cm_status")) out_.error = fault.status;
    return {};
  }

  VerbFault& out_;
  proto::FaultPlan& plan_;
  std::set<std::string, std::less<>> keys_;
};

}  // namespace

std::string_view status_name(std::uint32_t status) {
  const auto* const found = std::ranges::find(kStatuses, status, &Name::value);
  return found != std::end(kStatuses) ? found->name : "an unknown status";
}

std::string_view event_name(proto::AsyncEvent event) {
  const auto* const found = std::ranges::find(kEvents, number(event), &Name::value);
  return found != std::end(kEvents) ? found->name : "an unknown event";
}

std::string VerbFault::parse(std::string_view text, VerbFault& out) {
  VerbFault fault;
  fault.text = base::printable(std::string(text));
  if (text.empty()) return std::string("no rule: give one, ") + kExample;
  if (text.size() > kLongest)
    return "the rule is longer than " + std::to_string(kLongest) + " characters; shorten it";
  Reader reader(fault);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string allowed = reader.set(part.substr(0, equals), part.substr(std::min(equals + 1, part.size())));
    if (!allowed.empty()) {
      return "fault rule \"" + base::printable(std::string(part)) + "\": it must be " + allowed + "; " + kExample;
    }
  }
  if (const std::string problem = reader.check(); !problem.empty()) {
    return "fault rule \"" + fault.text + "\": " + problem + "; " + kExample;
  }
  out = std::move(fault);
  return {};
}

}  // namespace uroce::control
