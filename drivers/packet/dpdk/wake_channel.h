// Two uroced joined by memif wake each other, because DPDK's memif driver has no receive interrupts. Next to the
// memif socket is a small file that both map, with one flag for each side and queue, and one FIFO for each flag.
//
//   sleeper (arm)      flag = 1; fence; check the ring once more; sleep on its FIFO
//   sender (sent)      frames published; fence; flag set: exchange it with 0, write one byte
//
// Edges: the two fences pair with each other, so that either the sender sees the flag or the sleeper sees the
// frames.
//
// Each side locks its byte of the file (fcntl(2)); the kernel drops the lock with the process, so files left by
// dead daemons have no effect. While the other side is unlocked, the peer is not a uroced or has ended, and the
// sleeper polls by a timer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "drivers/packet/dpdk/waker.h"

namespace uroce::dpdk {

class WakeChannel {
 public:
  static constexpr std::uint32_t kQueues = 16;

  enum class Side : std::uint8_t { kServer, kClient };

  /// Joins the channel whose files start with `base`. On failure nullptr, and the reason in `why`.
  static std::shared_ptr<WakeChannel> open(const std::string& base, Side side, std::uint32_t queues,
                                           std::string& why);
  ~WakeChannel();
  WakeChannel(const WakeChannel&) = delete;
  WakeChannel& operator=(const WakeChannel&) = delete;

  /// Whether a running uroced holds the other side.
  bool peer_alive() const;

  int fifo(std::uint32_t queue) const { return own_[queue]; }
  void announce_sleep(std::uint32_t queue);
  void end_sleep(std::uint32_t queue);
  /// Wakes the peer's worker if it sleeps. Called after each burst.
  void ring(std::uint32_t queue) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (peer_flags_[queue].sleeping.load(std::memory_order_relaxed) != 0) wake_peer(queue);
  }

 private:
  struct alignas(64) Flag {
    std::atomic<std::uint32_t> sleeping{0};
  };
  struct Shared {
    std::atomic<std::uint64_t> magic;
    Flag flags[2][kQueues];
  };
  static constexpr std::uint64_t kMagic = 0x31656b6177756f72;

  WakeChannel(std::string base, Side side) : base_(std::move(base)), side_(side) {}
  std::string fifo_path(unsigned side, std::uint32_t queue) const;
  std::string map_file();
  std::string open_fifos(std::uint32_t queues);
  std::string join(std::uint32_t queues);
  void wake_peer(std::uint32_t queue);

  std::string base_;
  Side side_;
  int file_ = -1;
  bool joined_ = false;
  Shared* shared_ = nullptr;
  Flag* own_flags_ = nullptr;
  Flag* peer_flags_ = nullptr;
  int own_[kQueues];
  int peer_[kQueues];
};

/// The channel's end of one queue. Falls back on a timer while the peer is not a uroced.
class ChannelWaker : public Waker {
 public:
  ChannelWaker(std::shared_ptr<WakeChannel> channel, std::uint32_t queue);
  ~ChannelWaker() override;
  ChannelWaker(const ChannelWaker&) = delete;
  ChannelWaker& operator=(const ChannelWaker&) = delete;

  int fd() const override { return epoll_; }
  void arm(bool quiet) override;
  void disarm() override;
  void sent() override { channel_->ring(queue_); }

 private:
  std::shared_ptr<WakeChannel> channel_;
  std::uint32_t queue_;
  TimerWaker nap_;
  int epoll_ = -1;
  bool armed_ = false, timed_ = false;
};

}  // namespace uroce::dpdk
