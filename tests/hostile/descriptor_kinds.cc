#include "tests/hostile/descriptor_kinds.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace uroce::hostile {
namespace {

UniqueFd opened(const char* path, int flags) { return UniqueFd(::open(path, flags | O_CLOEXEC)); }

UniqueFd temporary_file(Random& random, bool deleted) {
  char name[] = "/tmp/hostile-XXXXXX";
  UniqueFd file(::mkostemp(name, O_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), random.below(1 << 20)) != 0) return {};
  UniqueFd other = deleted ? UniqueFd() : opened(name, random.percent(50) ? O_RDONLY : O_PATH);
  ::unlink(name);  // nobody tidies up after a killed process
  return other.valid() ? std::move(other) : std::move(file);
}

UniqueFd pipe_end(Random& random) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | (random.percent(50) ? O_NONBLOCK : 0)) != 0) return {};
  const std::uint32_t kept = random.below(2);
  ::close(ends[1 - kept]);
  return UniqueFd(ends[kept]);
}

/// The other end goes, or stays in the first one's queue: then only the kernel's collector can free both.
UniqueFd socket_end(Random& random) {
  constexpr int kTypes[] = {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM};
  int ends[2];
  if (::socketpair(AF_UNIX, random.of(kTypes) | SOCK_CLOEXEC, 0, ends) != 0) return {};
  UniqueFd kept(ends[0]), other(ends[1]);
  if (random.percent(70)) return kept;
  iovec part{const_cast<char*>("x"), 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
  ::sendmsg(kept.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return other;
}

UniqueFd connected_to(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return socket;
}

UniqueFd signal_descriptor() {
  sigset_t none;
  sigemptyset(&none);
  return UniqueFd(::signalfd(-1, &none, SFD_CLOEXEC));
}

}  // namespace

UniqueFd random_memfd(Random& random) {
  UniqueFd file(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const off_t bytes = static_cast<off_t>(random.below(1024)) * 4096 + (random.percent(10) ? random.below(4096) : 0);
  if (!file.valid() || ::ftruncate(file.get(), bytes) != 0) return {};
  constexpr int kSeals[] = {0, 0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_SEAL, F_SEAL_FUTURE_WRITE};
  ::fcntl(file.get(), F_ADD_SEALS, random.of(kSeals));
  return file;
}

UniqueFd random_descriptor(Random& random, const std::string& socket_path) {
  constexpr const char* kDevices[] = {"/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "/dev/ptmx"};
  constexpr int kModes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH};
  switch (random.below(18)) {
    case 0:
    case 1: return random_memfd(random);
    case 2: return temporary_file(random, false);
    case 3: return temporary_file(random, true);
    case 4: return pipe_end(random);
    case 5: return socket_end(random);
    case 6: return UniqueFd(::eventfd(random.wild32(), EFD_CLOEXEC | (random.percent(50) ? EFD_NONBLOCK : 0)));
    case 7: return opened("/", O_PATH);
    case 8: return opened("/tmp", O_DIRECTORY | O_RDONLY);
    case 9: return opened(random.of(kDevices), random.of(kModes));
    case 10: return UniqueFd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
    case 11: return UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    case 12: return UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    case 13: return UniqueFd(::inotify_init1(IN_CLOEXEC));
    case 14: return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    case 15: return opened("/proc/self/mem", O_RDWR);
    case 16: return connected_to(socket_path);
    default: return signal_descriptor();
  }
}

}  // namespace uroce::hostile
