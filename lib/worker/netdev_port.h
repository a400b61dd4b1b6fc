// The frames of an interface of the kernel (net/netdev.h): those of the port that are not RoCE go to the kernel,
// and what the kernel sends leaves through the port. A thread of its own reads and writes the interface; two rings
// join it to the link worker, which makes a system call only to wake it.
//
// Edges: the thread announces that it sleeps (seq_cst) and then looks at the rings once more; the worker changes a
// ring (seq_cst) and then looks at the announcement. Either the thread sees the change, or the worker wakes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "net/netdev.h"
#include "platform/unique_fd.h"
#include "wire/address.h"
#include "worker/kernel_frame.h"
#include "worker/packet_ring.h"
#include "worker/segment_run.h"

namespace uroce::worker {

class NetdevPort {
 public:
  /// More than the other direction: the thread may have to wait for a core, and TCP takes a loss for congestion.
  static constexpr std::uint32_t kSlotsToKernel = 1024;

  /// `mac`: of the port. `frame_bytes`: length of the longest frame.
  NetdevPort(net::Netdev& netdev, const wire::Mac& mac, std::uint32_t frame_bytes);
  ~NetdevPort() { stop(); }
  NetdevPort(const NetdevPort&) = delete;
  NetdevPort& operator=(const NetdevPort&) = delete;

  // The conductor.
  /// `wake` is called on the thread: the link worker has frames to send. False: no thread or descriptor is free.
  bool start(std::function<void()> wake);
  void stop();

  // The link worker.
  /// Whether the port has sent the frame itself: some segments send all back.
  bool is_own(std::span<const std::byte> frame) const;
  /// Gives a received frame to the kernel. False: there was no room.
  bool deliver(std::span<const std::byte> frame);
  bool waiting() const { return !from_kernel_.empty(); }
  /// Copies the next frame that the kernel sends into `to` and returns its length; 0: none, or longer than `to`.
  std::size_t next_frame(std::span<std::byte> to);
  /// Frames that the thread has lost since the last call: longer than the port's MTU, or not taken by the kernel.
  std::uint64_t take_lost() { return lost_.load(std::memory_order_relaxed) == 0 ? 0 : lost_.exchange(0); }

 private:
  static constexpr std::size_t kBurst = 64;  ///< frames of one direction before the other one has its turn

  void run(const std::function<void()>& wake);
  /// False: there is none.
  bool read_frame();
  /// Each returns whether there was a frame.
  bool write_burst();
  bool read_burst(const std::function<void()>& wake);
  void sleep();
  void wake_thread();
  /// The interface was deleted: what is for it is lost from now on.
  void give_up();
  /// Enough for the thread to go on after the ring was full.
  bool has_room() const { return from_kernel_.size() <= from_kernel_.slots() / 2; }

  net::Netdev& netdev_;
  const wire::Mac mac_;
  const std::uint32_t frame_bytes_;
  PacketRing to_kernel_, from_kernel_;
  UniqueFd wake_fd_;
  std::atomic<bool> sleeping_{false}, stopping_{false};
  std::atomic<bool> wants_room_{false};  ///< and sleeps until from_kernel_ has it
  std::atomic<std::uint64_t> lost_{0};
  std::thread thread_;

  // The thread's.
  std::unique_ptr<std::byte[]> read_;  ///< what was read last
  KernelFrame frame_;                  ///< its segments that from_kernel_ does not have yet
  SegmentRun run_;                     ///< what is written next
  bool gone_ = false;
};

}  // namespace uroce::worker
