// One opened device context: the connection to a daemon and the memory shared with it (abi/segment.h).
//
// Contract. Any thread calls anything. call() is one round trip under a mutex. lost() is a plain load, cheap enough
// for every post and poll; it turns true, once and for good, when the daemon is found gone (by call(),
// check_alive() or the owner of the event pipe) and in the child after a fork, where the session stays the
// parent's.
//
// Nothing here throws but std::bad_alloc.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "abi/control.h"
#include "abi/segment.h"
#include "base/types.h"
#include "client/system.h"

namespace uroce::client {

/// Descriptors that came with a response; those not taken are closed.
class ReceivedFds {
 public:
  ReceivedFds() = default;
  ~ReceivedFds() { clear(); }
  ReceivedFds(const ReceivedFds&) = delete;
  ReceivedFds& operator=(const ReceivedFds&) = delete;

  void clear() {
    for (std::uint32_t i = 0; i < count_; ++i) sys::close(fds_[i]);
    count_ = 0;
  }
  void add(int fd) {
    if (count_ < UROCE_MAX_MESSAGE_FDS) {
      fds_[count_++] = fd;
    } else {
      sys::close(fd);
    }
  }
  std::uint32_t count() const { return count_; }
  /// The i-th descriptor, now the caller's; -1 when there is none.
  int take(std::uint32_t i) {
    if (i >= count_) return -1;
    const int fd = fds_[i];
    fds_[i] = -1;
    return fd;
  }

 private:
  int fds_[UROCE_MAX_MESSAGE_FDS] = {};
  std::uint32_t count_ = 0;
};

enum class ConnectionState : std::uint8_t {
  kAlive,
  kDead,    ///< the daemon went away
  kForked,  ///< this process is a child of the one that opened the session
};

class Session {
 public:
  /// Connects to the daemon at `socket_path` and maps what it shares. errno: 0, ENOENT, ECONNREFUSED, EACCES,
  /// EPROTO (another ABI version), ENOMEM, EIO.
  static int open(const std::string& socket_path, std::unique_ptr<Session>& out);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Sends a command and waits for its answer. `reply` is filled with zeroes where the daemon sent less. errno:
  /// what the daemon answered; EIO when it is gone; ENODEV in the child after a fork.
  int call(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
           std::span<const int> fds = {}, ReceivedFds* received = nullptr,
           const uroce_new_chunks* chunks = nullptr);
  template <class Request, class Reply>
  int call(std::uint32_t command, const Request& request, Reply& reply, ReceivedFds* received = nullptr) {
    return call(command, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(&reply, 1)), {},
                received);
  }
  /// The same for a reply with `chunks`: they are mapped before another call can bring more.
  template <class Request, class Reply>
  int call_and_map(std::uint32_t command, const Request& request, Reply& reply) {
    ReceivedFds fds;
    return call(command, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(&reply, 1)), {},
                &fds, &reply.chunks);
  }
  /// A command whose only argument is a handle. Succeeds when the daemon is gone: nothing is left to give back.
  int release(std::uint32_t command, std::uint32_t handle);

  /// Where a place is mapped; nullptr when [place, place + bytes) isn't in a known chunk.
  void* at(const uroce_place& place, std::size_t bytes) const;

  ConnectionState connection_state() const { return connection_state_.load(std::memory_order_relaxed); }
  bool lost() const { return connection_state() != ConnectionState::kAlive; }
  void set_dead();

  /// To be called now and then by who polls in vain: looks at the heartbeat, and at the socket when that is old.
  /// Makes a system call at most every 50 ms, and none while the daemon is well.
  void check_alive();
  /// Few cores: a poller that finds nothing hands its core over.
  bool should_yield() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(header_->yield)).load(std::memory_order_relaxed) != 0;
  }

  /// What a datagram may have now: the port's MTU may change.
  std::uint32_t packet_bytes() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(header_->packet_bytes)).load(std::memory_order_relaxed);
  }

  /// Tells the workers that somebody here has polled in vain and hands the core over, or that the wait is over: a
  /// worker that shares our core then takes turns with us, which is quicker than to sleep and be woken.
  void publish_yielding(bool waiting) {
    for (std::uint32_t i = 0; i < workers_; ++i) {
      const std::atomic_ref polls(doorbells_[i].polls);
      const std::uint32_t count = polls.load(std::memory_order_relaxed) & ~1u;
      polls.store(waiting ? (count + 2) | 1 : count, std::memory_order_relaxed);
    }
  }

  std::uint32_t workers() const { return workers_; }
  /// After ringing, with what the ring gave: one system call for each time that the worker sleeps.
  void wake(std::uint32_t worker, std::uint32_t sleep) {
    if (woken_[worker].exchange(sleep, std::memory_order_relaxed) != sleep) write_event(worker);
  }
  uroce_doorbells* doorbells(std::uint32_t worker) const { return doorbells_ + worker; }
  const uroce_worker_line* worker_line(std::uint32_t worker) const { return &header_->worker[worker]; }
  /// Read end of the pipe of uroce_async_event.
  int event_fd() const { return event_fd_; }
  int socket() const { return socket_; }
  /// What another process may be given so that it can import this session's PDs and MRs (IMPORT_DEVICE).
  int share_fd() const { return share_fd_; }

 private:
  struct Chunk {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    bool writable = false;
  };
  static constexpr std::uint32_t kMaxChunks = 4096;

  Session() = default;
  int hello();
  /// Takes the first `chunks.count` descriptors.
  int map_chunks(const uroce_new_chunks& chunks, ReceivedFds& fds);
  int exchange(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
               std::span<const int> fds, ReceivedFds* received);
  int receive(std::uint32_t command, std::span<std::byte> reply, ReceivedFds& received);
  void abandon_in_child();
  void write_event(std::uint32_t worker);
  friend class SessionRegistry;

  std::atomic<ConnectionState> connection_state_{ConnectionState::kAlive};
  const uroce_session_header* header_ = nullptr;
  uroce_doorbells* doorbells_ = nullptr;
  std::uint32_t workers_ = 0;
  int socket_ = -1;
  int event_fd_ = -1;
  int share_fd_ = -1;  ///< the memfd of chunk 0
  std::vector<int> worker_events_;
  std::array<std::atomic<std::uint32_t>, UROCE_MAX_WORKERS> woken_{};  ///< sleeps that somebody here ends

  std::mutex call_mutex_;
  std::uint32_t sequence_ = 0;
  mutable std::mutex chunk_mutex_;
  std::vector<Chunk> chunks_;
  std::atomic<Nanos> last_check_{0};
  Session* next_ = nullptr;  ///< in the registry
};

}  // namespace uroce::client
