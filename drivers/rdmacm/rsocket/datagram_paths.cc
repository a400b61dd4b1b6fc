// Peers of datagram sockets: their routes and QPs, and a local QP for each local address.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/datagram.h"
#include "rsocket/datagram_wire.h"

namespace uroce::rdmacm {
namespace {

constexpr std::uint8_t kHopLimit = 64;
// Bounds the memory, since anybody can send to the UDP socket.
constexpr std::size_t kMostPeers = 16384;

int last_error() { return errno != 0 ? -errno : -EIO; }

union ibv_gid gid_of(const SocketAddress& a) {
  union ibv_gid gid {};
  if (a.family == AF_INET6) {
    std::memcpy(gid.raw, a.ip.data(), 16);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, a.ip.data(), 4);
  }
  return gid;
}

}  // namespace

Datagram::Path::~Path() {
  if (qp != nullptr) rdma_destroy_qp(id);
  if (mr != nullptr) ibv_dereg_mr(mr);
  if (cq != nullptr) ibv_destroy_cq(cq);
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
  if (pd != nullptr) ibv_dealloc_pd(pd);
  if (id != nullptr) rdma_destroy_id(id);
  if (memory != nullptr) munmap(memory, size);
}

int Datagram::Path::create(const Defaults& sizes) {
  sockaddr_storage address;
  SocketAddress without_port = local;
  without_port.port = 0;
  without_port.to(address);
  if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP) != 0) return last_error();
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) != 0) return last_error();
  ibv_device_attr device{};
  if (id->verbs == nullptr || ibv_query_device(id->verbs, &device) != 0) return -ENODEV;
  const auto most = static_cast<std::uint32_t>(device.max_qp_wr);
  receives = std::min({sizes.rq_size, std::max(sizes.receive_buffer / kSlot, 1u), most});
  sends = std::min({sizes.sq_size, std::max(sizes.send_buffer / kSlot, 1u), most});
  size = std::size_t{kSlot} * (receives + 1 + sends);
  void* area = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return last_error();
  memory = static_cast<std::byte*>(area);
  if ((pd = ibv_alloc_pd(id->verbs)) == nullptr) return last_error();
  if ((channel = ibv_create_comp_channel(id->verbs)) == nullptr) return last_error();
  if (fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) != 0) return last_error();
  cq = ibv_create_cq(id->verbs, static_cast<int>(receives + sends), nullptr, channel, 0);
  if (cq == nullptr) return last_error();
  constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  if ((mr = ibv_reg_mr(pd, memory, size, kLocalWrite)) == nullptr) return last_error();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_UD;
  attr.sq_sig_all = 1;
  attr.cap = {sends, receives, 1, 2, 0};
  if (rdma_create_qp(id, pd, &attr) != 0) return last_error();
  qp = id->qp;
  for (std::uint32_t i = 0; i < sends; ++i) free_sends.push_back(sends - 1 - i);
  for (std::uint32_t i = 0; i < receives; ++i) {
    if (const int failed = post_receive(i)) return failed;
  }
  const union ibv_gid wanted = gid_of(local);
  for (int i = 0; i < 256; ++i) {
    union ibv_gid gid {};
    if (ibv_query_gid(id->verbs, id->port_num, i, &gid) != 0) break;
    if (std::memcmp(gid.raw, wanted.raw, 16) != 0) continue;
    sgid_index = static_cast<std::uint8_t>(i);
    return 0;
  }
  return -EADDRNOTAVAIL;
}

// All GRHs are received into the same place: they are not read.
int Datagram::Path::post_receive(std::uint32_t slot) {
  ibv_sge sges[] = {{reinterpret_cast<std::uint64_t>(grh()), sizeof(ibv_grh), mr->lkey},
                    {reinterpret_cast<std::uint64_t>(receive_slot(slot)), kSlot, mr->lkey}};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = kReceiveBit | slot;
  wr.sg_list = sges;
  wr.num_sge = 2;
  return -ibv_post_recv(qp, &wr, &bad);
}

// The local address for datagrams to `to`: the bound one, or the one that the route selects.
int Datagram::source_for(const SocketAddress& to, SocketAddress& source) const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(udp_, plain, &length) != 0) return -errno;
  source = SocketAddress::of(plain);
  if (!source.any()) return 0;
  const in_port_t port = source.port;
  // Without the C library's wrapper, which librspreload may have replaced.
  const auto probe = static_cast<int>(syscall(SYS_socket, to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe < 0) return -errno;
  length = to.to(address);
  int failed = ::connect(probe, plain, length) != 0 ? -errno : 0;
  length = sizeof(address);
  if (failed == 0 && ::getsockname(probe, plain, &length) != 0) failed = -errno;
  ::close(probe);
  source = SocketAddress::of(plain);
  source.port = port;
  return failed;
}

