#include "admin/query.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "admin/counters.h"
#include "admin/latency.h"
#include "admin/metrics.h"
#include "admin/show.h"
#include "admin/show_cm.h"
#include "admin/viewer.h"
#include "base/printable.h"
#include "control/session/privilege.h"
#include "platform/clock.h"

namespace uroce::admin {

using control::ControlState;
using control::may_administer;
using control::Session;

namespace {

using Json = nlohmann::ordered_json;

Json error(const std::string& text) { return {{"error", text}}; }

Json metrics(const AdminContext& context, const Session& caller, const Json& request) {
  Viewer viewer(caller, may_administer(caller));
  return metrics_page(context.state, context.cm, context.command_times, viewer, request);
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

Json verb_rules(ControlState& state) {
  control::VerbFaults& faults = state.verb_faults();
  faults.count_qps(state);
  Json rules = Json::array();
  for (const auto& rule : faults.rules()) {
    rules.push_back({{"number", rule->number},
                     {"rule", rule->what.text},
                     {"qps", rule->qps},
                     {"matched", rule->effect->matched.load(std::memory_order_relaxed)},
                     {"fired", rule->effect->fired.load(std::memory_order_relaxed)}});
  }
  return {{"rules", rules}};
}

/// What a rule selects is an administrator's to know: it names programs of others.
Json fault_verbs(ControlState& state, const Session& caller, const Json& change) {
  if (!may_administer(caller)) return refused();
  control::VerbFaults& faults = state.verb_faults();
  if (change.contains("add")) {
    const std::string problem = faults.add(state, text_of(change, "add"));
    if (!problem.empty()) return error(problem);
  } else if (const auto number = change.find("remove"); number != change.end() && number->is_number_unsigned()) {
    const auto value = number->get<std::uint64_t>();
    if (value > UINT32_MAX || !faults.remove(state, static_cast<std::uint32_t>(value))) {
      return error("there is no rule " + std::to_string(value) + "; `urocectl fault verbs` lists them");
    }
  } else if (change.contains("remove")) {
    faults.remove_all(state);
  }
  return verb_rules(state);
}

Json fault(const AdminContext& context, const Session& caller, const Json& request) {
  if (const auto verbs = request.find("verbs"); verbs != request.end() && verbs->is_object()) {
    return fault_verbs(context.state, caller, *verbs);
  }
  net::DeviceControls* controls = context.state.config().controls;
  if (controls == nullptr) return error("this daemon's device has no fault injection");
  std::string (net::DeviceControls::*change)(std::string_view) = nullptr;
  const char* what = "settings";
  if (request.contains("settings")) change = &net::DeviceControls::set_fault;
  if (request.contains("add")) change = &net::DeviceControls::add_fault, what = "add";
  if (request.contains("remove")) change = &net::DeviceControls::remove_fault, what = "remove";
  if (change != nullptr) {
    if (!may_administer(caller)) return refused();
    const std::string problem = (controls->*change)(text_of(request, what));
    if (!problem.empty()) return error(problem);
  }
  return {{"settings", controls_json(context.state)}};
}

/// The daemon writes to no file of a client: it makes a pipe, and the client gets the end that reads.
Json trace(const AdminContext& context, const Session& caller, const Json& request, UniqueFd& stream) {
  net::DeviceControls* controls = context.state.config().controls;
  if (controls == nullptr) return error("this daemon's device has no capture");
  if (!may_administer(caller)) return refused();
  if (request.contains("stop")) {
    const std::string problem = controls->stop_capture();
    return problem.empty() ? Json::object() : error(problem);
  }
  int reader = -1;
  const std::string problem = controls->start_capture(text_of(request, "filter"), reader);
  stream.reset(reader);
  return problem.empty() ? Json::object() : error(problem);
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
  if (add && context.state.port().sockets_only()) {
    return "port " + context.state.config().port +
           " binds its addresses when it starts; restart the daemon with --ip " + text;
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
  return "mtu takes " + std::to_string(control::Port::kLeastMtu) + " to " +
         std::to_string(context.state.port().most_mtu()) +
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

Json latency(const AdminContext& context, const Session& caller, const Json& request) {
  if (request.contains("set")) {
    if (!may_administer(caller)) return refused();
    const std::string set = text_of(request, "set");
    if (set != "on" && set != "off") return error("latency \"" + set + "\": give on, off or nothing");
    context.state.measure_latency(set == "on");
  }
  Viewer viewer(caller, may_administer(caller));
  Page page(viewer, {});
  return {{"measured", context.state.measures_latency() ? "on" : "off"},
          {"latency", list_latency(context.state, page)}};
}

Json events(const AdminContext& context, const Session& caller, const Json& request) {
  if (request.contains("set")) {
    if (!may_administer(caller)) return refused();
    const std::string set = text_of(request, "set");
    if (set != "on" && set != "off") return error("events \"" + set + "\": give on, off or nothing");
    context.state.record_events(set == "on");
  }
  return {{"recorded", context.state.records_events() ? "on" : "off"}};
}

Json reload(const AdminContext& context, const Session& caller) {
  if (!may_administer(caller)) return refused();
  const control::Reloaded outcome = context.state.process().reload();
  if (!outcome.error.empty()) return error(outcome.error + "; nothing has changed");
  return {{"changed", outcome.changed}, {"restart_for", outcome.waiting}};
}

Json dispatch(const AdminContext& context, const Session& caller, std::string_view text, UniqueFd& stream) {
  const Json request = Json::parse(text, nullptr, false);
  if (!request.is_object()) return error("a request is a JSON object with \"command\"");
  const std::string command = text_of(request, "command");
  if (command == "show") {
    const std::string what = text_of(request, "what");
    return show(context.state, caller, what.empty() ? "all" : what, request);
  }
  if (command == "stat") return stat(context);
  if (command == "metrics") return metrics(context, caller, request);
  if (command == "fault") return fault(context, caller, request);
  if (command == "trace") return trace(context, caller, request, stream);
  if (command == "link") return link(context, caller, request);
  if (command == "latency") return latency(context, caller, request);
  if (command == "events") return events(context, caller, request);
  if (command == "reload") return reload(context, caller);
  return error("no command \"" + command +
               "\"; there are show, stat, metrics, latency, events, fault, trace, link, reload");
}

}  // namespace

std::string handle_query(const AdminContext& context, const Session& caller, std::string_view request,
                         UniqueFd* stream) {
  UniqueFd unwanted;
  const Json answer = dispatch(context, caller, request, stream != nullptr ? *stream : unwanted);
  if (answer.contains("error")) {
    const bool forbidden = answer == refused();
    context.state.rejections().add({caller.peer.tenant(), caller.peer.pid, caller.program, UROCE_CMD_ADMIN,
                                    forbidden ? EPERM : EINVAL,
                                    forbidden ? control::Rejection::no_permission : control::Rejection::bad_value,
                                    answer["error"].get<std::string>()});
  }
  // Program names may be invalid UTF-8.
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace uroce::admin
