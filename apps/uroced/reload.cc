// Which settings change while a daemon serves.
#include <string>
#include <string_view>

#include "apps/uroced/devices.h"
#include "apps/uroced/settings.h"

namespace uroce::uroced {
namespace {

struct Live {
  std::string_view key;  ///< one that ends in '_' stands for all that begin so
  void (*copy)(Settings& to, const Settings& from);
};

constexpr Live kLive[] = {
    {"ip", [](Settings& to, const Settings& from) { to.config.addresses = from.config.addresses; }},
    {"device", [](Settings& to, const Settings& from) { to.devices = from.devices; }},
    {"gateway", [](Settings& to, const Settings& from) { to.gateways = from.gateways; }},
    {"workers.cpus", [](Settings& to, const Settings& from) { to.config.cpus = from.config.cpus; }},
    {"limits.user_", [](Settings& to, const Settings& from) { to.config.limits = from.config.limits; }},
    {"latency", [](Settings& to, const Settings& from) { to.config.latency = from.config.latency; }},
    {"events", [](Settings& to, const Settings& from) { to.config.events = from.config.events; }},
    {"debug.fault", [](Settings& to, const Settings& from) { to.fault = from.fault; }},
    {"log_level", [](Settings& to, const Settings& from) { to.log_level = from.log_level; }},
};

/// nullptr: the setting takes effect at the start only.
const Live* find_live(std::string_view key, const Settings& settings) {
  if (key == "limits.user_weight" || key == "limits.user_rate_mbps") return nullptr;
  const bool sockets = settings.port == "udp" || settings.port.starts_with("udp,");
  if (key == "ip" && sockets) return nullptr;  // they are bound
  for (const Live& live : kLive) {
    if (live.key.back() == '_' ? key.starts_with(live.key) : key == live.key) return &live;
  }
  return nullptr;
}

}  // namespace

/// A device itself changes with a restart only.
bool changes_live(const Knob& knob, const Settings& settings) {
  return std::string_view(knob.key) != "device" && find_live(knob.key, settings) != nullptr;
}

Adopted adopt(Settings& current, const Settings& next) {
  Adopted adopted;
  const Settings before = current;
  for (const Knob& knob : knobs()) {
    if (knob.show(before) == knob.show(next)) continue;
    const Live* live = find_live(knob.key, before);
    if (std::string_view(knob.key) == "device" && !only_addresses_differ(before, next)) live = nullptr;
    (live != nullptr ? adopted.changed : adopted.waiting).emplace_back(knob.key);
    if (live != nullptr) live->copy(current, next);
  }
  return adopted;
}

std::vector<control::Setting> list_settings(const Settings& current) {
  std::vector<control::Setting> all;
  const Settings defaults;
  for (const Knob& knob : knobs()) {
    all.push_back({knob.key, knob.show(current), knob.show(defaults), knob.repeats, changes_live(knob, current)});
  }
  return all;
}

}  // namespace uroce::uroced
