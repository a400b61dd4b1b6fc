#include "memory_file.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "client/system.h"
#include "export.h"

namespace uroce::verbs {

int make_memory_file(const char* name, std::size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    return fd;
  }
  const int error = errno;
  client::sys::close(fd);
  errno = error;
  return -1;
}

int export_memory_file(int fd, std::size_t bytes) {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  if (device >= 0) {
    udmabuf_create request{};
    request.memfd = static_cast<std::uint32_t>(fd);
    request.flags = UDMABUF_FLAGS_CLOEXEC;
    request.size = bytes;
    const int made = ioctl(device, UDMABUF_CREATE, &request);
    client::sys::close(device);
    if (made >= 0) return made;
  }
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  noted(copy < 0 ? errno : 0);
  return copy;
}

}  // namespace uroce::verbs
