// Builds one packet in one frame: headers from the QP's template, payload copied while its CRC is computed. Use:
// start(), write the extended headers at extended(), seal(), payload() as often as needed, finish().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/frame.h"
#include "base/types.h"
#include "wire/bth.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"

namespace uroce::proto {

/// The CRC state before the last word of the BTH in the QP's last packet without extended headers. Only that word
/// differs between the packets of a message, and loading headers that were just written is slow.
struct HeaderCrc {
  std::array<std::uint32_t, 2> bth{};
  std::uint32_t frame_bytes = 0;
  std::uint32_t state = 0;
};

class PacketBuilder {
 public:
  PacketBuilder(const wire::CrcEngine& crc, bool offload_checksum) : crc_(crc), offload_(offload_checksum) {}

  /// False: the frame is too small, and nothing was written. The pad count is derived from the payload. `data`: the
  /// packet is ECN-capable if the path is; acknowledges and CNPs are not.
  bool start(base::Frame& frame, const wire::FrameTemplate& path, const wire::Bth& bth, std::size_t extended_bytes,
             std::size_t payload_bytes, bool data = true) {
    const std::size_t pad = (0 - payload_bytes) & 3;
    const std::size_t ib_bytes = wire::kBthBytes + extended_bytes + payload_bytes + pad + wire::kIcrcBytes;
    const std::size_t total = path.header_bytes() + ib_bytes;
    if (total > frame.capacity) return false;
    const std::size_t headers =
        data ? path.emit(frame.data, ib_bytes, offload_) : path.emit_not_ect(frame.data, ib_bytes, offload_);
    std::byte* const bth_start = frame.data + headers;
    bth_ = wire::words_of(bth, static_cast<unsigned>(pad));
    wire::emit(bth_, bth_start);
    frame.length = static_cast<std::uint32_t>(total);
    // A port that is asked for an IPv4 checksum writes one, into the source address of an IPv6 header.
    const bool needs_checksum = offload_ && path.ipv4();
    frame.flags = base::kIcrcGood | (needs_checksum ? std::uint32_t{base::kIpChecksumNeeded} : 0u);
    frame_bytes_ = frame.length;
    ip_ = frame.data + path.ip_offset();
    ip_bytes_ = path.ip_bytes();
    extended_ = bth_start + wire::kBthBytes;
    extended_bytes_ = extended_bytes;
    pad_ = pad;
    return true;
  }

  std::byte* extended() const { return extended_; }

  /// The headers are complete: starts the ICRC with them (annex A17: RoCEv2; IBTA vol. 1, 7.8.1).
  void seal() {
    state_ = wire::icrc_begin(ip_, ip_bytes_, wire::kBthBytes + extended_bytes_);
    at_ = extended_ + extended_bytes_;
  }
  /// As seal(), for packets of one path; reuses the CRC of the headers that were sent last.
  void seal(HeaderCrc& last) {
    if (extended_bytes_ != 0) return seal();
    if (bth_[0] != last.bth[0] || bth_[1] != last.bth[1] || frame_bytes_ != last.frame_bytes) {
      last = {{bth_[0], bth_[1]}, frame_bytes_, wire::icrc_begin(ip_, ip_bytes_, wire::kBthBytes - 4)};
    }
    state_ = last.state;
    word_open_ = true;
    at_ = extended_;
  }

  /// Instead of seal(), payload() and finish(): ends a packet that was started with this as its payload. Its ICRC
  /// is not computed, since it never leaves the process.
  void refer(base::Frame& frame, const base::PayloadReference& reference) {
    std::byte* const at = extended_ + extended_bytes_;
    std::memcpy(at, &reference, sizeof reference);
    std::memset(at + sizeof reference, 0, wire::kIcrcBytes);
    frame.flags |= base::kByReference;
  }

  void payload(const std::byte* from, std::size_t bytes) {
    state_ = word_open_ ? crc_.copy_after(state_, bth_[2], at_, from, bytes) : crc_.copy(state_, at_, from, bytes);
    word_open_ = false;
    at_ += bytes;
  }

  void finish() {
    if (word_open_) payload(nullptr, 0);
    if (pad_ != 0) {
      std::memset(at_, 0, pad_);
      state_ = crc_.update(state_, at_, pad_);
      at_ += pad_;
    }
    const std::uint32_t icrc = wire::icrc_finish(state_);
    std::memcpy(at_, &icrc, sizeof icrc);
  }

 private:
  const wire::CrcEngine& crc_;
  std::byte* ip_ = nullptr;
  std::byte* extended_ = nullptr;
  std::byte* at_ = nullptr;
  std::size_t ip_bytes_ = 0, extended_bytes_ = 0, pad_ = 0;
  std::array<std::uint32_t, 3> bth_{};
  std::uint32_t frame_bytes_ = 0, state_ = 0;
  bool offload_;
  bool word_open_ = false;  ///< the last word of the BTH is not in state_ yet
};

}  // namespace uroce::proto
