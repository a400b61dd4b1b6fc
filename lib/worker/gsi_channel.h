// The general services interface of the port (GSI, QP 1): CM management datagrams between the conductor, which owns
// the connection manager, and the link worker, which has the packets and the neighbour table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "base/types.h"
#include "cm/manager.h"
#include "net/link_stack.h"
#include "wire/frame_template.h"
#include "wire/mad.h"
#include "wire/packet.h"
#include "worker/channel.h"

namespace uroce::worker {

using wire::kMadBytes;
/// Ethernet with VLAN, IPv6, UDP, BTH, DETH, ICRC.
inline constexpr std::size_t kMaxGsiFrame = 18 + 40 + 8 + 12 + 8 + kMadBytes + 4;

/// Counted by reason.
struct GsiCounters {
  std::uint64_t received = 0, sent = 0;
  std::uint64_t bad_packet = 0;  ///< not UD SEND_ONLY, or wrong Q_Key, length, P_Key, source QP or destination
  std::uint64_t bad_mad = 0;     ///< unknown class, method or attribute; unknown version, except in requests
  std::uint64_t overflow = 0;    ///< a queue between link worker and conductor was full
  std::uint64_t unresolved = 0;  ///< the neighbour did not answer
};

/// Writes the UD frame of a MAD along `path`, from the Ethernet header to the ICRC. Returns its length; 0 when `to`
/// is too short.
std::size_t emit_gsi_frame(const wire::PathAddress& path, std::span<const std::byte, kMadBytes> mad, Psn psn,
                           std::span<std::byte> to);

class GsiPort {
 public:
  // The link worker.
  void receive(const wire::RxPacket& packet, const net::LinkStack& link);
  bool waiting() const { return outbox_.waiting() || next_ != sending_.size() || held_to_try_ != 0; }
  /// Writes the next frame to send into `to` and returns its length; 0: none can be sent now.
  std::size_t next_frame(std::span<std::byte> to, net::LinkStack& link, Nanos now);
  /// MADs that wait for a neighbour are tried again: LinkStack::take_resolved() was true.
  void neighbours_changed();
  /// When the MAD that has waited longest is dropped.
  Nanos next_timeout() const { return held_.empty() ? kNever : held_.front().since + kNeighbourLimit; }
  void advance(Nanos now);

  // The conductor.
  int fd() const { return inbox_.fd(); }  ///< readable when there is something to take
  std::vector<cm::Message> take() { return inbox_.take(); }
  /// Queues a message; `path` lacks the destination's MAC address. When the queue is full the message is dropped
  /// and the connection manager retransmits it.
  void send(const cm::Message& message, const wire::PathAddress& path);

  GsiCounters counters() const;  ///< any thread

 private:
  static constexpr Nanos kNeighbourLimit = 4 * kSecond;
  static constexpr std::size_t kMaxInbox = 4096, kMaxOutbox = 4096, kMaxHeld = 1024;
  struct Outgoing {
    wire::PathAddress path;
    std::array<std::byte, kMadBytes> mad;
    Nanos since = 0;  ///< first attempt to send it
  };
  void count(std::uint64_t GsiCounters::*which);
  bool next_outgoing(Outgoing& out);

  Channel<cm::Message> inbox_{kMaxInbox, ChannelReader::kSleepsOnFd};
  Channel<Outgoing> outbox_{kMaxOutbox, ChannelReader::kPolls};
  mutable std::mutex counters_mutex_;
  GsiCounters counters_;

  // The link worker only.
  std::vector<Outgoing> sending_;  // taken from outbox_; [next_, end) is still to be sent
  std::size_t next_ = 0;
  std::deque<Outgoing> held_;    // wait for a neighbour's MAC address
  std::size_t held_to_try_ = 0;  // the first of held_ to try again in this duty cycle
  Psn psn_;
};

}  // namespace uroce::worker
