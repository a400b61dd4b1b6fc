// CREATE_FLOW, CREATE_RSS, CREATE_COUNTERS and their counterparts: which raw packets go to which QP.
#include <algorithm>
#include <bit>

#include "control/commands/command.h"
#include "control/session/privilege.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {
namespace {

constexpr std::uint32_t kKnownFields = 2 * UROCE_RSS_DST_PORT_UDP - 1;
constexpr std::uint32_t kKnownFlags = UROCE_FLOW_DONT_TRAP | UROCE_FLOW_DROP | UROCE_FLOW_TAG | UROCE_FLOW_TO_RSS;

static_assert(sizeof(net::FrameKey) == sizeof(uroce_frame_key));
static_assert(offsetof(net::FrameKey, dst_port) == offsetof(uroce_frame_key, dst_port) &&
              offsetof(net::FrameKey, layers) == offsetof(uroce_frame_key, layers));
static_assert(std::uint32_t{UROCE_RSS_DST_PORT_UDP} == net::kRssDstPortUdp &&
              std::uint32_t{UROCE_LAYER_UDP} == net::kLayerUdp);
static_assert(UROCE_FLOW_SNIFFER == static_cast<std::uint32_t>(net::FlowType::kSniffer));

bool is_zero(const uroce_frame_key& key) {
  const uroce_frame_key zero{};
  return std::memcmp(&key, &zero, sizeof(key)) == 0;
}

net::FrameKey to_key(const uroce_frame_key& key) {
  net::FrameKey out;
  std::memcpy(&out, &key, sizeof(out));
  return out;
}

int check(const Call& call, const uroce_create_flow_request& request) {
  if (request.type > UROCE_FLOW_SNIFFER) {
    return call.refuse(EOPNOTSUPP, "flow type %u; there are NORMAL, ALL_DEFAULT, MC_DEFAULT and SNIFFER",
                       request.type);
  }
  if ((request.flags & ~kKnownFlags) != 0) {
    return call.refuse(EINVAL, "flow flags 0x%x are not known", request.flags & ~kKnownFlags);
  }
  if (!call.within("priority", request.priority, 0, UROCE_MAX_FLOW_PRIORITY)) return EINVAL;
  if (request.type == UROCE_FLOW_NORMAL) return 0;
  // A flow that takes all frames has nothing to compare, and cannot pass them on or drop them.
  constexpr std::uint32_t kOfNormal = UROCE_FLOW_DONT_TRAP | UROCE_FLOW_DROP;
  if ((request.flags & kOfNormal) == 0 && is_zero(request.value) && is_zero(request.mask)) return 0;
  return call.refuse(EINVAL, "a flow of this type takes all frames: it has no specs, and no DONT_TRAP or DROP");
}

bool find_objects(Session& session, const uroce_create_flow_request& request, FlowObject& flow) {
  if ((request.flags & UROCE_FLOW_TO_RSS) != 0) {
    flow.rss = session.rss.find(request.qp);
  } else if (QpObject* const qp = session.qps.find(request.qp); qp != nullptr) {
    if (qp->type == proto::QpType::kRawPacket) flow.qp = qp;
  }
  if (request.counters != 0) {
    flow.counters = session.counters.find(request.counters);
    if (flow.counters == nullptr) return false;
  }
  return flow.rss != nullptr || flow.qp != nullptr;
}

void count_users(const FlowObject& flow, std::uint32_t change) {
  if (flow.qp != nullptr) flow.qp->users += change;
  if (flow.rss != nullptr) flow.rss->users += change;
  if (flow.counters != nullptr) flow.counters->users += change;
}

net::Flow describe(const uroce_create_flow_request& request, const FlowObject& objects) {
  net::Flow flow;
  flow.type = static_cast<net::FlowType>(request.type);
  flow.priority = request.priority;
  flow.value = to_key(request.value);
  flow.mask = to_key(request.mask);
  flow.dont_trap = (request.flags & UROCE_FLOW_DONT_TRAP) != 0;
  flow.drop = (request.flags & UROCE_FLOW_DROP) != 0;
  if ((request.flags & UROCE_FLOW_TAG) != 0) flow.tag = request.tag;
  if (objects.qp != nullptr) flow.qp = objects.qp->index.value;
  if (objects.rss != nullptr) flow.rss = objects.rss->target;
  if (objects.counters != nullptr) flow.count = objects.counters->count;
  return flow;
}

bool find_wqs(Session& session, const uroce_create_rss_request& request, std::vector<QpObject*>& out) {
  for (std::uint32_t i = 0; i < request.count; ++i) {
    QpObject* const wq = session.qps.find(request.wq[i]);
    if (wq == nullptr || wq->type != proto::QpType::kWq) return false;
    out.push_back(wq);
  }
  return true;
}

}  // namespace

