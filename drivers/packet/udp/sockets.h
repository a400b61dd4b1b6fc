// The UDP sockets of a port: for each local address and each queue one, bound to port 4791.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/packet/owned_file.h"
#include "drivers/packet/udp/identifications.h"
#include "wire/address.h"

namespace uroce::udp {

using Socket = packet::OwnedFile;

/// What follows "udp" in --port: "udp", "udp,gso=off,id=zero".
struct PortSpec {
  bool gso = true;                ///< hand the kernel several packets as one datagram (UDP_SEGMENT)
  IdCheck ids = IdCheck::kCount;  ///< IPv4 identifications of others that are accepted
};
/// Whether `port` names this kind of port: "udp", alone or followed by a comma.
bool is_udp(std::string_view port);
/// Returns empty, or what is wrong and which options there are.
std::string parse_spec(std::string_view port, PortSpec& out);

/// One local address, as one queue uses it.
struct Endpoint {
  wire::Address address;
  std::uint32_t scope = 0;  ///< index of the interface of a link-local IPv6 address; otherwise 0
  Socket socket;
};

struct Sockets {
  std::vector<std::vector<Endpoint>> queues;
  std::uint32_t interface = 0;  ///< index of the first address's interface
  std::uint32_t mtu = 0;        ///< bytes of the largest IP packet: the least of the addresses' interfaces
};

/// Opens the sockets. With several queues the kernel gives each datagram to the queue that the top bits of its
/// destination QPN name (base/qpn_layout.h). Waits up to three seconds for IPv6 addresses that the kernel still
/// checks for duplicates. Returns empty, or what failed, why, and what to do.
std::string open_sockets(const std::vector<wire::Address>& addresses, std::uint32_t queues, Sockets& out);

}  // namespace uroce::udp
