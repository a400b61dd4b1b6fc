// CREATE_AH, DESTROY_AH, RESOLVE_NEIGHBOUR, and the path of an address vector.
#include <algorithm>
#include <utility>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "wire/frame_template.h"

namespace uroce::control::commands {

namespace {

/// 0, EINVAL, ETIMEDOUT or EHOSTUNREACH.
int make_path(const Port& port, const uroce_av& av, const Neighbour& neighbour, wire::PathAddress& out) {
  switch (neighbour.resolution) {
    case net::Resolution::kPending:
    case net::Resolution::kFailed: return ETIMEDOUT;
    case net::Resolution::kNoRoute: return EHOSTUNREACH;
    case net::Resolution::kResolved: break;
  }
  const auto source = port.gids().at(av.sgid_index);
  if (!source) return EINVAL;  // removed while the neighbour was being resolved
  const std::uint16_t vlan = port.gids().vlan(av.sgid_index);
  out = {};
  out.source_mac = port.mac();
  out.dest_mac = neighbour.mac;
  out.source = *source;
  std::ranges::copy(av.dgid, out.dest.bytes.begin());
  if (out.dest.is_v4() != source->is_v4()) return EINVAL;
  if (vlan != 0)
    out.vlan = static_cast<std::uint16_t>((av.sl & 7u) << 13 | vlan);  // the service level is the 802.1Q priority
  out.traffic_class = av.traffic_class;
  out.hop_limit = av.hop_limit != 0 ? av.hop_limit : 64;
  out.flow_label = av.flow_label & wire::kFlowLabelMask;
  return 0;
}

int explain_path(const Call& call, const uroce_av& av, int status) {
  if (status == EINVAL) return call.refuse(status, "the GID of sgid_index %u was removed", av.sgid_index);
  wire::Address destination;
  std::ranges::copy(av.dgid, destination.bytes.begin());
  const std::string text = address_text(destination);
  return status == ETIMEDOUT
             ? call.refuse(status, "%s does not answer ARP or neighbour discovery; is it up, and on this network?",
                           text.c_str())
             : call.refuse(status, "no route to %s: it is in none of the port's prefixes and there is no gateway",
                           text.c_str());
}

}  // namespace

int with_path(Call& call, const uroce_av& av, PathUser use) {
  // RoCE has no LIDs: every address vector is global (annex A17.4).
  if (av.is_global != 1) {
    return call.refuse(EINVAL, "is_global is %u; RoCE needs a GRH: give a GID index (many programs: -g 0)",
                       av.is_global);
  }
  if (av.reserved != 0 || !call.within("port_num", av.port_num, 1, 1)) return EINVAL;
  const net::GidTable& gids = call.state.port().gids();
  const auto source = gids.at(av.sgid_index);
  if (!source) {
    // As rdma_get_gid_attr of ib_core: past the table, or an entry that is not used.
    return call.refuse(av.sgid_index < gids.size() ? ENODATA : EINVAL,
                       "sgid_index %u names no GID of the port (`urocectl show devices`)", av.sgid_index);
  }
  wire::Address destination;
  std::ranges::copy(av.dgid, destination.bytes.begin());
  if (destination == wire::Address{}) return call.refuse(EINVAL, "the destination GID is zero");
  if (destination.is_v4() != source->is_v4()) {
    return call.refuse(EINVAL, "sgid_index %u is an %s address, the destination %s an %s address", av.sgid_index,
                       source->is_v4() ? "IPv4" : "IPv6", address_text(destination).c_str(),
                       destination.is_v4() ? "IPv4" : "IPv6");
  }
  const NeighbourKey key{destination, gids.vlan(av.sgid_index)};
  auto resume = [av, use = std::move(use)](Call& later, const Neighbour& neighbour) {
    wire::PathAddress path;
    const int status = make_path(later.state.port(), av, neighbour, path);
    return status != 0 ? explain_path(later, av, status) : use(later, path);
  };
  const Neighbour neighbour = call.link.resolve(key);
  if (neighbour.resolution != net::Resolution::kPending) return resume(call, neighbour);
  call.reply.wait = NeighbourWait{key, std::move(resume)};
  return kPending;
}

namespace {

int add_ah(Call& call, const uroce_create_ah_request& request, const wire::PathAddress& path) {
  Session& session = call.session;
  PdObject* pd = session.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  auto ah = std::make_unique<AhObject>();
  ah->path = path;
  ah->charge = call.state.charge(session, {.ahs = 1});
  const auto number = ah->charge ? call.state.ah_ids().allocate() : std::nullopt;
  if (!number) return ENOMEM;
  ah->path.source_port = wire::source_port(path.flow_label, Qpn{*number}, Qpn{});
  ah->pd = pd;
  ah->av = request.av;
  ++pd->users;
  const wire::PathAddress with_port = ah->path;
  call.state.on_all_workers(worker_commands::SetAddressHandle{AhId{*number}, pd->id, &with_port});
  session.ahs.add_as(*number, std::move(ah));
  call.reply.put(uroce_handle{*number, 0});
  return 0;
}

}  // namespace

int create_ah(Call& call) {
  uroce_create_ah_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if (call.session.pds.find(request.pd) == nullptr) return EINVAL;
  return with_path(call, request.av,
                   [request](Call& later, const wire::PathAddress& path) { return add_ah(later, request, path); });
}

int resolve_neighbour(Call& call) {
  uroce_resolve_request request;
  if (!call.read(request)) return EINVAL;
  return with_path(call, request.av, [](Call& later, const wire::PathAddress& path) {
    uroce_resolve_response response{};
    std::ranges::copy(path.dest_mac, response.mac);
    response.vlan = path.vlan ? *path.vlan & 0xfff : 0xffff;
    later.reply.put(response);
    return 0;
  });
}

namespace {

void remove_ah(ControlState& state, Session& session, std::uint32_t handle) {
  state.on_all_workers(worker_commands::SetAddressHandle{AhId{handle}, PdId{}, nullptr});
  state.ah_ids().release(handle);
  session.ahs.erase(handle);
}

void release_use(ControlState& state, Session& session, std::uint32_t handle) {
  if (--session.ahs.find(handle)->queued_uses == 0) remove_ah(state, session, handle);
}

void release_sent(ControlState& state, Session& session, QpObject& qp, const proto::SendProgress& progress) {
  auto sent = qp.queued_ahs.begin();
  for (; sent != qp.queued_ahs.end(); ++sent) {
    if (!progress.all_sent() && static_cast<std::int32_t>(progress.next - sent->end) < 0) break;
    release_use(state, session, sent->handle);
  }
  qp.queued_ahs.erase(qp.queued_ahs.begin(), sent);
}

/// Each UD QP that has datagrams queued keeps the handle, and reports when they have been sent.
void keep_for_queued(Call& call, std::uint32_t handle, AhObject& ah, const PdObject* pd) {
  std::vector<worker_commands::ReportSent::Entry> entries;
  for (const auto& [number, qp] : call.session.qps) {
    if (qp->type == proto::QpType::kUd && qp->pd == pd) entries.push_back({qp.get(), {}});
  }
  if (entries.empty()) return;
  call.state.on_all_workers(worker_commands::ReportSent{entries});
  for (const auto& [qp, progress] : entries) {
    if (progress.all_sent()) continue;
    release_sent(call.state, call.session, *qp, progress);
    qp->queued_ahs.push_back({handle, progress.posted});
    ++ah.queued_uses;
    // Each queued datagram names one handle: more need not be kept, however many a client destroys.
    if (qp->queued_ahs.size() <= progress.posted - progress.next) continue;
    release_use(call.state, call.session, qp->queued_ahs.front().handle);
    qp->queued_ahs.erase(qp->queued_ahs.begin());
  }
}

}  // namespace

void release_sent_handles(ControlState& state, Session& session, QpObject& qp) {
  if (qp.queued_ahs.empty()) return;
  worker_commands::ReportSent::Entry entry{&qp, {}};
  state.worker(qp.worker).call(worker_commands::ReportSent{std::span(&entry, 1)});
  release_sent(state, session, qp, entry.progress);
}

void forget_queued_handles(ControlState& state, Session& session, QpObject& qp) {
  for (const QpObject::QueuedAh& queued : qp.queued_ahs) release_use(state, session, queued.handle);
  qp.queued_ahs.clear();
}

// Hardware copies the address when a datagram is posted, so programs (mckey) destroy the handle right after
// posting. Here a datagram names its handle until it is sent. For the client the handle is gone at once; it
// continues to count towards the user's limit until the datagrams that were posted before have been sent.
int destroy_ah(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  AhObject* const ah = call.session.ahs.find(request.handle);
  if (ah == nullptr || ah->pd == nullptr) return ENOENT;
  PdObject* const pd = std::exchange(ah->pd, nullptr);
  --pd->users;
  keep_for_queued(call, request.handle, *ah, pd);
  if (ah->queued_uses == 0) remove_ah(call.state, call.session, request.handle);
  return 0;
}

}  // namespace uroce::control::commands
