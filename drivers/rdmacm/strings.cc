#include <rdma/rdma_cma.h>

#include <cstdint>
#include <cstring>

#include "export.h"

namespace {

/// Of rdma-core 60 and later.
const char* later_event(std::uint32_t value) {
  switch (value) {
    case 16: return "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    case 17: return "RDMA_CM_EVENT_ADDRINFO_ERROR";
    case 18: return "RDMA_CM_EVENT_USER";
    default: return "UNKNOWN EVENT";
  }
}

}  // namespace

UROCE_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
  std::uint32_t value;
  std::memcpy(&value, &event, sizeof(value));
  if (value > RDMA_CM_EVENT_TIMEWAIT_EXIT) return later_event(value);
#define UROCE_EVENT(name) \
  case name: return #name
  switch (event) {
    UROCE_EVENT(RDMA_CM_EVENT_ADDR_RESOLVED);
    UROCE_EVENT(RDMA_CM_EVENT_ADDR_ERROR);
    UROCE_EVENT(RDMA_CM_EVENT_ROUTE_RESOLVED);
    UROCE_EVENT(RDMA_CM_EVENT_ROUTE_ERROR);
    UROCE_EVENT(RDMA_CM_EVENT_CONNECT_REQUEST);
    UROCE_EVENT(RDMA_CM_EVENT_CONNECT_RESPONSE);
    UROCE_EVENT(RDMA_CM_EVENT_CONNECT_ERROR);
    UROCE_EVENT(RDMA_CM_EVENT_UNREACHABLE);
    UROCE_EVENT(RDMA_CM_EVENT_REJECTED);
    UROCE_EVENT(RDMA_CM_EVENT_ESTABLISHED);
    UROCE_EVENT(RDMA_CM_EVENT_DISCONNECTED);
    UROCE_EVENT(RDMA_CM_EVENT_DEVICE_REMOVAL);
    UROCE_EVENT(RDMA_CM_EVENT_MULTICAST_JOIN);
    UROCE_EVENT(RDMA_CM_EVENT_MULTICAST_ERROR);
    UROCE_EVENT(RDMA_CM_EVENT_ADDR_CHANGE);
    UROCE_EVENT(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  }
#undef UROCE_EVENT
  return "UNKNOWN EVENT";
}
