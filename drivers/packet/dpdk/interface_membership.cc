#include "drivers/packet/dpdk/interface_membership.h"

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace uroce::dpdk {

InterfaceMembership::InterfaceMembership(std::uint32_t index, Kind kind)
    : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {  // protocol 0: it receives nothing
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(index);
  request.mr_type = kind == Kind::kPromiscuous ? PACKET_MR_PROMISC : PACKET_MR_ALLMULTI;
  if (socket_ >= 0) ::setsockopt(socket_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request));
}

InterfaceMembership::~InterfaceMembership() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace uroce::dpdk
