#include "apps/uroced/devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "apps/uroced/addresses.h"
#include "drivers/packet/tap/interface.h"
#include "net/prefix.h"

namespace uroce::uroced {
namespace {

/// Of the settings that a device may have of its own.
constexpr std::array<std::string_view, 7> kKeys{"name", "ip", "gid_layout", "gateway", "netdev", "mac", "run_dir"};

/// The `index`-th name from `name` on: "uroce0" is followed by "uroce1", "a07" by "a08". A name without a number
/// counts from 0.
std::string nth_name(const std::string& name, std::uint32_t index) {
  const std::size_t most = 9;  // digits of the number; those before them are part of the name
  const std::size_t digits =
      std::max(name.find_last_not_of("0123456789") + 1, name.size() - std::min(most, name.size()));
  std::uint64_t first = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), first);
  const std::string number = std::to_string(first + index);
  const std::size_t width = name.size() - digits;
  return name.substr(0, digits) + std::string(width - std::min(width, number.size()), '0') + number;
}

/// Both names of a netdev count up.
std::string nth_netdev(const std::string& netdev, std::uint32_t index) {
  tap::Spec spec;
  if (netdev.empty() || !tap::parse_spec(netdev, spec).empty()) return netdev;
  return nth_name(spec.name, index) + "@" + nth_name(spec.network_namespace, index);
}

/// The `index`-th address from `own` on; nullopt: the prefix has no such host.
std::optional<net::InterfaceAddress> nth_address(net::InterfaceAddress own, std::uint32_t index) {
  const net::InterfaceAddress first = own;
  auto& bytes = own.address.bytes;
  std::uint32_t carry = index;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    carry += bytes[i];
    bytes[i] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
  const bool is_host = net::in_prefix(first, own.address) && !net::is_broadcast_of(own, own.address);
  return is_host ? std::optional(own) : std::nullopt;
}

/// The device in an error: by its name, if no other has it.
std::string label(const std::vector<Settings>& devices, const Settings& device) {
  const std::string& name = device.config.name;
  const auto same = [&](const Settings& each) { return each.config.name == name; };
  return std::ranges::count_if(devices, same) == 1 ? name : device.config.run_dir + "/" + name;
}

/// Empty, or what two of the devices have in common that each needs for itself. `remedy`: for an address.
std::string check_distinct(const std::vector<Settings>& devices, const std::string& remedy) {
  std::set<std::string> places, macs, namespaces;
  std::map<std::pair<std::uint16_t, wire::Address>, std::string> addresses;  // by VLAN and address
  std::error_code error;
  for (const Settings& device : devices) {
    const std::filesystem::path run_dir = std::filesystem::weakly_canonical(device.config.run_dir + "/.", error);
    if (!places.insert(run_dir / device.config.name).second) {
      return "two devices would be " + device.config.name + " in " + device.config.run_dir +
             "; give each a name of its own";
    }
    if (device.mac && !macs.insert(to_string(*device.mac)).second) {
      return "two devices would have the Ethernet address " + to_string(*device.mac) + "; give each one of its own";
    }
    tap::Spec spec;
    if (tap::parse_spec(device.config.netdev, spec).empty() && !namespaces.insert(tap::path_of(spec)).second) {
      return "two devices would have an interface in one network namespace, where a kernel sends to its own "
             "addresses without a network; give " +
             device.config.netdev + " another namespace, such as " + spec.name + "@host1 of ip netns";
    }
    for (const net::InterfaceAddress& own : device.config.addresses) {
      const std::string name = label(devices, device);
      const auto [owner, is_new] = addresses.try_emplace({own.vlan, own.address}, name);
      if (is_new) continue;
      return to_string(own.address) + " would be an address of " + owner->second + " and of " + name + remedy;
    }
  }
  return {};
}

/// What several devices cannot share. `option`: that makes them.
std::string check_common(const std::string& option, const Settings& settings) {
  if (settings.port != "loopback") {
    return option + " with --port " + settings.port +
           ": these devices are on a switch in memory; leave out --port, or start a daemon for each port";
  }
  if (settings.pcap.empty()) return {};
  return option +
         " with --pcap: a file holds the frames of one device; leave out --pcap, and start urocectl -d NAME "
         "trace for each";
}

std::string count_up(const std::string& option, std::uint32_t index, Settings& host) {
  host.config.name = nth_name(host.config.name, index);
  std::string& netdev = host.config.netdev = nth_netdev(host.config.netdev, index);
  tap::Spec spec;
  if (const std::string allowed = tap::parse_spec(netdev, spec); !netdev.empty() && !allowed.empty()) {
    return option + ": --netdev " + netdev + " of " + host.config.name + ": it must be " + allowed;
  }
  for (net::InterfaceAddress& own : host.config.addresses) {
    const auto address = nth_address(own, index);
    if (!address) {
      return option + ": --ip " + to_string(own.address) + "/" + std::to_string(own.prefix_bits) +
             " has room for " + std::to_string(index) +
             " from there on; give a lower address, a shorter prefix, or fewer hosts";
    }
    own = *address;
  }
  return {};
}

