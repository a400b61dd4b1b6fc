// Loops frames for our own MAC address back: receive() yields them in the buffers in which they were sent, without
// a copy, and they never reach the port. A frame of a QP to a multicast or broadcast address is sent and also comes
// back as a copy, because the group may have members here: RoCE packets always, others while there are flows.
//
// Satisfies the contract of PacketDevice (net/device.h). One object serves one worker, so a frame comes back to the
// worker that sent it and is steered to its QP's worker from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/frame.h"
#include "net/device.h"
#include "wire/network_headers.h"

namespace uroce::loopback {

template <net::PacketDevice Inner>
class LoopbackDevice {
 public:
  static constexpr std::uint32_t kSlots = 512;
  /// In Frame::flags from receive to release: the buffer was allocated here, not received by the port.
  static constexpr std::uint32_t kOwnBuffer = 1u << 31;

  template <class... Args>
  explicit LoopbackDevice(Args&&... args) : inner_(std::forward<Args>(args)...) {
    refresh();
  }
  ~LoopbackDevice() {
    while (tail_ != head_) {
      inner_.discard(std::span(&ring_[tail_ % kSlots], 1));
      ++tail_;
    }
  }
  LoopbackDevice(const LoopbackDevice&) = delete;
  LoopbackDevice& operator=(const LoopbackDevice&) = delete;

  std::size_t receive(std::span<base::Frame> frames) {
    std::size_t count = std::min<std::size_t>(frames.size(), head_ - tail_);
    for (std::size_t i = 0; i < count; ++i) frames[i] = ring_[tail_++ % kSlots];
    if (count == frames.size()) return count;
    return count + inner_.receive(frames.subspan(count));
  }

  void release(std::span<base::Frame> frames) {
    for_runs(
        frames, [](const base::Frame& frame) { return (frame.flags & kOwnBuffer) != 0; },
        [this](std::span<base::Frame> run, bool own) {
          if (own) {
            inner_.discard(run);
          } else {
            inner_.release(run);
          }
          return run.size();
        });
  }

  std::size_t allocate(std::span<base::Frame> frames) { return inner_.allocate(frames); }
  void discard(std::span<base::Frame> frames) { inner_.discard(frames); }

  std::size_t transmit(std::span<base::Frame> frames) {
    return for_runs(
        frames, [this](const base::Frame& frame) { return kind_of(frame); },
        [this](std::span<base::Frame> run, Kind kind) {
          if (kind == Kind::kLocal) return deliver(run);
          return kind == Kind::kGroup ? send_to_group(run) : inner_.transmit(run);
        });
  }

  int wake_fd() { return inner_.wake_fd(); }
  bool arm_wake() { return head_ == tail_ && inner_.arm_wake(); }
  void disarm_wake() { inner_.disarm_wake(); }
  void set_rx_filter(net::RxFilter filter) {
    has_flows_ = filter != net::RxFilter::kRoceOnly;
    inner_.set_rx_filter(filter);
  }
  bool carries_references() const { return true; }
  net::DeviceInfo info() const { return inner_.info(); }
  net::DeviceCounters counters() const {
    net::DeviceCounters all = inner_.counters();
    all.rx_packets += packets_;
    all.rx_bytes += bytes_;
    all.tx_packets += packets_;
    all.tx_bytes += bytes_;
    return all;
  }

  Inner& inner() { return inner_; }

 private:
  enum class Kind : unsigned char { kLocal, kGroup, kOther };
  static constexpr bool kInnerCarriesReferences = requires(Inner & inner) { inner.carries_references(); };

  void refresh() {
    const wire::Mac mac = inner_.info().mac;
    std::memcpy(&own_, mac.data(), mac.size());
  }

  static std::uint64_t destination(const base::Frame& frame) {
    std::uint64_t mac = 0;
    if (frame.length >= 6) std::memcpy(&mac, frame.data, 6);
    return mac;
  }
  Kind kind_of(const base::Frame& frame) const {
    if (destination(frame) == own_) return Kind::kLocal;
    if ((frame.flags & base::kByReference) != 0)
      return kInnerCarriesReferences ? Kind::kOther : Kind::kLocal;  // to a wire it may not go
    return is_group(frame) ? Kind::kGroup : Kind::kOther;
  }

  /// Calls `handle` for each run of frames of one kind until a run is not taken whole. Returns the frames taken.
  template <class Classify, class Handle>
  static std::size_t for_runs(std::span<base::Frame> frames, Classify classify, Handle handle) {
    std::size_t begin = 0;
    while (begin < frames.size()) {
      const auto is = classify(frames[begin]);
      std::size_t end = begin + 1;
      while (end < frames.size() && classify(frames[end]) == is) ++end;
      const std::size_t taken = handle(frames.subspan(begin, end - begin), is);
      begin += taken;
      if (begin != end) break;
    }
    return begin;
  }

  std::size_t deliver(std::span<base::Frame> frames) {
    const std::size_t count = std::min<std::size_t>(frames.size(), kSlots - (head_ - tail_));
    for (const base::Frame& frame : frames.first(count)) {
      base::Frame& slot = ring_[head_++ % kSlots];
      slot = frame;
      slot.flags = kOwnBuffer | base::kIpChecksumGood |
                   (frame.flags & (base::kIcrcGood | base::kByReference));  // from our own memory
      const base::WireCost on_wire = base::wire_cost(frame);
      packets_ += on_wire.packets;
      bytes_ += on_wire.bytes;
    }
    return count;
  }

  std::size_t send_to_group(std::span<base::Frame> frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      base::Frame copy = copy_of(frames[i]);
      const bool taken = inner_.transmit(frames.subspan(i, 1)) == 1;
      if (copy.data != nullptr && (!taken || deliver(std::span(&copy, 1)) == 0))
        inner_.discard(std::span(&copy, 1));
      if (!taken) return i;
    }
    return frames.size();
  }

  /// A frame to a group that may have members here: a RoCE packet, or one for flows. ARP and neighbour discovery,
  /// which are sent by no QP, need not come back.
  bool is_group(const base::Frame& frame) const {
    constexpr std::size_t kIp4 = 14 + 20 + 8, kIp6 = 14 + 40 + 8;
    if (frame.length == 0) return false;
    const auto* b = reinterpret_cast<const unsigned char*>(frame.data);
    if ((b[0] & 1) == 0) return false;
    if (has_flows_ && frame.sender != 0) return true;
    if (frame.length < kIp4) return false;
    const auto roce = [b](std::size_t udp) { return (b[udp + 2] << 8 | b[udp + 3]) == wire::kRoceUdpPort; };
    if (b[12] == 0x08 && b[13] == 0x00) return b[14] == 0x45 && b[23] == 17 && roce(34);
    return b[12] == 0x86 && b[13] == 0xdd && frame.length >= kIp6 && b[20] == 17 && roce(54);
  }

  /// An empty frame when there is no buffer.
  base::Frame copy_of(const base::Frame& frame) {
    base::Frame copy;
    if (inner_.allocate(std::span(&copy, 1)) == 0) return {};
    if (copy.capacity < frame.length) {
      inner_.discard(std::span(&copy, 1));
      return {};
    }
    std::memcpy(copy.data, frame.data, frame.length);
    copy.length = frame.length;
    copy.sender = frame.sender;
    copy.flags = frame.flags;
    return copy;
  }

  Inner inner_;
  std::uint64_t own_ = 0;  // MAC address, as loaded
  bool has_flows_ = false;
  std::uint32_t head_ = 0, tail_ = 0;
  std::uint64_t packets_ = 0, bytes_ = 0;
  base::Frame ring_[kSlots];
};

}  // namespace uroce::loopback
