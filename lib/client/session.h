// One opened device context: the connection to a daemon and the memory shared with it (abi/segment.h).
//
// Contract. Any thread may call any function. call() is one round trip under a lock. lost() is a relaxed load,
// cheap enough for every post and poll. It becomes true, permanently, when the daemon is found to be gone (by
// call(), check_alive() or the reader of the event channel) and in the child after a fork: the session belongs to
// the parent, and ends with it. The child shares the socket for commands that concern neither queues nor memory; of
// the objects of the session it can destroy those that it has made.
//
// The only exception that these functions throw is std::bad_alloc.
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
#include "client/command_lock.h"
#include "client/system.h"

namespace uroce::client {

/// Descriptors received with a response. Those that are not taken are closed.
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
  /// Transfers the i-th descriptor to the caller; -1 when there is none.
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
  kDead,    ///< the daemon is gone
  kForked,  ///< this process was forked by the one that opened the session
};

class Session {
 public:
  /// Connects to the daemon at `socket_path` and maps the shared segments. errno: 0, ENOENT, ECONNREFUSED, EACCES,
  /// EPROTO (the daemon has another ABI version), ENOMEM, EIO.
  static int open(const std::string& socket_path, std::unique_ptr<Session>& out);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Sends a command and waits for the answer. A shorter answer leaves the rest of `reply` zero. errno: the
  /// daemon's status; EIO when the daemon is gone; ENODEV in the child after a fork, for queues and memory.
  int call(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
           std::span<const int> fds = {}, ReceivedFds* received = nullptr,
           const uroce_new_chunks* chunks = nullptr);
  template <class Request, class Reply>
  int call(std::uint32_t command, const Request& request, Reply& reply, ReceivedFds* received = nullptr) {
    return call(command, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(&reply, 1)), {},
                received);
  }
  /// call() for a reply with `chunks`. They are mapped before another call can add more.
  template <class Request, class Reply>
  int call_and_map(std::uint32_t command, const Request& request, Reply& reply) {
    ReceivedFds fds;
    return call(command, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(&reply, 1)), {},
                &fds, &reply.chunks);
  }
  /// A command that destroys the object `handle`. Succeeds when the daemon is gone: it has freed the object. In the
  /// child after a fork it succeeds without effect for objects that the child has not made.
  int release(std::uint32_t command, std::uint32_t handle);

  /// The address at which a place is mapped; nullptr when [place, place + bytes) is not within a known chunk.
  void* at(const uroce_place& place, std::size_t bytes) const;

  ConnectionState connection_state() const { return connection_state_.load(std::memory_order_relaxed); }
  bool lost() const { return connection_state() != ConnectionState::kAlive; }
  void set_dead();

  /// To be called occasionally by pollers that find nothing. Checks the heartbeat and, if that is old, the socket:
  /// at most one system call every 50 ms, and none while the daemon's heartbeat is recent.
  void check_alive();
  /// Whether a poller that finds nothing should call sched_yield(2), as there are fewer cores than pollers.
  bool should_yield() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(header_->yield)).load(std::memory_order_relaxed) != 0;
  }

  /// Largest payload of a datagram, bytes. It changes with the MTU of the port.
  std::uint32_t packet_bytes() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(header_->packet_bytes)).load(std::memory_order_relaxed);
  }

  /// Publishes to the workers that a thread of this process yields its core after an empty poll, or has stopped
  /// doing so. A worker on the same core then yields, too: alternating is faster than sleeping and being woken.
  void publish_yielding(bool waiting) {
    for (std::uint32_t i = 0; i < workers_; ++i) {
      const std::atomic_ref polls(doorbells_[i].polls);
      const std::uint32_t count = polls.load(std::memory_order_relaxed) & ~1u;
      polls.store(waiting ? (count + 2) | 1 : count, std::memory_order_relaxed);
    }
  }

  std::uint32_t workers() const { return workers_; }
  /// To be called after a doorbell, with the value that ring() returned. One system call wakes a sleeping worker;
  /// further calls for the same sleep do not. A worker that measures latencies gets the time.
  void wake(std::uint32_t worker, std::uint32_t line) {
    if ((line & UROCE_STAMP_DOORBELLS) != 0) stamp(doorbells_[worker].rung_ns);
    if ((line & ~UROCE_STAMP_DOORBELLS) == 0) return;
    if (woken_[worker].exchange(line, std::memory_order_relaxed) == line) return;
    if ((line & UROCE_STAMP_DOORBELLS) != 0) stamp(doorbells_[worker].woken_ns);
    write_event(worker);
  }
  uroce_doorbells* doorbells(std::uint32_t worker) const { return doorbells_ + worker; }
  const uroce_worker_line* worker_line(std::uint32_t worker) const { return &header_->worker[worker]; }
  /// The event channel: a socket with a uroce_async_event record in each message.
  int event_fd() const { return event_fd_; }
  int socket() const { return socket_; }
  /// The descriptor with which another process can import this session's PDs and MRs (IMPORT_DEVICE).
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
  /// Consumes the first `chunks.count` descriptors.
  int map_chunks(const uroce_new_chunks& chunks, ReceivedFds& fds);
  int release_in_child(std::uint32_t command, std::uint32_t handle);
  int exchange(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
               std::span<const int> fds, ReceivedFds* received);
  int receive(std::uint32_t command, std::span<std::byte> reply, ReceivedFds& received);
  ssize_t receive_message(msghdr& message, ReceivedFds& received);
  void ask_why(int error);
  void abandon_in_child();
  static void stamp(std::uint64_t& time);
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
  std::array<std::atomic<std::uint32_t>, UROCE_MAX_WORKERS> woken_{};  ///< last sleep that this process ended

  CommandLock command_lock_;
  std::uint32_t sequence_ = 0;  ///< of the latest command of this process
  struct Own {
    std::uint32_t destroyed_by, handle, forks;
    bool operator==(const Own&) const = default;
  };
  std::vector<Own> own_;     ///< objects that a forked process made; under chunk_mutex_
  std::uint32_t forks_ = 0;  ///< between the process that opened the session and this one
  mutable std::mutex chunk_mutex_;
  std::vector<Chunk> chunks_;
  std::atomic<Nanos> last_check_{0};
  Session* next_ = nullptr;  ///< in the registry
};

}  // namespace uroce::client
