// How a sleeping worker is woken by arriving frames. ethernet.h makes one object for each queue: a receive
// interrupt or the driver's socket if there is one (queue_sockets.h), a peer on this machine that rings
// (wake_channel.h), or else a timer.
#pragma once

#include <cstdint>
#include <span>

namespace uroce::dpdk {

class Waker {
 public:
  virtual ~Waker() = default;

  /// Becomes readable when a frame may have arrived after arm().
  virtual int fd() const = 0;
  /// Call it before the last check of the ring. `quiet`: no frame came since the last arm().
  virtual void arm(bool quiet) = 0;
  /// Call it after waking, or when that check found frames. No effect without arm().
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
  void arm(bool quiet) override;
  void disarm() override;

 private:
  int fd_ = -1;
  bool armed_ = false;
  long nap_ns_ = 0;
};

/// A descriptor of the driver that is readable while frames wait and must not be read here: that of net_tap is the
/// tun device itself, that of net_af_packet and net_af_xdp a socket.
class DescriptorWaker : public Waker {
 public:
  explicit DescriptorWaker(int fd) : fd_(fd) {}

  int fd() const override { return fd_; }
  void arm(bool) override {}
  void disarm() override {}

 private:
  int fd_;
};

/// A queue's receive interrupt, an eventfd. Drivers report no error when the device has no such interrupt
/// (net_e1000_em has neither a vector for 82540EM under VFIO nor the route of one for 82574L): a timer wakes as
/// well, until interrupts have come.
class InterruptWaker : public Waker {
 public:
  static constexpr int kTrusted = 4;  ///< sleeps with an interrupt, after which the timer is not needed

  InterruptWaker(std::uint16_t port, std::uint16_t queue, int fd);
  ~InterruptWaker() override;
  InterruptWaker(const InterruptWaker&) = delete;
  InterruptWaker& operator=(const InterruptWaker&) = delete;

  int fd() const override { return epoll_; }
  void arm(bool quiet) override;
  void disarm() override;

 private:
  std::uint16_t port_, queue_;
  int fd_, epoll_;
  TimerWaker nap_;
  int seen_ = 0;  // sleeps with an interrupt
  bool armed_ = false;
};

/// Several sockets of which any may wake the worker; they must not be read here.
class SocketsWaker : public Waker {
 public:
  explicit SocketsWaker(std::span<const int> sockets);
  ~SocketsWaker() override;
  SocketsWaker(const SocketsWaker&) = delete;
  SocketsWaker& operator=(const SocketsWaker&) = delete;

  int fd() const override { return epoll_; }
  void arm(bool) override { armed_ = true; }
  /// Reads their errors: a socket whose interface went down would end each sleep until that is done.
  void disarm() override;

 private:
  int epoll_;
  bool armed_ = false;
};

}  // namespace uroce::dpdk
