#include "admin/show.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/latency.h"
#include "admin/page.h"
#include "admin/qp_names.h"
#include "admin/show_cm.h"
#include "admin/show_events.h"
#include "admin/show_flows.h"
#include "admin/show_port.h"
#include "admin/show_rejections.h"
#include "admin/show_settings.h"
#include "base/version.h"
#include "control/machine/poller_census.h"
#include "control/session/privilege.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "wire/dump.h"

namespace uroce::admin {

using control::ControlState;
using control::Session;

namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Json list_devices(const ControlState& state, Page& page) {
  return page.take_row(page.take_start()) ? show_devices(state) : Json::array();
}

Json list_sessions(const ControlState& state, Page& page) {
  Json list = Json::array();
  for (auto it = state.sessions().lower_bound(page.take_start().at); it != state.sessions().end(); ++it) {
    const auto& [id, s] = *it;
    if (!page.take_session({id, 0})) break;
    if (!s->hello_done || !page.viewer.sees(*s, 1)) continue;
    if (!page.take_row({id, 0})) break;
    list.push_back({{"session", id},
                    {"program", s->program},
                    {"pid", s->peer.pid},
                    {"uid", s->peer.uid},
                    {"qps", s->qps.size()},
                    {"cqs", s->cqs.size()},
                    {"srqs", s->srqs.size()},
                    {"mrs", s->mrs.size()},
                    {"mws", s->mws.size()},
                    {"ahs", s->ahs.size()},
                    {"pds", s->pds.size()},
                    {"shared_bytes", s->arena.total_bytes()},
                    {"mappings", s->memory.mappings()}});
  }
  return list;
}

void describe_user(const ControlState& state, uid_t user, const control::Quotas::Account& account, Json& list) {
  for (const control::Resource& resource : control::kResources) {
    const std::uint64_t used = account.usage.*resource.amount;
    if (used == 0 && account.refusals == 0) continue;
    list.push_back({{"user", user},
                    {"resource", resource.name},
                    {"used", used},
                    {"limit", state.quotas().limit(resource, account.privileged)}});
  }
  if (const auto grant = state.grants().find(user); grant != state.grants().end()) {
    const control::GrantedShare& share = grant->second;
    list.push_back({{"user", user}, {"resource", "weight"}, {"used", share.weight}, {"limit", "-"}});
    if (share.limit.kbps != 0) {
      list.push_back(
          {{"user", user}, {"resource", "rate_mbps"}, {"used", "-"}, {"limit", share.limit.kbps / 1000}});
    }
  }
  list.push_back({{"user", user}, {"resource", "refusals"}, {"used", account.refusals}, {"limit", "-"}});
}

// Users see their own amounts; privileged users see those of all users.
Json list_users(const ControlState& state, Page& page) {
  const auto& users = state.quotas().users();
  const std::uint64_t start = page.take_start().at;
  Json list = Json::array();
  if (start > UINT32_MAX) return list;
  for (auto it = users.lower_bound(static_cast<uid_t>(start)); it != users.end(); ++it) {
    const auto& [user, account] = *it;
    if (!page.take_session({user, 0})) break;
    if (user != page.viewer.user() && !page.viewer.sees_all()) continue;
    if (!page.take_row({user, 0})) break;
    const std::size_t before = list.size();
    describe_user(state, user, account, list);
    page.take_rows(list.size() - before - 1);
  }
  return list;
}

Json counters_of(const proto::QpCounters& c) {
  return {{"sent_pkts", c.sent_pkts},
          {"rcvd_pkts", c.rcvd_pkts},
          {"retransmitted_pkts", c.retransmitted_pkts},
          {"duplicate_request", c.duplicate_request},
          {"out_of_sequence", c.out_of_sequence},
          {"packet_seq_err", c.packet_seq_err},
          {"local_ack_timeout_err", c.local_ack_timeout_err},
          {"rnr_nak_retry_err", c.rnr_nak_retry_err}};
}

Json describe(const Session& session, const control::QpObject& qp, const proto::QpSnapshot& now) {
  return {{"qpn", hex(qp.qpn.value)},
          {"session", session.id},
          {"program", session.program},
          {"type", type_name(qp.type)},
          {"state", state_name(now.state)},
          {"dest_qpn", hex(now.attr.dest_qpn.value)},
          {"dest", control::address_text(now.attr.path.dest)},
          {"path_mtu", now.attr.path_mtu},
          {"sq_psn", now.attr.sq_psn.value()},
          {"rq_psn", now.attr.rq_psn.value()},
          {"outstanding", now.sq_outstanding},
          {"recv_posted", now.recv_posted},
          {"psns_in_flight", now.psns_in_flight},
          {"window_bytes", now.window_bytes},
          {"rtt_us", now.rtt / kMicrosecond},
          {"rtt_deviation_us", now.rtt_deviation / kMicrosecond},
          {"retries_left", now.retries_left},
          {"rnr_retries_left", now.rnr_retries_left},
          {"worker", qp.worker},
          {"counters", counters_of(now.counters)}};
}

/// Each worker fills the snapshots of its own QPs.
struct SnapshotQps {
  static constexpr std::string_view kName = "snapshot_qps";
  std::span<const control::QpObject* const> qps;
  std::vector<proto::QpSnapshot> now;
  void describe(worker::ArgumentText& text) const { text.add("count", qps.size()); }
  void run(worker::WorkerCore& worker) {
    for (std::size_t i = 0; i < qps.size(); ++i) {
      if (qps[i]->worker == worker.config().index) worker.transport().query(qps[i]->index, now[i]);
    }
  }
};

Json list_qps(const ControlState& state, Page& page) {
  const auto shown = page.collect(
      state.sessions(), [](const Session& s) -> auto& { return s.qps; });
  std::vector<const control::QpObject*> qps;
  for (const auto& [session, qp] : shown) qps.push_back(qp);
  SnapshotQps snapshots{qps, std::vector<proto::QpSnapshot>(qps.size())};
  if (!qps.empty()) state.on_all_workers(snapshots);
  Json list = Json::array();
  for (std::size_t i = 0; i < qps.size(); ++i) list.push_back(describe(*shown[i].first, *qps[i], snapshots.now[i]));
  return list;
}

Json list_mrs(const ControlState& state, Page& page) {
  Json list = Json::array();
  for (const auto& [session, mr] : page.collect(
           state.sessions(), [](const Session& s) -> auto& { return s.mrs; })) {
    Json row = {{"session", session->id}, {"program", session->program}, {"addr", hex(mr->addr)},
                {"length", mr->length},   {"access", hex(mr->access)},   {"indirect", mr->indirect}};
    // A user that can send packets and knows the key can access the memory.
    if (page.viewer.sees_all()) row["key"] = hex(mr->key.value);
    list.push_back(std::move(row));
  }
  return list;
}

/// Several workers may add CQEs to a CQ. It is read between two duty cycles of one of them, which is exact enough
/// to display.
struct ReadCqs {
  static constexpr std::string_view kName = "read_cqs";
  struct State {
    std::uint32_t produced = 0;
    bool failed = false;
  };
  std::span<const control::CqObject* const> cqs;
  std::array<State, Page::kRows> states;
  void describe(worker::ArgumentText& text) const { text.add("count", cqs.size()); }
  void run(worker::WorkerCore&) {
    for (std::size_t i = 0; i < cqs.size(); ++i) states[i] = {cqs[i]->cq->produced(), cqs[i]->cq->in_error()};
  }
};

Json list_cqs(const ControlState& state, Page& page) {
  const auto shown = page.collect(
      state.sessions(), [](const Session& s) -> auto& { return s.cqs; });
  std::vector<const control::CqObject*> cqs;
  for (const auto& [session, cq] : shown) cqs.push_back(cq);
  ReadCqs read{cqs, {}};
  if (!cqs.empty()) state.link_worker().call(read);
  Json list = Json::array();
  for (std::size_t i = 0; i < cqs.size(); ++i) {
    const Session& session = *shown[i].first;
    const worker::Cq& queue = *cqs[i]->cq;
    list.push_back({{"cq", cqs[i]->id.value},
                    {"session", session.id},
                    {"program", session.program},
                    {"entries", cqs[i]->entries},
                    {"produced", read.states[i].produced},
                    {"polled", queue.polled()},
                    {"armed", queue.armed()},
                    {"channel", cqs[i]->channel != nullptr},
                    {"error", read.states[i].failed}});
  }
  return list;
}

Json list_srqs(const ControlState& state, Page& page) {
  Json list = Json::array();
  for (const auto& [session, srq] : page.collect(
           state.sessions(), [](const Session& s) -> auto& { return s.srqs; })) {
    list.push_back({{"srq", srq->id.value},
                    {"session", session->id},
                    {"program", session->program},
                    {"type", srq->xrcd != nullptr ? "XRC" : "basic"},
                    {"entries", srq->entries},
                    {"posted", srq->srq->posted()},
                    {"limit", srq->srq->limit()},
                    {"qps", srq->users}});
  }
  return list;
}

// Their arguments name objects of all tenants.
Json list_worker_commands(const ControlState& state, Page& page) {
  Json list = Json::array();
  for (std::uint64_t i = page.take_start().at; i < state.worker_count(); ++i) {
    const std::vector<worker::TracedCommand> last =
        state.worker(static_cast<std::uint32_t>(i)).command_trace().last();
    if (!page.viewer.sees_all()) {
      page.viewer.hide(last.size());
      continue;
    }
    if (!page.take_row({i, 0})) break;
    page.take_rows(last.size());
    for (const worker::TracedCommand& command : last) {
      list.push_back({{"worker", i},
                      {"command", std::string(command.name)},
                      {"arguments", std::string(command.arguments.view())},
                      {"started_us", (command.started - state.started()) / kMicrosecond},
                      {"duration_us", command.duration / kMicrosecond}});
    }
  }
  return list;
}

// Their texts name programs and QPs of all tenants.
Json list_errors(const ControlState&, Page& page) {
  Json list = Json::array();
  const std::vector<platform::LoggedError> errors = platform::ErrorLog::instance().entries();
  if (!page.viewer.sees_all()) {
    page.viewer.hide(errors.size());
    return list;
  }
  for (std::uint64_t i = page.take_start().handle; i < errors.size(); ++i) {
    if (!page.take_row({0, i})) break;
    list.push_back({{"text", errors[i].text},
                    {"count", errors[i].count},
                    {"first", utc_text(errors[i].first_ns)},
                    {"last", utc_text(errors[i].last_ns)}});
  }
  return list;
}

struct Kind {
  std::string_view name;
  Json (*list)(const ControlState&, Page&);
  bool in_all = true;
};
constexpr Kind kKinds[] = {
    {"devices", list_devices},
    {"sessions", list_sessions},
    {"users", list_users},
    {"qps", list_qps},
    {"mrs", list_mrs},
    {"cqs", list_cqs},
    {"srqs", list_srqs},
    {"cm_ids", list_cm_ids},
    {"rejections", list_rejections, false},
    {"flows", list_flows},
    {"errors", list_errors},
    {"worker_commands", list_worker_commands, false},
    {"workers", list_workers, false},
    {"latency", list_latency, false},
    {"events", list_events, false},
    {"gids", list_gids, false},
    {"routes", list_routes, false},
    {"neighbours", list_neighbours, false},
    {"settings", list_settings, false},
};

}  // namespace

