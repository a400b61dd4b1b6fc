#include "drivers/packet/dpdk/af_packet.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace uroce::dpdk {
namespace {

constexpr std::uint32_t kBlock = 65536;
constexpr std::uint32_t kFrames = 1024;

}  // namespace

std::uint32_t interface_mtu(const std::string& name) {
  ifreq request{};
  if (name.size() >= sizeof(request.ifr_name)) return 0;
  std::copy(name.begin(), name.end(), request.ifr_name);
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  const int result = ::ioctl(fd, SIOCGIFMTU, &request);
  ::close(fd);
  return result == 0 && request.ifr_mtu > 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

void add_af_packet_rings(VdevSpec& spec, std::uint32_t mtu) {
  // Frames must divide blocks, and blocks must be whole pages: powers of two satisfy both.
  if (!spec.argument("framesz").empty() || !spec.argument("blocksz").empty()) return;
  const std::uint32_t frame = std::max(kAfPacketFrame, std::bit_ceil(mtu + kAfPacketFrameOverhead));
  spec.arguments.emplace_back("framesz", std::to_string(frame));
  spec.arguments.emplace_back("blocksz", std::to_string(std::max(kBlock, frame)));
  if (spec.argument("framecnt").empty()) spec.arguments.emplace_back("framecnt", std::to_string(kFrames));
}

}  // namespace uroce::dpdk
