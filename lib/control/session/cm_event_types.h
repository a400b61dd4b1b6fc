// rdma_cm_event_type and the other constants of rdma-core's headers that events contain.
#pragma once

#include <cstdint>

namespace uroce::control {

enum CmEventType : std::uint32_t {
  kAddrResolved,
  kAddrError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddrChange,
  kTimewaitExit,
};

// ibv_qp_type.
inline constexpr std::uint8_t kTypeRc = 2, kTypeUc = 3, kTypeUd = 4, kTypeXrcSend = 9, kTypeXrcRecv = 10;
// AF_INET, AF_INET6.
inline constexpr std::uint16_t kFamilyIp4 = 2, kFamilyIp6 = 10;
inline constexpr std::uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY

}  // namespace uroce::control
