#include "drivers/packet/dpdk/kernel_link.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace uroce::dpdk {

KernelLink::KernelLink(std::uint32_t index)
    : index_(index), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

KernelLink::~KernelLink() {
  if (socket_ >= 0) ::close(socket_);
}

net::LinkState KernelLink::read() const {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(index_);
  // netdevice(7): the first call finds the present name, under which the second one works.
  if (::ioctl(socket_, SIOCGIFNAME, &request) != 0 || ::ioctl(socket_, SIOCGIFFLAGS, &request) != 0) {
    return errno == ENODEV ? net::LinkState::kGone : net::LinkState::kUp;
  }
  if ((request.ifr_flags & IFF_UP) == 0) return net::LinkState::kDisabled;
  return (request.ifr_flags & IFF_RUNNING) != 0 ? net::LinkState::kUp : net::LinkState::kNoCarrier;
}

}  // namespace uroce::dpdk
