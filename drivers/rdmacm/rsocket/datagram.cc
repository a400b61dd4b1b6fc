// Datagram sockets: the socket calls, and data between QPs.
#include "rsocket/datagram.h"

#include <endian.h>
#include <fcntl.h>
#include <rdma/rsocket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/datagram_wire.h"
#include "rsocket/service.h"

namespace uroce::rdmacm {

SocketAddress SocketAddress::of(const sockaddr* addr) {
  SocketAddress a;
  a.family = addr->sa_family;
  if (addr->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, addr, sizeof(in));
    a.port = in.sin_port;
    std::memcpy(a.ip.data(), &in.sin_addr, 4);
  } else if (addr->sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, addr, sizeof(in));
    a.port = in.sin6_port;
    std::memcpy(a.ip.data(), &in.sin6_addr, 16);
  }
  return a;
}

socklen_t SocketAddress::to(sockaddr_storage& out) const {
  out = {};
  if (family == AF_INET6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = port;
    std::memcpy(&in.sin6_addr, ip.data(), 16);
    std::memcpy(&out, &in, sizeof(in));
    return sizeof(in);
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = port;
  std::memcpy(&in.sin_addr, ip.data(), 4);
  std::memcpy(&out, &in, sizeof(in));
  return sizeof(in);
}

bool SocketAddress::any() const {
  return std::all_of(ip.begin(), ip.end(), [](std::uint8_t b) { return b == 0; });
}

std::shared_ptr<Datagram> Datagram::make(int domain) {
  // Without the C library's wrapper, which librspreload may have replaced.
  const int udp = high_number(static_cast<int>(syscall(SYS_socket, domain, SOCK_DGRAM | SOCK_NONBLOCK, 0)));
  return udp < 0 ? nullptr : std::make_shared<Datagram>(domain, udp);
}

Datagram::~Datagram() { ::close(udp_); }

// Registers the UDP socket with the Service, once peers may know our address.
void Datagram::start() {
  if (started_) return;
  Service* service = Service::get();
  if (service == nullptr) return;
  service->add(udp_, std::static_pointer_cast<DatagramResolver>(shared_from_this()));
  started_ = true;
}

int Datagram::bind(const sockaddr* addr, socklen_t length) {
  const std::lock_guard lock(mutex_);
  if (::bind(udp_, addr, length) != 0) return -errno;
  start();
  return 0;
}

int Datagram::listen(int) { return -EOPNOTSUPP; }
int Datagram::accept(std::shared_ptr<Socket>&) { return -EOPNOTSUPP; }

int Datagram::connect(const sockaddr* addr, socklen_t length) {
  if (addr == nullptr || length < sizeof(sockaddr_in)) return -EINVAL;
  const std::lock_guard lock(mutex_);
  // connect() also chooses the local address by the route.
  if (::connect(udp_, addr, length) != 0) return -errno;
  start();
  const auto to = SocketAddress::of(addr);
  Peer* peer = nullptr;
  if (const int failed = find_peer(to, peer)) return failed;
  connected_ = true;
  connected_to_ = to;
  return 0;
}

int Datagram::shutdown(int) { return 0; }

void Datagram::close() {
  bool started;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    started = started_;
    watchers_.wake_others();
  }
  Service* service = Service::get();
  if (started && service != nullptr) service->remove(udp_);
  const std::lock_guard lock(mutex_);
  for (auto& [address, peer] : peers_) {
    if (peer.ah != nullptr) ibv_destroy_ah(peer.ah);
  }
  peers_.clear();
  messages_.clear();
  paths_.clear();
}

bool Datagram::nonblocking(int flags) const {
  return (flags & MSG_DONTWAIT) != 0 || (status_flags & O_NONBLOCK) != 0;
}

void Datagram::progress() {
  bool changed = false;
  for (const auto& path : paths_) {
    std::array<ibv_wc, 16> wcs;
    for (int count; (count = ibv_poll_cq(path->cq, wcs.size(), wcs.data())) > 0;) {
      changed = true;
      for (int i = 0; i < count; ++i) handle(*path, wcs[static_cast<std::size_t>(i)]);
    }
  }
  if (changed) watchers_.wake_others();
}

void Datagram::handle(Path& path, const ibv_wc& wc) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  if ((wc.wr_id & kReceiveBit) == 0) {
    path.free_sends.push_back(slot);
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) return;
  Message m;
  const std::size_t length = wc.byte_len < sizeof(ibv_grh) ? 0 : wc.byte_len - sizeof(ibv_grh);
  const std::byte* data = path.receive_slot(slot);
  const std::size_t header = decode_header(data, std::min<std::size_t>(length, kSlot), m.from);
  if (header == 0) {
    path.post_receive(slot);
    return;
  }
  m.path = &path;
  m.slot = slot;
  m.data = data + header;
  m.length = length - header;
  messages_.push_back(std::move(m));
}

void Datagram::arm() {
  for (const auto& path : paths_) {
    if (!path->armed) path->armed = ibv_req_notify_cq(path->cq, 0) == 0;
  }
}

void Datagram::take_events() {
  for (const auto& path : paths_) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (!path->armed || ibv_get_cq_event(path->channel, &cq, &context) != 0) continue;
    ibv_ack_cq_events(cq, 1);
    path->armed = false;
  }
}

void Datagram::sleep_on(std::vector<pollfd>& fds) const {
  for (const auto& path : paths_) fds.push_back({path->channel->fd, POLLIN, 0});
}

