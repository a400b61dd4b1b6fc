#include "admin/query.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "admin/metrics.h"
#include "admin/qp_names.h"
#include "admin/show_cm.h"
#include "admin/show_flows.h"
#include "admin/show_rejections.h"
#include "admin/viewer.h"
#include "base/printable.h"
#include "control/poller_census.h"
#include "control/port_counters.h"
#include "control/privilege.h"
#include "mapping/untrusted_fd.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "wire/dump.h"

namespace uroce::daemon {
namespace {

using Json = nlohmann::ordered_json;

Json error(const std::string& text) { return {{"error", text}}; }

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Json show_devices(const ControlState& state) {
  const Port& port = state.port();
  Json gids = Json::array();
  for (std::size_t i = 0; i < port.gids().size(); ++i) {
    const auto gid = port.gids().at(i);
    const std::uint16_t vlan = port.gids().vlan(i);
    gids.push_back(gid ? address_text(*gid) + (vlan != 0 ? "@vlan" + std::to_string(vlan) : "") : std::string());
  }
  char mac[18];
  const wire::Mac& m = port.mac();
  std::snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
  return Json::array({{{"name", state.config().name},
                       {"port", state.config().port},
                       {"mac", mac},
                       {"mtu", port.link_mtu()},
                       {"active_mtu", port.active_mtu_bytes()},
                       {"state", port.up() ? "ACTIVE" : "DOWN"},
                       {"gids", gids},
                       {"workers", state.worker_count()},
                       {"cores", usable_cores()},
                       {"pollers_exceed_cores", state.workers().few_cores.load()},
                       {"uptime_s", (monotonic_now() - state.started()) / kSecond}}});
}

Json show_sessions(const ControlState& state, Viewer& viewer) {
  Json list = Json::array();
  for (const auto& [id, s] : state.sessions()) {
    if (!s->hello_done || !viewer.sees(*s, 1)) continue;
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

// Users see their own amounts; privileged users see those of all users.
Json show_users(const ControlState& state, const Viewer& viewer) {
  const Quotas& quotas = state.quotas();
  Json list = Json::array();
  for (const auto& [user, account] : quotas.users()) {
    if (user != viewer.user() && !viewer.sees_all()) continue;
    for (const Resource& resource : kResources) {
      const std::uint64_t used = account.usage.*resource.amount;
      if (used == 0 && account.refusals == 0) continue;
      list.push_back({{"user", user},
                      {"resource", resource.name},
                      {"used", used},
                      {"limit", quotas.limit(resource, account.privileged)}});
    }
    if (const auto grant = state.grants().find(user); grant != state.grants().end()) {
      const GrantedShare& share = grant->second;
      list.push_back({{"user", user}, {"resource", "weight"}, {"used", share.weight}, {"limit", "-"}});
      if (share.limit.kbps != 0) {
        list.push_back(
            {{"user", user}, {"resource", "rate_mbps"}, {"used", "-"}, {"limit", share.limit.kbps / 1000}});
      }
    }
    list.push_back({{"user", user}, {"resource", "refusals"}, {"used", account.refusals}, {"limit", "-"}});
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

Json describe(const Session& session, const QpObject& qp, const proto::QpSnapshot& now) {
  return {{"qpn", hex(qp.qpn.value)},
          {"session", session.id},
          {"program", session.program},
          {"type", type_name(qp.type)},
          {"state", state_name(now.state)},
          {"dest_qpn", hex(now.attr.dest_qpn.value)},
          {"dest", address_text(now.attr.path.dest)},
          {"path_mtu", now.attr.path_mtu},
          {"sq_psn", now.attr.sq_psn.value()},
          {"rq_psn", now.attr.rq_psn.value()},
          {"outstanding", now.sq_outstanding},
          {"psns_in_flight", now.psns_in_flight},
          {"window_bytes", now.window_bytes},
          {"retries_left", now.retries_left},
          {"rnr_retries_left", now.rnr_retries_left},
          {"worker", qp.worker},
          {"counters", counters_of(now.counters)}};
}

/// Each worker fills the snapshots of its own QPs.
struct SnapshotQps {
  static constexpr std::string_view kName = "snapshot_qps";
  std::span<const QpObject* const> qps;
  std::vector<proto::QpSnapshot> now;
  void describe(ArgumentText& text) const { text.add("count", qps.size()); }
  void run(WorkerCore& worker) {
    for (std::size_t i = 0; i < qps.size(); ++i) {
      if (qps[i]->worker == worker.config().index) worker.transport().query(qps[i]->index, now[i]);
    }
  }
};

Json show_qps(const ControlState& state, Viewer& viewer) {
  Json list = Json::array();
  for (const auto& [id, session] : state.sessions()) {
    if (!viewer.sees(*session, session->qps.size())) continue;
    std::vector<const QpObject*> qps;
    for (const auto& [handle, qp] : session->qps) qps.push_back(qp.get());
    SnapshotQps snapshots{qps, std::vector<proto::QpSnapshot>(qps.size())};
    state.on_all_workers(snapshots);
    for (std::size_t i = 0; i < qps.size(); ++i) list.push_back(describe(*session, *qps[i], snapshots.now[i]));
  }
  return list;
}

Json show_mrs(const ControlState& state, Viewer& viewer) {
  Json list = Json::array();
  for (const auto& [id, session] : state.sessions()) {
    if (!viewer.sees(*session, session->mrs.size())) continue;
    for (const auto& [handle, mr] : session->mrs) {
      Json row = {{"session", id},        {"program", session->program}, {"addr", hex(mr->addr)},
                  {"length", mr->length}, {"access", hex(mr->access)},   {"indirect", mr->indirect}};
      // A user that can send packets and knows the key can access the memory.
      if (viewer.sees_all()) row["key"] = hex(mr->key.value);
      list.push_back(std::move(row));
    }
  }
  return list;
}

/// Several workers may add CQEs to a CQ. It is read between two duty cycles of one of them, which is exact enough
/// to display.
struct ReadCqs {
  static constexpr std::string_view kName = "read_cqs";
  static constexpr std::size_t kMost = 256;  ///< so that the worker goes on soon
  struct State {
    std::uint32_t produced = 0;
    bool failed = false;
  };
  std::span<const CqObject* const> cqs;
  std::array<State, kMost> states;
  void describe(ArgumentText& text) const { text.add("count", cqs.size()); }
  void run(WorkerCore&) {
    for (std::size_t i = 0; i < cqs.size(); ++i) states[i] = {cqs[i]->cq->produced(), cqs[i]->cq->in_error()};
  }
};

void add_cqs(const ControlState& state, const Session& session, std::span<const CqObject* const> cqs, Json& list) {
  ReadCqs read{cqs, {}};
  state.link_worker().call(read);
  for (std::size_t i = 0; i < cqs.size(); ++i) {
    const Cq& queue = *cqs[i]->cq;
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
}

Json show_cqs(const ControlState& state, Viewer& viewer) {
  Json list = Json::array();
  for (const auto& [id, session] : state.sessions()) {
    if (!viewer.sees(*session, session->cqs.size())) continue;
    std::vector<const CqObject*> cqs;
    for (const auto& [handle, cq] : session->cqs) cqs.push_back(cq.get());
    for (std::size_t first = 0; first < cqs.size(); first += ReadCqs::kMost) {
      add_cqs(state, *session, std::span(cqs).subspan(first, std::min(ReadCqs::kMost, cqs.size() - first)), list);
    }
  }
  return list;
}

Json show_srqs(const ControlState& state, Viewer& viewer) {
  Json list = Json::array();
  for (const auto& [id, session] : state.sessions()) {
    if (!viewer.sees(*session, session->srqs.size())) continue;
    for (const auto& [handle, srq] : session->srqs) {
      list.push_back({{"srq", srq->id.value},
                      {"session", id},
                      {"program", session->program},
                      {"type", srq->xrcd != nullptr ? "XRC" : "basic"},
                      {"entries", srq->entries},
                      {"posted", srq->srq->posted()},
                      {"limit", srq->srq->limit()},
                      {"qps", srq->users}});
    }
  }
  return list;
}

Json show_worker_commands(const ControlState& state) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < state.worker_count(); ++i) {
    for (const TracedCommand& command : state.worker(i).command_trace().last()) {
      list.push_back({{"worker", i},
                      {"command", std::string(command.name)},
                      {"arguments", std::string(command.arguments.view())},
                      {"started_us", (command.started - state.started()) / kMicrosecond},
                      {"duration_us", command.duration / kMicrosecond}});
    }
  }
  return list;
}

Json show_errors() {
  Json list = Json::array();
  for (const LoggedError& entry : ErrorLog::instance().entries()) {
    list.push_back({{"text", entry.text},
                    {"count", entry.count},
                    {"first", entry.first_ns / kSecond},
                    {"last", entry.last_ns / kSecond}});
  }
  return list;
}

Json show(const AdminContext& context, const Session& caller, const std::string& what) {
  const ControlState& state = context.state;
  Viewer viewer(caller, may_administer(caller));
  Json answer = Json::object();
  const bool all = what == "all";
  if (all || what == "devices") answer["devices"] = show_devices(state);
  if (all || what == "sessions") answer["sessions"] = show_sessions(state, viewer);
  if (all || what == "users") answer["users"] = show_users(state, viewer);
  if (all || what == "qps") answer["qps"] = show_qps(state, viewer);
  if (all || what == "mrs") answer["mrs"] = show_mrs(state, viewer);
  if (all || what == "cqs") answer["cqs"] = show_cqs(state, viewer);
  if (all || what == "srqs") answer["srqs"] = show_srqs(state, viewer);
  if (all || what == "cm_ids") answer["cm_ids"] = show_cm_ids(state, viewer);
  if (what == "rejections") answer["rejections"] = show_rejections(state, viewer);
  if (all || what == "flows") answer["flows"] = show_flows(state, viewer);
  // Their texts name programs and QPs of all tenants.
  if (all || what == "errors") answer["errors"] = viewer.only_for_all(show_errors());
  if (what == "worker_commands") answer["worker_commands"] = viewer.only_for_all(show_worker_commands(state));
  if (answer.empty()) {
    return error(
        "show has no \"" + what +
        "\"; it has all, devices, sessions, users, qps, mrs, cqs, srqs, cm_ids, flows, errors, rejections, "
        "worker_commands");
  }
  if (viewer.hidden() != 0) answer["hidden"] = viewer.hidden();
  return answer;
}

// ---------------------------------------------------------------- counters

Json controls_json(const ControlState& state) {
  Json values = Json::object();
  if (state.config().controls == nullptr) return values;
  for (const auto& [name, value] : state.config().controls->describe()) values[name] = value;
  return values;
}

Json rejections_json(const Rejections& rejections) {
  Json out = Json::object();
  for (std::size_t i = 0; i < std::size(kRejectionNames); ++i) {
    out[std::string(kRejectionNames[i])] = rejections.of(static_cast<Rejection>(i));
  }
  return out;
}

Json stat(const AdminContext& context) {
  const ControlState& state = context.state;
  worker_commands::SumCounters sums;
  state.on_all_workers(sums);
  Json transport = Json::object(), parse = Json::object();
  const auto* values = reinterpret_cast<const std::uint64_t*>(&sums.transport);
  for (std::size_t i = 0; i < proto::kCounterCount; ++i)
    transport[std::string(proto::kCounterNames[i])] = values[i];
  for (std::size_t i = 0; i < std::size(sums.worker.parse); ++i) {
    parse[std::string(wire::parse_verdict_name(static_cast<wire::ParseVerdict>(i)))] = sums.worker.parse[i];
  }
  const WorkerCounters& w = sums.worker;
  const net::DeviceCounters& d = sums.device;
  return {{"transport", transport},
          {"parse", parse},
          {"worker",
           {{"steps", w.steps},
            {"sleeps", w.sleeps},
            {"longest_step_us", w.longest_step / kMicrosecond},
            {"stalls", w.stalls},
            {"last_stall_ms_ago", w.stalls == 0 ? 0 : (monotonic_now() - w.last_stall) / kMillisecond},
            {"bad_doorbells", w.bad_doorbells},
            {"wrong_address", w.wrong_address},
            {"wrong_vlan", w.wrong_vlan},
            {"steered_away", w.steered_away},
            {"steer_dropped", w.steer_dropped},
            {"completion_events", w.events_sent},
            {"completion_events_delayed", w.events_delayed},
            {"async_events_lost", w.async_events_lost}}},
          {"device",
           {{"rx_packets", d.rx_packets},
            {"rx_bytes", d.rx_bytes},
            {"rx_dropped", d.rx_dropped},
            {"tx_packets", d.tx_packets},
            {"tx_bytes", d.tx_bytes},
            {"tx_dropped", d.tx_dropped}}},
          {"rejected", rejections_json(state.rejections())},
          {"cm", cm_counters(state, context.cm)},
          {"controls", controls_json(state)}};
}

Json metrics(const AdminContext& context, const Session& caller) {
  Viewer viewer(caller, may_administer(caller));
  return {{"families", metric_families(context.state, context.cm, viewer)}};
}

// ---------------------------------------------------------------- changes

// Answers, the list of refusals and `show devices` repeat it.
std::string text_of(const Json& request, const char* key) {
  const auto it = request.find(key);
  return it != request.end() && it->is_string() ? base::printable(it->get<std::string>()) : std::string();
}

Json refused() {
  return error(
      "only root (CAP_NET_ADMIN on the daemon's network) and the user that runs the daemon may do this; use sudo");
}

Json fault(const AdminContext& context, const Session& caller, const Json& request) {
  net::DeviceControls* controls = context.state.config().controls;
  if (controls == nullptr) return error("this daemon's device has no fault injection");
  if (request.contains("settings")) {
    if (!may_administer(caller)) return refused();
    const std::string problem = controls->set_fault(text_of(request, "settings"));
    if (!problem.empty()) return error(problem);
  }
  return {{"settings", controls_json(context.state)}};
}

/// Writes go to the file of a client: it must be a regular one that no server answers for.
std::string check_capture_file(const Session& caller, int file) {
  constexpr const char* kRemedy = "; give a file on a local disk that can be written";
  FileFacts facts;
  struct stat info {};
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY) {
    return std::string("the file is not open for writing") + kRemedy;
  }
  if (examine(file, caller.stall_budget, facts) != 0 || facts.magic == 0) {
    return std::string("the file is on a file system of a server") + kRemedy;
  }
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return std::string("not a regular file") + kRemedy;
  return {};
}

Json trace(const AdminContext& context, const Session& caller, const Json& request, std::span<UniqueFd> files) {
  net::DeviceControls* controls = context.state.config().controls;
  if (controls == nullptr) return error("this daemon's device has no capture");
  if (!may_administer(caller)) return refused();
  if (request.contains("stop")) {
    const std::string problem = controls->stop_capture();
    return problem.empty() ? Json::object() : error(problem);
  }
  const std::string file = text_of(request, "file");
  if (file.empty() || files.size() != 1) return error("trace needs \"file\" and its descriptor, or \"stop\"");
  std::string problem = check_capture_file(caller, files[0].get());
  if (problem.empty()) problem = controls->capture_to(files[0].release(), file);
  return problem.empty() ? Json{{"file", file}} : error(file + ": " + problem);
}

/// Removes "@vlan5" from the end. False: the VLAN number is invalid.
bool take_vlan(std::string& text, std::uint16_t& vlan) {
  constexpr std::string_view kVlan = "@vlan";
  const std::size_t at = text.find(kVlan);
  if (at == std::string::npos) return true;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + at + kVlan.size(), end, vlan);
  if (read.ec != std::errc{} || read.ptr != end || vlan < 1 || vlan > 4094) return false;
  text.resize(at);
  return true;
}

/// "192.0.2.1/24", "2001:db8::1", "192.0.2.1/24@vlan5": prefix and VLAN optional.
bool parse_address(std::string text, net::InterfaceAddress& out) {
  if (!take_vlan(text, out.vlan)) return false;
  const std::size_t slash = text.find('/');
  const std::string host = text.substr(0, slash);
  std::uint8_t bytes[16];
  const bool v4 = ::inet_pton(AF_INET, host.c_str(), bytes) == 1;
  if (!v4 && ::inet_pton(AF_INET6, host.c_str(), bytes) != 1) return false;
  out.address = {};
  if (v4) {
    out.address.bytes[10] = out.address.bytes[11] = 0xff;
    std::copy_n(bytes, 4, out.address.bytes.begin() + 12);
  } else {
    std::copy_n(bytes, 16, out.address.bytes.begin());
  }
  const unsigned most = v4 ? 32 : 128;
  unsigned bits = v4 ? 24 : 64;
  if (slash != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + slash + 1, end, bits);
    if (read.ec != std::errc{} || read.ptr != end || bits > most) return false;
  }
  out.prefix_bits = static_cast<std::uint8_t>(bits);
  return !out.address.is_multicast() && out.address != wire::Address{};
}

std::string change_address(const AdminContext& context, const std::string& text, bool add) {
  net::InterfaceAddress address;
  if (!parse_address(text, address)) {
    return "\"" + text +
           "\" is not an address; give one such as 192.0.2.9/24, 2001:db8::9/64 or 192.0.2.9/24@vlan5";
  }
  const bool done = add ? context.link.add_address(address) : context.link.remove_address(address.address);
  if (done) return {};
  return add ? text + " is already an address of the port, or the GID table of " +
                   std::to_string(net::GidTable::kMost) + " is full"
             : text + " is not an address of the port; see urocectl show devices";
}

std::string change_mtu(const AdminContext& context, const Json& request) {
  const auto given = request.find("mtu");
  const bool whole = given != request.end() && given->is_number_unsigned() && given->get<std::uint64_t>() <= 65535;
  if (whole && context.link.set_mtu(given->get<std::uint32_t>())) return {};
  return "mtu takes " + std::to_string(Port::kLeastMtu) + " to " + std::to_string(context.state.port().most_mtu()) +
         " bytes; the upper limit is set when the daemon starts (uroced --mtu)";
}

Json link(const AdminContext& context, const Session& caller, const Json& request) {
  const std::string change = text_of(request, "change"), address = text_of(request, "address");
  if (change.empty()) return {{"devices", show_devices(context.state)}};
  if (!may_administer(caller)) return refused();
  if (change == "up" || change == "down") {
    context.link.enable(change == "up");
  } else if (change == "mtu") {
    const std::string problem = change_mtu(context, request);
    if (!problem.empty()) return error(problem);
  } else if (change == "add" || change == "remove") {
    const std::string problem = change_address(context, address, change == "add");
    if (!problem.empty()) return error(problem);
  } else {
    return error("link has no \"" + change + "\"; it has up, down, add ADDRESS, remove ADDRESS, mtu BYTES");
  }
  return {{"devices", show_devices(context.state)}};
}

Json dispatch(const AdminContext& context, const Session& caller, std::string_view text,
              std::span<UniqueFd> files) {
  const Json request = Json::parse(text, nullptr, false);
  if (!request.is_object()) return error("a request is a JSON object with \"command\"");
  const std::string command = text_of(request, "command");
  if (command == "show") {
    const std::string what = text_of(request, "what");
    return show(context, caller, what.empty() ? "all" : what);
  }
  if (command == "stat") return stat(context);
  if (command == "metrics") return metrics(context, caller);
  if (command == "fault") return fault(context, caller, request);
  if (command == "trace") return trace(context, caller, request, files);
  if (command == "link") return link(context, caller, request);
  return error("no command \"" + command + "\"; there are show, stat, metrics, fault, trace, link");
}

}  // namespace

std::string handle_query(const AdminContext& context, const Session& caller, std::string_view request,
                         std::span<UniqueFd> files) {
  const Json answer = dispatch(context, caller, request, files);
  if (answer.contains("error")) {
    const bool forbidden = answer == refused();
    context.state.rejections().add(
        {caller.peer.tenant(), caller.peer.pid, caller.program, UROCE_CMD_ADMIN, forbidden ? EPERM : EINVAL,
         forbidden ? Rejection::no_permission : Rejection::bad_value, answer["error"].get<std::string>()});
  }
  // Program names may be invalid UTF-8.
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace uroce::daemon
