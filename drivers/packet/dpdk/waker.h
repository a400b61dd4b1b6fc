// How a sleeping worker learns that frames have arrived. One object for each queue, made by ethernet.h; which one
// depends on what the driver has: receive interrupts, a peer on this machine that rings (wake_channel.h), or
// neither: then a timer makes the worker look by itself.
#pragma once

#include <cstdint>

namespace uroce::dpdk {

class Waker {
 public:
  virtual ~Waker() = default;

  /// Becomes readable when a frame may have arrived after arm().
  virtual int fd() const = 0;
  /// Before the last look at the ring.
  virtual void arm() = 0;
  /// After waking, or when the last look found something. Harmless without arm().
  virtual void disarm() = 0;
  /// After a burst was sent on this queue.
  virtual void sent() {}
};

/// Naps that grow from 50 us to 1 ms while nothing comes.
class TimerWaker : public Waker {
 public:
  TimerWaker();
  ~TimerWaker() override;
  TimerWaker(const TimerWaker&) = delete;
  TimerWaker& operator=(const TimerWaker&) = delete;

  int fd() const override { return fd_; }
  void arm() override;
  void disarm() override;
  /// Traffic was seen: short naps again.
  void reset();

 private:
  int fd_ = -1;
  bool armed_ = false;
  long nap_ns_ = 0;
};

/// A queue's receive interrupt. `drains`: the descriptor is an eventfd that stays readable until it is read; that
/// of net_tap, the tun device itself, must not be read here.
class InterruptWaker : public Waker {
 public:
  InterruptWaker(std::uint16_t port, std::uint16_t queue, int fd, bool drains)
      : port_(port), queue_(queue), fd_(fd), drains_(drains) {}

  int fd() const override { return fd_; }
  void arm() override;
  void disarm() override;

 private:
  std::uint16_t port_, queue_;
  int fd_;
  bool drains_;
  bool armed_ = false;
};

}  // namespace uroce::dpdk
