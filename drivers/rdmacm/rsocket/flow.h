// Flow control of an rsocket stream: credits, targets, send slots and both ring buffers, as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rsocket/wire.h"

namespace uroce::rdmacm {

/// The accounting of one stream, without verbs, memory or time. Not thread-safe: the socket's mutex guards it.
///
/// Each message with data takes one credit, which the peer returns when its application has read the message. Data
/// is written into targets, halves of the peer's receive buffer, which are filled one after the other. Control
/// messages take no credit but one of kControlSlots entries of the send queue that are reserved for them.
class StreamFlow {
 public:
  static constexpr std::uint32_t kControlSlots = 4;
  /// Receives in addition to the credits, for control messages that arrive while no thread polls.
  static constexpr std::uint32_t kSpareReceives = 8;
  /// With less room in the send buffer, a stream is not writable.
  static constexpr std::uint32_t kLowWater = 2048;

  struct Config {
    std::uint32_t send_buffer = 0;     ///< bytes
    std::uint32_t receive_buffer = 0;  ///< bytes, even
    std::uint16_t sq_size = 0;         ///< work requests, more than kControlSlots
    std::uint16_t rq_size = 0;         ///< messages: the initial credits of the peer
  };
  /// A part of a ring buffer, as offsets. `second` is 0 unless the part wraps around the end.
  struct Pieces {
    std::uint32_t offset = 0, first = 0, second = 0;
    std::uint32_t total() const { return first + second; }
  };
  /// One RDMA WRITE to post.
  struct Write {
    std::uint64_t remote_addr = 0;
    std::uint32_t key = 0;
    std::uint32_t imm = 0;
    Pieces source;            ///< in the send buffer; empty for inline data
    std::uint64_t wr_id = 0;  ///< argument for completed()
  };
  /// A credit update to post. It has a target when half of the receive buffer is free again.
  struct Update {
    std::uint32_t imm = 0;
    bool has_target = false;
    std::uint32_t target_index = 0;   ///< entry of the peer's list to write
    std::uint32_t buffer_offset = 0;  ///< of the free half
    std::uint32_t buffer_length = 0;
    std::uint32_t control_slot = 0;  ///< index of the control slot that it uses
    std::uint64_t wr_id = 0;
  };
  enum class Event { kNothing, kData, kCredits, kDisconnect, kShutdown, kProtocolError };

  void start(const Config& config);
  /// The values of the peer's private data.
  void connect(std::uint16_t credits, const Target& first, std::uint32_t peer_targets);

  bool can_send() const { return can_write() && sent_ != allowed_ && targets_[target_].length != 0; }
  /// Largest data message that can be sent now, bytes.
  std::uint32_t room() const;
  /// Reserves a message of `length` bytes, 1 to room(). Only when can_send().
  Write send(std::uint32_t length, bool inline_data);
  /// Whether an RDMA WRITE that is not a stream message (riowrite) has a send slot and room in the send buffer.
  bool can_write() const { return free_slots_ > 0 && send_free_ >= low_water_; }
  std::uint32_t write_room() const { return send_free_; }
  Write write(std::uint32_t length, bool inline_data);
  /// Reserves the message that announces an iomap entry, which takes a credit, too. Only when can_send().
  Write send_iomap(std::uint32_t index, std::uint32_t length, bool inline_data);

  bool can_control() const { return control_used_ < kControlSlots; }
  /// Reserves a send slot for a control message or keepalive and returns its wr_id. Only when can_control().
  std::uint64_t control();
  /// Takes the next credit update that is due; nullopt when there is none. Call repeatedly.
  std::optional<Update> update();
  /// A send has completed, with any status. False: the wr_id is not one of this class.
  bool completed(std::uint64_t wr_id);
  bool all_sent() const { return control_used_ == 0 && free_slots_ == all_slots_; }

  /// A message has arrived.
  Event received(std::uint32_t imm);
  /// Adopts the targets that the peer has written into our list, which is memory shared with the peer. Call after
  /// kCredits.
  void adopt(volatile Target* list, bool swap);

  std::size_t readable() const { return readable_; }
  /// The place of the readable bytes [skip, skip + most) in the receive buffer; fewer if fewer are readable.
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
  std::uint16_t read_ = 0, credit_update_at_ = 0, rq_size_ = 0;
  std::uint32_t half_ = 0, freed_ = 0, free_offset_ = 0, granted_ = 0, read_offset_ = 0;
  std::uint32_t peer_target_ = 1, peer_targets_ = kTargets;
  std::size_t readable_ = 0;
  std::vector<std::uint32_t> lengths_;  ///< of the messages that are not completely read, a ring
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace uroce::rdmacm
