// The configuration of a device and of the daemon that serves it. Every field has a default that works for a first
// try.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "control/machine/usage.h"
#include "net/device_controls.h"
#include "net/gid_table.h"
#include "net/link_stack.h"
#include "net/netdev.h"
#include "wire/address.h"

namespace uroce::control {

enum class PollMode : std::uint8_t {
  kAdaptive,  ///< sleep when idle, soon where cores are few
  kBusy,      ///< never sleep
};

/// What the administrator grants a user.
struct UserGrant {
  std::uint32_t uid = 0;
  std::uint32_t weight = 1;     ///< turns for each turn of a user of weight 1
  std::uint32_t rate_mbps = 0;  ///< that the user's QPs may send in all; 0: no limit
};

struct DaemonConfig {
  std::string name = "uroce0";         ///< the RDMA device's name
  std::string run_dir = "/run/uroce";  ///< sockets, lock, sysfs-like tree
  std::string port;                    ///< the port as the user named it, for display
  std::vector<net::InterfaceAddress> addresses;
  net::GidLayout gid_layout = net::GidLayout::kAddresses;
  std::optional<wire::Address> gateway4, gateway6;
  std::uint32_t mtu = 0;  ///< bytes after the Ethernet header; 0: the port's own

  PollMode poll_mode = PollMode::kAdaptive;
  std::uint32_t idle_us = 200;       ///< idle time before a worker with its own core sleeps
  std::uint32_t idle_shared_us = 0;  ///< idle time before a worker sleeps when there are fewer cores than pollers
  std::vector<int> cpus;             ///< worker i runs on cpus[i % size]; empty: where the scheduler puts it

  Usage limits;                   ///< of each user; 0: half of what there is
  std::vector<UserGrant> grants;  ///< one for each user that has any
  std::uint32_t max_qps = 16384;  ///< of each worker
  std::uint32_t max_cqs = 65536;
  std::uint32_t max_srqs = 65536;
  std::uint32_t max_mrs = 1u << 20;             ///< at most 2^20, windows included
  std::uint32_t receive_ring_bytes = 4u << 20;  ///< READ responses that may be in flight to a worker
  std::uint32_t early_retry_us = 4000;          ///< shortest early retransmission
  bool ecn = true;                              ///< the data of connected QPs is ECN-capable
  bool hugepages = true;                        ///< place queues in hugepages if the system has free ones

  bool indirect = true;  ///< memory that cannot be shared is accessed through the kernel; false: refused

  bool events = false;                      ///< record what happens to QPs besides the normal course
  bool latency = false;                     ///< measure how long work requests, wake-ups and duty cycles take
  std::uint64_t seed = 0;                   ///< of keys and QPNs; 0: from the kernel
  int link_events = -1;                     ///< eventfd: the link of the port may have changed; -1: none
  net::DeviceControls* controls = nullptr;  ///< for urocectl fault and trace; may be null
  std::string netdev;                       ///< tap::Spec of the kernel's interface of the device; empty: none
  net::Netdev* netdev_port = nullptr;       ///< that interface, once it is open
  std::string socket_group = "rdma";  ///< that the socket belongs to; empty, or not in group(5): the daemon's own
  std::uint32_t socket_mode = 0;      ///< permissions of the socket; 0: 0660 with a socket_group, otherwise 0666
};

}  // namespace uroce::control
