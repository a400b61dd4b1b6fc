#include "control/link_control.h"

#include <atomic>

#include "control/sysfs_tree.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {

LinkControl::LinkControl(ControlState& state, EventRouter& events, std::uint32_t kernel_interface)
    : state_(state), events_(events), kernel_addresses_(kernel_interface) {
  publish_addresses();
  share_with_kernel();
}

void LinkControl::refresh() {
  constexpr std::uint32_t kPortActive = 9, kPortError = 10;  // ibv_event_type
  const DaemonConfig& config = state_.config();
  bool up = state_.port().up();
  state_.link_worker().call([&](WorkerCore& worker) {
    if (const PortControl* port = worker.port(); port != nullptr) up = port->info().link_up;
  });
  up = up && !state_.workers().link_disabled.load(std::memory_order_relaxed);
  if (!state_.port().set_link(up)) return;
  log(LogLevel::kDebug, "%s: the link is %s", config.name.c_str(), up ? "up" : "down");
  write_link_state(config.run_dir, config.name, state_.port());
  events_.broadcast(state_.sessions(), up ? kPortActive : kPortError);
}

void LinkControl::enable(bool enabled) {
  state_.workers().link_disabled.store(!enabled, std::memory_order_relaxed);
  refresh();
}

bool LinkControl::set_mtu(std::uint32_t bytes) {
  Port& port = state_.port();
  if (!port.set_link_mtu(bytes)) return false;
  state_.on_all_workers([&](WorkerCore& worker) {
    worker.transport().set_port_mtu(port.active_mtu_bytes());
    worker.transport().set_max_frame(max_frame_of_link(bytes));
    if (worker.link() != nullptr) worker.link()->set_mtu(bytes);
  });
  for (const auto& [id, session] : state_.sessions()) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->packet_bytes).store(port.active_mtu_bytes(), std::memory_order_relaxed);
  }
  return true;
}

bool LinkControl::add_address(const net::InterfaceAddress& address) {
  if (!state_.port().add_gid(address)) return false;
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->add_address(address);
    worker.touch_link();
  });
  gids_changed();
  return true;
}

bool LinkControl::remove_address(const wire::Address& address) {
  if (!state_.port().remove_gid(address)) return false;
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() != nullptr) worker.link()->remove_address(address);
  });
  gids_changed();
  return true;
}

void LinkControl::publish_addresses() {
  const std::vector<net::InterfaceAddress> addresses = state_.port().gids().addresses();
  state_.on_all_workers([&](WorkerCore& worker) { worker.set_addresses(addresses); });
}

void LinkControl::share_with_kernel() {
  if (!kernel_addresses_.refresh(state_.port().gids().addresses())) return;
  const std::vector<wire::Address> shared = kernel_addresses_.shared();
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() != nullptr) worker.link()->leave_to_kernel(shared);
  });
}

void LinkControl::gids_changed() {
  constexpr std::uint32_t kGidChange = 18;  // IBV_EVENT_GID_CHANGE
  publish_addresses();
  share_with_kernel();
  rewrite_gids(state_.config().run_dir, state_.config().name, state_.port());
  events_.broadcast(state_.sessions(), kGidChange);
}

bool LinkControl::join_group(const wire::Address& group) {
  if (groups_.size() >= kMaxGroups && !groups_.contains(group)) return false;
  if (groups_[group]++ != 0) return true;
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->join(group, monotonic_now());
    worker.touch_link();
  });
  return true;
}

void LinkControl::leave_group(const wire::Address& group) {
  const auto it = groups_.find(group);
  if (it == groups_.end() || --it->second != 0) return;
  groups_.erase(it);
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->leave(group, monotonic_now());
    worker.touch_link();
  });
}

net::Resolution LinkControl::resolve(const wire::Address& destination, std::uint16_t vlan, wire::Mac& mac) {
  net::Resolution resolution = net::Resolution::kNoRoute;
  state_.link_worker().call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    resolution = worker.link()->resolve(destination, monotonic_now(), mac, vlan);
    worker.touch_link();
  });
  return resolution;
}

}  // namespace uroce::daemon
