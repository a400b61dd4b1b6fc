// Socket options of streams, as listed in rsocket(7).
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "rsocket/service.h"
#include "rsocket/stream.h"

namespace uroce::rdmacm {
namespace {

constexpr int kMostIntSize = 0xfffe;

bool read_int(const void* value, socklen_t length, int& out) {
  if (value == nullptr || length < sizeof(out)) return false;
  std::memcpy(&out, value, sizeof(out));
  return true;
}

int write_value(const void* from, std::size_t size, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return -EFAULT;
  const auto part = std::min<std::size_t>(size, *length);
  std::memcpy(value, from, part);
  *length = static_cast<socklen_t>(part);
  return 0;
}
int write_int(int from, void* value, socklen_t* length) { return write_value(&from, sizeof(from), value, length); }

unsigned system_keepalive_seconds() {
  unsigned seconds = 7200;
  if (std::FILE* file = std::fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re")) {
    if (std::fscanf(file, "%u", &seconds) != 1) seconds = 7200;
    std::fclose(file);
  }
  return seconds;
}

}  // namespace

void Stream::start_keepalive() {
  Service* service = Service::get();
  if (service == nullptr) return;
  service->keep_alive(shared_from_this(), settings_.keepalive ? settings_.keepalive_seconds : 0);
}

int Stream::set_socket_option(int name, const void* value, socklen_t length) {
  int on = 0;
  if (name == SO_LINGER) {
    if (value == nullptr || length < sizeof(linger)) return -EINVAL;
    std::memcpy(&settings_.linger_time, value, sizeof(linger));
    settings_.linger_set = true;
    return 0;
  }
  if (!read_int(value, length, on)) return -EINVAL;
  switch (name) {
    case SO_REUSEADDR:
      // Errors after binding are ignored: the option has no effect then.
      if (rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) != 0 &&
          state_ == State::kIdle && errno != ENOSYS && errno != EINVAL) {
        return -errno;
      }
      settings_.reuse_address = on != 0;
      return 0;
    case SO_RCVBUF:
      // As in tcp(7), the kernel's value is twice the requested one.
      if (on > 0 && !endpoint_.exists()) settings_.sizes.receive_buffer = static_cast<std::uint32_t>(on) << 1;
      return 0;
    case SO_SNDBUF:
      if (on > 0 && !endpoint_.exists()) {
        settings_.sizes.send_buffer = std::max(static_cast<std::uint32_t>(on) << 1, 2 * StreamFlow::kLowWater);
      }
      return 0;
    case SO_KEEPALIVE:
      settings_.keepalive = on != 0;
      if (settings_.keepalive_seconds == 0) settings_.keepalive_seconds = system_keepalive_seconds();
      start_keepalive();
      return 0;
    case SO_OOBINLINE: settings_.oob_inline = on != 0; return 0;
    default: return -ENOTSUP;
  }
}

int Stream::set_rdma_option(int name, const void* value, socklen_t length) {
  if (state_ != State::kIdle && state_ != State::kListening) return -EINVAL;
  if (name == RDMA_ROUTE) {
    if (value == nullptr || length == 0) return -EINVAL;
    const auto* bytes = static_cast<const std::byte*>(value);
    settings_.route.assign(bytes, bytes + length);
    return 0;
  }
  int number = 0;
  if (!read_int(value, length, number) || number < 0) return -EINVAL;
  const auto size = static_cast<std::uint32_t>(std::min(number, kMostIntSize));
  switch (name) {
    case RDMA_SQSIZE: settings_.sizes.sq_size = size; return 0;
    case RDMA_RQSIZE: settings_.sizes.rq_size = size; return 0;
    case RDMA_INLINE: settings_.sizes.inline_size = size; return 0;
    case RDMA_IOMAPSIZE: settings_.sizes.iomap_entries = iomap_count(iomap_scale(size)); return 0;
    default: return -ENOTSUP;
  }
}

