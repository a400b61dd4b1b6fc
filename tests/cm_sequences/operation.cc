#include "operation.h"

#include <array>
#include <cstddef>

namespace cm_sequences {
namespace {

constexpr std::array<sequences::Row<Kind>, static_cast<std::size_t>(Kind::kCount)> kRows{{
    {Kind::kCreateChannel, "create_event_channel", 1},
    {Kind::kDestroyChannel, "destroy_event_channel", 1},
    {Kind::kCreateId, "create_id", 10},
    {Kind::kDestroyId, "destroy_id", 7},
    {Kind::kBind, "bind_addr", 8},
    {Kind::kListen, "listen", 8},
    {Kind::kResolveAddress, "resolve_addr", 8},
    {Kind::kResolveRoute, "resolve_route", 6},
    {Kind::kReady, "resolve_addr, resolve_route, create_qp", 20},
    {Kind::kCreateQp, "create_qp", 6},
    {Kind::kDestroyQp, "destroy_qp", 2},
    {Kind::kConnect, "connect", 24},
    {Kind::kAccept, "accept", 24},
    {Kind::kReject, "reject", 6},
    {Kind::kEstablish, "establish", 3},
    {Kind::kDisconnect, "disconnect", 5},
    {Kind::kNotify, "notify", 3},
    {Kind::kMigrate, "migrate_id", 6},
    {Kind::kSetOption, "set_option", 5},
    {Kind::kAddresses, "get_local_addr, get_peer_addr", 3},
    {Kind::kTakeEvent, "get_cm_event", 40},
    {Kind::kTakeAll, "get_cm_event of all", 12},
    {Kind::kAcknowledge, "ack_cm_event", 8},
    {Kind::kTakeExits, "get_cm_event after TIMEWAIT", 0},
}};
static_assert(sequences::in_order(kRows));

}  // namespace

std::string name_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)].name; }

std::string text_of(const Operation& operation) { return sequences::text_of(kRows, operation); }

std::vector<Operation> draw(std::uint64_t seed, unsigned count) {
  Random random(seed);
  std::vector<Operation> all;
  for (const Kind kind : {Kind::kCreateChannel, Kind::kCreateChannel, Kind::kCreateId, Kind::kCreateId,
                          Kind::kCreateId, Kind::kCreateId, Kind::kCreateId, Kind::kCreateId, Kind::kListen,
                          Kind::kListen, Kind::kReady, Kind::kReady, Kind::kConnect}) {
    all.push_back(sequences::any_of(kind, random));
  }
  for (unsigned i = 0; i < count; ++i) all.push_back(sequences::draw_one(kRows, random));
  // Takes as long as a connection stays in TIMEWAIT.
  if (seed % 40 == 7) all.push_back(sequences::any_of(Kind::kTakeExits, random));
  return all;
}

}  // namespace cm_sequences
