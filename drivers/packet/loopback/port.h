// A device with buffers but no port: nothing arrives, and frames that are sent are dropped. `--port loopback` is
// LoopbackDevice<Port>: both QPs in one daemon, without DPDK, hugepages or privileges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "drivers/packet/frame_pool.h"
#include "net/device.h"

namespace uroce::loopback {

struct PortOptions {
  wire::Mac mac{0x02, 0, 0, 0, 0, 1};
  std::uint32_t mtu = 9000;
  std::uint32_t buffers = 2048;
};

class Port {
 public:
  /// Throws std::bad_alloc when there is no memory for the buffers.
  explicit Port(const PortOptions& options);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  std::size_t receive(std::span<base::Frame>) { return 0; }
  void release(std::span<base::Frame> frames) { discard(frames); }
  std::size_t allocate(std::span<base::Frame> frames) { return pool_.allocate(frames); }
  std::size_t transmit(std::span<base::Frame> frames);
  void discard(std::span<base::Frame> frames) { pool_.give_back(frames); }

  int wake_fd() const { return wake_fd_; }
  bool arm_wake() { return true; }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter) {}
  net::DeviceInfo info() const;
  net::DeviceCounters counters() const { return counters_; }

  std::size_t free_buffers() const { return pool_.available(); }

 private:
  PortOptions options_;
  packet::FramePool pool_;
  int wake_fd_ = -1;
  net::DeviceCounters counters_;
};

}  // namespace uroce::loopback
