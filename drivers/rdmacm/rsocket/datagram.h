// SOCK_DGRAM over UD QPs, and over a UDP socket to peers whose QP is not known yet.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rsocket/socket.h"
#include "rsocket/wait.h"

namespace uroce::rdmacm {

/// Called by the Service when the UDP socket of a datagram socket is readable.
class DatagramResolver {
 public:
  virtual ~DatagramResolver() = default;
  virtual void receive() = 0;
};

/// An IP address and port, ordered and comparable.
struct SocketAddress {
  sa_family_t family = 0;
  in_port_t port = 0;                 ///< network order
  std::array<std::uint8_t, 16> ip{};  ///< the first four for IPv4

  static SocketAddress of(const sockaddr* addr);
  socklen_t to(sockaddr_storage& out) const;
  bool any() const;
  auto operator<=>(const SocketAddress&) const = default;
};

/// A datagram socket has one UD QP for each local address that it sends from. The first datagrams to a peer are
/// sent over UDP and carry our QPN. The answer carries the peer's, and later datagrams go from QP to QP. Protocol:
/// rdma-core, librdmacm/docs/rsocket.
class Datagram final : public Socket, public DatagramResolver, public std::enable_shared_from_this<Datagram> {
 public:
  /// Bytes of a receive slot: a datagram with its header.
  static constexpr std::uint32_t kSlot = 2048;

  /// Null with errno.
  static std::shared_ptr<Datagram> make(int domain);
  Datagram(int domain, int udp) : Socket(domain, SOCK_DGRAM), udp_(udp) {}
  ~Datagram() override;

  int fd() const override { return udp_; }
  int bind(const sockaddr* addr, socklen_t length) override;
  int listen(int backlog) override;
  int accept(std::shared_ptr<Socket>& accepted) override;
  int connect(const sockaddr* addr, socklen_t length) override;
  int shutdown(int how) override;
  void close() override;
  ssize_t send(const Buffers& from, int flags, const sockaddr* to, socklen_t length) override;
  ssize_t receive(const Buffers& to, int flags, sockaddr* from, socklen_t* length) override;
  int peer_name(sockaddr* addr, socklen_t* length) override;
  int local_name(sockaddr* addr, socklen_t* length) override;
  int set_option(int level, int name, const void* value, socklen_t length) override;
  int get_option(int level, int name, void* value, socklen_t* length) override;
  short ready(short events) override;
  short watch(short events, int waker, std::vector<pollfd>& sleep_on) override;
  void unwatch(int waker) override;

  void receive() override;

 private:
  /// A QP with its memory: receive slots, one slot for all GRHs, send slots.
  struct Path {
    SocketAddress local;
    rdma_cm_id* id = nullptr;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_mr* mr = nullptr;
    std::byte* memory = nullptr;
    std::size_t size = 0;
    std::uint32_t receives = 0, sends = 0;
    std::uint8_t sgid_index = 0;
    bool armed = false;
    std::vector<std::uint32_t> free_sends;

    ~Path();
    int create(const Defaults& sizes);
    int post_receive(std::uint32_t slot);
    std::byte* receive_slot(std::uint32_t i) const { return memory + std::size_t{kSlot} * i; }
    std::byte* grh() const { return receive_slot(receives); }
    std::byte* send_slot(std::uint32_t i) const { return receive_slot(receives + 1 + i); }
  };
  struct Peer {
    Path* path = nullptr;
    ibv_ah* ah = nullptr;
    std::uint32_t qpn = 0;
  };
  /// A received datagram: in a receive slot of a path, or, if it came over UDP, in `own`.
  struct Message {
    Path* path = nullptr;
    std::uint32_t slot = 0;
    std::vector<std::byte> own;
    const std::byte* data = nullptr;
    std::size_t length = 0;
    SocketAddress from;
  };

  template <class S, class Done>
  friend int wait_until(S&, std::unique_lock<std::mutex>&, bool, const Done&);
  bool nonblocking(int flags) const;
  void progress();
  void handle(Path& path, const ibv_wc& wc);
  void arm();
  void take_events();
  void sleep_on(std::vector<pollfd>& fds) const;
  bool closed() const { return closed_; }
  short ready_locked(short events);
  void start();
  int find_peer(const SocketAddress& to, Peer*& found);
  int source_for(const SocketAddress& to, SocketAddress& source) const;
  int find_path(const SocketAddress& local, Path*& found);
  ssize_t send_udp(const Peer& peer, const SocketAddress& to, std::uint8_t op, const Buffers& from, int flags);
  ssize_t send_ud(std::unique_lock<std::mutex>& lock, Peer& peer, const Buffers& from, bool nonblock);
  void learn(Peer& peer, const SocketAddress& address, std::uint32_t qpn);

  const int udp_;
  std::mutex mutex_;  ///< guards all members that follow
  bool started_ = false, closed_ = false;
  Defaults sizes_ = defaults();
  std::vector<std::unique_ptr<Path>> paths_;
  std::map<SocketAddress, Peer> peers_;
  bool connected_ = false;
  SocketAddress connected_to_;
  std::deque<Message> messages_;
  Watchers watchers_;
};

}  // namespace uroce::rdmacm
