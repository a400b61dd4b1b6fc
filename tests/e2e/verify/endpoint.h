// One end of verify: a device, its memory, an RC QP, and a TCP connection to the other end.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule.h"

namespace uroce::verify {

struct Options {
  std::string device;  ///< empty: the first device
  std::string host;    ///< empty: this is the server
  int port = 18515;
  int gid_index = 0;
  std::uint64_t seed = 1;
  std::uint32_t batches = 200;
  Limits limits;
  bool events = false;  ///< sleep on completion events
  std::string memory = "heap";
  void* stack = nullptr;  ///< memory on the stack, for that kind
  std::int64_t psn = -1;  ///< first PSN; -1: random
  std::uint8_t timeout = 15;
  std::uint32_t flow_label = 0;
  std::uint8_t hop_limit = 64;
  bool any_address = false;  ///< listen on all of the machine's addresses, not on 127.0.0.1 alone
};

[[noreturn]] void fail(const std::string& what);

/// The data that is sent to the other end.
struct Peer {
  std::uint32_t qpn = 0, psn = 0, rkey = 0;
  std::uint32_t reserved = 0;
  std::uint64_t address = 0;
  std::uint8_t gid[16] = {};
};

class Endpoint {
 public:
  explicit Endpoint(const Options& options);
  static std::size_t memory_bytes(const Limits& limits) {
    return limits.region_bytes + limits.batch * stride(limits);
  }

  // Memory: `region` is what the client reads and writes at the server, slots are for what is sent and received.
  std::byte* region() { return memory_; }
  std::byte* slot(std::size_t i) { return memory_ + limits_.region_bytes + i * stride(); }
  /// Distance of two slots. The bytes after max_bytes are a guard.
  std::size_t stride() const { return stride(limits_); }
  std::uint32_t lkey() const { return mr_->lkey; }
  /// The address from which the QP reads data of the slot, possibly in another mapping of the same memory.
  std::uint64_t source(std::size_t i) { return reinterpret_cast<std::uint64_t>(source_) + (slot(i) - memory_); }
  std::uint32_t source_lkey() const { return source_mr_->lkey; }

  ibv_qp* qp() { return qp_; }
  const Peer& peer() const { return peer_; }
  std::uint32_t max_inline() const { return max_inline_; }

  /// Waits for the next completion, at most `seconds`.
  ibv_wc wait_completion(double seconds);

  // One letter on the TCP connection.
  void tell(char letter);
  void await(char letter);

 private:
  static std::size_t stride(const Limits& limits) { return limits.max_bytes + 64; }
  void open_device(const Options& options);
  void make_memory(const Options& options);
  void make_qp();
  void connect_tcp(const Options& options);
  void connect_qp(const Options& options);

  Limits limits_;
  bool events_ = false;
  std::byte *memory_ = nullptr, *source_ = nullptr;
  int tcp_ = -1;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr *mr_ = nullptr, *source_mr_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::uint32_t max_inline_ = 0;
  Peer self_, peer_;
};

}  // namespace uroce::verify