int Stream::set_protocol_option(int level, int name, const void* value, socklen_t length) {
  int number = 0;
  if (level == IPPROTO_TCP &&
      (name == TCP_MAXSEG || name == TCP_CONGESTION || name == TCP_KEEPCNT || name == TCP_KEEPINTVL)) {
    return 0;  // RC has its own mechanisms
  }
  if (!read_int(value, length, number)) return -EINVAL;
  if (level == IPPROTO_IP && name == IP_TOS) {
    auto tos = static_cast<std::uint8_t>(number);
    if (rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) != 0) return -errno;
    settings_.tos = number;
    return 0;
  }
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
    int only = number != 0;
    if (rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)) != 0) return -errno;
    settings_.v6_only = only != 0;
    return 0;
  }
  if (level != IPPROTO_TCP) return -ENOTSUP;
  switch (name) {
    case TCP_NODELAY: settings_.no_delay = number != 0; return 0;
    case TCP_KEEPIDLE:
      if (number <= 0) return -EINVAL;
      settings_.keepalive_seconds = static_cast<unsigned>(number);
      start_keepalive();
      return 0;
    default: return -ENOTSUP;
  }
}

int Stream::set_option(int level, int name, const void* value, socklen_t length) {
  const std::lock_guard lock(mutex_);
  switch (level) {
    case SOL_SOCKET: return set_socket_option(name, value, length);
    case SOL_RDMA: return set_rdma_option(name, value, length);
    default: return set_protocol_option(level, name, value, length);
  }
}

int Stream::get_rdma_option(int name, void* value, socklen_t* length) {
  const EndpointConfig& sizes = endpoint_.exists() ? endpoint_.config() : settings_.sizes;
  switch (name) {
    case RDMA_SQSIZE: return write_int(static_cast<int>(sizes.sq_size), value, length);
    case RDMA_RQSIZE: return write_int(static_cast<int>(sizes.rq_size), value, length);
    case RDMA_INLINE: return write_int(static_cast<int>(sizes.inline_size), value, length);
    case RDMA_IOMAPSIZE: return write_int(static_cast<int>(sizes.iomap_entries), value, length);
    case RDMA_ROUTE:
      if (length == nullptr || *length < settings_.route.size()) return -EINVAL;
      return write_value(settings_.route.data(), settings_.route.size(), value, length);
    default: return -ENOTSUP;
  }
}

int Stream::get_protocol_option(int level, int name, void* value, socklen_t* length) {
  if (level == IPPROTO_IP && name == IP_TOS) return write_int(settings_.tos, value, length);
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) return write_int(settings_.v6_only, value, length);
  if (level != IPPROTO_TCP) return -ENOTSUP;
  switch (name) {
    case TCP_NODELAY: return write_int(settings_.no_delay, value, length);
    case TCP_KEEPIDLE: return write_int(static_cast<int>(settings_.keepalive_seconds), value, length);
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL: return write_int(1, value, length);
    case TCP_MAXSEG: {
      int segment = 2048;
      if (id_->route.num_paths > 0 && id_->route.path_rec != nullptr) segment = 128 << id_->route.path_rec->mtu;
      return write_int(segment, value, length);
    }
    case TCP_CONGESTION: return write_value("rdma", 5, value, length);
    case TCP_INFO: {
      tcp_info info{};
      info.tcpi_state = state_ == State::kConnected ? TCP_ESTABLISHED : TCP_CLOSE;
      info.tcpi_snd_cwnd = settings_.sizes.sq_size;
      return write_value(&info, sizeof(info), value, length);
    }
    default: return -ENOTSUP;
  }
}

int Stream::get_option(int level, int name, void* value, socklen_t* length) {
  const std::lock_guard lock(mutex_);
  if (level == SOL_RDMA) return get_rdma_option(name, value, length);
  if (level != SOL_SOCKET) return get_protocol_option(level, name, value, length);
  switch (name) {
    case SO_ERROR: return write_int(std::exchange(error_, 0), value, length);
    case SO_TYPE: return write_int(SOCK_STREAM, value, length);
    case SO_DOMAIN: return write_int(domain(), value, length);
    case SO_ACCEPTCONN: return write_int(state_ == State::kListening, value, length);
    case SO_REUSEADDR: return write_int(settings_.reuse_address, value, length);
    case SO_KEEPALIVE: return write_int(settings_.keepalive, value, length);
    case SO_OOBINLINE: return write_int(settings_.oob_inline, value, length);
    case SO_BROADCAST: return write_int(0, value, length);
    case SO_RCVBUF: return write_int(static_cast<int>(settings_.sizes.receive_buffer), value, length);
    case SO_SNDBUF: return write_int(static_cast<int>(settings_.sizes.send_buffer), value, length);
    case SO_LINGER: {
      linger l{1, 0};  // default: close() waits until all data is sent
      if (settings_.linger_set) l = settings_.linger_time;
      return write_value(&l, sizeof(l), value, length);
    }
    default: return -ENOTSUP;
  }
}

}  // namespace uroce::rdmacm
