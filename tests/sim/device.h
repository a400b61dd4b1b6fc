// A port of the virtual network: one receive and one transmit queue for one worker. Frames wait here until the
// world takes them; a limited number of frames is taken by one transmit(), as by a port whose ring is full.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "net/device.h"
#include "wire/packet.h"

namespace uroce::sim {

class SimDevice {
 public:
  static constexpr std::uint32_t kFrameBytes = 4096 + wire::kMaxOverhead;
  static constexpr std::size_t kUnlimited = ~std::size_t{0};

  SimDevice(const wire::Mac& mac, bool offload_ip_checksum) : mac_(mac), offload_(offload_ip_checksum) {}
  ~SimDevice() { release(std::vector<base::Frame>(arrived_.begin(), arrived_.end())); }
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;

  // The world's side.
  void arrive(std::span<const std::byte> bytes, std::uint32_t sender, std::uint32_t flags = 0) {
    // Exactly as long as the frame, so that a sanitizer sees who reads past its end.
    auto* const data = new std::byte[bytes.size()];
    std::copy(bytes.begin(), bytes.end(), data);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    if (offload_) flags |= base::kIpChecksumGood;
    arrived_.push_back({data, length, length, flags, sender, data});
  }
  /// How many frames the next calls of transmit() take together.
  void set_credit(std::size_t frames) { credit_ = frames; }
  /// At most this many frames come out of one receive().
  void set_burst(std::size_t frames) { burst_ = frames; }
  void set_references(bool carried) { references_ = carried; }
  bool has_arrivals() const { return !arrived_.empty(); }
  /// Whether the last transmit() left frames with the caller.
  bool refused() const { return refused_; }
  /// Calls sent(frame) for each frame transmitted since the last call.
  template <class Sent>
  void take_sent(Sent&& sent) {
    while (!sent_.empty()) {
      const base::Frame frame = sent_.front();
      sent_.pop_front();
      sent(frame);
      give_buffer(frame);
    }
  }

  // net::PacketDevice
  std::size_t receive(std::span<base::Frame> frames) {
    std::size_t count = 0;
    for (; count < std::min(frames.size(), burst_) && !arrived_.empty(); ++count) {
      frames[count] = arrived_.front();
      arrived_.pop_front();
    }
    return count;
  }
  void release(std::span<const base::Frame> frames) {
    for (const base::Frame& frame : frames) delete[] frame.data;
  }
  std::size_t allocate(std::span<base::Frame> frames) {
    for (base::Frame& frame : frames) frame = take_buffer();
    return frames.size();
  }
  std::size_t transmit(std::span<base::Frame> frames) {
    const std::size_t count = std::min(frames.size(), credit_);
    if (credit_ != kUnlimited) credit_ -= count;
    sent_.insert(sent_.end(), frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(count));
    refused_ = count != frames.size();
    return count;
  }
  void discard(std::span<const base::Frame> frames) {
    for (const base::Frame& frame : frames) give_buffer(frame);
  }
  bool carries_references() const { return references_; }
  int wake_fd() { return -1; }
  bool arm_wake() { return arrived_.empty(); }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter) {}
  net::DeviceInfo info() const { return {.mac = mac_, .mtu = kFrameBytes, .checksum_offload = offload_}; }
  net::DeviceCounters counters() const { return {}; }

 private:
  base::Frame take_buffer() {
    if (free_.empty()) {
      buffers_.push_back(std::make_unique<std::byte[]>(kFrameBytes));
      free_.push_back(buffers_.back().get());
    }
    std::byte* const data = free_.back();
    free_.pop_back();
    return {.data = data, .length = 0, .capacity = kFrameBytes, .flags = 0, .sender = 0, .handle = nullptr};
  }
  void give_buffer(const base::Frame& frame) { free_.push_back(frame.data); }

  const wire::Mac mac_;
  const bool offload_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::vector<std::byte*> free_;
  std::deque<base::Frame> arrived_, sent_;
  std::size_t credit_ = kUnlimited, burst_ = kUnlimited;
  bool refused_ = false;
  bool references_ = false;
};
static_assert(net::PacketDevice<SimDevice>);

}  // namespace uroce::sim