ssize_t Datagram::send(const Buffers& from, int flags, const sockaddr* to, socklen_t length) {
  if (to != nullptr && length < sizeof(sockaddr_in)) return -EINVAL;
  std::unique_lock lock(mutex_);
  if (to == nullptr && !connected_) return -EDESTADDRREQ;
  const SocketAddress address = to != nullptr ? SocketAddress::of(to) : connected_to_;
  start();
  Peer* peer = nullptr;
  if (const int failed = find_peer(address, peer)) return failed;
  if (from.total() + header_length(peer->path->local) > kSlot) return -EMSGSIZE;
  if (peer->ah == nullptr) return send_udp(*peer, address, kUdpData, from, flags);
  return send_ud(lock, *peer, from, nonblocking(flags));
}

ssize_t Datagram::send_ud(std::unique_lock<std::mutex>& lock, Peer& peer, const Buffers& from, bool nonblock) {
  Path& path = *peer.path;
  if (path.free_sends.empty()) {
    if (const int failed = wait_until(*this, lock, nonblock, [&] { return !path.free_sends.empty(); }))
      return failed;
  }
  const std::uint32_t slot = path.free_sends.back();
  std::byte* const data = path.send_slot(slot);
  const std::size_t header = encode_header(path.local, data);
  const std::size_t total = from.total();
  BufferCursor cursor(from);
  cursor.copy_out(data + header, total);
  ibv_sge sge{reinterpret_cast<std::uint64_t>(data), static_cast<std::uint32_t>(header + total), path.mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = peer.ah;
  wr.wr.ud.remote_qpn = peer.qpn;
  wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  if (const int failed = ibv_post_send(path.qp, &wr, &bad)) return -failed;
  path.free_sends.pop_back();
  return static_cast<ssize_t>(total);
}

ssize_t Datagram::receive(const Buffers& to, int flags, sockaddr* from, socklen_t* from_length) {
  std::unique_lock lock(mutex_);
  start();
  if (messages_.empty()) {
    if (const int failed = wait_until(*this, lock, nonblocking(flags), [this] { return !messages_.empty(); })) {
      return failed;
    }
  }
  Message& m = messages_.front();
  const std::size_t length = std::min(to.total(), m.length);
  BufferCursor cursor(to);
  cursor.copy_in(m.data, length);
  if (from != nullptr && from_length != nullptr) {
    sockaddr_storage address;
    m.from.to(address);
    copy_address(reinterpret_cast<const sockaddr*>(&address), from, from_length);
  }
  const auto result = static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? m.length : length);
  if ((flags & MSG_PEEK) == 0) {
    if (m.path != nullptr) m.path->post_receive(m.slot);
    messages_.pop_front();
  }
  return result;
}

int Datagram::peer_name(sockaddr* addr, socklen_t* length) {
  return ::getpeername(udp_, addr, length) == 0 ? 0 : -errno;
}

int Datagram::local_name(sockaddr* addr, socklen_t* length) {
  return ::getsockname(udp_, addr, length) == 0 ? 0 : -errno;
}

int Datagram::set_option(int level, int name, const void* value, socklen_t length) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF) && length >= sizeof(number)) {
    std::memcpy(&number, value, sizeof(number));
    (name == SO_RCVBUF ? sizes_.receive_buffer : sizes_.send_buffer) = std::min(number, 1u << 30) << 1;
  }
  if (level != SOL_RDMA) return ::setsockopt(udp_, level, name, value, length) == 0 ? 0 : -errno;
  if (!paths_.empty() || value == nullptr || length < sizeof(number)) return -EINVAL;
  std::memcpy(&number, value, sizeof(number));
  const std::uint32_t size = std::clamp<std::uint32_t>(number, 1, 0xfffe);
  switch (name) {
    case RDMA_SQSIZE: sizes_.sq_size = size; return 0;
    case RDMA_RQSIZE: sizes_.rq_size = size; return 0;
    case RDMA_INLINE:
    case RDMA_IOMAPSIZE: return 0;
    default: return -ENOTSUP;
  }
}

int Datagram::get_option(int level, int name, void* value, socklen_t* length) {
  const std::lock_guard lock(mutex_);
  if (level != SOL_RDMA) return ::getsockopt(udp_, level, name, value, length) == 0 ? 0 : -errno;
  if (value == nullptr || length == nullptr || *length < sizeof(std::uint32_t)) return -EINVAL;
  if (name != RDMA_SQSIZE && name != RDMA_RQSIZE) return -ENOTSUP;
  std::memcpy(value, name == RDMA_SQSIZE ? &sizes_.sq_size : &sizes_.rq_size, sizeof(std::uint32_t));
  *length = sizeof(std::uint32_t);
  return 0;
}

short Datagram::ready(short events) {
  const std::lock_guard lock(mutex_);
  return ready_locked(events);
}

short Datagram::ready_locked(short events) {
  if (closed_) return POLLNVAL;
  progress();
  const auto can_send = [](const auto& path) { return !path->free_sends.empty(); };
  short found = 0;
  if (!messages_.empty()) found |= POLLIN;
  if (paths_.empty() || std::any_of(paths_.begin(), paths_.end(), can_send)) found |= POLLOUT;
  return static_cast<short>(found & events);
}

short Datagram::watch(short events, int waker, std::vector<pollfd>& sleep_on) {
  const std::lock_guard lock(mutex_);
  watchers_.add(waker);
  take_events();
  arm();
  this->sleep_on(sleep_on);
  return ready_locked(events);
}

void Datagram::unwatch(int waker) {
  const std::lock_guard lock(mutex_);
  watchers_.remove(waker);
}

}  // namespace uroce::rdmacm
