// Owner of a file descriptor that a port opens itself.
#pragma once

#include <unistd.h>

#include "base/owned_fd.h"

namespace uroce::packet {

struct CloseFile {
  void operator()(int fd) const { ::close(fd); }
};
using OwnedFile = base::OwnedFd<CloseFile>;

}  // namespace uroce::packet
