#include "control/diagnosis/rejections.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "abi/cm.h"
#include "abi/control.h"

namespace uroce::control {
namespace {

constexpr std::string_view kCommands[] = {
    "CONNECT",           "HELLO",
    "QUERY_DEVICE",      "QUERY_PORT",
    "QUERY_GID",         "ALLOC_PD",
    "DEALLOC_PD",        "REG_MR",
    "DEREG_MR",          "CREATE_CHANNEL",
    "DESTROY_CHANNEL",   "CREATE_CQ",
    "DESTROY_CQ",        "CREATE_QP",
    "MODIFY_QP",         "QUERY_QP",
    "DESTROY_QP",        "CREATE_AH",
    "DESTROY_AH",        "ADMIN",
    "CREATE_SRQ",        "MODIFY_SRQ",
    "QUERY_SRQ",         "DESTROY_SRQ",
    "OPEN_XRCD",         "CLOSE_XRCD",
    "OPEN_QP",           "ATTACH_MCAST",
    "DETACH_MCAST",      "ALLOC_MW",
    "DEALLOC_MW",        "REREG_MR",
    "ALLOC_NULL_MR",     "ALLOC_FAST_MR",
    "RESIZE_CQ",         "MODIFY_CQ",
    "IMPORT_DEVICE",     "IMPORT_PD",
    "IMPORT_MR",         "RESOLVE_NEIGHBOUR",
    "ALLOC_DM",          "FREE_DM",
    "IMPORT_DM",         "CREATE_RSS",
    "DESTROY_RSS",       "CREATE_FLOW",
    "DESTROY_FLOW",      "CREATE_COUNTERS",
    "DESTROY_COUNTERS",  "READ_COUNTERS",
    "EXPLAIN",           "CREATE_COMP_CNTR",
    "DESTROY_COMP_CNTR", "ATTACH_COMP_CNTR",
};
static_assert(std::size(kCommands) == UROCE_CMD_END);

constexpr std::string_view kCmCommands[] = {
    "CM_OPEN_CHANNEL",  "CM_CLOSE_CHANNEL", "CM_CREATE_ID", "CM_DESTROY_ID", "CM_RESOLVE_ADDRESS",
    "CM_RESOLVE_ROUTE", "CM_LISTEN",        "CM_CONNECT",   "CM_ACCEPT",     "CM_REJECT",
    "CM_ESTABLISH",     "CM_DISCONNECT",    "CM_MIGRATE",   "CM_JOIN",       "CM_POST",
};
static_assert(std::size(kCmCommands) == UROCE_CMD_CM_END - UROCE_CMD_CM_FIRST);

}  // namespace

std::string_view command_name(std::uint32_t command) {
  if (command < std::size(kCommands)) return kCommands[command];
  const std::uint32_t cm = command - UROCE_CMD_CM_FIRST;
  return cm < std::size(kCmCommands) ? kCmCommands[cm] : "?";
}

std::string_view default_text(Rejection reason) {
  switch (reason) {
    case Rejection::malformed:
      return "the request has a wrong size, a reserved field that is not 0, or descriptors that do not belong to "
             "it; "
             "install the libraries and the daemon from the same build";
    case Rejection::unknown_command: return "this daemon does not have the command: it is older than the library";
    case Rejection::before_hello: return "the client has not introduced itself (HELLO)";
    case Rejection::bad_version: return "the library uses another layout of the shared memory than the daemon";
    case Rejection::unknown_handle: return "an object of the request does not exist in this session";
    case Rejection::bad_value: return "a value of the request is out of range or does not fit the object";
    case Rejection::no_permission: return "the process lacks the capability or the right that this needs";
    case Rejection::bad_memory: return "the memory is not mapped, or not with the access that was asked for";
    case Rejection::unsupported: return "this device does not support it";
    case Rejection::limit_reached: return "the daemon has no more memory, numbers or descriptors of this kind";
    case Rejection::in_use: return "it is in use: destroy the objects that were made from it first";
    case Rejection::unreachable: return "there is no route to the destination, or the neighbour does not answer";
    case Rejection::sessions_closed: return "the session was closed";
    case Rejection::other: return "the operating system refused it; the daemon's log may say more";
  }
  return "";
}

void Rejections::add(Refusal refusal) {
  count(refusal.reason);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (refusal.text.size() >= UROCE_MAX_REASON) refusal.text.resize(UROCE_MAX_REASON - 1);
  refusal.time_ns =
      static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  refusal.number = ++last_number_;
  kept_.push_back(std::move(refusal));
  if (kept_.size() <= kKept) return;
  std::size_t most = 0;
  auto victim = kept_.begin();
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    const auto same = [&](const Refusal& other) { return other.tenant == at->tenant; };
    // Only the oldest of each tenant is a candidate.
    if (std::any_of(kept_.begin(), at, same)) continue;
    const auto number = static_cast<std::size_t>(std::count_if(at, kept_.end(), same));
    if (number > most) most = number, victim = at;
  }
  kept_.erase(victim);
}

}  // namespace uroce::control