Json show_devices(const ControlState& state) {
  const control::Port& port = state.port();
  Json gids = Json::array();
  for (std::size_t i = 0; i < port.gids().size(); ++i) {
    const auto gid = port.gids().at(i);
    const std::uint16_t vlan = port.gids().vlan(i);
    gids.push_back(gid ? control::address_text(*gid) + (vlan != 0 ? "@vlan" + std::to_string(vlan) : "")
                       : std::string());
  }
  return Json::array({{{"name", state.config().name},
                       {"port", state.config().port},
                       {"mac", control::mac_text(port.mac())},
                       {"mtu", port.link_mtu()},
                       {"active_mtu", port.active_mtu_bytes()},
                       {"state", port.up() ? "ACTIVE" : "DOWN"},
                       {"gids", gids},
                       {"workers", state.worker_count()},
                       {"cores", control::usable_cores()},
                       {"pollers", state.workers().pollers.load(std::memory_order_relaxed)},
                       {"pollers_exceed_cores", state.workers().few_cores.load()},
                       {"uptime_s", (monotonic_now() - state.started()) / kSecond},
                       {"version", UROCE_VERSION}}});
}

Json show(const ControlState& state, const Session& caller, const std::string& what, const Json& request) {
  std::string kind;
  Cursor start;
  const Json no_cursor = {{"error", "\"from\" of show must be the \"next\" of the page before"}};
  if (!read_start(request, kind, start)) return no_cursor;
  Viewer viewer(caller, control::may_administer(caller));
  Page page(viewer, start);
  Json answer = Json::object();
  for (const Kind& each : kKinds) {
    if (what == "all" ? !each.in_all : what != each.name) continue;
    if (!kind.empty() && each.name != kind) continue;
    kind.clear();
    answer[std::string(each.name)] = each.list(state, page);
    if (!page.ended()) continue;
    if (!takes_pages(request)) return {{"error", kTakesNoPages}};
    answer["next"] = next_page(each.name, page.next());
    break;
  }
  if (answer.empty() && !kind.empty()) return no_cursor;
  if (answer.empty()) {
    return {
        {"error", "show has no \"" + what +
                      "\"; it has all, devices, sessions, users, qps, mrs, cqs, srqs, cm_ids, flows, errors, "
                      "rejections, worker_commands, workers, latency, events, gids, routes, neighbours, settings"}};
  }
  if (viewer.hidden() != 0) answer["hidden"] = viewer.hidden();
  return answer;
}

}  // namespace uroce::admin