int create_rss(Call& call) {
  uroce_create_rss_request request;
  if (!call.read(request)) return EINVAL;
  if (!call.within("the number of WQs in the table", request.count, 1, UROCE_MAX_RSS_ENTRIES)) return EINVAL;
  if (!std::has_single_bit(request.count)) {
    return call.refuse(EINVAL, "a table of %u WQs; the number must be a power of two", request.count);
  }
  if ((request.fields & ~kKnownFields) != 0) {
    return call.refuse(EOPNOTSUPP, "hash fields 0x%x are not supported", request.fields & ~kKnownFields);
  }
  Session& session = call.session;
  if (!may_use_raw_packets(session)) {
    return call.refuse(EPERM, "raw packets take CAP_NET_RAW in the daemon's network namespace");
  }
  auto rss = std::make_unique<RssObject>();
  if (!find_wqs(session, request, rss->wqs)) return EINVAL;
  rss->charge = call.state.charge(session, {.qps = 1});
  if (!rss->charge) return ENOMEM;
  const auto qpn = call.state.qpns(worker::kLinkWorker).allocate();
  if (!qpn) return ENOMEM;
  rss->qpn = *qpn;
  auto target = std::make_shared<net::RssTarget>();
  for (QpObject* wq : rss->wqs) {
    target->qps.push_back(wq->index.value);
    ++wq->users;
  }
  target->fields = request.fields;
  std::ranges::copy(request.key, target->key.begin());
  rss->target = std::move(target);
  const uroce_create_rss_response response{session.rss.add(std::move(rss)), qpn->value};
  call.reply.put(response);
  return 0;
}

int destroy_rss(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  const RssObject* const rss = session.rss.find(request.handle);
  if (rss == nullptr) return ENOENT;
  if (rss->users != 0) return call.in_use("RSS table", rss->users, "flows");
  for (QpObject* wq : rss->wqs) --wq->users;
  call.state.qpns(worker::kLinkWorker).release(rss->qpn);
  session.rss.erase(request.handle);
  return 0;
}

int create_flow(Call& call) {
  uroce_create_flow_request request;
  if (!call.read(request)) return EINVAL;
  if (const int error = check(call, request)) return error;
  Session& session = call.session;
  if (call.state.port().sockets_only()) {
    return call.refuse(EOPNOTSUPP, "port %s carries no raw packets, only RoCE; use another kind of port",
                       call.state.config().port.c_str());
  }
  if (!may_use_raw_packets(session)) {
    return call.refuse(EPERM, "raw packets take CAP_NET_RAW in the daemon's network namespace");
  }
  auto flow = std::make_unique<FlowObject>();
  if (!find_objects(session, request, *flow)) {
    return call.refuse(EINVAL, "object %u is not a raw packet QP or RSS table, or counters %u do not exist",
                       request.qp, request.counters);
  }
  flow->charge = call.state.charge(session, {.flows = 1});
  if (!flow->charge) return ENOMEM;
  flow->id = call.state.new_flow();
  flow->request = request;
  worker_commands::AddFlow add{flow->id, describe(request, *flow)};
  call.state.link_worker().call(add);
  if (!add.added) return ENOMEM;
  count_users(*flow, 1);
  call.reply.put(uroce_handle{session.flows.add(std::move(flow)), 0});
  return 0;
}

int destroy_flow(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const FlowObject* const flow = call.session.flows.find(request.handle);
  if (flow == nullptr) return ENOENT;
  call.state.link_worker().call(worker_commands::RemoveFlows{std::span(&flow->id, 1)});
  count_users(*flow, ~0u);
  call.session.flows.erase(request.handle);
  return 0;
}

int create_counters(Call& call) {
  if (!call.no_body()) return EINVAL;
  auto counters = std::make_unique<CountersObject>();
  counters->charge = call.state.charge(call.session, {.flows = 1});
  if (!counters->charge) return ENOMEM;
  call.reply.put(uroce_handle{call.session.counters.add(std::move(counters)), 0});
  return 0;
}

int destroy_counters(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const CountersObject* const counters = call.session.counters.find(request.handle);
  if (counters == nullptr) return ENOENT;
  if (counters->users != 0) return call.in_use("counters object", counters->users, "flows");
  call.session.counters.erase(request.handle);
  return 0;
}

int read_counters(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const CountersObject* const counters = call.session.counters.find(request.handle);
  if (counters == nullptr) return EINVAL;
  const net::FlowCount& count = *counters->count;
  call.reply.put(uroce_read_counters_response{count.packets.load(std::memory_order_relaxed),
                                              count.bytes.load(std::memory_order_relaxed)});
  return 0;
}

}  // namespace uroce::control::commands
