// A device without a port: frames sent to it come back, as between two QPs of one daemon, or go to a peer
// device.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "net/device.h"

namespace uroce::daemon::testing {

class MemoryDevice {
 public:
  static constexpr std::uint32_t kFrameBytes = 9600;

  MemoryDevice() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~MemoryDevice() { ::close(wake_); }
  MemoryDevice(const MemoryDevice&) = delete;
  MemoryDevice& operator=(const MemoryDevice&) = delete;

  /// Frames go to `peer` from now on instead of coming back.
  void connect(MemoryDevice& peer) { peer_ = &peer; }
  /// How many frames transmit() accepts, until it is set again.
  void set_credit(std::size_t frames) { credit_ = frames; }
  /// A frame from outside.
  void inject(std::span<const std::byte> bytes) { accept({{bytes.begin(), bytes.end()}, 0}); }
  std::size_t outstanding() const { return outstanding_; }
  /// Frames that wait to be received.
  std::size_t waiting() {
    std::lock_guard lock(mutex_);
    return queue_.size();
  }

  std::size_t receive(std::span<base::Frame> frames) {
    std::lock_guard lock(mutex_);
    const std::size_t n = std::min(frames.size(), queue_.size());
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t sender = queue_.front().sender;
      auto* bytes = new std::vector<std::byte>(std::move(queue_.front().bytes));
      queue_.pop_front();
      frames[i] = {bytes->data(),
                   static_cast<std::uint32_t>(bytes->size()),
                   static_cast<std::uint32_t>(bytes->size()),
                   0,
                   sender,
                   bytes};
    }
    return n;
  }
  void release(std::span<base::Frame> frames) {
    for (base::Frame& frame : frames) delete static_cast<std::vector<std::byte>*>(frame.handle);
  }
  std::size_t allocate(std::span<base::Frame> frames) {
    for (base::Frame& frame : frames) {
      frame = {new std::byte[kFrameBytes], 0, kFrameBytes, 0, 0, nullptr};
      ++outstanding_;
    }
    return frames.size();
  }
  std::size_t transmit(std::span<base::Frame> frames) {
    const std::size_t n = std::min(frames.size(), credit_);
    credit_ -= credit_ == kUnlimited ? 0 : n;
    for (base::Frame& frame : frames.first(n)) {
      const std::uint32_t sender = peer_ == nullptr ? frame.sender : 0;
      (peer_ != nullptr ? *peer_ : *this).accept({{frame.data, frame.data + frame.length}, sender});
    }
    discard(frames.first(n));
    sent_ += n;
    return n;
  }
  void discard(std::span<base::Frame> frames) {
    for (base::Frame& frame : frames) {
      delete[] frame.data;
      --outstanding_;
    }
  }
  int wake_fd() { return wake_; }
  bool arm_wake() {
    std::lock_guard lock(mutex_);
    return queue_.empty();
  }
  void disarm_wake() {
    eventfd_t ignored;
    ::eventfd_read(wake_, &ignored);
  }
  void set_rx_filter(net::RxFilter filter) { rx_filter_ = filter; }
  net::RxFilter filter() const { return rx_filter_; }
  net::DeviceInfo info() const {
    return {.mac = {2, 0, 0, 0, 0, 1},
            .mtu = 9000,
            .checksum_offload = false,
            .link = link_,
            .speed_mbps = speed_mbps_};
  }
  void set_link(net::LinkState state, std::uint64_t mbps = 0) { link_ = state, speed_mbps_ = mbps; }
  net::DeviceCounters counters() const { return {.tx_packets = sent_}; }

 private:
  static constexpr std::size_t kUnlimited = ~std::size_t{0};

  net::RxFilter rx_filter_ = net::RxFilter::kRoceOnly;

  struct Queued {
    std::vector<std::byte> bytes;
    std::uint32_t sender;  ///< base::Frame::sender
  };

  void accept(Queued frame) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(frame));
    }
    ::eventfd_write(wake_, 1);
  }

  int wake_;
  std::mutex mutex_;
  std::deque<Queued> queue_;
  MemoryDevice* peer_ = nullptr;
  std::size_t credit_ = kUnlimited;
  std::size_t outstanding_ = 0;
  net::LinkState link_ = net::LinkState::kUp;
  std::uint64_t speed_mbps_ = 0;
  std::uint64_t sent_ = 0;
};
static_assert(net::PacketDevice<MemoryDevice>);

}  // namespace uroce::daemon::testing
