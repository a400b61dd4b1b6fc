// Names of enumerators (ibv_node_type_str(3), ibv_event_type_str(3)).
#include <infiniband/verbs.h>
#include <cstddef>
#include <iterator>

#include "export.h"

namespace {

template <std::size_t N>
const char* name_in(const char* const (&names)[N], std::size_t value) {
  return value < N && names[value] != nullptr ? names[value] : "unknown";
}

}  // namespace

UROCE_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  static const char* const kNames[] = {nullptr,
                                       "InfiniBand channel adapter",
                                       "InfiniBand switch",
                                       "InfiniBand router",
                                       "iWARP NIC",
                                       "usNIC",
                                       "usNIC UDP",
                                       "unspecified"};
  return name_in(kNames, static_cast<std::size_t>(type));
}

UROCE_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  static const char* const kNames[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  const auto value = static_cast<std::size_t>(state);
  return value < std::size(kNames) ? kNames[value] : "invalid state";
}

UROCE_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  static const char* const kNames[] = {
      "CQ error",
      "local work queue catastrophic error",
      "invalid request local work queue error",
      "local access violation work queue error",
      "communication established",
      "send queue drained",
      "path migrated",
      "path migration request error",
      "local catastrophic error",
      "port active",
      "port error",
      "LID change",
      "P_Key change",
      "SM change",
      "SRQ catastrophic error",
      "SRQ limit reached",
      "last WQE reached",
      "client reregistration",
      "GID table change",
      "WQ fatal",
      "device speed change",
  };
  return name_in(kNames, static_cast<std::size_t>(event));
}

UROCE_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  static const char* const kNames[] = {
      "success",
      "local length error",
      "local QP operation error",
      "local EE context operation error",
      "local protection error",
      "Work Request Flushed Error",
      "memory management operation error",
      "bad response error",
      "local access error",
      "remote invalid request error",
      "remote access error",
      "remote operation error",
      "transport retry counter exceeded",
      "RNR retry counter exceeded",
      "local RDD violation error",
      "remote invalid RD request",
      "aborted error",
      "invalid EE context number",
      "invalid EE context state",
      "fatal error",
      "response timeout error",
      "general error",
      "TM error",
      "TM software rendezvous",
  };
  return name_in(kNames, static_cast<std::size_t>(status));
}

UROCE_EXPORT const char* wr_opcode_str(ibv_wr_opcode opcode) {
  static const char* const kNames[] = {
      "rdma-write",
      "rdma-write-with-imm",
      "send",
      "send-with-imm",
      "rdma-read",
      "atomic-cmp-and-swp",
      "atomic-fetch-and-add",
      "local-inv",
      "bind-mw",
      "send-with-inv",
      "tso",
      "driver1",
      nullptr,
      nullptr,
      "flush",
      "atomic-write",
  };
  return name_in(kNames, static_cast<std::size_t>(opcode));
}
UROCE_PRIVATE_VERSIONS(wr_opcode_str, ibv_wr_opcode_str);
