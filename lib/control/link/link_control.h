// The port's link as the control thread changes it: addresses, MTU, multicast groups, link state. Each change
// reaches the port's description, the link stack on the link worker, all workers' address filters, the sysfs-like
// tree and the clients' event channels.
//
// Call contract. The control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "control/link/kernel_addresses.h"
#include "control/link/netdev_control.h"
#include "control/link/port_counters.h"
#include "control/session/neighbour_waiters.h"
#include "control/state/event_router.h"
#include "control/state/state.h"
#include "net/link_stack.h"

namespace uroce::control {

class LinkControl {
 public:
  /// `kernel_interface`: index of the port's interface in the kernel; 0: it has none.
  LinkControl(ControlState& state, EventRouter& events, std::uint32_t kernel_interface);

  /// Reads the link state from the device; on a change there is a line in the log, and all clients get
  /// IBV_EVENT_PORT_ACTIVE or PORT_ERR. False: no change.
  bool refresh();
  /// Writes the files of counters that have changed, where there are any.
  void publish_counters(const worker_commands::SumCounters& sums);
  /// `urocectl link up|down`. While disabled, frames are dropped in both directions.
  void enable(bool enabled);
  /// False: the port has the address already, or the GID table is full. Clients get IBV_EVENT_GID_CHANGE.
  bool add_address(const net::InterfaceAddress& address);
  /// False: the port has no such address.
  bool remove_address(const wire::Address& address);
  /// Next hops for destinations in no prefix of the port; nullopt: none.
  void set_gateways(const std::optional<wire::Address>& v4, const std::optional<wire::Address>& v6);
  /// Applies to packets sent after the call; QPs keep their path MTU. False: not Port::kLeastMtu to
  /// Port::most_mtu().
  bool set_mtu(std::uint32_t bytes);
  /// Checks again which of the port's addresses the kernel also has on the port's interface.
  void share_with_kernel();

  /// Adds or removes one member of a group: the port joins with the first and leaves with the last. False: the
  /// user's QPs are members of too many groups.
  bool join_group(uid_t user, const wire::Address& group);
  void leave_group(uid_t user, const wire::Address& group);

  /// The next hop to the destination. On kPending the link stack has sent a request.
  Neighbour resolve(const NeighbourKey& key);
  /// After kPending: `done` is called once, when the outcome is known or the deadline has passed.
  NeighbourWaiters::Id wait_for(const NeighbourKey& key, Nanos deadline, NeighbourWaiters::Done done);
  void cancel(NeighbourWaiters::Id waiter) { waiters_.cancel(waiter); }
  /// Completes waiters. To be called when WorkerShared::neighbours is readable, and at next_neighbour_deadline().
  void check_neighbours(Nanos now);
  Nanos next_neighbour_deadline() const {
    return waiters_left_ && !waiters_.empty() ? 0 : waiters_.next_deadline();
  }
  /// The control thread's frames that wait for the link worker.
  void wake() { state_.link_worker().wake(); }

 private:
  void gids_changed();
  /// Another station uses an address of the port: a line in the log, once a minute for each address.
  void report(const net::AddressConflict& conflict);
  /// The files that programs read. What cannot be written is tried again with the next refresh().
  void update_tree();
  void publish_addresses();

  ControlState& state_;
  EventRouter& events_;
  /// A user's attachments to one group.
  struct Members {
    std::uint32_t count = 0;
    Charge charge;
  };
  std::map<wire::Address, std::map<uid_t, Members>> groups_;
  net::LinkState device_link_ = net::LinkState::kUp;  ///< without `urocectl link down`
  std::map<wire::Address, Nanos> conflicts_;          ///< when each was reported
  bool tree_is_old_ = false;
  std::uint64_t times_down_ = 0;
  CounterFiles counters_ = counter_files({}, 0);  ///< as the files have them
  KernelAddresses kernel_addresses_;
  NetdevControl netdev_;
  NeighbourWaiters waiters_;
  bool waiters_left_ = false;  ///< some that are to be completed
};

}  // namespace uroce::control
