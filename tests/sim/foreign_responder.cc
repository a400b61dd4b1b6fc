// The responder of the foreign peer (IBTA vol. 1, 9.7.4 and 9.7.5).
#include <algorithm>
#include <cstring>

#include "tests/sim/foreign_peer.h"
#include "tests/sim/model.h"

namespace uroce::sim {
namespace {

constexpr std::uint32_t kMask = 0xffffff;
constexpr std::uint8_t kReadRequest = 12, kAcknowledge = 0x11, kAtomicAcknowledge = 0x12, kCompareSwap = 0x13;
constexpr std::uint8_t kRnr = 0x20, kNakSequence = 0x60, kNakAccess = 0x62, kUnlimited = 0x1f;

std::int32_t distance(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t d = (to - from) & kMask;
  return d < 0x800000 ? static_cast<std::int32_t>(d) : static_cast<std::int32_t>(d) - 0x1000000;
}

std::uint64_t number(std::span<const std::uint8_t> bytes, std::size_t at, std::size_t count) {
  if (at + count > bytes.size()) fail("foreign peer: a header is cut off");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
  return value;
}

}  // namespace

ForeignPeer::Bytes ForeignPeer::aeth(std::uint8_t syndrome) const {
  return {syndrome, static_cast<std::uint8_t>(msn_ >> 16), static_cast<std::uint8_t>(msn_ >> 8),
          static_cast<std::uint8_t>(msn_)};
}

/// Credit codes up to 4 are the number itself (IBTA vol. 1, table 46).
std::uint8_t ForeignPeer::ack_syndrome() const {
  return settings_.credits ? static_cast<std::uint8_t>(std::min(receives_, 4u)) : kUnlimited;
}

bool ForeignPeer::may_access(std::uint64_t address, std::uint64_t bytes, std::uint32_t key) const {
  return key == kKey && address >= kBase && bytes <= memory.size() && address - kBase <= memory.size() - bytes;
}

void ForeignPeer::nak(std::uint8_t syndrome) {
  ack_at_.reset();
  out_.push_back(frame(kAcknowledge, false, epsn_, aeth(syndrome), {}));
  dead_ |= syndrome > kNakSequence;
}

void ForeignPeer::on_request(const Request& request, std::uint64_t now) {
  const std::int32_t ahead = distance(epsn_, request.psn);
  if (ahead == 0) return execute(request, now);
  if (ahead < 0) return on_duplicate(request, now);
  if (nak_sent_) return;
  nak_sent_ = true;
  nak(kNakSequence);
}

void ForeignPeer::execute(const Request& request, std::uint64_t now) {
  if (request.opcode < 6) return on_send(request, now);
  if (request.opcode < kReadRequest) return on_write(request, now);
  if (amid_ != Amid::kNothing) fail("foreign peer: a request within a message");
  if (request.opcode == kReadRequest) return on_read(request, false);
  on_atomic(request);
}

/// SENDs and WRITEs are acknowledged, READs executed again, atomics answered with what they gave (9.7.5: duplicate
/// requests).
void ForeignPeer::on_duplicate(const Request& request, std::uint64_t now) {
  if (request.opcode < kReadRequest) {
    if (request.ask) ack_at_ = std::min(ack_at_.value_or(~0ull), now + settings_.ack_delay);
    return;
  }
  if (request.opcode == kReadRequest) return on_read(request, true);
  const auto found = results_.find(request.psn);
  if (found == results_.end()) return;
  Bytes headers = aeth(kUnlimited);
  for (int i = 7; i >= 0; --i) headers.push_back(static_cast<std::uint8_t>(found->second >> (8 * i)));
  out_.push_back(frame(kAtomicAcknowledge, false, request.psn, headers, {}));
}

void ForeignPeer::accept(const Request& request, std::uint64_t now) {
  epsn_ = (epsn_ + 1) & kMask;
  nak_sent_ = false;
  if (request.ask) ack_at_ = std::min(ack_at_.value_or(~0ull), now + settings_.ack_delay);
}

void ForeignPeer::check_place(const Request& request, Amid kind, bool starts, bool ends, std::size_t bytes) const {
  if (amid_ != (starts ? Amid::kNothing : kind)) fail("foreign peer: a packet out of place in its message");
  if (!ends && bytes != settings_.mtu) fail("foreign peer: a first or middle packet that is not full");
  if (bytes > settings_.mtu) fail("foreign peer: a packet longer than the MTU");
  if (ends && !starts && bytes == 0) fail("foreign peer: a last packet without data");
  if (!ends && request.pad != 0) fail("foreign peer: a full packet with pad");
  if (request.solicited && !ends) fail("foreign peer: solicited event amid a message");
}

void ForeignPeer::finish_message(const std::uint8_t* immediate) {
  amid_ = Amid::kNothing;
  msn_ = (msn_ + 1) & kMask;
  if (immediate != nullptr) {
    message_.immediate = 0;
    for (int i = 0; i < 4; ++i) message_.immediate = *message_.immediate << 8 | immediate[i];
  }
  if (!message_.write || immediate != nullptr) messages_.push_back(message_);
}

void ForeignPeer::on_send(const Request& request, std::uint64_t now) {
  const std::uint8_t op = request.opcode;
  const bool starts = op == 0 || op >= 4, ends = op >= 2, immediate = op == 3 || op == 5;
  const std::size_t skip = immediate ? 4 : 0;
  if (request.rest.size() < skip) fail("foreign peer: a SEND without its immediate");
  check_place(request, Amid::kSend, starts, ends, request.rest.size() - skip);
  if (starts && receives_ == 0) {
    if (!nak_sent_) nak(kRnr | settings_.rnr_timer);
    nak_sent_ = true;
    return;
  }
  if (starts) {
    --receives_;
    message_ = {};
  }
  message_.data.insert(message_.data.end(), request.rest.begin() + static_cast<std::ptrdiff_t>(skip),
                       request.rest.end());
  message_.length = static_cast<std::uint32_t>(message_.data.size());
  amid_ = Amid::kSend;
  if (ends) finish_message(immediate ? request.rest.data() : nullptr);
  accept(request, now);
}

void ForeignPeer::on_write(const Request& request, std::uint64_t now) {
  const std::uint8_t op = request.opcode;
  const bool starts = op == 6 || op >= 10, ends = op >= 8, immediate = op == 9 || op == 11;
  const std::size_t skip = (starts ? 16u : 0u) + (immediate ? 4u : 0u);
  if (request.rest.size() < skip) fail("foreign peer: a WRITE without its headers");
  const std::size_t bytes = request.rest.size() - skip;
  check_place(request, Amid::kWrite, starts, ends, bytes);
  if (immediate && receives_ == 0) {
    if (!nak_sent_) nak(kRnr | settings_.rnr_timer);
    nak_sent_ = true;
    return;
  }
  if (starts) {
    write_at_ = number(request.rest, 0, 8);
    write_left_ = static_cast<std::uint32_t>(number(request.rest, 12, 4));
    const auto key = static_cast<std::uint32_t>(number(request.rest, 8, 4));
    if (write_left_ != 0 && !may_access(write_at_, write_left_, key)) return nak(kNakAccess);
    message_ = {.length = write_left_, .write = true};
  }
  if (bytes > write_left_ || (ends && bytes != write_left_)) fail("foreign peer: a WRITE of another length");
  if (bytes != 0) std::memcpy(&memory[write_at_ - kBase], request.rest.data() + skip, bytes);
  write_at_ += bytes;
  write_left_ -= static_cast<std::uint32_t>(bytes);
  amid_ = Amid::kWrite;
  if (immediate) --receives_;
  if (ends) finish_message(immediate ? request.rest.data() + skip - 4 : nullptr);
  accept(request, now);
}

const ForeignPeer::AnsweredRead* ForeignPeer::read_again(const Request& request) {
  for (AnsweredRead& read : reads_) {
    const std::int32_t at = distance(read.psn, request.psn);
    if (at < 0 || at >= static_cast<std::int32_t>(read.psns)) continue;
    if (settings_.linux_reads && distance(read.repeated, request.psn) < 0) return nullptr;
    read.repeated = request.psn;
    return &read;
  }
  fail("foreign peer: a duplicate READ of something else");
}

void ForeignPeer::on_read(const Request& request, bool again) {
  if (request.rest.size() != 16) fail("foreign peer: a READ request of another length");
  const std::uint64_t address = number(request.rest, 0, 8);
  const auto key = static_cast<std::uint32_t>(number(request.rest, 8, 4));
  const auto length = static_cast<std::uint32_t>(number(request.rest, 12, 4));
  if (length != 0 && !may_access(address, length, key)) {
    if (again) fail("foreign peer: a duplicate READ of other memory");
    return nak(kNakAccess);
  }
  const std::uint32_t mtu = settings_.mtu, count = std::max(1u, (length + mtu - 1) / mtu);
  bool amid = false;
  if (again) {
    const AnsweredRead* const read = read_again(request);
    if (read == nullptr) return;
    amid = settings_.linux_reads && read->psn != request.psn;
  } else {
    reads_.push_back({.psn = request.psn, .psns = count, .repeated = request.psn});
    msn_ = (msn_ + 1) & kMask;
    ack_at_.reset();  // the response acknowledges everything before it
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t bytes = std::min(mtu, length - i * mtu);
    const bool first = i == 0 && !amid, last = i + 1 == count;
    const int opcode = first ? (last ? 0x10 : 0x0d) : (last ? 0x0f : 0x0e);
    const auto from =
        length == 0 ? memory.begin() : memory.begin() + static_cast<std::ptrdiff_t>(address - kBase + i * mtu);
    out_.push_back(frame(static_cast<std::uint8_t>(opcode), false, (request.psn + i) & kMask,
                         first || last ? aeth(kUnlimited) : Bytes{}, Bytes(from, from + bytes)));
  }
  if (again) return;
  epsn_ = (epsn_ + count) & kMask;
  nak_sent_ = false;
}

void ForeignPeer::on_atomic(const Request& request) {
  if (request.rest.size() != 28) fail("foreign peer: an atomic of another length");
  const std::uint64_t address = number(request.rest, 0, 8);
  if (address % 8 != 0 || !may_access(address, 8, static_cast<std::uint32_t>(number(request.rest, 8, 4)))) {
    return nak(kNakAccess);
  }
  std::uint64_t value = 0;
  std::memcpy(&value, &memory[address - kBase], 8);
  results_[request.psn] = value;
  const std::uint64_t swap_add = number(request.rest, 12, 8), compare = number(request.rest, 20, 8);
  std::uint64_t after = value;
  if (request.opcode != kCompareSwap)
    after += swap_add;
  else if (value == compare)
    after = swap_add;
  std::memcpy(&memory[address - kBase], &after, 8);
  msn_ = (msn_ + 1) & kMask;
  ack_at_.reset();
  Bytes headers = aeth(kUnlimited);
  for (int i = 7; i >= 0; --i) headers.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  out_.push_back(frame(kAtomicAcknowledge, false, request.psn, headers, {}));
  epsn_ = (epsn_ + 1) & kMask;
  nak_sent_ = false;
}

}  // namespace uroce::sim
