#include "admin/show_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "control/machine/port.h"

namespace uroce::admin {

using control::ControlState;
using control::Setting;

namespace {

using Json = nlohmann::ordered_json;

Json value_of(const Setting& setting, const std::vector<std::string>& value) {
  if (setting.repeats) return value;
  return value.empty() ? Json("") : Json(value.front());
}

/// The addresses of the port. The link-local one is made from its MAC address.
std::vector<std::string> addresses(const ControlState& state) {
  std::vector<std::string> all;
  for (const net::InterfaceAddress& own : state.port().gids().addresses()) {
    if (own.address.is_link_local()) continue;
    all.push_back(control::address_text(own.address) + "/" + std::to_string(own.prefix_bits) +
                  (own.vlan != 0 ? "@vlan" + std::to_string(own.vlan) : ""));
  }
  return all;
}

std::string fault(const ControlState& state) {
  if (state.config().controls == nullptr) return "off";
  for (const auto& [name, value] : state.config().controls->describe()) {
    if (name == "fault") return value;
  }
  return "off";
}

/// What urocectl changes. The addresses of several devices are as they were given.
void take_live(const ControlState& state, Setting& setting, bool alone) {
  if (setting.key == "ip" && alone) setting.value = addresses(state);
  if (setting.key == "latency") setting.value = {state.measures_latency() ? "on" : "off"};
  if (setting.key == "events") setting.value = {state.records_events() ? "on" : "off"};
  if (setting.key == "debug.fault") setting.value = {fault(state)};
  if (setting.key == "mtu" && state.port().link_mtu() != state.port().most_mtu()) {
    setting.value = {std::to_string(state.port().link_mtu())};
  }
}

}  // namespace

Json list_settings(const ControlState& state, Page& page) {
  std::vector<Setting> settings = state.process().settings();
  Json list = Json::array();
  if (!page.viewer.sees_all()) {
    page.viewer.hide(settings.size());
    return list;
  }
  const bool alone = std::ranges::none_of(settings, [](const Setting& each) {
    return (each.key == "hosts" || each.key == "device") && each.value != each.standard;
  });
  for (std::uint64_t i = page.take_start().handle; i < settings.size(); ++i) {
    if (!page.take_row({0, i})) break;
    Setting& each = settings[i];
    take_live(state, each, alone);
    list.push_back({{"key", each.key},
                    {"value", value_of(each, each.value)},
                    {"default", value_of(each, each.standard)},
                    {"changes", each.live ? "at once" : "with a restart"}});
  }
  return list;
}

}  // namespace uroce::admin
