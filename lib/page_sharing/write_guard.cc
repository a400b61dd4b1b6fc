#include "page_sharing/write_guard.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>

#include <utility>

// Missing from older headers. /dev/userfaultfd exists since Linux 6.1.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace uroce::page_sharing {

namespace {

constexpr unsigned long kNewUserfault = _IO(0xAA, 0x00);       // USERFAULTFD_IOC_NEW
constexpr std::uint64_t kFeatureWriteProtect = 1;              // UFFD_FEATURE_PAGEFAULT_FLAG_WP
constexpr std::uint64_t kFeatureMissingShared = 1 << 5;        // UFFD_FEATURE_MISSING_SHMEM
constexpr std::uint64_t kFeatureWriteProtectShared = 1 << 12;  // UFFD_FEATURE_WP_HUGETLBFS_SHMEM

long open_descriptor(Userfault::Mode mode) {
  if (mode == Userfault::Mode::kUserOnly) {
    return raw_syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  }
  const RawFd device(raw_syscall(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  if (device.valid()) {
    const long fd = raw_syscall(SYS_ioctl, device.get(), kNewUserfault, O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) return fd;
  }
  return raw_syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
}

bool enable(int fd, std::uint64_t features) {
  uffdio_api api = {};
  api.api = UFFD_API;
  api.features = features;
  return raw_syscall(SYS_ioctl, fd, UFFDIO_API, &api) == 0;
}

}  // namespace

bool Userfault::open(Mode mode) {
  RawFd fd(open_descriptor(mode));
  if (!fd.valid()) return false;
  guards_shared_ = enable(fd.get(), kFeatureWriteProtect | kFeatureMissingShared | kFeatureWriteProtectShared);
  if (!guards_shared_ && !enable(fd.get(), kFeatureWriteProtect)) return false;
  fd_ = std::move(fd);
  mode_ = mode;
  return true;
}

// The program may have closed all descriptors, as daemon(3) users do, and reused the number for another file.
bool Userfault::still_ours() const {
  uffdio_range nothing = {};
  return raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_WAKE, &nothing) == -EINVAL;
}

Userfault::Mode Userfault::mode() {
  if (mode_ == Mode::kForbidden) return mode_;
  if (fd_.valid() && !still_ours()) {
    fd_.release();
    mode_ = Mode::kUnknown;
  }
  if (mode_ == Mode::kUnknown && !open(Mode::kFull) && !open(Mode::kUserOnly)) mode_ = Mode::kForbidden;
  return mode_;
}

int Userfault::protect(std::uintptr_t start, std::size_t bytes) {
  uffdio_register reg = {};
  reg.range = {start, bytes};
  reg.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
  long result = raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_REGISTER, &reg);
  if (result < 0) return static_cast<int>(-result);
  uffdio_writeprotect protect = {};
  protect.range = reg.range;
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  do {
    result = raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_WRITEPROTECT, &protect);
  } while (result == -EAGAIN);
  if (result < 0) unprotect(start, bytes);
  return static_cast<int>(-result);
}

void Userfault::wake(std::uintptr_t start, std::size_t bytes) {
  uffdio_range range = {start, bytes};
  raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_WAKE, &range);
}

void Userfault::unprotect(std::uintptr_t start, std::size_t bytes) {
  uffdio_range range = {start, bytes};
  raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_UNREGISTER, &range);
  wake(start, bytes);  // UFFDIO_UNREGISTER does not wake threads of a part that was unmapped since
}

void Userfault::fill(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
  uffdio_copy copy = {};
  do {
    copy = {};
    copy.dst = to;
    copy.src = from;
    copy.len = bytes;
    copy.mode = UFFDIO_COPY_MODE_DONTWAKE;
  } while (raw_syscall(SYS_ioctl, fd_.get(), UFFDIO_COPY, &copy) == -EAGAIN);
}

void Userfault::forget() {
  if (fd_.valid() && !still_ours()) fd_.release();
  fd_.reset();
  mode_ = Mode::kUnknown;
}

}  // namespace uroce::page_sharing
