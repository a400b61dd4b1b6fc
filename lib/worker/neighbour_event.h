// From the link worker to the control thread: a neighbour that a request waits for has answered or was given up.
//
// Edges: the eventfd. signal() on the link worker, fd() and take() on the control thread.
#pragma once

#include <sys/eventfd.h>

#include "platform/unique_fd.h"

namespace uroce::worker {

class NeighbourEvent {
 public:
  NeighbourEvent() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void signal() { ::eventfd_write(fd_.get(), 1); }
  /// Readable after signal(), until take().
  int fd() const { return fd_.get(); }
  /// Whether it was signalled since the last call.
  bool take() {
    eventfd_t count;
    return ::eventfd_read(fd_.get(), &count) == 0;
  }

 private:
  UniqueFd fd_;
};

}  // namespace uroce::worker
