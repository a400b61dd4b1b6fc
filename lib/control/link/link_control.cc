#include "control/link/link_control.h"

#include <atomic>
#include <utility>

#include "control/link/sysfs_tree.h"
#include "control/state/worker_commands.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::control {
namespace {

const char* description(net::LinkState link) {
  switch (link) {
    case net::LinkState::kUp: return "the port is up";
    case net::LinkState::kNoCarrier: return "the port is down: no carrier, or no peer";
    case net::LinkState::kDisabled: return "the port is down: it is disabled (ip link, or urocectl link down)";
    default: return "the port is down: its interface has been deleted; restart the daemon for a new one";
  }
}

}  // namespace

LinkControl::LinkControl(ControlState& state, EventRouter& events, std::uint32_t kernel_interface)
    : state_(state), events_(events), kernel_addresses_(kernel_interface), netdev_(state.config().netdev_port) {
  publish_addresses();
  share_with_kernel();
  netdev_.set_carrier(state_.port().up());
}

bool LinkControl::refresh() {
  constexpr std::uint32_t kPortActive = 9, kPortError = 10;  // ibv_event_type
  worker_commands::QueryLinkState query{device_link_};
  state_.link_worker().call(query);
  device_link_ = query.link;
  for (const net::AddressConflict& conflict : query.conflicts) report(conflict);
  const bool disabled = state_.workers().link_disabled.load(std::memory_order_relaxed);
  const bool was_up = state_.port().up();
  const net::LinkState link =
      disabled && query.link != net::LinkState::kGone ? net::LinkState::kDisabled : query.link;
  // Without a link the speed is unknown: the port keeps the last one.
  const bool speed_changed = link == net::LinkState::kUp && state_.port().set_speed(query.speed_mbps);
  if (!state_.port().set_link(link)) {
    if (tree_is_old_ || speed_changed) update_tree();
    return false;
  }
  platform::log(platform::LogLevel::kInfo, "%s: %s", state_.config().name.c_str(), description(link));
  update_tree();
  const bool up = state_.port().up();
  netdev_.set_carrier(up);
  if (was_up && !up) ++times_down_;
  if (up && !was_up) state_.link_worker().call(worker_commands::AnnounceAddresses{});
  if (up != was_up) events_.broadcast(state_.sessions(), up ? kPortActive : kPortError);
  return true;
}

void LinkControl::report(const net::AddressConflict& conflict) {
  constexpr Nanos kReportInterval = 60 * kSecond;
  const Nanos now = monotonic_now();
  const auto [at, first] = conflicts_.try_emplace(conflict.address, now);
  if (!first && now - at->second < kReportInterval) return;
  at->second = now;
  platform::log(
      platform::LogLevel::kWarning,
      "%s: %s is also an address of the station %s; its packets go to either. Give one of the two another address",
      state_.config().name.c_str(), address_text(conflict.address).c_str(), mac_text(conflict.station).c_str());
}

void LinkControl::publish_counters(const worker_commands::SumCounters& sums) {
  const DaemonConfig& config = state_.config();
  if (!has_sysfs_tree(config.run_dir, config.name)) return;
  CounterFiles current = counter_files(sums, times_down_);
  if (update_counter_files(config.run_dir, config.name, counters_, current).ok()) counters_ = std::move(current);
}

void LinkControl::update_tree() {
  const absl::Status status = update_sysfs_tree(state_.config().run_dir, state_.config().name, state_.port());
  const bool was_old = std::exchange(tree_is_old_, !status.ok());
  if (!status.ok() && !was_old) {
    platform::log(platform::LogLevel::kWarning, "%s; programs see an old state of the port until then",
                  std::string(status.message()).c_str());
  }
}

void LinkControl::enable(bool enabled) {
  state_.workers().link_disabled.store(!enabled, std::memory_order_relaxed);
  refresh();
}

void LinkControl::set_gateways(const std::optional<wire::Address>& v4, const std::optional<wire::Address>& v6) {
  state_.link_worker().call(worker_commands::SetGateways{v4, v6});
}

bool LinkControl::set_mtu(std::uint32_t bytes) {
  Port& port = state_.port();
  if (!port.set_link_mtu(bytes)) return false;
  state_.on_all_workers(worker_commands::SetMtu{bytes, port.active_mtu_bytes()});
  netdev_.set_mtu(bytes);
  for (const auto& [id, session] : state_.sessions()) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->packet_bytes).store(port.active_mtu_bytes(), std::memory_order_relaxed);
  }
  return true;
}

bool LinkControl::add_address(const net::InterfaceAddress& address) {
  if (!state_.port().add_gid(address)) return false;
  state_.link_worker().call(worker_commands::AddAddress{address});
  gids_changed();
  return true;
}

bool LinkControl::remove_address(const wire::Address& address) {
  if (!state_.port().remove_gid(address)) return false;
  conflicts_.erase(address);
  state_.link_worker().call(worker_commands::RemoveAddress{address});
  gids_changed();
  return true;
}

void LinkControl::publish_addresses() {
  const std::vector<net::InterfaceAddress> addresses = state_.port().gids().addresses();
  state_.on_all_workers(worker_commands::SetAddresses{addresses});
  netdev_.assign(addresses);
}

void LinkControl::share_with_kernel() {
  if (!kernel_addresses_.refresh(state_.port().gids().addresses())) return;
  const std::vector<wire::Address> shared = kernel_addresses_.shared();
  state_.link_worker().call(worker_commands::LeaveToKernel{shared});
}

void LinkControl::gids_changed() {
  constexpr std::uint32_t kGidChange = 18;  // IBV_EVENT_GID_CHANGE
  publish_addresses();
  share_with_kernel();
  update_tree();
  events_.broadcast(state_.sessions(), kGidChange);
}

bool LinkControl::join_group(uid_t user, const wire::Address& group) {
  auto& users = groups_[group];
  Members& members = users[user];
  if (members.count == 0) members.charge = state_.quotas().charge(user, {.groups = 1});
  if (members.count == 0 && !members.charge) {
    users.erase(user);
    if (users.empty()) groups_.erase(group);
    return false;
  }
  const bool first = users.size() == 1 && members.count == 0;
  ++members.count;
  if (first) state_.link_worker().call(worker_commands::JoinGroup{group});
  return true;
}

void LinkControl::leave_group(uid_t user, const wire::Address& group) {
  const auto it = groups_.find(group);
  if (it == groups_.end()) return;
  const auto members = it->second.find(user);
  if (members == it->second.end() || --members->second.count != 0) return;
  it->second.erase(members);
  if (!it->second.empty()) return;
  groups_.erase(it);
  state_.link_worker().call(worker_commands::LeaveGroup{group});
}

Neighbour LinkControl::resolve(const NeighbourKey& key) {
  worker_commands::ResolveNeighbour resolve{key.destination, key.vlan};
  state_.link_worker().call(resolve);
  return {resolve.resolution, resolve.mac};
}

NeighbourWaiters::Id LinkControl::wait_for(const NeighbourKey& key, Nanos deadline, NeighbourWaiters::Done done) {
  return waiters_.add(key, deadline, std::move(done));
}

void LinkControl::check_neighbours(Nanos now) {
  const bool changed = state_.workers().neighbours.take();
  if (waiters_.empty() || (!changed && now < next_neighbour_deadline())) return;
  worker_commands::ResolveNeighbours resolve{waiters_.keys(), {}};
  state_.link_worker().call(resolve);
  waiters_left_ = !waiters_.complete(resolve.results, now);
}

}  // namespace uroce::control
