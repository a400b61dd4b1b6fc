// Amounts of everything that is limited for each user: the usage of a user, or its limits.
#pragma once

#include <cstdint>

namespace uroce::control {

struct Usage {
  std::uint64_t sessions = 0;  ///< opened devices, and other connections to the daemon's socket
  std::uint64_t qps = 0;       ///< and receive hash tables
  std::uint64_t cqs = 0;       ///< and completion counters
  std::uint64_t srqs = 0;
  std::uint64_t mrs = 0;  ///< and windows
  std::uint64_t pds = 0;  ///< and XRC domains
  std::uint64_t ahs = 0;
  std::uint64_t groups = 0;       ///< multicast groups that have a QP
  std::uint64_t attachments = 0;  ///< of QPs to multicast groups
  std::uint64_t flows = 0;        ///< and their counters
  std::uint64_t cm_ids = 0;
  std::uint64_t cm_ports = 0;
  std::uint64_t cm_connections = 0;    ///< and datagram service resolutions
  std::uint64_t descriptors = 0;       ///< of the daemon
  std::uint64_t threads = 0;           ///< of the daemon, that access memory which cannot be shared
  std::uint64_t mappings = 0;          ///< of the daemon's address space
  std::uint64_t queue_bytes = 0;       ///< of queues, in shared memory and in the daemon's
  std::uint64_t registered_bytes = 0;  ///< sum over all regions in memory that the daemon has mapped
};

}  // namespace uroce::control
