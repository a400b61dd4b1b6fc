#include "tests/sim/foreign_peer.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/model.h"

namespace uroce::sim {
namespace {

// IBTA vol. 1, table 35: opcodes of RC.
enum : std::uint8_t {
  kSendFirst = 0,
  kSendMiddle,
  kSendLast,
  kSendLastImm,
  kSendOnly,
  kSendOnlyImm,
  kWriteFirst,
  kWriteMiddle,
  kWriteLast,
  kWriteLastImm,
  kWriteOnly,
  kWriteOnlyImm,
  kReadRequest,
  kResponseFirst,
  kResponseMiddle,
  kResponseLast,
  kResponseOnly,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
};
constexpr std::uint8_t kNakSequence = 0x60, kCongestionNotification = 0x81;
constexpr std::uint32_t kMask = 0xffffff;
constexpr std::size_t kEthernet = 14, kUdp = 8, kBth = 12;

/// IBTA vol. 1, table 45, in units of 10 us.
constexpr std::uint32_t kRnrTable[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                         48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                         2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

std::int32_t distance(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t d = (to - from) & kMask;
  return d < 0x800000 ? static_cast<std::int32_t>(d) : static_cast<std::int32_t>(d) - 0x1000000;
}

std::uint64_t number(std::span<const std::uint8_t> bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
  return value;
}

void append(std::vector<std::uint8_t>& to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i))));
}

