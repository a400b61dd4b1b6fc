// The general services interface (QP 1) of the port: CM management datagrams between the conductor, which owns the
// connection manager, and worker 0, which has the packets and knows the neighbours.
//
// Edges: send() stores `waiting_` before WorkerCore::wake() reads `asleep_`; the worker announces its sleep before
// it reads waiting(). Both seq_cst.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "base/types.h"
#include "cm/manager.h"
#include "net/link_stack.h"
#include "platform/unique_fd.h"
#include "wire/mad.h"
#include "wire/packet.h"

namespace uroce::daemon {

using wire::kMadBytes;
/// Ethernet with VLAN, IPv6, UDP, BTH, DETH, ICRC.
inline constexpr std::size_t kMaxGsiFrame = 18 + 40 + 8 + 12 + 8 + kMadBytes + 4;

/// Counted by reason.
struct GsiCounters {
  std::uint64_t received = 0, sent = 0;
  std::uint64_t bad_packet = 0;  ///< no UD SEND_ONLY, wrong Q_Key, length, P_Key or destination
  std::uint64_t bad_mad = 0;     ///< class, method, attribute or, but for requests, version that we don't speak
  std::uint64_t overflow = 0;    ///< the conductor did not keep up
  std::uint64_t unresolved = 0;  ///< the neighbour did not answer
};

/// The whole UD frame of a MAD along `path`. Returns its length; 0 when `to` is too short.
std::size_t emit_gsi_frame(const wire::PathAddress& path, std::span<const std::byte, kMadBytes> mad, Psn psn,
                           std::span<std::byte> to);

class GsiPort {
 public:
  GsiPort();

  // Worker 0.
  void receive(const wire::RxPacket& packet, const net::LinkStack& link);
  bool waiting() const { return waiting_.load(std::memory_order_seq_cst); }
  /// The next frame to send; 0: none now.
  std::size_t next_frame(std::span<std::byte> to, net::LinkStack& link, Nanos now);
  /// When those that wait for a neighbour are to be looked at again.
  Nanos next_timeout() const { return held_.empty() ? kNever : retry_at_; }
  void advance(Nanos now);

  // The conductor.
  int fd() const { return fd_.get(); }  ///< readable when there is something to take
  std::vector<cm::Message> take();
  /// Puts a message in line; `path` lacks the destination's MAC address. Full: it is dropped, and sent again later.
  void send(const cm::Message& message, const wire::PathAddress& path);
  GsiCounters counters() const;

 private:
  static constexpr std::size_t kMaxInbox = 4096, kMaxOutbox = 4096, kMaxHeld = 1024;
  struct Outgoing {
    wire::PathAddress path;
    std::array<std::byte, kMadBytes> mad;
    Nanos since = 0;
  };
  void count(std::uint64_t GsiCounters::*which);

  UniqueFd fd_;
  mutable std::mutex mutex_;  // inbox_, outbox_, counters_
  std::vector<cm::Message> inbox_;
  std::deque<Outgoing> outbox_;
  GsiCounters counters_;
  std::atomic<bool> waiting_{false};

  // Worker 0 alone.
  std::deque<Outgoing> held_;  ///< wait for their neighbour
  std::size_t held_to_try_ = 0;
  Nanos retry_at_ = 0;
  Psn psn_;
};

}  // namespace uroce::daemon
