// The daemon's side of one session, played by the test: real sockets, memfds, pipes, and queue ends that the test
// controls.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/control.h"
#include "queue/completion_queue.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"

namespace uroce::client::test {

class FakeDaemon {
 public:
  static constexpr std::size_t kChunkBytes = 1u << 20;
  static constexpr std::uint32_t kEntries = 8, kStride = 128;

  FakeDaemon();
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& socket_path() const { return path_; }
  std::string run_dir() const { return dir_; }
  /// Closes everything, as the kernel does when a daemon is killed.
  void die();

  uroce_session_header& header() { return *reinterpret_cast<uroce_session_header*>(daemon_chunk_); }
  uroce_doorbells& bells() { return *reinterpret_cast<uroce_doorbells*>(client_chunk_); }
  uroce_qp_client_block& qp_client() { return *reinterpret_cast<uroce_qp_client_block*>(client_chunk_ + kQpAt); }
  queue::WorkConsumer sq();
  queue::WorkConsumer rq();
  queue::CqProducer& cq() { return cq_; }
  int wakes();
  int commands() const { return commands_; }

  // The status of the daemon's answers from now on.
  std::atomic<std::uint32_t> version{UROCE_ABI_VERSION};
  std::atomic<int> status{0};
  std::atomic<bool> misplace{false};  ///< answers contain places outside of their chunks
  std::atomic<bool> die_at_next_command{false};
  std::atomic<pid_t> victim{0};  ///< a child that is killed when its command has arrived, before the answer
  std::string words;             ///< the reason for each status that is not 0; set before a command is sent

 private:
  // Places. Chunk 0 is the client's, chunk 1 the daemon's.
  static constexpr std::uint64_t kQpAt = 16384, kCqClientAt = 32768, kSqAt = 65536, kRqAt = 131072;
  static constexpr std::uint64_t kQpDaemonAt = 8192, kCqAt = 16384;

  uroce_explain_response refused_{};

  void serve();
  bool serve_one(int fd);
  void reply(int fd, const uroce_request& request, int status, const void* body, std::size_t bytes,
             const std::vector<int>& fds);
  void greet(int fd, const uroce_request& request);
  void make_qp(int fd, const uroce_request& request);
  void make_cq(int fd, const uroce_request& request);
  uroce_place place(std::uint32_t chunk, std::uint64_t offset) const {
    return {chunk, 0, misplace ? kChunkBytes : offset};
  }

  std::string dir_, path_;
  int listener_ = -1;
  std::array<int, 2> memfds_{-1, -1};
  std::byte* client_chunk_ = nullptr;
  std::byte* daemon_chunk_ = nullptr;
  int wake_fd_ = -1;
  std::mutex fds_mutex_;
  std::vector<int> open_fds_;  ///< of the connection, and the write ends of pipes
  queue::CqProducer cq_;
  std::atomic<int> commands_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace uroce::client::test