/// CRC-32 bit by bit (IBTA vol. 1, 7.8.1).
std::uint32_t crc(const std::vector<std::uint8_t>& bytes) {
  std::uint32_t state = ~0u;
  for (const std::uint8_t byte : bytes) {
    state ^= byte;
    for (int i = 0; i < 8; ++i) state = state >> 1 ^ ((state & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~state;
}

/// ICRC of a frame without its ICRC: fields that routers change count as ones (annex A17.3.3).
std::uint32_t icrc(const std::vector<std::uint8_t>& frame, bool ipv6) {
  std::vector<std::uint8_t> covered(8, 0xff);
  covered.insert(covered.end(), frame.begin() + kEthernet, frame.end());
  std::uint8_t* const ip = covered.data() + 8;
  const std::size_t udp = ipv6 ? 40 : 20;
  if (ipv6) {
    ip[0] |= 0x0f;
    ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
  } else {
    ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
  }
  ip[udp + 6] = ip[udp + 7] = ip[udp + kUdp + 4] = 0xff;
  return crc(covered);
}

void append_address(std::vector<std::uint8_t>& to, bool ipv6, std::uint8_t host) {
  if (ipv6) {
    append(to, 0x20010db8'00000000, 8);
    append(to, host, 8);
  } else {
    append(to, 0xc0000200u | host, 4);
  }
}

bool is_response(std::uint8_t opcode) { return opcode >= kResponseFirst && opcode <= kAtomicAcknowledge; }

}  // namespace

ForeignPeer::ForeignPeer(const ForeignSettings& settings, std::size_t memory_bytes)
    : memory(memory_bytes),
      settings_(settings),
      random_(settings.seed),
      post_psn_(settings.sq_psn & kMask),
      epsn_(settings.rq_psn & kMask) {
  random_.fill(reinterpret_cast<std::byte*>(memory.data()), memory.size());
}

// ---------------------------------------------------------------- frames

bool ForeignPeer::parse(const Bytes& frame, Request& out) const {
  const bool v6 = settings_.ipv6;
  const std::size_t ip = kEthernet, ip_bytes = v6 ? 40 : 20, bth = ip + ip_bytes + kUdp;
  if (frame.size() < bth + kBth + 4) return false;
  if (number(frame, 12, 2) != (v6 ? 0x86dd : 0x0800)) return false;
  const std::size_t length = frame.size() - ip;
  if (v6) {
    if (number(frame, ip + 4, 2) != length - 40 || frame[ip + 6] != 17) return false;
  } else {
    if (frame[ip] != 0x45 || number(frame, ip + 2, 2) != length || frame[ip + 9] != 17) return false;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(number(frame, ip + i, 2));
    if ((sum & 0xffff) + (sum >> 16) != 0xffff) return false;
  }
  if (number(frame, bth - 6, 2) != 4791 || number(frame, bth - 4, 2) != length - ip_bytes) return false;
  const Bytes covered(frame.begin(), frame.end() - 4);
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{frame[frame.size() - 4 + i]} << (8 * i);
  if (icrc(covered, v6) != value) return false;
  if ((frame[bth + 1] & 0x0f) != 0 || number(frame, bth + 2, 2) != 0xffff) return false;
  if (number(frame, bth + 5, 3) != settings_.qpn || (frame[bth + 8] & 0x7f) != 0) return false;
  out.opcode = frame[bth];
  out.solicited = (frame[bth + 1] & 0x80) != 0;
  out.pad = frame[bth + 1] >> 4 & 3;
  out.ask = (frame[bth + 8] & 0x80) != 0;
  out.psn = static_cast<std::uint32_t>(number(frame, bth + 9, 3));
  if (frame.size() < bth + kBth + 4 + out.pad) return false;
  out.rest = std::span(frame).subspan(bth + kBth, frame.size() - bth - kBth - 4 - out.pad);
  return true;
}

std::vector<std::byte> ForeignPeer::frame(std::uint8_t opcode, bool ask, std::uint32_t psn, const Bytes& headers,
                                          const Bytes& payload) {
  const std::size_t pad = (4 - payload.size() % 4) % 4;
  const std::size_t udp_length = kUdp + kBth + headers.size() + payload.size() + pad + 4;
  Bytes bytes;
  append(bytes, 0x0200'0000'0001, 6);
  append(bytes, 0x0200'0000'0002, 6);
  append(bytes, settings_.ipv6 ? 0x86dd : 0x0800, 2);
  if (settings_.ipv6) {
    append(bytes, 0x60000000 | random_.below(1u << 20), 4);
    append(bytes, udp_length, 2);
    append(bytes, 17 << 8 | 63, 2);
  } else {
    append(bytes, 0x4500, 2);
    append(bytes, 20 + udp_length, 2);
    append(bytes, random_.below(65536), 2);
    append(bytes, 0x4000, 2);
    append(bytes, 63 << 8 | 17, 2);
    append(bytes, 0, 2);
  }
  append_address(bytes, settings_.ipv6, 2);
  append_address(bytes, settings_.ipv6, 1);
  if (!settings_.ipv6) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(number(bytes, kEthernet + i, 2));
    sum = ~((sum & 0xffff) + (sum >> 16));
    bytes[kEthernet + 10] = static_cast<std::uint8_t>(sum >> 8);
    bytes[kEthernet + 11] = static_cast<std::uint8_t>(sum);
  }
  append(bytes, 0xd00d, 2);
  append(bytes, 4791, 2);
  append(bytes, udp_length, 2);
  append(bytes, 0, 2);
  append(bytes, opcode, 1);
  append(bytes, 0x40 | pad << 4, 1);  // migrated
  append(bytes, 0xffff, 2);
  append(bytes, settings_.peer_qpn, 4);
  append(bytes, std::uint32_t{ask} << 31 | psn, 4);
  bytes.insert(bytes.end(), headers.begin(), headers.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + pad);
  const std::uint32_t value = icrc(bytes, settings_.ipv6);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

void ForeignPeer::receive(std::span<const std::byte> raw, bool damaged, std::uint64_t now) {
  Bytes bytes(raw.size());
  std::memcpy(bytes.data(), raw.data(), raw.size());
  Request packet;
  if (!parse(bytes, packet)) {
    if (!damaged) fail("foreign peer: a frame that no correct peer sends");
    return;
  }
  if (packet.opcode == kCongestionNotification) return;  // damage may look like a mark
  if (packet.opcode > kFetchAdd) fail("foreign peer: opcode " + std::to_string(packet.opcode));
  if (is_response(packet.opcode)) {
    on_response(packet, now);
  } else if (!dead_) {
    on_request(packet, now);
  }
}

std::uint64_t ForeignPeer::next_time(std::uint64_t now) const {
  if (!out_.empty() || may_send(now)) return now;
  std::uint64_t next = ack_at_.value_or(~0ull);
  if (dead_) return next;
  if (una_ < next_) next = std::min(next, progress_at_ + settings_.timeout);
  if (rnr_until_ > now && next_ < packets_.size()) next = std::min(next, rnr_until_);
  return next;
}

std::vector<std::byte> ForeignPeer::transmit(std::uint64_t now) {
  if (!dead_ && una_ < next_ && now >= progress_at_ + settings_.timeout) {
    ForeignWork& work = works_[packets_[una_].work];
    if (++timeouts_ > 60 && work.nak == 0) fail("foreign peer: no answer after 60 timeouts");
    if (timeouts_ > 20 && work.nak != 0) {
      work.done = dead_ = gave_up_ = true;
      ++done_;
      return {};
    }
    go_back();
    progress_at_ = now;
  }
  if (ack_at_ && now >= *ack_at_) {
    ack_at_.reset();
    out_.push_back(frame(kAcknowledge, false, (epsn_ - 1) & kMask, aeth(ack_syndrome()), {}));
  }
  if (!out_.empty()) {
    std::vector<std::byte> first = std::move(out_.front());
    out_.pop_front();
    return first;
  }
  if (may_send(now)) return send_request(now);
  return {};
}

// ---------------------------------------------------------------- requester

void ForeignPeer::post(const ForeignWork& work) {
  const std::size_t index = works_.size();
  works_.push_back(work);
  Packet packet{.psn = post_psn_, .work = index};
  const std::uint32_t mtu = settings_.mtu;
  if (work.kind >= ForeignKind::kRead) {
    packet.opcode = work.kind == ForeignKind::kRead          ? kReadRequest
                    : work.kind == ForeignKind::kCompareSwap ? kCompareSwap
                                                             : kFetchAdd;
    packet.psns = work.kind == ForeignKind::kRead ? std::max(1u, (work.length + mtu - 1) / mtu) : 1;
    packet.ends = true;
    packets_.push_back(packet);
    post_psn_ = (post_psn_ + packet.psns) & kMask;
    return;
  }
  const bool write = work.kind == ForeignKind::kWrite || work.kind == ForeignKind::kWriteImm;
  const bool immediate = work.kind == ForeignKind::kSendImm || work.kind == ForeignKind::kWriteImm;
  const std::uint8_t base = write ? kWriteFirst : kSendFirst;
  do {
    const bool first = packet.offset == 0;
    packet.bytes = std::min(mtu, work.length - packet.offset);
    packet.ends = packet.offset + packet.bytes == work.length;
    const int place = first ? (packet.ends ? kSendOnly : kSendFirst) : (packet.ends ? kSendLast : kSendMiddle);
    packet.opcode = static_cast<std::uint8_t>(base + place + (immediate && packet.ends ? 1 : 0));
    packet.psn = post_psn_;
    packets_.push_back(packet);
    post_psn_ = (post_psn_ + 1) & kMask;
    packet.offset += packet.bytes;
  } while (!packet.ends);
}

bool ForeignPeer::may_send(std::uint64_t now) const {
  if (dead_ || next_ >= packets_.size() || next_ - una_ >= settings_.window || now < rnr_until_) return false;
  if (packets_[next_].opcode < kReadRequest) return true;
  // One READ or atomic at a time.
  for (std::size_t i = una_; i < next_; ++i) {
    if (packets_[i].opcode >= kReadRequest) return false;
  }
  return true;
}

ForeignPeer::Bytes ForeignPeer::headers_of(const Packet& packet, std::uint32_t read_offset) const {
  const ForeignWork& work = works_[packet.work];
  Bytes headers;
  const bool reth = packet.opcode == kWriteFirst || packet.opcode == kWriteOnly || packet.opcode == kWriteOnlyImm ||
                    packet.opcode == kReadRequest;
  if (reth) {
    append(headers, work.address + read_offset, 8);
    append(headers, work.rkey, 4);
    append(headers, (work.declared != 0 ? work.declared : work.length) - read_offset, 4);
  }
  if (packet.opcode == kCompareSwap || packet.opcode == kFetchAdd) {
    append(headers, work.address, 8);
    append(headers, work.rkey, 4);
    append(headers, work.swap_add, 8);
    append(headers, work.compare, 8);
  }
  const bool immediate = packet.opcode == kSendLastImm || packet.opcode == kSendOnlyImm ||
                         packet.opcode == kWriteLastImm || packet.opcode == kWriteOnlyImm;
  if (immediate) append(headers, work.immediate, 4);
  return headers;
}

std::vector<std::byte> ForeignPeer::send_request(std::uint64_t now) {
  const Packet& packet = packets_[next_];
  const ForeignWork& work = works_[packet.work];
  if (una_ == next_) progress_at_ = now;
  const std::uint32_t skipped = next_ == una_ && packet.opcode == kReadRequest ? got_ : 0;
  Bytes payload;
  if (packet.bytes != 0) {
    const auto from = work.data.begin() + packet.offset;
    payload.assign(from, from + packet.bytes);
  }
  const bool ask = settings_.ask_each || packet.ends || next_ - una_ + 1 >= settings_.window;
  ++next_;
  most_ = std::max(most_, next_);
  return frame(packet.opcode, ask, (packet.psn + skipped) & kMask, headers_of(packet, skipped * settings_.mtu),
               payload);
}

void ForeignPeer::go_back() { next_ = una_; }

void ForeignPeer::complete(std::uint64_t now) {
  const Packet& packet = packets_[una_++];
  next_ = std::max(next_, una_);
  got_ = 0;
  progress_at_ = now;
  timeouts_ = 0;
  if (!packet.ends) return;
  ForeignWork& work = works_[packet.work];
  if (work.nak != 0) fail("foreign peer: a request succeeds that must be refused");
  work.done = true;
  ++done_;
}

bool ForeignPeer::acknowledge_before(std::uint32_t psn, std::uint64_t now) {
  while (una_ < most_ && distance(packets_[una_].psn, psn) > 0) {
    if (packets_[una_].opcode >= kReadRequest) return false;
    complete(now);
  }
  return true;
}

/// The MSN counts completed requests (IBTA vol. 1, 9.7.7.1): at least those up to this PSN, at most those sent.
void ForeignPeer::check_msn(std::uint32_t psn, std::span<const std::uint8_t> aeth) const {
  std::uint32_t least = 0, most = 0;
  for (std::size_t i = 0; i < most_; ++i) {
    const Packet& packet = packets_[i];
    if (!packet.ends) continue;
    ++most;
    // A READ counts when its last response is sent, or earlier, when it was executed.
    least += distance((packet.psn + packet.psns - 1) & kMask, psn) >= 0;
  }
  const auto msn = static_cast<std::uint32_t>(number(aeth, 1, 3));
  if (msn < least || msn > most) {
    fail("foreign peer: MSN " + std::to_string(msn) + ", expected " + std::to_string(least) + " to " +
         std::to_string(most));
  }
}

void ForeignPeer::on_response(const Request& response, std::uint64_t now) {
  if (most_ == 0) fail("foreign peer: a response to nothing");
  const Packet& newest = packets_[most_ - 1];
  if (distance((newest.psn + newest.psns) & kMask, response.psn) >= 0) {
    fail("foreign peer: a response to a PSN that was not sent");
  }
  if (una_ == most_ || distance(packets_[una_].psn, response.psn) < 0) return;  // a late one
  switch (response.opcode) {
    case kAcknowledge: return on_acknowledge(response, now);
    case kAtomicAcknowledge: return on_atomic_response(response, now);
    default: return on_read_response(response, now);
  }
}

void ForeignPeer::on_acknowledge(const Request& response, std::uint64_t now) {
  if (response.rest.size() != 4) fail("foreign peer: an ACK of another length");
  const std::uint8_t syndrome = response.rest[0];
  const bool ack = syndrome >> 5 == 0;
  if (syndrome >> 7 != 0 || syndrome >> 5 == 2) fail("foreign peer: a reserved syndrome");
  if (ack) check_msn(response.psn, response.rest);
  if (!acknowledge_before(ack ? (response.psn + 1) & kMask : response.psn, now)) return go_back();
  if (ack) return;
  if (una_ == most_ || packets_[una_].psn != response.psn) {
    // Only a READ that was answered in part may be named in its middle.
    const bool within =
        una_ < most_ && distance(packets_[una_].psn, response.psn) < static_cast<std::int32_t>(packets_[una_].psns);
    if (!within) fail("foreign peer: a NAK that names no packet");
  }
  if (syndrome >> 5 == 1) {
    if (packets_[una_].opcode >= kReadRequest) fail("foreign peer: RNR NAK for a request that takes no receive");
    rnr_until_ = now + std::uint64_t{kRnrTable[syndrome & 31]} * 10'000;
    progress_at_ = now;
    timeouts_ = 0;
    return go_back();
  }
  if (syndrome == kNakSequence) return go_back();
  on_nak(response, syndrome);
}

void ForeignPeer::on_nak(const Request& response, std::uint8_t syndrome) {
  ForeignWork& work = works_[packets_[una_].work];
  if (work.nak != syndrome) {
    fail("foreign peer: NAK " + std::to_string(syndrome) + " at PSN " + std::to_string(response.psn) +
         ", expected " + std::to_string(work.nak));
  }
  work.done = true;
  ++done_;
  dead_ = true;
}

void ForeignPeer::on_read_response(const Request& response, std::uint64_t now) {
  if (!acknowledge_before(response.psn, now) && packets_[una_].opcode != kReadRequest) return go_back();
  const Packet& packet = packets_[una_];
  if (una_ == most_ || packet.opcode != kReadRequest) fail("foreign peer: a READ response to another request");
  const std::int32_t ahead = distance((packet.psn + got_) & kMask, response.psn);
  if (ahead < 0) return;
  if (ahead > 0) return go_back();
  ForeignWork& work = works_[packet.work];
  const bool last = got_ + 1 == packet.psns;
  const bool has_aeth = response.opcode != kResponseMiddle;
  const std::size_t skip = has_aeth ? 4 : 0;
  if (response.rest.size() < skip) fail("foreign peer: a READ response without AETH");
  if (has_aeth && response.rest[0] >> 5 != 0) fail("foreign peer: a READ response with a NAK");
  if (last != (response.opcode == kResponseLast || response.opcode == kResponseOnly)) {
    fail("foreign peer: a READ response out of place");
  }
  const std::uint32_t offset = got_ * settings_.mtu;
  const std::uint32_t bytes = last ? work.length - offset : settings_.mtu;
  if (response.rest.size() - skip != bytes) fail("foreign peer: a READ response of another length");
  work.data.resize(work.length);
  std::copy(response.rest.begin() + static_cast<std::ptrdiff_t>(skip), response.rest.end(),
            work.data.begin() + offset);
  ++got_;
  progress_at_ = now;
  timeouts_ = 0;
  if (last) complete(now);
}

void ForeignPeer::on_atomic_response(const Request& response, std::uint64_t now) {
  if (!acknowledge_before(response.psn, now)) return go_back();
  const Packet& packet = packets_[una_];
  if (una_ == most_ || (packet.opcode != kCompareSwap && packet.opcode != kFetchAdd)) {
    fail("foreign peer: an atomic response to another request");
  }
  if (packet.psn != response.psn || response.rest.size() != 12) fail("foreign peer: a bad atomic response");
  check_msn(response.psn, response.rest);
  works_[packet.work].result = number(response.rest, 4, 8);
  complete(now);
}

}  // namespace uroce::sim
