// The memory of one end, and the keys that the peer uses for it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "connection.h"

namespace uroce::ping {

/// What a SEND of 16 bytes tells the peer, big-endian: where it may READ or WRITE.
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

  // Each of options.size bytes.
  std::byte* source() { return memory_.data(); }
  std::byte* sink() { return memory_.data() + room_; }
  ibv_sge source_part() const { return part(0, size_); }
  /// With the key that register_now gave, where it is good for local use.
  ibv_sge sink_part() const;

  /// Remote key of the source or the sink; where keys change the one that register_now gave.
  std::uint32_t remote_key(bool sink) const;

  void post_receive();
  /// The advert that has been received; Failure when it is not one.
  Advert received(const ibv_wc& wc) const;

  /// Sends an advert of the source or the sink, `before` (may be nullptr) ahead of it in one chain.
  void advertise(bool sink, ibv_send_wr* before = nullptr, ibv_send_wr* before_last = nullptr);
  /// Sends the go-ahead: an empty advert; invalidates `key` of the peer when it is not 0.
  void go_ahead(std::uint32_t key);

  // Keys that change: the one of the source or sink is that of a fast registration or of a type 2 memory window,
  // made anew for each use.

  /// Whether keys are those of fast registration, which are good for local use, too.
  bool fast() const { return fast_ != nullptr; }
  /// Posts the work requests that take the old key back (unless the peer has done so) and make a new one.
  void register_now(bool sink);
  /// The peer says that it has invalidated our key.
  void invalidated(std::uint32_t key);
  /// Takes the key back; `before` (may be nullptr) goes ahead of that in one chain.
  void unregister_now(ibv_send_wr* before = nullptr);

 private:
  void prepare_keys();
  ibv_sge part(std::size_t which, std::uint32_t bytes) const;
  void register_memory();

  Connection& connection_;
  MemoryMode mode_;
  std::uint32_t size_;
  std::size_t room_;
  std::vector<std::byte> memory_;  // source, sink, what is sent, what is received
  std::vector<ibv_mr*> regions_;
  ibv_mr* fast_ = nullptr;
  ibv_mw* window_ = nullptr;
  std::uint32_t key_ = 0;
  bool valid_ = false;
};

// Work requests' ids.
enum Id : std::uint64_t { kReceive = 1, kAdvertSent, kInvalidated, kBound, kRead, kWrite, kGoAhead };

}  // namespace uroce::ping
