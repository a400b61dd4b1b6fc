#include "drivers/packet/udp/port.h"

#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "drivers/packet/udp/virtual_link.h"

namespace uroce::udp {

Port::Port(const PortOptions& options, std::span<const Endpoint> endpoints)
    : options_(options),
      endpoints_(endpoints),
      pool_(options.mtu, options.buffers),
      receiver_(endpoints, options.mac, pool_, options.ids),
      transmitter_(endpoints, options.gso) {}

std::size_t Port::receive(std::span<base::Frame> frames) {
  std::size_t count = 0;
  for (; count < frames.size() && !answers_.empty(); ++count) {
    frames[count] = answers_.front();
    answers_.pop_front();
  }
  return count + receiver_.receive(frames.subspan(count), counters_);
}

std::size_t Port::transmit(std::span<base::Frame> frames) {
  std::size_t done = 0;
  while (done < frames.size()) {
    if (is_roce(frames[done])) {
      std::size_t end = done + 1;
      while (end < frames.size() && is_roce(frames[end])) ++end;
      const std::size_t sent = transmitter_.send(frames.subspan(done, end - done), counters_);
      pool_.give_back(frames.subspan(done, sent));
      done += sent;
      if (done != end) break;
      continue;
    }
    // Of the link stack's protocols only the questions for neighbours matter: the kernel does the rest.
    if (answers_.size() < kMostAnswers && answer(frames[done], options_.mac)) {
      answers_.push_back(frames[done]);
    } else {
      pool_.give_back(frames.subspan(done, 1));
    }
    ++done;
  }
  return done;
}

net::LinkState Port::link() const {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(options_.interface);
  const int fd = endpoints_.front().socket.get();
  // netdevice(7): the first call finds the present name, under which the second one works.
  if (::ioctl(fd, SIOCGIFNAME, &request) != 0 || ::ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
    return errno == ENODEV ? net::LinkState::kGone : net::LinkState::kUp;
  }
  if ((request.ifr_flags & IFF_UP) == 0) return net::LinkState::kDisabled;
  return (request.ifr_flags & IFF_RUNNING) != 0 ? net::LinkState::kUp : net::LinkState::kNoCarrier;
}

net::DeviceInfo Port::info() const {
  return {
      .mac = options_.mac, .mtu = options_.mtu, .link = link(), .netdev = options_.interface, .sockets_only = true};
}

net::DeviceCounters Port::counters() const {
  net::DeviceCounters counters = counters_;
  counters.rx_dropped += receiver_.dropped_by_kernel();
  return counters;
}

}  // namespace uroce::udp
