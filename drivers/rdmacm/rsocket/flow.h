// What an rsocket stream may send and what it has received: credits, targets, send slots and both rings, in
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rsocket/wire.h"

namespace uroce::rdmacm {

/// Accounting of one stream; no verbs, no memory of its own, no time. Not thread-safe: the socket's mutex guards
/// it.
///
/// Each message that carries data takes one credit; the peer gives credits back when its application has read the
/// message. Bytes go into targets, which are halves of the peer's receive buffer, each used up before the next.
/// Control messages need no credit, only one of kControlSlots of the send queue that are kept for them.
class StreamFlow {
 public:
  static constexpr std::uint32_t kControlSlots = 4;
  /// Receives beyond the credits given, so that control messages of a peer find one while nobody polls.
  static constexpr std::uint32_t kSpareReceives = 8;
  /// Room in the send buffer below which a stream is not called writable.
  static constexpr std::uint32_t kLowWater = 2048;

  struct Config {
    std::uint32_t send_buffer = 0;     ///< bytes
    std::uint32_t receive_buffer = 0;  ///< bytes, even
    std::uint16_t sq_size = 0;         ///< WQEs, more than kControlSlots
    std::uint16_t rq_size = 0;         ///< messages: the credits that the peer has
  };
  /// Part of a ring buffer, as offsets: the second piece is empty when the first does not reach the ring's end.
  struct Pieces {
    std::uint32_t offset = 0, first = 0, second = 0;
    std::uint32_t total() const { return first + second; }
  };
  /// One RDMA WRITE to post.
  struct Write {
    std::uint64_t remote_addr = 0;
    std::uint32_t key = 0;
    std::uint32_t imm = 0;
    Pieces source;            ///< in the send buffer; nothing when the data goes inline
    std::uint64_t wr_id = 0;  ///< to be given to completed()
  };
  /// A credit update to post; with a target when half of the receive buffer is free again.
  struct Update {
    std::uint32_t imm = 0;
    bool has_target = false;
    std::uint32_t target_index = 0;   ///< entry of the peer's list to write
    std::uint32_t buffer_offset = 0;  ///< of the half that is free
    std::uint32_t buffer_length = 0;
    std::uint32_t control_slot = 0;  ///< which of kControlSlots carries it
    std::uint64_t wr_id = 0;
  };
  enum class Event { kNothing, kData, kCredits, kDisconnect, kShutdown, kProtocolError };

  void start(const Config& config);
  /// What the peer's greeting says.
  void connect(std::uint16_t credits, const Target& first, std::uint32_t peer_targets);

  bool can_send() const { return can_write() && sent_ != allowed_ && targets_[target_].length != 0; }
  /// Bytes that one message may carry now.
  std::uint32_t room() const;
  /// Takes what a message of `length` (at most room(), not 0) needs. Only when can_send().
  Write send(std::uint32_t length, bool inline_data);
  /// A send slot and room for an RDMA WRITE that is no message of the stream (riowrite).
  bool can_write() const { return free_slots_ > 0 && send_free_ >= low_water_; }
  std::uint32_t write_room() const { return send_free_; }
  Write write(std::uint32_t length, bool inline_data);
  /// The message that tells of an iomap entry written; takes a credit, too. Only when can_send().
  Write send_iomap(std::uint32_t index, std::uint32_t length, bool inline_data);

  bool can_control() const { return control_used_ < kControlSlots; }
  /// A send slot for a control message or a keepalive: the wr_id. Only when can_control().
  std::uint64_t control();
  /// A credit update that is due now, taken; call until there is none.
  std::optional<Update> update();
  /// A send completed, well or not. False: the number is none of ours.
  bool completed(std::uint64_t wr_id);
  bool all_sent() const { return control_used_ == 0 && free_slots_ == all_slots_; }

  /// A message has arrived.
  Event received(std::uint32_t imm);
  /// Takes what the peer wrote into our list of targets; call after a kCredits. The list is shared with the peer.
  void adopt(volatile Target* list, bool swap);

  std::size_t readable() const { return readable_; }
  /// Where bytes [skip, skip + most) of what is readable lie in the receive buffer, as many as there are.
  Pieces peek(std::size_t skip, std::size_t most) const;
  void consume(std::size_t bytes);

 private:
  Write take(std::uint32_t length, bool inline_data, bool charged);
  void drop_empty();

  // Sending.
  std::uint16_t sent_ = 0, allowed_ = 0;
  Target targets_[kTargets];
  std::uint32_t target_ = 0;
  std::uint32_t send_size_ = 0, send_free_ = 0, send_offset_ = 0, low_water_ = kLowWater;
  std::uint32_t all_slots_ = 0, free_slots_ = 0;
  std::uint32_t control_used_ = 0, control_next_ = 0;

  // Receiving.
  std::uint16_t read_ = 0, tell_at_ = 0, rq_size_ = 0;
  std::uint32_t half_ = 0, freed_ = 0, free_offset_ = 0, granted_ = 0, read_offset_ = 0;
  std::uint32_t peer_target_ = 1, peer_targets_ = kTargets;
  std::size_t readable_ = 0;
  std::vector<std::uint32_t> lengths_;  ///< of the messages not read to their end, a ring
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace uroce::rdmacm
