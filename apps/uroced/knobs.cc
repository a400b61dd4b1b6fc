#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>

#include "apps/uroced/addresses.h"
#include "apps/uroced/devices.h"
#include "apps/uroced/settings.h"
#include "drivers/packet/tap/interface.h"
#include "proto/state/send_scheduler.h"

namespace uroce::uroced {

using control::UserGrant;
using platform::LogLevel;

namespace {

using Values = std::vector<std::string>;

constexpr std::uint64_t kMaxUser = std::uint64_t{1} << 50;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxMbps = 1'000'000;
constexpr std::uint64_t kMaxHosts = 32;

/// A number of at least `least` and at most `most`, with an optional suffix k, M or G of powers of 1024.
template <class T>
std::string set_number(T& value, std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const unsigned shift = suffix.empty() ? 0 : suffix == "k" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : 64;
  const bool fits =
      error == std::errc{} && shift < 64 && number <= std::numeric_limits<std::uint64_t>::max() >> shift;
  if (!fits || number << shift < least || number << shift > most) {
    return "a number from " + std::to_string(least) + " to " + std::to_string(most);
  }
  value = static_cast<T>(number << shift);
  return {};
}

std::string set_bool(bool& value, std::string_view text) {
  if (text != "true" && text != "false") return "true or false";
  value = text == "true";
  return {};
}

bool is_device_name(std::string_view text) {
  return !text.empty() && text.size() < 32 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                  c == '-' || c == '.';
         });
}

std::string set_cpus(std::vector<int>& cpus, std::string_view text) {
  static const std::string kAllowed = "CPU numbers and ranges such as 2,4-5";
  std::vector<int> list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = part.find('-');
    int first = 0, last = 0;
    const auto number = [](std::string_view s, int& value) { return set_number(value, s, 0, 1023).empty(); };
    if (!number(part.substr(0, dash), first)) return kAllowed;
    last = first;
    if (dash != std::string_view::npos && !number(part.substr(dash + 1), last)) return kAllowed;
    if (last < first) return kAllowed;
    for (int cpu = first; cpu <= last; ++cpu) list.push_back(cpu);
  }
  cpus = std::move(list);
  return {};
}

std::string show_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

std::string add_address(std::vector<net::InterfaceAddress>& list, std::string_view text) {
  const auto address = parse_interface_address(text);
  if (!address) {
    return "an address of this daemon with its prefix, such as 192.0.2.1/24, 2001:db8::1/64 or 192.0.2.1/24@vlan5";
  }
  list.push_back(*address);
  return {};
}

std::string add_gateway(std::vector<wire::Address>& list, std::string_view text) {
  const auto address = parse_address(text);
  if (!address) return "an address such as 192.0.2.254";
  list.push_back(*address);
  return {};
}

/// Splits "USER=NUMBER" and sets `member` of the user's grant. Returns what is allowed if the text is something
/// else.
std::string set_grant(std::vector<UserGrant>& grants, std::string_view text, std::uint32_t UserGrant::*member,
                      std::uint64_t most) {
  const std::string allowed =
      "USER=N: a user of this machine or a user id, and a number from 1 to " + std::to_string(most);
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return allowed;
  const std::string_view name = text.substr(0, equals);
  std::uint32_t uid = 0, number = 0;
  if (!set_number(number, text.substr(equals + 1), 1, most).empty()) return allowed;
  if (name.find_first_not_of("0123456789") == std::string_view::npos) {
    if (!set_number(uid, name, 0, kMax32 - 1).empty()) return allowed;
  } else {
    const passwd* const user = ::getpwnam(std::string(name).c_str());
    if (user == nullptr) return allowed;
    uid = user->pw_uid;
  }
  const auto known = std::ranges::find(grants, uid, &UserGrant::uid);
  UserGrant& grant = known != grants.end() ? *known : grants.emplace_back(UserGrant{.uid = uid});
  grant.*member = number;
  return {};
}

Values show_grants(const std::vector<UserGrant>& grants, std::uint32_t UserGrant::*member) {
  Values all;
  for (const UserGrant& grant : grants) {
    if (grant.*member != UserGrant{}.*member) {
      all.push_back(std::to_string(grant.uid) + "=" + std::to_string(grant.*member));
    }
  }
  return all;
}

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: break;
  }
  return "debug";
}

