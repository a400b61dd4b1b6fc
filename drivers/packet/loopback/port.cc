#include "drivers/packet/loopback/port.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace uroce::loopback {

Port::Port(const PortOptions& options) : options_(options), pool_(options.mtu, options.buffers) {
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // never written: nothing arrives from outside
}

Port::~Port() {
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

std::size_t Port::transmit(std::span<base::Frame> frames) {
  for (const base::Frame& frame : frames) counters_.tx_bytes += frame.length;
  counters_.tx_packets += frames.size();
  discard(frames);
  return frames.size();
}

net::DeviceInfo Port::info() const { return {.mac = options_.mac, .mtu = options_.mtu}; }

}  // namespace uroce::loopback
