// The description of the device and its port that clients query (ibv_query_device(3), ibv_query_port(3)).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/control.h"
#include "control/machine/config.h"
#include "net/device.h"
#include "net/gid_table.h"
#include "proto/state/attributes.h"

namespace uroce::control {

/// Upper limits of one object.
inline constexpr std::uint32_t kMaxQpWr = 1u << 20;
using proto::kMaxSge;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr std::uint32_t kMaxCqe = 1u << 20;
inline constexpr std::uint32_t kMaxPd = 1u << 20;
inline constexpr std::uint32_t kMaxAh = 65536;  ///< of the daemon
inline constexpr std::uint32_t kMaxSrqWr = 1u << 20;
inline constexpr std::uint32_t kMaxXrcd = 4096;  ///< of a session; each may be a descriptor of the daemon
inline constexpr std::uint32_t kMaxCmConnections = 16384;
inline constexpr std::uint16_t kFirstFreeCmPort = 32768, kLastFreeCmPort = 60999;  ///< that a port space hands out
inline constexpr std::uint32_t kMaxCmPorts = kLastFreeCmPort - kFirstFreeCmPort + 1;
inline constexpr std::uint32_t kMaxGroups = 8192;
inline constexpr std::uint32_t kMaxGroupsOfQp = 1024;
inline constexpr std::uint32_t kMaxCounters = 4096;      ///< of a session
inline constexpr std::uint32_t kMaxAttachments = 65536;  ///< of all QPs, which one worker may have
inline constexpr std::uint64_t kMaxMrBytes = 1ull << 47;
inline constexpr std::uint64_t kMaxDeviceMemory = 1ull << 30;

class Port {
 public:
  static constexpr std::uint32_t kLeastMtu = 576;  ///< bytes; every IPv4 host accepts such a datagram (RFC 791)

  Port(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t workers);

  const uroce_device_response& device() const { return device_; }
  const uroce_port_response& port() const { return port_; }
  const net::GidTable& gids() const { return gids_; }
  const wire::Mac& mac() const { return mac_; }
  /// Largest path MTU in bytes.
  std::uint32_t active_mtu_bytes() const { return 128u << port_.active_mtu; }
  /// False: no such index. An empty entry has GID zero.
  bool gid(std::uint32_t index, uroce_gid_response& out) const;
  std::uint32_t link_mtu() const { return link_mtu_; }
  /// False: not kLeastMtu to most_mtu().
  bool set_link_mtu(std::uint32_t bytes);
  /// The MTU at the start, for which frame buffers were sized.
  std::uint32_t most_mtu() const { return most_mtu_; }
  /// net::DeviceInfo::sockets_only: no raw packets, no groups, no more addresses.
  bool sockets_only() const { return sockets_only_; }
  /// Name of the interface that the kernel shows for the port; empty: there is none (any longer).
  std::string netdev() const;
  bool up() const;
  net::LinkState link() const { return link_; }
  /// False: the state has not changed.
  bool set_link(net::LinkState link);
  /// False: the port has this speed already; 0 stands for the speed of memory.
  bool set_speed(std::uint64_t mbps);
  /// False: the table has the GID already, or is full.
  bool add_gid(const net::InterfaceAddress& gid);
  /// False: the table has no such GID.
  bool remove_gid(const wire::Address& gid);

 private:
  void describe_device(const DaemonConfig& config, std::uint32_t workers);
  void describe_port(const net::DeviceInfo& device);

  wire::Mac mac_{};
  std::uint32_t netdev_ = 0;                  ///< index of the port's interface in the kernel; 0: none
  const net::Netdev* netdev_port_ = nullptr;  ///< that interface, if it is the daemon's own
  bool sockets_only_ = false;
  std::uint32_t link_mtu_ = 1500, most_mtu_ = 1500;
  net::LinkState link_ = net::LinkState::kUp;
  net::GidTable gids_;
  uroce_device_response device_{};
  uroce_port_response port_{};
};

/// ibv_mtu of the largest IB MTU that a link carries: the headers take 80 bytes at most (1500 gives 1024).
std::uint32_t path_mtu_of_link(std::uint32_t link_mtu);

/// Bytes of the longest frame, tagged, without FCS.
std::uint32_t max_frame_of_link(std::uint32_t link_mtu);

/// "::ffff:192.0.2.1" written as sysfs does: 0000:0000:0000:0000:0000:ffff:c000:0201.
std::string gid_text(std::span<const std::uint8_t, 16> gid);
/// "192.0.2.1" or "2001:db8::1".
std::string address_text(const wire::Address& address);
std::string mac_text(const wire::Mac& mac);
/// A GUID in the format of sysfs: 0072:78ff:fe65:0001.
std::string guid_text(std::uint64_t big_endian);

}  // namespace uroce::control
