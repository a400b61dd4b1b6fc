#include "page_sharing/file_backing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <cstring>

namespace uroce::page_sharing {

// Only regular files, which includes memfds, shared memory and hugetlbfs. Memory of a device can't be passed to
// another process this way.
bool FileBacking::matches(int fd, const Key& key) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (major(status.st_dev) != key.dev_major || minor(status.st_dev) != key.dev_minor) return false;
  if (status.st_ino != key.inode) return false;
  const long mode = raw_syscall(SYS_fcntl, fd, F_GETFL);
  if (mode < 0 || (mode & O_PATH) != 0) return false;
  const long access = mode & O_ACCMODE;
  return access == O_RDWR || (access == O_RDONLY && !key.writable);
}

int FileBacking::find_open(const Key& key) {
  const RawFd folder(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return -1;
  alignas(8) char buffer[4096];
  for (;;) {
    const long got = raw_syscall(SYS_getdents64, folder.get(), buffer, sizeof(buffer));
    if (got <= 0) return -1;
    for (long at = 0; at < got;) {
      const char* entry = buffer + at;
      std::uint16_t length = 0;
      std::memcpy(&length, entry + 16, sizeof(length));
      at += length;
      int fd = 0;
      const char* name = entry + 19;
      if (*name < '0' || *name > '9') continue;
      for (; *name >= '0' && *name <= '9'; ++name) fd = fd * 10 + (*name - '0');
      if (!matches(fd, key)) continue;
      const long copy = raw_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
      if (copy < 0) continue;
      // the program may have closed it before the dup
      if (matches(static_cast<int>(copy), key)) return static_cast<int>(copy);
      raw_syscall(SYS_close, copy);
    }
  }
}

int FileBacking::open_again(const Mapping& mapping, const char* path, const Key& key) {
  char map_file[64];
  std::snprintf(map_file, sizeof(map_file), "/proc/self/map_files/%lx-%lx", mapping.start, mapping.end);
  const long flags = (key.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  // map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
  for (const char* name : {static_cast<const char*>(map_file), path}) {
    if (name[0] != '/') continue;
    // stat() first: opening a device or a FIFO can have side effects.
    struct stat status;
    if (::stat(name, &status) != 0 || !S_ISREG(status.st_mode)) continue;
    RawFd fd(raw_syscall(SYS_openat, AT_FDCWD, name, flags));
    if (!fd.valid() || !matches(fd.get(), key)) continue;
    return fd.release();
  }
  return -1;
}

int FileBacking::acquire(const Mapping& mapping, const char* path, bool writable) {
  const Key key = {mapping.dev_major, mapping.dev_minor, mapping.inode, writable};
  if (auto it = files_.find(key); it != files_.end()) {
    if (matches(it->second.fd, key)) {
      ++it->second.users;
      return it->second.fd;
    }
    files_.erase(it);  // the program has closed it, as daemon(3) and closefrom(3) users do
  }
  if (!arena_->reserve(1)) return -1;
  int fd = find_open(key);
  if (fd < 0) fd = open_again(mapping, path, key);
  if (fd >= 0) files_.emplace(key, File{fd, 1});
  return fd;
}

void FileBacking::release(int fd) {
  for (auto it = files_.begin(); it != files_.end(); ++it) {
    if (it->second.fd != fd) continue;
    if (--it->second.users == 0) {
      if (matches(fd, it->first)) raw_syscall(SYS_close, fd);
      files_.erase(it);
    }
    return;
  }
}

void FileBacking::clear() {
  for (auto& [key, file] : files_) {
    if (matches(file.fd, key)) raw_syscall(SYS_close, file.fd);
  }
  files_.clear();
}

}  // namespace uroce::page_sharing