int Datagram::find_path(const SocketAddress& local, Path*& found) {
  for (const auto& path : paths_) {
    if (path->local == local) {
      found = path.get();
      return 0;
    }
  }
  auto path = std::make_unique<Path>();
  path->local = local;
  if (const int failed = path->create(sizes_)) return failed;
  found = paths_.emplace_back(std::move(path)).get();
  return 0;
}

int Datagram::find_peer(const SocketAddress& to, Peer*& found) {
  const auto at = peers_.find(to);
  if (at != peers_.end()) {
    found = &at->second;
    return 0;
  }
  SocketAddress source;
  Path* path = nullptr;
  if (const int failed = source_for(to, source)) return failed;
  if (source.port == 0) {
    // The socket is not bound: bind it to a port at which peers can answer.
    sockaddr_storage any;
    const SocketAddress unbound{static_cast<sa_family_t>(domain()), 0, {}};
    const socklen_t length = unbound.to(any);
    if (::bind(udp_, reinterpret_cast<sockaddr*>(&any), length) != 0) return -errno;
    if (const int failed = source_for(to, source)) return failed;
  }
  if (peers_.size() >= kMostPeers) return -ENOBUFS;
  if (const int failed = find_path(source, path)) return failed;
  found = &peers_[to];
  found->path = path;
  return 0;
}

ssize_t Datagram::send_udp(const Peer& peer, const SocketAddress& to, std::uint8_t op, const Buffers& from,
                           int flags) {
  std::byte header[kMostUdpHeader];
  const std::size_t header_bytes = encode_udp_header(peer.path->local, op, peer.path->qp->qp_num, header);
  sockaddr_storage address;
  std::vector<iovec> vectors{{header, header_bytes}};
  vectors.insert(vectors.end(), from.vectors, from.vectors + from.count);
  msghdr msg{};
  msg.msg_namelen = to.to(address);
  msg.msg_name = &address;
  msg.msg_iov = vectors.data();
  msg.msg_iovlen = vectors.size();
  const ssize_t sent = ::sendmsg(udp_, &msg, flags & MSG_DONTWAIT);
  return sent < 0 ? -errno : sent - static_cast<ssize_t>(header_bytes);
}

void Datagram::learn(Peer& peer, const SocketAddress& address, std::uint32_t qpn) {
  if (peer.ah != nullptr && peer.qpn == qpn) return;
  peer.qpn = qpn;
  if (peer.ah != nullptr) return;
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.grh.dgid = gid_of(address);
  attr.grh.sgid_index = peer.path->sgid_index;
  attr.grh.hop_limit = kHopLimit;
  attr.port_num = peer.path->id->port_num;
  // Without an address handle, datagrams continue to be sent over UDP.
  peer.ah = ibv_create_ah(peer.path->pd, &attr);
}

void Datagram::receive() {
  const std::lock_guard lock(mutex_);
  while (!closed_) {
    std::array<std::byte, kSlot + kMostUdpHeader> data;
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    const ssize_t got = ::recvfrom(udp_, data.data(), data.size(), MSG_DONTWAIT, plain, &length);
    if (got < 0) return;
    std::uint8_t op = 0;
    std::uint32_t qpn = 0;
    const std::size_t size = static_cast<std::size_t>(got);
    const std::size_t header = decode_udp_header(data.data(), size, address.ss_family, op, qpn);
    if (header == 0) continue;
    const SocketAddress from = SocketAddress::of(plain);
    Peer* peer = nullptr;
    if (find_peer(from, peer) != 0) continue;
    if (op == kUdpData) send_udp(*peer, from, kUdpControl, {nullptr, 0}, MSG_DONTWAIT);
    learn(*peer, from, qpn);
    if (op != kUdpData || messages_.size() >= sizes_.rq_size) continue;
    Message m;
    m.own.assign(data.begin() + static_cast<std::ptrdiff_t>(header), data.begin() + got);
    m.length = m.own.size();
    m.from = from;
    messages_.push_back(std::move(m));
    messages_.back().data = messages_.back().own.data();
    watchers_.wake_others();
  }
}

}  // namespace uroce::rdmacm
