// A process with memory whose page faults are never answered: its first page is anonymous, the others are a file of
// a FUSE file system that it mapped privately. The server answers only what is needed to open the file.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "platform/clock.h"
#include "platform/unique_fd.h"

/// Without permission to mount, the case is skipped with a message.
#define NEED_SILENT(memory) \
  if (!(memory).works()) GTEST_SKIP() << "a FUSE file system can't be mounted here; run as root, with /dev/fuse"

namespace uroce::daemon::testing {

inline Nanos time_of(auto&& function) {
  const Nanos begin = monotonic_now();
  function();
  return monotonic_now() - begin;
}

class SilentMemory {
 public:
  static constexpr std::size_t kPage = 4096, kBytes = 8 * kPage;

  SilentMemory() {
    char directory[] = "/tmp/uroce-silent-XXXXXX";
    directory_ = ::mkdtemp(directory);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    owner_ = ::fork();
    if (owner_ == 0) own(directory, ends[1]);
    ::close(ends[1]);
    struct Report {
      pid_t server;
      int file;
      std::uint64_t address;
    } report{};
    works_ = ::read(ends[0], &report, sizeof(report)) == sizeof(report);
    ::close(ends[0]);
    server_ = report.server, file_ = report.file, address_ = report.address;
  }
  ~SilentMemory() {
    answer();
    if (owner_ > 0) ::kill(owner_, SIGKILL), ::waitpid(owner_, nullptr, 0);
    ::rmdir(directory_.c_str());
  }
  SilentMemory(const SilentMemory&) = delete;
  SilentMemory& operator=(const SilentMemory&) = delete;

  /// False: this user may not mount.
  bool works() const { return works_; }
  pid_t owner() const { return owner_; }
  std::uint64_t address(std::size_t page) const { return address_ + page * kPage; }
  /// The file. Closing it blocks like every other call on it.
  UniqueFd file() const {
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, owner_, 0)));
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), file_, 0)));
  }
  /// The file system ends: faults end with an error.
  void answer() {
    if (server_ > 0) ::kill(server_, SIGKILL);
    server_ = 0;
  }

 private:
  [[noreturn]] static void own(const char* directory, int report) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int connection = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options = "fd=" + std::to_string(connection) + ",rootmode=40000,user_id=0,group_id=0";
    if (connection < 0 || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("silent", directory, "fuse", MS_NODEV | MS_NOSUID, options.c_str()) != 0) {
      ::_exit(1);
    }
    const pid_t server = ::fork();
    if (server == 0) serve(connection);
    ::close(connection);
    const int file = ::open((std::string(directory) + "/file").c_str(), O_RDONLY | O_CLOEXEC);
    void* base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    void* first = ::mmap(base, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (file < 0 || base == MAP_FAILED || first != base) {
      ::kill(server, SIGKILL);
      ::_exit(1);
    }
    std::memset(first, 1, kPage);
    struct {
      pid_t server;
      int file;
      std::uint64_t address;
    } const found{server, file, reinterpret_cast<std::uintptr_t>(base)};
    if (::write(report, &found, sizeof(found)) != sizeof(found)) ::_exit(1);
    for (;;) ::pause();
  }

  [[noreturn]] static void serve(int connection) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    alignas(8) static char request[1u << 18];
    while (::read(connection, request, sizeof(request)) >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
      fuse_in_header in;
      std::memcpy(&in, request, sizeof(in));
      switch (in.opcode) {
        case FUSE_INIT: {
          fuse_init_out out{};
          out.major = FUSE_KERNEL_VERSION;
          out.minor = 31;
          out.max_write = kPage;
          reply(connection, in.unique, &out, sizeof(out));
          break;
        }
        case FUSE_LOOKUP: {
          fuse_entry_out out{};
          out.nodeid = 2;
          out.entry_valid = 1000;  // its attributes are to be asked for each time
          out.attr = attributes(2);
          reply(connection, in.unique, &out, sizeof(out));
          break;
        }
        case FUSE_GETATTR: {
          if (in.nodeid != 1) break;
          fuse_attr_out out{};
          out.attr_valid = 1000;
          out.attr = attributes(in.nodeid);
          reply(connection, in.unique, &out, sizeof(out));
          break;
        }
        case FUSE_OPEN: {
          fuse_open_out out{};
          reply(connection, in.unique, &out, sizeof(out));
          break;
        }
        case FUSE_READ:
        case FUSE_STATFS:
        case FUSE_FLUSH:
        case FUSE_FORGET: break;
        default: reply(connection, in.unique, nullptr, 0, -ENOSYS);
      }
    }
    ::_exit(0);
  }

  static fuse_attr attributes(std::uint64_t node) {
    fuse_attr out{};
    out.ino = node;
    out.mode = node == 1 ? S_IFDIR | 0755u : S_IFREG | 0644u;
    out.nlink = 1;
    out.size = node == 1 ? 0 : kBytes;
    return out;
  }

  static void reply(int connection, std::uint64_t unique, void* body, std::size_t bytes, int error = 0) {
    fuse_out_header head{};
    head.len = static_cast<std::uint32_t>(sizeof(head) + bytes);
    head.error = error;
    head.unique = unique;
    const iovec parts[2] = {{&head, sizeof(head)}, {body, bytes}};
    if (::writev(connection, parts, bytes == 0 ? 1 : 2) < 0) ::_exit(1);
  }

  std::string directory_;
  pid_t owner_ = 0, server_ = 0;
  int file_ = -1;
  std::uint64_t address_ = 0;
  bool works_ = false;
};

}  // namespace uroce::daemon::testing
