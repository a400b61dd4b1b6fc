// The memory of one side, and the keys with which the peer accesses it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "connection.h"

namespace uroce::ping {

/// The 16 bytes of a SEND, big-endian: the memory that the peer may READ or WRITE.
struct Advert {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t bytes = 0;
};

class Buffers {
 public:
  /// Wire size of an Advert.
  static constexpr std::uint32_t kAdvertBytes = 16;

  Buffers(Connection& connection, const Options& options);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Both have options.size bytes.
  std::byte* source() { return memory_.data(); }
  std::byte* sink() { return memory_.data() + room_; }
  ibv_sge source_part() const { return part(0, size_); }
  /// With the key of register_now() if that permits local access.
  ibv_sge sink_part() const;

  /// Remote key of the source or the sink; in modes with changing keys the one that register_now() returned.
  std::uint32_t remote_key(bool sink) const;

  void post_receive();
  /// The advert received last; throws Failure if it is malformed.
  Advert received(const ibv_wc& wc) const;

  /// Sends an advert of the source or the sink. `before`, if not null, is posted before it in the same chain.
  void advertise(bool sink, ibv_send_wr* before = nullptr, ibv_send_wr* before_last = nullptr);
  /// Sends the go-ahead, an empty advert, and invalidates the peer's `key` unless it is 0.
  void go_ahead(std::uint32_t key);

  // Changing keys: the key of the source or sink belongs to a fast registration or a type 2 memory window and is
  // renewed for each use.

  /// Whether the keys belong to fast registrations, which permit local access, too.
  bool fast() const { return fast_ != nullptr; }
  /// Posts the work requests that invalidate the old key, unless the peer has done so, and make a new one.
  void register_now(bool sink);
  /// To be called when the peer has invalidated our key.
  void invalidated(std::uint32_t key);
  /// Invalidates the key. `before`, if not null, is posted first in the same chain.
  void unregister_now(ibv_send_wr* before = nullptr);

 private:
  void prepare_keys();
  ibv_sge part(std::size_t which, std::uint32_t bytes) const;
  void register_memory();

  Connection& connection_;
  MemoryMode mode_;
  std::uint32_t size_;
  std::size_t room_;
  std::vector<std::byte> memory_;  // source, sink, send buffer, receive buffer
  std::vector<ibv_mr*> regions_;
  ibv_mr* fast_ = nullptr;
  ibv_mw* window_ = nullptr;
  std::uint32_t key_ = 0;
  bool valid_ = false;
};

// wr_id values.
enum Id : std::uint64_t { kReceive = 1, kAdvertSent, kInvalidated, kBound, kRead, kWrite, kGoAhead };

}  // namespace uroce::ping
