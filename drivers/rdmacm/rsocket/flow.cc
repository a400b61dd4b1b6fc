#include "rsocket/flow.h"

#include <algorithm>

namespace uroce::rdmacm {
namespace {

// wr_id: the kind of slot, and the bytes of the send buffer that the completion frees.
constexpr std::uint64_t kSlot = 1ull << 32, kControl = 2ull << 32, kBytes = (1ull << 32) - 1;

}  // namespace

void StreamFlow::start(const Config& config) {
  *this = StreamFlow();
  send_size_ = send_free_ = config.send_buffer;
  low_water_ = std::min(kLowWater, std::max(config.send_buffer / 2, 1u));
  all_slots_ = free_slots_ = config.sq_size - kControlSlots;
  rq_size_ = config.rq_size;
  credit_update_at_ = static_cast<std::uint16_t>(config.rq_size / 2);
  half_ = config.receive_buffer / 2;
  // The private data announces the first half; the second is announced as soon as the connection exists.
  granted_ = free_offset_ = freed_ = half_;
  lengths_.resize(config.rq_size);
}

void StreamFlow::connect(std::uint16_t credits, const Target& first, std::uint32_t peer_targets) {
  allowed_ = credits;
  targets_[0] = first;
  peer_targets_ = peer_targets;
  peer_target_ = peer_targets > 1 ? 1 : 0;
}

std::uint32_t StreamFlow::room() const { return std::min(send_free_, targets_[target_].length); }

StreamFlow::Write StreamFlow::take(std::uint32_t length, bool inline_data, bool charged) {
  Write w;
  --free_slots_;
  if (charged) ++sent_;
  if (!inline_data) {
    w.source.offset = send_offset_;
    w.source.first = std::min(length, send_size_ - send_offset_);
    w.source.second = length - w.source.first;
    send_offset_ = (send_offset_ + length) % send_size_;
    send_free_ -= length;
  }
  w.wr_id = kSlot | (inline_data ? 0 : length);
  return w;
}

StreamFlow::Write StreamFlow::send(std::uint32_t length, bool inline_data) {
  Write w = take(length, inline_data, true);
  // The entry is updated before the write is posted: afterwards the peer may write it again.
  Target& target = targets_[target_];
  w.remote_addr = target.addr;
  w.key = target.key;
  w.imm = message(MessageOp::kData, length);
  target.addr += length;
  target.length -= length;
  if (target.length == 0) target_ = (target_ + 1) % kTargets;
  return w;
}

StreamFlow::Write StreamFlow::write(std::uint32_t length, bool inline_data) {
  return take(length, inline_data, false);
}

StreamFlow::Write StreamFlow::send_iomap(std::uint32_t index, std::uint32_t length, bool inline_data) {
  Write w = take(length, inline_data, true);
  w.imm = message(MessageOp::kIomap, index);
  return w;
}

std::uint64_t StreamFlow::control() {
  ++control_used_;
  control_next_ = (control_next_ + 1) % kControlSlots;
  return kControl;
}

std::optional<StreamFlow::Update> StreamFlow::update() {
  const bool space = freed_ >= half_ && half_ > 0;
  const bool credits = static_cast<std::int16_t>(read_ - credit_update_at_) >= 0;
  if (!can_control() || (!space && !credits)) return std::nullopt;
  Update u;
  u.control_slot = control_next_;
  u.wr_id = control();
  u.imm = message(MessageOp::kCredits, static_cast<std::uint16_t>(read_ + rq_size_));
  credit_update_at_ = static_cast<std::uint16_t>(read_ + rq_size_ / 2);
  if (space) {
    u.has_target = true;
    u.target_index = peer_target_;
    u.buffer_offset = free_offset_;
    u.buffer_length = half_;
    peer_target_ = (peer_target_ + 1) % peer_targets_;
    free_offset_ = free_offset_ == 0 ? half_ : 0;
    freed_ -= half_;
    granted_ += half_;
  }
  return u;
}

bool StreamFlow::completed(std::uint64_t wr_id) {
  if (wr_id == kControl && control_used_ > 0) {
    --control_used_;
    return true;
  }
  const auto bytes = static_cast<std::uint32_t>(wr_id & kBytes);
  if ((wr_id & ~kBytes) != kSlot || free_slots_ == all_slots_ || bytes > send_size_ - send_free_) return false;
  ++free_slots_;
  send_free_ += bytes;
  return true;
}

StreamFlow::Event StreamFlow::received(std::uint32_t imm) {
  const std::uint32_t value = value_of(imm);
  switch (op_of(imm)) {
    case MessageOp::kData:
      if (value > granted_ || count_ == lengths_.size()) return Event::kProtocolError;
      granted_ -= value;
      lengths_[(first_ + count_++) % lengths_.size()] = value;
      readable_ += value;
      drop_empty();
      return Event::kData;
    case MessageOp::kCredits: allowed_ = static_cast<std::uint16_t>(value); return Event::kCredits;
    case MessageOp::kIomap:
      ++read_;  // it took a credit, and the application does not read it
      return Event::kNothing;
    case MessageOp::kControl:
      if (value == static_cast<std::uint32_t>(ControlMessage::kDisconnect)) return Event::kDisconnect;
      if (value == static_cast<std::uint32_t>(ControlMessage::kShutdown)) return Event::kShutdown;
      return Event::kNothing;
    default: return Event::kProtocolError;
  }
}

void StreamFlow::adopt(volatile Target* list, bool swap) {
  for (std::uint32_t n = 0; n < kTargets; ++n) {
    const std::uint32_t at = (target_ + n) % kTargets;
    if (targets_[at].length != 0) continue;
    // The peer may be writing the entries now. An entry is complete when its length is not zero.
    const std::uint64_t sizes =
        __atomic_load_n(reinterpret_cast<volatile std::uint64_t*>(&list[at].key), __ATOMIC_ACQUIRE);
    Target read;
    std::memcpy(&read.key, &sizes, sizeof(sizes));
    if (read.length == 0) return;
    read.addr = __atomic_load_n(&list[at].addr, __ATOMIC_RELAXED);
    targets_[at] = swap ? swapped(read) : read;
    __atomic_store_n(reinterpret_cast<volatile std::uint64_t*>(&list[at].key), 0, __ATOMIC_RELAXED);
  }
}

StreamFlow::Pieces StreamFlow::peek(std::size_t skip, std::size_t most) const {
  Pieces p;
  if (skip >= readable_) return p;
  const std::uint32_t size = 2 * half_;
  const auto total = static_cast<std::uint32_t>(std::min(most, readable_ - skip));
  p.offset = static_cast<std::uint32_t>((read_offset_ + skip) % size);
  p.first = std::min(total, size - p.offset);
  p.second = total - p.first;
  return p;
}

void StreamFlow::consume(std::size_t bytes) {
  readable_ -= bytes;
  freed_ += static_cast<std::uint32_t>(bytes);
  read_offset_ = static_cast<std::uint32_t>((read_offset_ + bytes) % (2 * half_));
  while (bytes > 0) {
    std::uint32_t& front = lengths_[first_];
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, front));
    front -= part;
    bytes -= part;
    drop_empty();
  }
}

void StreamFlow::drop_empty() {
  while (count_ > 0 && lengths_[first_] == 0) {
    first_ = (first_ + 1) % lengths_.size();
    --count_;
    ++read_;
  }
}

}  // namespace uroce::rdmacm
