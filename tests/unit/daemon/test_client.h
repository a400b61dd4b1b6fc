// A client of a conductor without a socket: requests as bytes, answers as values, shared memory mapped as a client
// maps it.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/control.h"
#include "control/session/privilege.h"
#include "daemon/conductor.h"
#include "queue/completion_queue.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"

namespace uroce::daemon::testing {

inline constexpr std::uint32_t kReadWrite = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead;
inline constexpr std::uint32_t kUd = 4;  // IBV_QPT_UD

/// The client's ends of one QP's queues.
struct ClientQp {
  uroce_create_qp_response made{};
  queue::WorkProducer sq, rq;
  queue::DoorbellRinger bell;
  int wake_fd = -1;

  void post_send(const uroce_sq_entry& entry, std::span<const uroce_sge> sges) {
    std::byte* slot = sq.next();
    queue::write_send(slot, entry, sges.data(), sges.size_bytes());
    sq.advance();
    sq.publish();
    if (bell.ring(made.doorbell_bit)) ::eventfd_write(wake_fd, 1);
  }
  void post_recv(std::uint64_t wr_id, std::span<const uroce_sge> sges) {
    std::byte* slot = rq.next();
    const uroce_rq_entry entry{wr_id, static_cast<std::uint32_t>(sges.size()), 0};
    std::memcpy(slot, &entry, sizeof(entry));
    std::memcpy(slot + sizeof(entry), sges.data(), sges.size_bytes());
    rq.advance();
    rq.publish();
  }
};

struct ClientCq {
  uroce_create_cq_response made{};
  queue::CqConsumer ring;
};

class TestClient {
 public:
  /// A client of the test's own user, with its rights. Other users are taken at their word, and have no rights.
  explicit TestClient(Conductor& conductor, uid_t uid = ::geteuid())
      : TestClient(conductor, uid == ::geteuid() ? myself() : platform::Peer{::getpid(), uid, UniqueFd()}) {}
  /// `socket`: the daemon's end, on which it answers later what it could not answer at once.
  TestClient(Conductor& conductor, platform::Peer peer, UniqueFd socket = UniqueFd())
      : conductor_(conductor), session_(conductor.open_session(std::move(peer), std::move(socket))) {}
  ~TestClient() {
    if (session_ != nullptr) close();
    for (const Chunk& chunk : chunks_) ::munmap(chunk.base, chunk.bytes);
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  static platform::Peer myself() {
    platform::Peer peer{::getpid(), ::geteuid(), UniqueFd(::syscall(SYS_pidfd_open, ::getpid(), 0))};
    control::read_namespaces(peer);
    return peer;
  }

  control::Session& session() { return *session_; }
  void close() { conductor_.close_session(*std::exchange(session_, nullptr)); }

  control::Reply send(std::uint32_t command, std::span<const std::byte> body, std::vector<UniqueFd> fds = {}) {
    std::vector<std::byte> message(sizeof(uroce_request) + body.size());
    const uroce_request request{command, ++sequence_};
    std::memcpy(message.data(), &request, sizeof(request));
    if (!body.empty()) std::memcpy(message.data() + sizeof(request), body.data(), body.size());
    return conductor_.handle(*session_, message, std::move(fds));
  }
  template <class Body>
  control::Reply send(std::uint32_t command, const Body& body, std::vector<UniqueFd> fds = {}) {
    return send(command, std::as_bytes(std::span(&body, 1)), std::move(fds));
  }
  template <class T>
  static T value(const control::Reply& reply) {
    T out{};
    if (reply.body.size() == sizeof(T)) std::memcpy(&out, reply.body.data(), sizeof(T));
    return out;
  }

  uroce_hello_response hello() {
    uroce_hello_request request{UROCE_ABI_VERSION, 1, "test"};
    control::Reply reply = send(UROCE_CMD_HELLO, request);
    hello_ = value<uroce_hello_response>(reply);
    map(hello_.chunks, reply);
    hello_fds_ = std::move(reply.fds);
    return hello_;
  }
  /// The memfd of a chunk from the HELLO reply.
  UniqueFd chunk_fd(std::size_t index) const { return UniqueFd(::dup(hello_fds_[index].get())); }
  const uroce_session_header* header() { return at<uroce_session_header>(hello_.header); }
  uroce_doorbells* doorbells() { return at<uroce_doorbells>(hello_.doorbells); }
  /// The descriptors of the HELLO reply after the chunks: eventfds, then the event channel.
  int hello_fd(std::size_t index) const { return hello_fds_[hello_.chunks.count + index].get(); }

  std::uint32_t alloc_pd() {
    return value<uroce_handle>(send(UROCE_CMD_ALLOC_PD, std::span<const std::byte>{})).handle;
  }

  /// Registers `bytes` (page-aligned) of a new memfd, as if it were mapped at `addr`. `data` is the test's mapping
  /// of it.
  control::Reply reg_mr(std::uint32_t pd, std::uint64_t addr, std::size_t bytes, std::uint32_t access,
                        std::byte*& data, int* keep_fd = nullptr) {
    UniqueFd file(::memfd_create("client", MFD_CLOEXEC));
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {};
    data = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0));
    chunks_.push_back({data, bytes});
    if (keep_fd != nullptr) *keep_fd = ::dup(file.get());
    uroce_reg_mr_request request{};
    request.pd = pd;
    request.access = access;
    request.addr = request.iova = addr;
    request.length = bytes;
    request.piece_count = 1;
    request.piece[0] = {0, 0, 0, bytes};
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(file));
    return send(UROCE_CMD_REG_MR, request, std::move(fds));
  }

  ClientCq create_cq(std::uint32_t entries, std::uint32_t channel = 0, std::uint64_t cookie = 0) {
    control::Reply reply = send(UROCE_CMD_CREATE_CQ, uroce_create_cq_request{entries, channel, cookie});
    ClientCq cq;
    cq.made = value<uroce_create_cq_response>(reply);
    map(cq.made.chunks, reply);
    if (cq.made.entries != 0) {
      cq.ring = queue::CqConsumer(at<uroce_cqe>(cq.made.ring), cq.made.entries,
                                  at<uroce_cq_client_block>(cq.made.client));
    }
    return cq;
  }
  static uroce_create_qp_request qp_request(std::uint32_t pd, std::uint32_t cq) {
    uroce_create_qp_request request{};
    request.type = 2;
    request.pd = pd;
    request.send_cq = request.recv_cq = cq;
    request.max_send_wr = request.max_recv_wr = 16;
    request.max_send_sge = request.max_recv_sge = 4;
    return request;
  }
  ClientQp create_qp(const uroce_create_qp_request& request, int* status = nullptr) {
    control::Reply reply = send(UROCE_CMD_CREATE_QP, request);
    if (status != nullptr) *status = reply.status;
    ClientQp qp;
    qp.made = value<uroce_create_qp_response>(reply);
    map(qp.made.chunks, reply);
    if (qp.made.sq_entries == 0 && qp.made.rq_entries == 0) return qp;
    auto* client = at<uroce_qp_client_block>(qp.made.client);
    const auto* daemon = at<uroce_qp_daemon_block>(qp.made.daemon);
    if (qp.made.sq_entries != 0) {
      qp.sq = {{at<std::byte>(qp.made.sq), qp.made.sq_entries, qp.made.sq_stride},
               &client->sq.index,
               &daemon->sq_consumer};
    }
    qp.rq = {{at<std::byte>(qp.made.rq), qp.made.rq_entries, qp.made.rq_stride},
             &client->rq.index,
             &daemon->rq_consumer};
    qp.wake_fd = hello_fd(qp.made.worker);
    qp.bell = {doorbells() + qp.made.worker, &header()->worker[qp.made.worker]};
    return qp;
  }
  int destroy(std::uint32_t command, std::uint32_t handle) { return send(command, uroce_handle{handle, 0}).status; }

  /// RESET to RTS towards `dest` at `gid`.
  int connect(const ClientQp& qp, std::uint32_t dest_qpn, std::span<const std::uint8_t, 16> gid) {
    uroce_modify_qp_request request{};
    request.handle = qp.made.handle;
    request.attr.state = 1;
    request.attr.port = 1;
    request.attr.access_flags = 0xf;
    request.mask = proto::kAttrState | proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrAccessFlags;
    if (const int error = send(UROCE_CMD_MODIFY_QP, request).status) return error;
    if (const int error = to_rtr(qp, dest_qpn, gid)) return error;
    request.attr = {};
    request.attr.state = 3;
    request.attr.timeout = 14, request.attr.retry_cnt = 7, request.attr.rnr_retry = 7,
    request.attr.max_rd_atomic = 1;
    request.mask = proto::kAttrState | proto::kAttrTimeout | proto::kAttrRetryCnt | proto::kAttrRnrRetry |
                   proto::kAttrSqPsn | proto::kAttrMaxRdAtomic;
    return send(UROCE_CMD_MODIFY_QP, request).status;
  }
  int to_rtr(const ClientQp& qp, std::uint32_t dest_qpn, std::span<const std::uint8_t, 16> gid) {
    uroce_modify_qp_request request{};
    request.handle = qp.made.handle;
    request.attr.state = 2;
    request.attr.path_mtu = 3;
    request.attr.dest_qpn = dest_qpn;
    request.attr.max_dest_rd_atomic = 1;
    request.attr.min_rnr_timer = 12;
    request.attr.av.is_global = 1;
    request.attr.av.port_num = 1;
    request.attr.av.hop_limit = 1;
    std::memcpy(request.attr.av.dgid, gid.data(), 16);
    request.mask = proto::kAttrState | proto::kAttrAv | proto::kAttrPathMtu | proto::kAttrDestQpn |
                   proto::kAttrRqPsn | proto::kAttrMaxDestRdAtomic | proto::kAttrMinRnrTimer;
    return send(UROCE_CMD_MODIFY_QP, request).status;
  }

  void map(const uroce_new_chunks& news, const control::Reply& reply) {
    for (std::uint32_t i = 0; i < news.count; ++i) {
      const int protection = news.chunk[i].client_writes != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
      void* base = ::mmap(nullptr, news.chunk[i].bytes, protection, MAP_SHARED, reply.fds[i].get(), 0);
      shared_.push_back(static_cast<std::byte*>(base));
      chunks_.push_back({base, news.chunk[i].bytes});
    }
  }
  template <class T>
  T* at(const uroce_place& place) {
    return reinterpret_cast<T*>(shared_[place.chunk] + place.offset);
  }

 private:
  struct Chunk {
    void* base;
    std::size_t bytes;
  };
  Conductor& conductor_;
  control::Session* session_;
  std::uint32_t sequence_ = 0;
  uroce_hello_response hello_{};
  std::vector<UniqueFd> hello_fds_;
  std::vector<std::byte*> shared_;
  std::vector<Chunk> chunks_;
};

}  // namespace uroce::daemon::testing
