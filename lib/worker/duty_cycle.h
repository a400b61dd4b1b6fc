// What a worker thread knows of a worker and its port.
#pragma once

#include <cstddef>
#include <span>

#include "base/types.h"

namespace uroce::worker {

class WorkerCore;

class DutyCycle {
 public:
  DutyCycle() = default;
  virtual ~DutyCycle() = default;
  DutyCycle(const DutyCycle&) = delete;
  DutyCycle& operator=(const DutyCycle&) = delete;

  /// One cycle at the time `now`. True: there was something to do.
  virtual bool step(Nanos now) = 0;
  /// Receives what has arrived, offers what the port refused again, and sends nothing else.
  virtual void receive_all(Nanos now) = 0;
  /// Frames received and sent in the last cycle.
  virtual std::size_t moved() const = 0;
  /// Frames wait because the port takes no more at the moment.
  virtual bool port_refuses() const = 0;
  /// The port's part of a sleep, as net::PacketDevice has it.
  virtual bool wakeable() const = 0;
  virtual bool arm_wake() = 0;
  virtual void disarm_wake() = 0;

  virtual WorkerCore& worker() = 0;
  /// `all`: the cycles of this thread, which may exchange frames; this one is among them. They outlive its steps.
  virtual void step_together_with(std::span<DutyCycle* const> all) = 0;
};

}  // namespace uroce::worker
