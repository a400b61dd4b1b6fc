// The verbs objects and memory of one stream.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

#include "rsocket/flow.h"

namespace uroce::rdmacm {

struct EndpointConfig {
  std::uint32_t send_buffer = 0;     ///< bytes
  std::uint32_t receive_buffer = 0;  ///< bytes
  std::uint32_t sq_size = 0, rq_size = 0;
  std::uint32_t inline_size = 0;
  std::uint32_t iomap_entries = 0;
};

/// A QP with its CQ and PD, the buffers of both directions, and the lists that the peer writes. Each stream has a
/// PD of its own, so that the keys given to one peer are useless to another. Functions return 0 or -errno.
///
/// Guarded by the socket's mutex, except for the contents of the buffers.
class Endpoint {
 public:
  static constexpr std::uint64_t kReceiveWrId = 1ull << 63;

  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() { destroy(); }

  /// Creates all objects for `id`, whose device is known. Sizes are limited to those of the device; config()
  /// returns them.
  int create(rdma_cm_id* id, EndpointConfig config);
  /// To be called before rdma_destroy_id(3), when no thread uses the endpoint.
  void destroy();
  bool exists() const { return qp_ != nullptr; }

  const EndpointConfig& config() const { return config_; }
  ibv_cq* cq() const { return cq_; }
  ibv_comp_channel* channel() const { return channel_; }
  ibv_pd* pd() const { return pd_; }
  std::byte* send_buffer() const { return memory_ + send_at_; }
  std::byte* receive_buffer() const { return memory_ + receive_at_; }
  volatile Target* targets() const { return reinterpret_cast<volatile Target*>(memory_); }
  volatile IomapEntry* iomap() const {
    return reinterpret_cast<volatile IomapEntry*>(memory_ + kTargets * sizeof(Target));
  }

  /// The private data for the peer.
  ConnectPrivateData private_data() const;

  int post_receives(std::uint32_t count);
  /// An RDMA WRITE of `pieces` of the send buffer, with w.imm when `with_imm`.
  int post(const StreamFlow::Write& w, bool with_imm);
  /// post() with inline data, at most config().inline_size bytes.
  int post_inline(const StreamFlow::Write& w, const void* data, std::uint32_t length, bool with_imm);
  /// Posts a credit update. Its target is written into the peer's list at `list`; `swap`: the peer has the other
  /// byte order.
  int post_update(const StreamFlow::Update& u, const Target& list, bool swap);
  /// An empty RDMA WRITE: a control message if `imm` is given, else a keepalive.
  int post_control(std::uint64_t wr_id, const std::uint32_t* imm);

 private:
  int create_queues(rdma_cm_id* id);
  int create_memory();
  int post_write(std::uint64_t wr_id, ibv_sge* sges, int count, std::uint64_t addr, std::uint32_t key,
                 const std::uint32_t* imm, bool inline_data);

  EndpointConfig config_;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr *list_mr_ = nullptr, *receive_mr_ = nullptr, *send_mr_ = nullptr;
  std::byte* memory_ = nullptr;
  std::size_t memory_size_ = 0, receive_at_ = 0, send_at_ = 0;
};

}  // namespace uroce::rdmacm
