// CREATE_AH, DESTROY_AH, RESOLVE_NEIGHBOUR, and the path of an address vector.
#include <algorithm>

#include "control/commands/command.h"
#include "control/worker_commands.h"
#include "platform/clock.h"
#include "wire/frame_template.h"

namespace uroce::daemon::commands {

int resolve_path(Call& call, const uroce_av& av, wire::PathAddress& out) {
  // RoCE has no LIDs: every address vector is global (annex A17.4).
  if (av.is_global != 1 || av.reserved != 0 || av.port_num > 1) return EINVAL;
  const Port& port = call.state.port();
  const auto source = port.gids().at(av.sgid_index);
  if (!source) return EINVAL;
  wire::Address destination;
  std::ranges::copy(av.dgid, destination.bytes.begin());
  if (destination == wire::Address{} || destination.is_v4() != source->is_v4()) return EINVAL;
  const std::uint16_t vlan = port.gids().vlan(av.sgid_index);
  wire::Mac mac{};
  const NeighbourKey neighbour{destination, vlan};
  switch (call.link.resolve(neighbour, mac)) {
    case net::Resolution::kPending: call.reply.awaited = neighbour; return kParked;
    case net::Resolution::kFailed: return ETIMEDOUT;
    case net::Resolution::kNoRoute: return EHOSTUNREACH;
    case net::Resolution::kResolved: break;
  }
  out = {};
  out.source_mac = port.mac();
  out.dest_mac = mac;
  out.source = *source;
  out.dest = destination;
  if (vlan != 0)
    out.vlan = static_cast<std::uint16_t>((av.sl & 7u) << 13 | vlan);  // the service level is the 802.1Q priority
  out.traffic_class = av.traffic_class;
  out.hop_limit = av.hop_limit != 0 ? av.hop_limit : 64;
  out.flow_label = av.flow_label & wire::kFlowLabelMask;
  return 0;
}

int create_ah(Call& call) {
  uroce_create_ah_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  PdObject* pd = session.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  auto ah = std::make_unique<AhObject>();
  if (const int status = resolve_path(call, request.av, ah->path)) return status;
  ah->charge = call.state.charge(session, {.ahs = 1});
  const auto number = ah->charge ? call.state.ah_ids().allocate() : std::nullopt;
  if (!number) return ENOMEM;
  ah->path.source_port = wire::source_port(ah->path.flow_label, Qpn{*number}, Qpn{});
  ah->pd = pd;
  ah->av = request.av;
  ++pd->users;
  const wire::PathAddress path = ah->path;
  call.state.on_all_workers(worker_commands::SetAddressHandle{AhId{*number}, pd->id, &path});
  session.ahs.add_as(*number, std::move(ah));
  call.reply.put(uroce_handle{*number, 0});
  return 0;
}

int resolve_neighbour(Call& call) {
  uroce_resolve_request request;
  if (!call.read(request)) return EINVAL;
  wire::PathAddress path;
  if (const int status = resolve_path(call, request.av, path)) return status;
  uroce_resolve_response response{};
  std::ranges::copy(path.dest_mac, response.mac);
  const std::uint16_t vlan = call.state.port().gids().vlan(request.av.sgid_index);
  response.vlan = vlan != 0 ? vlan : 0xffff;
  call.reply.put(response);
  return 0;
}

namespace {

/// Datagrams stay queued while the device sends no frames: the handle is destroyed after this time in any case.
constexpr Nanos kLastUseLimit = 100 * kMillisecond;

using DatagramProgress = worker_commands::QueryDatagrams::Entry;

void find_last_uses(Call& call, AhObject& ah) {
  ah.retired_at = monotonic_now();
  std::vector<DatagramProgress> qps;
  for (const auto& [handle, qp] : call.session.qps) {
    if (qp->type == proto::QpType::kUd && qp->pd == ah.pd) qps.push_back({handle, qp->worker, qp->index, {}});
  }
  call.state.on_all_workers(worker_commands::QueryDatagrams{qps});
  for (const DatagramProgress& qp : qps) {
    if (!qp.progress.all_sent()) ah.last_uses.push_back({qp.handle, qp.progress.posted});
  }
}

void forget_what_is_sent(Call& call, AhObject& ah) {
  std::erase_if(ah.last_uses,
                [&](const AhObject::LastUse& use) { return call.session.qps.find(use.qp) == nullptr; });
  std::vector<DatagramProgress> qps;
  for (const AhObject::LastUse& use : ah.last_uses) {
    const QpObject& qp = *call.session.qps.find(use.qp);
    qps.push_back({use.qp, qp.worker, qp.index, {}});
  }
  call.state.on_all_workers(worker_commands::QueryDatagrams{qps});
  auto qp = qps.begin();
  std::erase_if(ah.last_uses, [&](const AhObject::LastUse& use) {
    const proto::SendProgress progress = (qp++)->progress;
    return progress.all_sent() || static_cast<std::int32_t>(progress.next - use.end) >= 0;
  });
}

/// Hardware copies the address when a datagram is posted, so programs (mckey) destroy the handle right after
/// posting.
bool still_needed(Call& call, AhObject& ah) {
  if (ah.retired_at == 0) {
    find_last_uses(call, ah);
  } else {
    forget_what_is_sent(call, ah);
  }
  return !ah.last_uses.empty() && monotonic_now() - ah.retired_at < kLastUseLimit;
}

}  // namespace

int destroy_ah(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  AhObject* const ah = call.session.ahs.find(request.handle);
  if (ah == nullptr) return EINVAL;
  if (still_needed(call, *ah)) return kParked;
  call.state.on_all_workers(worker_commands::SetAddressHandle{AhId{request.handle}, PdId{}, nullptr});
  call.state.ah_ids().release(request.handle);
  --ah->pd->users;
  call.session.ahs.erase(request.handle);
  return 0;
}

}  // namespace uroce::daemon::commands
