// What a worker needs of its port outside the packet path. WorkerLoop implements it over its device; the calls are
// made by commands on the worker's thread.
#pragma once

#include "net/device.h"

namespace uroce::worker {

class PortControl {
 public:
  virtual net::DeviceInfo info() const = 0;
  virtual net::DeviceCounters counters() const = 0;
  virtual void set_rx_filter(net::RxFilter filter) = 0;

 protected:
  ~PortControl() = default;
};

}  // namespace uroce::worker
