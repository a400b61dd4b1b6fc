#include "admin/show_port.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "control/machine/port.h"
#include "net/prefix.h"
#include "platform/clock.h"
#include "wire/bytes.h"

namespace uroce::admin {

using control::address_text;
using control::ControlState;

namespace {

using Json = nlohmann::ordered_json;

Json vlan_cell(std::uint16_t vlan) { return vlan == 0 ? Json("-") : Json(vlan); }

std::string prefix_text(const net::InterfaceAddress& of) {
  return address_text(of.address) + "/" + std::to_string(of.prefix_bits);
}

/// The address with its host bits zero.
net::InterfaceAddress network_of(net::InterfaceAddress own) {
  const unsigned bits = (own.address.is_v4() ? 96u : 0u) + own.prefix_bits;
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned kept = std::clamp(bits, i * 8, i * 8 + 8) - i * 8;
    own.address.bytes[i] &= static_cast<std::uint8_t>(0xff00u >> kept);
  }
  return own;
}

struct CopyCounters {
  static constexpr std::string_view kName = "copy_counters";
  worker::WorkerCounters counters;
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& worker) { counters = worker.counters(); }
};

struct ListNeighbours {
  static constexpr std::string_view kName = "list_neighbours";
  wire::Address first;
  std::size_t most = 0;
  std::vector<net::NeighbourEntry> found{};
  std::size_t all = 0;
  void describe(worker::ArgumentText& text) const { text.add("first", address_text(first)); }
  void run(worker::WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    all = worker.link()->neighbours();
    if (most != 0) found = worker.link()->list_neighbours(first, most, worker.now());
  }
};

std::string_view state_text(net::NeighbourEntry::State state) {
  switch (state) {
    case net::NeighbourEntry::State::kIncomplete: return "INCOMPLETE";
    case net::NeighbourEntry::State::kReachable: return "REACHABLE";
    case net::NeighbourEntry::State::kStale: return "STALE";
    case net::NeighbourEntry::State::kFailed: return "FAILED";
  }
  return "-";
}

Json seconds_cell(Nanos ago) { return ago == kNever ? Json("-") : Json(ago / kSecond); }

// An address is as long as the two numbers of a cursor.
wire::Address address_of(const Cursor& cursor) {
  wire::Address address;
  auto* const bytes = reinterpret_cast<std::byte*>(address.bytes.data());
  wire::store64(bytes, cursor.at);
  wire::store64(bytes + 8, cursor.handle);
  return address;
}

Cursor cursor_of(const wire::Address& address) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(address.bytes.data());
  return {wire::load64(bytes), wire::load64(bytes + 8)};
}

}  // namespace

Json list_workers(const ControlState& state, Page& page) {
  Json list = Json::array();
  for (std::uint64_t i = page.take_start().at; i < state.worker_count(); ++i) {
    if (!page.take_row({i, 0})) break;
    worker::WorkerCore& worker = state.worker(static_cast<std::uint32_t>(i));
    CopyCounters copy;
    worker.call(copy);
    const worker::WorkerCounters& c = copy.counters;
    list.push_back({{"worker", i},
                    {"thread", worker.thread_id()},
                    {"cpu", worker.config().cpu < 0 ? Json("any") : Json(worker.config().cpu)},
                    {"qps", state.qps_of_worker(static_cast<std::uint32_t>(i))},
                    {"sleeping", worker.is_sleeping()},
                    {"busy_us", c.busy / kMicrosecond},
                    {"steps", c.steps},
                    {"sleeps", c.sleeps},
                    {"stalls", c.stalls},
                    {"longest_step_us", c.longest_step / kMicrosecond},
                    {"steered_away", c.steered_away},
                    {"steer_dropped", c.steer_dropped}});
  }
  return list;
}

Json list_gids(const ControlState& state, Page& page) {
  Json list = Json::array();
  const net::GidTable& gids = state.port().gids();
  for (std::uint64_t i = page.take_start().handle; i < gids.size(); ++i) {
    const auto gid = gids.entry(i);
    if (!gid) continue;
    if (!page.take_row({0, i})) break;
    list.push_back({{"index", i},
                    {"gid", control::gid_text(gid->address.bytes)},
                    {"address", prefix_text(*gid)},
                    {"vlan", vlan_cell(gid->vlan)},
                    {"type", "RoCE v2"}});
  }
  return list;
}

Json list_routes(const ControlState& state, Page& page) {
  Json list = Json::array();
  if (state.port().sockets_only()) return list;
  std::set<std::tuple<std::string, std::string, std::uint16_t>> routes;  // destination, next hop, VLAN
  const std::vector<net::InterfaceAddress> addresses = state.port().gids().addresses();
  const std::optional<wire::Address> gateways[] = {state.config().gateway4, state.config().gateway6};
  for (const net::InterfaceAddress& own : addresses) {
    routes.emplace(prefix_text(network_of(own)), "-", own.vlan);
    for (const auto& gateway : gateways) {
      if (gateway && net::in_prefix(own, *gateway)) routes.emplace("default", address_text(*gateway), own.vlan);
    }
  }
  const std::uint64_t first = page.take_start().handle;
  std::uint64_t number = 0;
  for (const auto& [destination, via, vlan] : routes) {
    if (number++ < first) continue;
    if (!page.take_row({0, number - 1})) break;
    list.push_back({{"destination", destination}, {"via", via}, {"vlan", vlan_cell(vlan)}});
  }
  return list;
}

Json list_neighbours(const ControlState& state, Page& page) {
  Json list = Json::array();
  if (state.port().sockets_only()) return list;
  // The worker searches its table for administrators only; others learn how many there are.
  ListNeighbours neighbours{address_of(page.take_start()), page.viewer.sees_all() ? Page::kRows + 1 : 0};
  state.link_worker().call(neighbours);
  if (!page.viewer.sees_all()) {
    page.viewer.hide(neighbours.all);
    return list;
  }
  const net::NeighbourEntry* last = nullptr;
  for (const net::NeighbourEntry& each : neighbours.found) {
    // Those with one address, in several VLANs, are on one page.
    if (last != nullptr && last->address == each.address) {
      page.take_rows(1);
    } else if (!page.take_row(cursor_of(each.address))) {
      break;
    }
    last = &each;
    const bool known = each.confirmed_ago != kNever;
    list.push_back({{"address", address_text(each.address)},
                    {"mac", known ? Json(control::mac_text(each.mac)) : Json("-")},
                    {"vlan", vlan_cell(each.vlan)},
                    {"state", state_text(each.state)},
                    {"confirmed_s", seconds_cell(each.confirmed_ago)},
                    {"used_s", seconds_cell(each.used_ago)}});
  }
  return list;
}

}  // namespace uroce::admin
