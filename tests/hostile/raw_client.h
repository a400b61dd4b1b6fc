// A client that speaks the control protocol of lib/abi/control.h without any library, so that an attack can send
// what no library would: any command with any body and any descriptors, and any content of the shared rings.
//
// Call contract. One thread for each client. Nothing throws except std::bad_alloc; a call that fails says so in its
// result. The caller forks before it opens clients (processes.h): a child inherits the sockets of its parent.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/cm.h"
#include "abi/control.h"
#include "platform/clock.h"
#include "platform/unique_fd.h"
#include "queue/completion_queue.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"

namespace uroce::hostile {

/// Milliseconds that a client waits for an answer: longer than any healthy daemon takes on a busy machine. A
/// process that runs next to thousands of threads raises it.
inline int answer_timeout_ms = 10'000;

/// Statuses of an Answer that no daemon sends.
inline constexpr int kNoAnswer = -1;  ///< within the time given
inline constexpr int kClosed = -2;    ///< the daemon has closed the session

struct Answer {
  int status = kNoAnswer;     ///< 0, an errno, kNoAnswer or kClosed
  std::uint32_t command = 0;  ///< that was answered
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;

  bool ok() const { return status == 0; }
  /// The body as T; zero where it is shorter.
  template <class T>
  T as() const {
    T out{};
    if (!body.empty()) std::memcpy(&out, body.data(), body.size() < sizeof(T) ? body.size() : sizeof(T));
    return out;
  }
};

/// Registered memory: a mapping of this process and the keys of the MR.
struct Memory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  UniqueFd file;
  uroce_reg_mr_response made{};
  int status = kNoAnswer;  ///< of REG_MR

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data); }
};

struct Cq {
  uroce_create_cq_response made{};
  queue::CqConsumer ring;
  int status = kNoAnswer;
};

struct Qp {
  uroce_create_qp_response made{};
  queue::WorkProducer sq, rq;
  queue::DoorbellRinger bell;
  int status = kNoAnswer;
};

class RawClient {
 public:
  /// Connects; connected() says whether that succeeded. No HELLO is sent.
  explicit RawClient(const std::string& socket_path);
  ~RawClient();
  RawClient(RawClient&& from) noexcept = default;
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  /// Closes the socket. The mappings and the other descriptors stay.
  void disconnect() { socket_.reset(); }
  /// Whether the daemon has closed this session.
  bool closed() const;

  // Messages.
  /// Sends any bytes with any descriptors. False: the socket refused them. Waits while the daemon does not read.
  bool send_bytes(std::span<const std::byte> message, std::span<const int> fds = {});
  /// Sends a request and does not wait for its answer.
  bool send(std::uint32_t command, std::span<const std::byte> body = {}, std::span<const int> fds = {});
  /// The next answer.
  Answer receive(int timeout_ms = answer_timeout_ms);
  /// Sends a request and returns its answer.
  Answer call(std::uint32_t command, std::span<const std::byte> body = {}, std::span<const int> fds = {},
              int timeout_ms = answer_timeout_ms);
  template <class Body>
  requires std::is_class_v<Body> && std::is_trivially_copyable_v<Body> &&
      (!std::is_convertible_v<const Body&, std::span<const std::byte>>)Answer
      call(std::uint32_t command, const Body& body, std::span<const int> fds = {},
           int timeout_ms = answer_timeout_ms) {
    return call(command, std::as_bytes(std::span(&body, 1)), fds, timeout_ms);
  }
  /// ADMIN with a JSON text, as urocectl sends it; the text of the answer's pages, or "" after an error.
  std::string admin(const std::string& json);

  // Objects. Each sends one request.
  /// 0, an errno, kNoAnswer or kClosed.
  int hello();
  std::uint32_t alloc_pd();
  /// Registers `bytes` (page-aligned) of a new memfd.
  Memory register_memfd(std::uint32_t pd, std::size_t bytes, std::uint32_t access = 0xf);
  /// Registers a range of a file. `map`: map it here, too; otherwise `address` is its IOVA.
  Memory register_file(std::uint32_t pd, int file, std::uint64_t offset, std::size_t bytes, std::uint32_t access,
                       bool map, std::uint64_t address = 0x10'0000'0000);
  /// Handle of a new completion channel and its descriptor; 0: refused.
  std::uint32_t create_channel(UniqueFd& out);
  Cq create_cq(std::uint32_t entries, std::uint32_t channel = 0, std::uint64_t cookie = 0);
  /// An RC QP with 128 entries on each side.
  Qp create_qp(std::uint32_t pd, const Cq& cq);
  Qp create_qp(const uroce_create_qp_request& request);
  /// RESET to RTS towards a QP of the same daemon. 0 or the first error.
  int connect_qp(const Qp& qp, std::uint32_t dest_qpn);
  int modify_to_error(const Qp& qp);
  int destroy(std::uint32_t command, std::uint32_t handle) { return call(command, uroce_handle{handle, 0}).status; }

  // Queues.
  /// Posts one entry and rings the doorbell. False: the ring is full.
  bool post_send(Qp& qp, const uroce_sq_entry& entry, std::span<const uroce_sge> list);
  bool post_recv(Qp& qp, std::uint64_t wr_id, std::span<const uroce_sge> list);
  /// A signaled RDMA WRITE.
  bool post_write(Qp& qp, const Memory& from, std::uint64_t remote_address, std::uint32_t rkey,
                  std::uint32_t bytes);
  /// Takes one completion. False: there was none within the time.
  bool poll(Cq& cq, uroce_cqe& out, int timeout_ms = answer_timeout_ms);
  void arm(Cq& cq, bool solicited_only = false) { cq.ring.arm(solicited_only); }

  const uroce_hello_response& greeting() const { return hello_; }
  /// Descriptors of the HELLO answer after the chunks: an eventfd for each worker, then the event channel.
  int hello_fd(std::size_t index) const { return hello_fds_[hello_.chunks.count + index].get(); }
  int event_fd() const { return hello_fd(hello_.workers); }
  const uroce_session_header* header() { return at<uroce_session_header>(hello_.header); }
  uroce_doorbells* doorbells() { return at<uroce_doorbells>(hello_.doorbells); }
  template <class T>
  T* at(const uroce_place& place) {
    return reinterpret_cast<T*>(chunks_[place.chunk].base + place.offset);
  }

 private:
  std::string admin_page(const std::string& json);
  struct Mapping {
    std::byte* base;
    std::size_t bytes;
  };
  void map(const uroce_new_chunks& news, const Answer& answer);

  UniqueFd socket_;
  std::uint32_t sequence_ = 0;
  uroce_hello_response hello_{};
  std::vector<UniqueFd> hello_fds_;
  std::vector<Mapping> chunks_, mappings_;
};

/// An RC QP connected to itself, with memory that it reads and writes: what an honest tenant needs, and the start
/// of most attacks.
struct Tenant {
  /// `bytes` of registered memory in a memfd. ok() says whether all steps succeeded.
  Tenant(const std::string& socket_path, std::size_t bytes);

  bool ok() const { return error.empty(); }
  /// Time of one 8-byte WRITE to itself, post to completion, in ns; 0: it did not complete.
  Nanos write_once();

  RawClient client;
  std::string error;  ///< the step that failed, and its status
  std::uint32_t pd = 0;
  Memory memory;
  Cq cq;
  Qp qp;
};

}  // namespace uroce::hostile
