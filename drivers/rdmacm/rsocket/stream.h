// SOCK_STREAM over RC QPs.
#pragma once

#include <rdma/rdma_cma.h>

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "rsocket/endpoint.h"
#include "rsocket/flow.h"
#include "rsocket/socket.h"
#include "rsocket/wait.h"

namespace uroce::rdmacm {

/// Connection events arrive on the Service's thread (on_event), all other calls on the application's. Lock order:
/// the order of declaration. A thread that finds completions handles all of them and wakes the waiting threads.
class Stream final : public Socket, public std::enable_shared_from_this<Stream> {
 public:
  /// Null with errno when there is no device.
  static std::shared_ptr<Stream> make(int domain);
  Stream(int domain, rdma_cm_id* id);
  ~Stream() override;

  int fd() const override { return number_; }
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

  /// riomap (rsocket(7)): the offset, or -errno.
  off_t map(void* buffer, std::size_t length, int protection, off_t offset);
  int unmap(void* buffer, std::size_t length);
  ssize_t write_at(const void* from, std::size_t length, off_t offset, int flags);

  /// An event of this socket's id or, for a listener, of a new id. Streams to close after the event is acknowledged
  /// are added to `failed`.
  void on_event(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed);
  void send_keepalive();

 private:
  enum class State { kIdle, kListening, kConnecting, kConnected, kDisconnected, kFailed, kClosed };

  struct Mapping {
    ibv_mr* mr;
    void* buffer;
    std::size_t length;
    off_t offset;
    int index;  ///< in the peer's list; -1: local only
    bool announced;
  };

  // Options that take effect when the connection is made.
  struct Settings {
    EndpointConfig sizes;
    linger linger_time{};
    bool linger_set = false, reuse_address = false, keepalive = false, oob_inline = false;
    bool no_delay = false, v6_only = false;
    int tos = 0;
    unsigned keepalive_seconds = 0;
    std::vector<std::byte> route;
  };

  bool take_number();
  bool nonblocking(int flags) const;
  template <class Done>
  int wait(std::unique_lock<std::mutex>& lock, bool nonblock, const Done& done) {
    return wait_until(*this, lock, nonblock, done);
  }
  template <class S, class Done>
  friend int wait_until(S&, std::unique_lock<std::mutex>&, bool, const Done&);
  int await_connection(std::unique_lock<std::mutex>& lock, bool nonblock);
  void progress();
  void handle(const ibv_wc& wc, std::uint32_t& receives);
  void handle_message(std::uint32_t imm);
  void send_updates();
  void arm();
  void take_events();
  void sleep_on(std::vector<pollfd>& fds) const;
  bool closed() const { return state_ == State::kClosed; }
  void fail(int error);
  void end_connection(State state);
  short ready_locked(short events);
  int send_error() const;
  int post_data(BufferCursor& cursor, std::uint32_t length, std::unique_lock<std::mutex>& lock);
  int post_copied(BufferCursor& cursor, const StreamFlow::Write& w, std::unique_lock<std::mutex>& lock,
                  bool with_imm);
  int await_room(std::unique_lock<std::mutex>& lock, bool nonblock);
  int announce_mappings(std::unique_lock<std::mutex>& lock, bool nonblock);
  bool find_target(std::uint64_t offset, Target& rest) const;
  void drop_mappings();
  int set_socket_option(int name, const void* value, socklen_t length);
  int set_rdma_option(int name, const void* value, socklen_t length);
  int set_protocol_option(int level, int name, const void* value, socklen_t length);
  int get_rdma_option(int name, void* value, socklen_t* length);
  int get_protocol_option(int level, int name, void* value, socklen_t* length);
  void start_keepalive();
  void detach_id();

  // Handlers called by on_event().
  void on_address_resolved();
  void on_route_resolved();
  void on_established(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed);
  void on_disconnected();
  void on_request(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed);
  void on_error(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed);
  int begin_accept(const rdma_cm_event& event, const Settings& inherited);
  void adopt_private_data(const ConnectPrivateData& private_data);
  void give_up(int error, std::vector<std::shared_ptr<Stream>>& failed);

  int number_ = -1;
  rdma_cm_id* id_ = nullptr;

  std::mutex send_mutex_;     ///< held during a send
  std::mutex receive_mutex_;  ///< held during a receive
  std::mutex mutex_;          ///< guards all members that follow, but not the contents of the buffers
  State state_ = State::kIdle;
  bool readable_ = false, writable_ = false;  ///< false: will not become readable or writable again
  bool armed_ = false;
  bool connect_reported_ = false;
  int error_ = 0;    ///< SO_ERROR, reset when read
  int failure_ = 0;  ///< errno that caused kFailed
  int resolve_tries_ = 0;
  sockaddr_storage destination_{};
  Settings settings_;
  Endpoint endpoint_;
  StreamFlow flow_;
  Watchers watchers_;
  Target peer_list_;  ///< address of the peer's list of targets; its iomap entries follow
  std::uint32_t peer_iomap_entries_ = 0;
  bool swap_ = false;  ///< the peer has the other byte order
  std::list<Mapping> mappings_;
  bool mappings_to_announce_ = false;

  // Listening.
  std::size_t backlog_ = 0;
  std::vector<std::shared_ptr<Stream>> accepting_;
  std::deque<std::shared_ptr<Stream>> accepted_;
  std::weak_ptr<Stream> listener_;  ///< set while the stream is in the listener's accepting_
};

}  // namespace uroce::rdmacm
