// A file descriptor that is closed with close(2).
#pragma once

#include <unistd.h>

#include "base/owned_fd.h"

namespace uroce {

struct CloseFd {
  void operator()(int fd) const { ::close(fd); }
};

using UniqueFd = base::OwnedFd<CloseFd>;

}  // namespace uroce