/// In the order of net::GidLayout.
constexpr std::array<std::string_view, 3> kGidLayouts{"addresses", "rxe", "mlx5"};

// Each row: flag, value, key, repeats, help, set, show.
#define UROCE_NUMBER(flag, value, key, help, member, least, most)                                   \
  Knob {                                                                                            \
    flag, value, key, false, help,                                                                  \
        [](Settings& s, std::string_view text) { return set_number(s.member, text, least, most); }, \
        [](const Settings& s) -> Values { return {std::to_string(s.member)}; }                      \
  }

const std::array kKnobs{
    Knob{"name", "NAME", "name", false, "name of the RDMA device; the daemon listens on RUN_DIR/NAME.sock",
         [](Settings& s, std::string_view text) -> std::string {
           if (!is_device_name(text)) return "1 to 31 letters, digits, '_', '-' or '.'";
           s.config.name = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.name}; }},
    Knob{"port", "SPEC", "port", false,
         "Ethernet port: loopback, udp (sockets of the kernel, without privileges), a DPDK device "
         "(net_memif0,role=server,...) or a PCI address",
         [](Settings& s, std::string_view text) -> std::string {
           if (text.empty()) return "loopback, udp, a DPDK device or a PCI address";
           s.port = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.port}; }},
    Knob{"ip", "ADDRESS/BITS", "ip", true, "address of the port, IPv4 or IPv6",
         [](Settings& s, std::string_view text) { return add_address(s.config.addresses, text); },
         [](const Settings& s) {
           Values all;
           for (const auto& own : s.config.addresses) {
             all.push_back(to_string(own));
           }
           return all;
         }},
    Knob{"gid-layout", "NAME", "gid_layout", false,
         "index of each GID: addresses: as given, the link-local one last; rxe: the link-local one is 0; mlx5: it "
         "is 1, "
         "the others 3, 5, ...",
         [](Settings& s, std::string_view text) -> std::string {
           const auto at = std::ranges::find(kGidLayouts, text);
           if (at == kGidLayouts.end()) return "addresses, rxe or mlx5";
           s.config.gid_layout = static_cast<net::GidLayout>(at - kGidLayouts.begin());
           return {};
         },
         [](const Settings& s) -> Values {
           return {std::string(kGidLayouts[static_cast<std::size_t>(s.config.gid_layout)])};
         }},
    UROCE_NUMBER("hosts", "N", "hosts",
                 "RDMA devices on a switch in memory, for --port loopback; names and addresses count up", hosts, 1,
                 kMaxHosts),
    Knob{"device", "KEY=VALUE,...", "device", true,
         "one of several RDMA devices on the switch, with a name, ip, gid_layout, gateway, netdev, mac or run_dir "
         "of "
         "its own; the rest is as for all: --device name=a,ip=192.0.2.1/24 --device name=b,ip=192.0.2.2/24",
         [](Settings& s, std::string_view text) -> std::string {
           Settings device;
           if (std::string allowed = apply_device(text, device); !allowed.empty()) return allowed;
           if (s.devices.size() == kMaxHosts) return "one of at most " + std::to_string(kMaxHosts);
           s.devices.emplace_back(text);
           return {};
         },
         [](const Settings& s) -> Values { return s.devices; }},
    Knob{"gateway", "ADDRESS", "gateway", true,
         "next hop for addresses outside the prefixes, at most one per family",
         [](Settings& s, std::string_view text) { return add_gateway(s.gateways, text); },
         [](const Settings& s) {
           Values all;
           for (const auto& gateway : s.gateways) all.push_back(to_string(gateway));
           return all;
         }},
    Knob{"netdev", "NAME[@NETNS]", "netdev", false,
         "interface through which the kernel uses port and addresses as well (TCP, ping); in the network namespace "
         "NETNS",
         [](Settings& s, std::string_view text) -> std::string {
           tap::Spec spec;
           if (std::string allowed = tap::parse_spec(text, spec); !text.empty() && !allowed.empty()) return allowed;
           s.config.netdev = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.netdev}; }},
    Knob{"mac", "MAC", "mac", false, "Ethernet address; default: the port's own, or one made from name and address",
         [](Settings& s, std::string_view text) -> std::string {
           s.mac = parse_mac(text);
           return s.mac || text.empty() ? "" : "a unicast address such as 02:00:00:00:00:01";
         },
         [](const Settings& s) -> Values { return {s.mac ? to_string(*s.mac) : ""}; }},
    Knob{"mtu", "BYTES", "mtu", false, "largest packet without the Ethernet header; 0: as the port",
         [](Settings& s, std::string_view text) -> std::string {
           // The smallest path MTU with its headers.
           constexpr std::uint32_t kLeast = 256 + 80;
           if (text == "0") {
             s.config.mtu = 0;
             return {};
           }
           const std::string allowed = set_number(s.config.mtu, text, kLeast, 65000);
           return allowed.empty() ? allowed : "0, or " + allowed;
         },
         [](const Settings& s) -> Values { return {std::to_string(s.config.mtu)}; }},
    Knob{"run-dir", "DIR", "run_dir", false,
         "folder of sockets, locks and the sysfs-like tree; of other users than root: $XDG_RUNTIME_DIR/uroce, or "
         "/tmp/uroce-UID",
         [](Settings& s, std::string_view text) -> std::string {
           if (text.empty()) return "a folder";
           s.config.run_dir = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.run_dir}; }},
    UROCE_NUMBER("workers", "N", "workers.count", "poll-mode threads, each with a queue of the port", workers, 1,
                 16),
    Knob{"cpus", "LIST", "workers.cpus", false, "CPUs of the workers, in order; default: as the kernel schedules",
         [](Settings& s, std::string_view text) { return set_cpus(s.config.cpus, text); },
         [](const Settings& s) -> Values { return {show_cpus(s.config.cpus)}; }},
    Knob{"poll-mode", "MODE", "workers.poll_mode", false, "adaptive: sleep when idle; busy: never sleep",
         [](Settings& s, std::string_view text) -> std::string {
           if (text != "adaptive" && text != "busy") return "adaptive or busy";
           s.config.poll_mode = text == "busy" ? control::PollMode::kBusy : control::PollMode::kAdaptive;
           return {};
         },
         [](const Settings& s) -> Values {
           return {s.config.poll_mode == control::PollMode::kBusy ? "busy" : "adaptive"};
         }},
    UROCE_NUMBER("idle-us", "US", "workers.idle_us",
                 "microseconds without work before a worker with its own core sleeps", config.idle_us, 0,
                 10'000'000),
    UROCE_NUMBER("idle-shared-us", "US", "workers.idle_shared_us",
                 "idle-us when there are fewer cores than pollers", config.idle_shared_us, 0, 10'000'000),
    Knob{"no-hugepages", nullptr, "memory.hugepages", false, "use ordinary memory even if there are hugepages",
         [](Settings& s, std::string_view text) { return set_bool(s.hugepages, text); },
         [](const Settings& s) -> Values { return {s.hugepages ? "true" : "false"}; }},
    Knob{"no-indirect", nullptr, "memory.indirect", false,
         "refuse to register memory that can't be shared, such as stacks and .data",
         [](Settings& s, std::string_view text) { return set_bool(s.config.indirect, text); },
         [](const Settings& s) -> Values { return {s.config.indirect ? "true" : "false"}; }},
    UROCE_NUMBER("buffers", "N", "memory.buffers", "packet buffers of each worker, at least", buffers, 256,
                 1 << 20),
    UROCE_NUMBER("receive-ring-bytes", "BYTES", "memory.receive_ring_bytes", "READ responses in flight to a worker",
                 config.receive_ring_bytes, 65536, kMax32),
    Knob{"no-ecn", nullptr, "transport.ecn", false,
         "send the data of RC and UC without ECT(0): switches drop instead of marking",
         [](Settings& s, std::string_view text) { return set_bool(s.config.ecn, text); },
         [](const Settings& s) -> Values { return {s.config.ecn ? "true" : "false"}; }},
    UROCE_NUMBER("early-retry-us", "US", "transport.early_retry_us",
                 "microseconds before what is not acknowledged is sent again, at least", config.early_retry_us, 100,
                 1'000'000),
    UROCE_NUMBER("max-qps", "N", "limits.max_qps", "queue pairs of each worker", config.max_qps, 1, 1 << 20),
    UROCE_NUMBER("max-cqs", "N", "limits.max_cqs", "completion queues", config.max_cqs, 1, 1 << 20),
    UROCE_NUMBER("max-srqs", "N", "limits.max_srqs", "shared receive queues", config.max_srqs, 2, 1 << 20),
    UROCE_NUMBER("max-mrs", "N", "limits.max_mrs", "memory regions and windows", config.max_mrs, 2, 1 << 20),
    UROCE_NUMBER("user-sessions", "N", "limits.user_sessions", "opened devices of one user; 0: half",
                 config.limits.sessions, 0, kMaxUser),
    UROCE_NUMBER("user-qps", "N", "limits.user_qps", "queue pairs of one user; 0: half", config.limits.qps, 0,
                 kMaxUser),
    UROCE_NUMBER("user-cqs", "N", "limits.user_cqs", "completion queues of one user; 0: half", config.limits.cqs, 0,
                 kMaxUser),
    UROCE_NUMBER("user-srqs", "N", "limits.user_srqs", "shared receive queues of one user; 0: half",
                 config.limits.srqs, 0, kMaxUser),
    UROCE_NUMBER("user-mrs", "N", "limits.user_mrs", "memory regions and windows of one user; 0: half",
                 config.limits.mrs, 0, kMaxUser),
    UROCE_NUMBER("user-pds", "N", "limits.user_pds", "protection domains and XRC domains of one user; 0: half",
                 config.limits.pds, 0, kMaxUser),
    UROCE_NUMBER("user-ahs", "N", "limits.user_ahs", "address handles of one user; 0: half", config.limits.ahs, 0,
                 kMaxUser),
    UROCE_NUMBER("user-groups", "N", "limits.user_groups", "multicast groups of one user; 0: half",
                 config.limits.groups, 0, kMaxUser),
    UROCE_NUMBER("user-attachments", "N", "limits.user_attachments", "attachments to groups of one user; 0: half",
                 config.limits.attachments, 0, kMaxUser),
    UROCE_NUMBER("user-flows", "N", "limits.user_flows", "flows and counters of one user; 0: half",
                 config.limits.flows, 0, kMaxUser),
    UROCE_NUMBER("user-cm-ids", "N", "limits.user_cm_ids", "connection manager ids of one user; 0: half",
                 config.limits.cm_ids, 0, kMaxUser),
    UROCE_NUMBER("user-cm-ports", "N", "limits.user_cm_ports",
                 "ports of the connection manager of one user; 0: half", config.limits.cm_ports, 0, kMaxUser),
    UROCE_NUMBER("user-cm-connections", "N", "limits.user_cm_connections",
                 "connections of the connection manager of one user; 0: half", config.limits.cm_connections, 0,
                 kMaxUser),
    UROCE_NUMBER("user-descriptors", "N", "limits.user_descriptors",
                 "descriptors of the daemon of one user; 0: half", config.limits.descriptors, 0, kMaxUser),
    UROCE_NUMBER("user-threads", "N", "limits.user_threads", "threads of the daemon of one user; 0: half",
                 config.limits.threads, 0, kMaxUser),
    UROCE_NUMBER("user-mappings", "N", "limits.user_mappings", "mappings of the daemon of one user; 0: half",
                 config.limits.mappings, 0, kMaxUser),
    UROCE_NUMBER("user-bytes", "BYTES", "limits.user_bytes", "memory of queues of one user; 0: half",
                 config.limits.queue_bytes, 0, kMaxUser),
    UROCE_NUMBER("user-registered-bytes", "BYTES", "limits.user_registered_bytes",
                 "registered memory of one user; 0: half", config.limits.registered_bytes, 0, kMaxUser),
    Knob{"user-weight", "USER=N", "limits.user_weight", true,
         "turns of a user on the workers for each turn of another user, 1 to 100",
         [](Settings& s, std::string_view text) {
           return set_grant(s.config.grants, text, &UserGrant::weight, proto::SendScheduler::kMaxWeight);
         },
         [](const Settings& s) { return show_grants(s.config.grants, &UserGrant::weight); }},
    Knob{"user-rate-mbps", "USER=N", "limits.user_rate_mbps", true,
         "Mbit/s that the QPs of a user may send together; default: no limit",
         [](Settings& s, std::string_view text) {
           return set_grant(s.config.grants, text, &UserGrant::rate_mbps, kMaxMbps);
         },
         [](const Settings& s) { return show_grants(s.config.grants, &UserGrant::rate_mbps); }},
    Knob{"user", "USER", "security.user", false,
         "user to change to once the port is open, with the capabilities that serving needs; default: none",
         [](Settings& s, std::string_view text) -> std::string {
           s.user = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.user}; }},
    Knob{"no-sandbox", nullptr, "security.sandbox", false, "keep all capabilities and system calls",
         [](Settings& s, std::string_view text) { return set_bool(s.sandbox, text); },
         [](const Settings& s) -> Values { return {s.sandbox ? "true" : "false"}; }},
    Knob{"socket-group", "GROUP", "security.socket_group", false,
         "group whose members may use the device, if it exists; empty: none",
         [](Settings& s, std::string_view text) -> std::string {
           s.config.socket_group = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.socket_group}; }},
    Knob{"socket-mode", "MODE", "security.socket_mode", false,
         "permissions of the socket, octal; 0: 0660 with a socket-group, otherwise 0666",
         [](Settings& s, std::string_view text) -> std::string {
           std::uint32_t mode = 0;
           const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
           if (text.empty() || error != std::errc{} || end != text.data() + text.size() || mode > 0777) {
             return "permissions such as 0660";
           }
           s.config.socket_mode = mode;
           return {};
         },
         [](const Settings& s) -> Values {
           char octal[16] = "0";
           if (s.config.socket_mode != 0) std::snprintf(octal, sizeof(octal), "0%o", s.config.socket_mode);
           return {octal};
         }},
    Knob{"latency", "on|off", "latency", false,
         "measure how long work requests, wake-ups and duty cycles take: urocectl latency",
         [](Settings& s, std::string_view text) -> std::string {
           if (text != "on" && text != "off") return "on or off";
           s.config.latency = text == "on";
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.latency ? "on" : "off"}; }},
    Knob{"events", "on|off", "events", false,
         "record why QPs send again, send less, are refused or fail: urocectl show events",
         [](Settings& s, std::string_view text) -> std::string {
           if (text != "on" && text != "off") return "on or off";
           s.config.events = text == "on";
           return {};
         },
         [](const Settings& s) -> Values { return {s.config.events ? "on" : "off"}; }},
    Knob{"fault", "SPEC", "debug.fault", false,
         "faults to inject, as `urocectl fault` has them: "
         "drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=rx|tx|both",
         [](Settings& s, std::string_view text) -> std::string {
           s.fault = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.fault}; }},
    Knob{"pcap", "FILE", "debug.pcap", false, "write all frames to a pcapng file",
         [](Settings& s, std::string_view text) -> std::string {
           s.pcap = text;
           return {};
         },
         [](const Settings& s) -> Values { return {s.pcap}; }},
    UROCE_NUMBER("seed", "N", "debug.seed", "seed of keys and QP numbers, to repeat a run; 0: from the kernel",
                 config.seed, 0, std::numeric_limits<std::uint64_t>::max()),
    Knob{"log-level", "LEVEL", "log_level", false, "error, warning, info or debug",
         [](Settings& s, std::string_view text) -> std::string {
           return platform::parse_log_level(text, s.log_level) ? "" : "error, warning, info or debug";
         },
         [](const Settings& s) -> Values { return {name_of(s.log_level)}; }},
};
#undef UROCE_NUMBER

}  // namespace

std::span<const Knob> knobs() { return kKnobs; }

std::string apply(const Knob& knob, Settings& settings, std::string_view text, bool first) {
  if (first && std::string_view(knob.flag) == "ip") settings.config.addresses.clear();
  if (first && std::string_view(knob.flag) == "gateway") settings.gateways.clear();
  if (first && std::string_view(knob.flag) == "device") settings.devices.clear();
  for (UserGrant& grant : settings.config.grants) {
    if (first && std::string_view(knob.flag) == "user-weight") grant.weight = UserGrant{}.weight;
    if (first && std::string_view(knob.flag) == "user-rate-mbps") grant.rate_mbps = 0;
  }
  return knob.set(settings, text);
}

std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(text.size() / 2, 2) + 1;
  for (const std::string& name : names) {
    std::vector<std::size_t> row(name.size() + 1);
    for (std::size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= text.size(); ++i) {  // Levenshtein distance, one row at a time
      std::size_t diagonal = row[0]++;
      for (std::size_t j = 1; j <= name.size(); ++j) {
        const std::size_t keep = diagonal + (text[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, keep});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = name;
    }
  }
  return best;
}

}  // namespace uroce::uroced
