// The system calls of a daemon that serves. Everything else fails with EPERM: above all execve, ptrace, mounts,
// namespaces, modules, keys, io_uring and processes other than threads.
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "apps/uroced/confine.h"
#include "drivers/packet/udp/sockets.h"

// The leak sanitizer starts a process and traces this one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UROCE_SANITIZED 1
#elif defined(__has_feature)
#define UROCE_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define UROCE_SANITIZED 0
#endif

namespace uroce::uroced {
namespace {

constexpr const char* kAllowed[] = {
    // Files and directories.
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "lseek", "open", "openat",
    "close", "close_range", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access",
    "faccessat", "faccessat2", "readlink", "readlinkat", "getdents64", "getcwd", "mkdir", "mkdirat", "rmdir",
    "unlink", "unlinkat", "rename", "renameat", "renameat2", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat",
    "chown", "fchown", "lchown", "fchownat", "umask", "ftruncate", "fallocate", "fsync", "fdatasync", "flock",
    "fcntl", "dup", "dup2", "dup3", "ioctl",
    // Memory.
    "mmap", "munmap", "mremap", "mprotect", "madvise", "msync", "mlock", "mlock2", "munlock", "brk", "mincore",
    "memfd_create", "get_mempolicy", "set_mempolicy", "mbind", "membarrier",
    // Waiting, pipes, sockets. The families of sockets are limited below.
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait",
    "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "timerfd_create", "timerfd_settime", "timerfd_gettime",
    "pipe", "pipe2", "socketpair", "bind", "listen", "accept", "accept4", "connect", "sendto", "recvfrom",
    "sendmsg", "recvmsg", "sendmmsg", "recvmmsg", "shutdown", "getsockname", "getpeername", "setsockopt",
    "getsockopt",
    // Threads, signals, time.
    "futex", "futex_waitv", "set_robust_list", "get_robust_list", "set_tid_address", "rseq", "exit", "exit_group",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "sigaltstack", "tgkill",
    "sched_yield", "sched_setaffinity", "sched_getaffinity", "sched_setscheduler", "sched_getscheduler",
    "sched_setparam", "sched_getparam", "sched_setattr", "sched_getattr", "sched_get_priority_max",
    "sched_get_priority_min", "setpriority", "getpriority", "getcpu", "clock_gettime", "clock_getres",
    "clock_nanosleep", "nanosleep", "gettimeofday", "time", "restart_syscall",
    // The process itself, and the processes of clients.
    "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getgroups", "getresuid", "getresgid",
    "capget", "prctl", "arch_prctl", "prlimit64", "getrlimit", "setrlimit", "getrusage", "uname", "sysinfo",
    "getrandom", "pidfd_open", "times"};

/// Whether the bits of `mask` in the first argument are `value`.
constexpr scmp_arg_cmp masked(std::uint32_t mask, std::uint32_t value) {
  return {.arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

struct Filter {
  scmp_filter_ctx context = ::seccomp_init(SCMP_ACT_ERRNO(EPERM));
  int error = context == nullptr ? -ENOMEM : 0;

  Filter() = default;
  ~Filter() {
    if (context != nullptr) ::seccomp_release(context);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  static bool exists(int number) { return number != __NR_SCMP_ERROR && number >= 0; }
  void allow(const char* name) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (error == 0 && exists(number)) error = ::seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 0);
  }
  void allow_if(const char* name, const scmp_arg_cmp& condition) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (error == 0 && exists(number)) error = ::seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 1, condition);
  }
};

}  // namespace

std::string filter_system_calls(const Settings& settings) {
  if (!settings.sandbox) return "system calls not filtered (--no-sandbox)";
#if UROCE_SANITIZED
  return "system calls not filtered (a sanitizer needs them)";
#endif
  Filter filter;
  for (const char* name : kAllowed) filter.allow(name);
  filter.allow_if("clone", masked(CLONE_THREAD, CLONE_THREAD));
  // clone3's flags are in memory, which a filter cannot read. The C library then uses clone.
  if (const int clone3 = ::seccomp_syscall_resolve_name("clone3"); Filter::exists(clone3) && filter.error == 0) {
    filter.error = ::seccomp_rule_add(filter.context, SCMP_ACT_ERRNO(ENOSYS), clone3, 0);
  }
  constexpr int kFamilies[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
  for (const int family : kFamilies) {
    filter.allow_if("socket", masked(~std::uint32_t{0}, static_cast<std::uint32_t>(family)));
  }
  if (settings.port != "loopback" && !udp::is_udp(settings.port)) {
    for (const int family : {AF_PACKET, AF_XDP}) {
      filter.allow_if("socket", masked(~std::uint32_t{0}, static_cast<std::uint32_t>(family)));
    }
  }
  if (settings.port.starts_with("net_af_xdp")) filter.allow("bpf");
  if (filter.error == 0) filter.error = ::seccomp_attr_set(filter.context, SCMP_FLTATR_CTL_TSYNC, 1);
  if (filter.error == 0) filter.error = ::seccomp_load(filter.context);
  if (filter.error == 0) return "system calls filtered";
  return std::string("system calls not filtered (") + std::strerror(-filter.error) + ")";
}

}  // namespace uroce::uroced