std::string settings_of_hosts(const Settings& settings, std::vector<Settings>& hosts) {
  const std::string option = "--hosts " + std::to_string(settings.hosts);
  if (std::string error = check_common(option, settings); !error.empty()) return error;
  const std::string& netdev = settings.config.netdev;
  if (!netdev.empty() && netdev.find('@') == std::string::npos) {
    return option + " with --netdev " + netdev +
           ": a kernel sends to its own addresses without a network; give each host a namespace of its own, "
           "such as --netdev rdma0@host0 with host0, host1, ... of ip netns";
  }
  if (netdev.find('/') != std::string::npos) {
    return option + " with --netdev " + netdev +
           ": a path is the same for all hosts; give a name of ip netns, such as rdma0@host0, or a --device for "
           "each host";
  }
  if (settings.mac) return option + " with --mac: each host has an address of its own; leave out --mac";
  for (std::uint32_t i = 0; i < settings.hosts; ++i) {
    if (std::string error = count_up(option, i, hosts[i]); !error.empty()) return error;
  }
  const std::string error = check_distinct(
      hosts, "; give addresses with --ip that are at least " + std::to_string(hosts.size()) + " apart");
  return error.empty() ? "" : option + ": " + error;
}

/// nullptr: a device has no such setting of its own.
const Knob* find_key(std::string_view key) {
  if (std::ranges::find(kKeys, key) == kKeys.end()) return nullptr;
  const auto all = knobs();
  const auto at = std::ranges::find_if(all, [&](const Knob& knob) { return key == knob.key; });
  return at != all.end() ? &*at : nullptr;
}

std::string keys() {
  std::string text;
  for (const std::string_view key : kKeys) text += (text.empty() ? "" : ", ") + std::string(key);
  return text;
}

}  // namespace

std::string apply_device(std::string_view text, Settings& device) {
  const std::string form = "KEY=VALUE,KEY=VALUE";
  std::set<const Knob*> seen;
  for (bool last = false; !last;) {
    const std::string_view part = text.substr(0, text.find(','));
    last = part.size() == text.size();
    text.remove_prefix(last ? part.size() : part.size() + 1);
    const std::size_t equals = std::min(part.find('='), part.size());
    const Knob* const knob = find_key(part.substr(0, equals));
    if (knob == nullptr || equals == part.size()) {
      return form + " with the keys " + keys() + ", not \"" + std::string(part) + "\"";
    }
    const bool first = seen.insert(knob).second;
    if (!first && !knob->repeats) return form + " with " + knob->key + " once";
    const std::string allowed = apply(*knob, device, part.substr(equals + 1), first);
    if (!allowed.empty()) return form + ", and the value of " + std::string(part) + " must be " + allowed;
  }
  return {};
}

std::string settings_of_devices(const Settings& settings, std::vector<Settings>& devices) {
  devices.assign(std::max<std::size_t>(settings.devices.size(), settings.hosts), settings);
  if (settings.devices.empty()) return settings.hosts == 1 ? "" : settings_of_hosts(settings, devices);
  const std::string option = "--device";
  if (settings.hosts != 1) {
    return option + " with --hosts " + std::to_string(settings.hosts) +
           ": the devices are those of --device; leave out --hosts";
  }
  if (std::string error = check_common(option, settings); !error.empty()) return error;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    apply_device(settings.devices[i], devices[i]);  // valid: its knob has applied it
    std::string error = check_settings(devices[i]);
    if (devices[i].config.addresses.empty()) error = "it has no address; give one, such as ip=192.0.2.1/24";
    if (!error.empty()) return option + " " + settings.devices[i] + ": " + error;
  }
  const std::string error = check_distinct(devices, "; give each device addresses of its own");
  return error.empty() ? "" : option + ": " + error;
}

bool only_addresses_differ(const Settings& current, const Settings& next) {
  if (current.devices.size() != next.devices.size()) return false;
  Settings changed = current;  // what else differs takes effect with a restart, or is as for all
  changed.devices = next.devices;
  const std::vector<Settings> a = devices_of(current), b = devices_of(changed);
  const auto same = [](const Settings& x, const Settings& y) {
    return std::ranges::all_of(kKeys, [&](std::string_view key) {
      return key == "ip" || key == "gateway" || find_key(key)->show(x) == find_key(key)->show(y);
    });
  };
  return std::ranges::equal(a, b, same);
}

std::vector<Settings> devices_of(const Settings& settings) {
  std::vector<Settings> devices;
  settings_of_devices(settings, devices);
  return devices;
}

}  // namespace uroce::uroced
