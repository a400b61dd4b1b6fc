#include "mapping/proc_mem.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "mapping/helper_thread.h"
#include "mapping/thread_state.h"
#include "mapping/wait_limit.h"
#include "platform/clock.h"
#include "platform/peer.h"
#include "platform/scheduling.h"

namespace uroce::mapping {
namespace {

constexpr std::size_t kChunk = 4096;  // no packet has more
constexpr Nanos kSpin = 20 * kMicrosecond;
// Waits shorter than the first check are free; longer ones are charged to the budget.
constexpr Nanos kFirstLook = 100 * kMicrosecond;
constexpr int kLooksWithoutProcessor = 100;

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Nanos limit) {
  const timespec time{static_cast<time_t>(limit / kSecond), static_cast<long>(limit % kSecond)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit == kNever ? nullptr : &time, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

/// Spins for `done`, briefly.
template <class Done>
bool spin_until(Done&& done) {
  const Nanos end = monotonic_now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      base::cpu_relax();
    }
  } while (monotonic_now() < end);
  return false;
}

/// The raw system call: a stuck thread has its own descriptor table, so other threads may close their descriptors
/// at the same time, which the thread sanitizer cannot know.
bool copy(int memory, bool writes, std::uint64_t address, std::byte* data, std::size_t bytes) {
  const long n = ::syscall(writes ? SYS_pwrite64 : SYS_pread64, memory, data, bytes, static_cast<off_t>(address));
  return n == static_cast<long>(bytes);
}

}  // namespace

int open_memory(const platform::Peer& peer, MemoryFiles& out) {
  if (!peer.pidfd.valid()) return ESRCH;
  char path[64];
  if (peer.uid == 0 || peer.uid == ::geteuid()) out.pagemap = Pagemap(peer.pid);
  std::snprintf(path, sizeof(path), "/proc/%d/mem", static_cast<int>(peer.pid));
  UniqueFd memory(::open(path, O_RDWR | O_CLOEXEC));
  if (!memory.valid()) return errno == EACCES ? EPERM : errno;
  // The process may have executed a program with more rights than its user before the open: then the file does not
  // belong to the user. An execve after the open does not matter.
  struct stat info {};
  if (::stat(path, &info) != 0) return ESRCH;
  if (peer.uid != 0 && (info.st_uid != peer.uid || info.st_gid != peer.gid)) return EPERM;
  // A pidfd becomes readable when its process ends; only after that can the process number be reused.
  pollfd ended{peer.pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, 0) != 0) return ESRCH;
  out.memory = std::move(memory);
  return 0;
}

/// The access thread, and the state that it shares with its callers. Lives as long as either uses it.
class ProcMemAccess::AccessThread {
 public:
  AccessThread(int memory, std::shared_ptr<StallBudget> stall_budget)
      : memory_(memory), stall_budget_(std::move(stall_budget)) {}

  static bool start(const std::shared_ptr<AccessThread>& self) {
    return start_helper_thread([self] { self->run(); }, &self->thread_);
  }

  void stop() {
    const std::uint32_t before = state_.exchange(kStopped);
    futex_wake(state_);
    before == kAbandoned ? thread_.detach() : thread_.join();
  }

  /// Serves one caller at a time. 0, EFAULT, ETIMEDOUT. At most kChunk bytes.
  int transfer(bool writes, std::uint64_t address, std::byte* data, std::size_t bytes, bool few_cores) {
    while (!turn_.try_lock()) {
      if (state_.load(std::memory_order_relaxed) == kAbandoned) return ETIMEDOUT;
      few_cores ? static_cast<void>(::sched_yield()) : base::cpu_relax();
    }
    const int error = exchange(writes, address, data, bytes, few_cores);
    turn_.unlock();
    return error;
  }

 private:
  // The caller whose turn it is moves the state to posted; the thread moves it from posted or abandoned to idle.
  // Each side sets a flag before it sleeps.
  enum State : std::uint32_t { kIdle, kThreadSleeps, kPosted, kCallerSleeps, kAbandoned, kStopped };

  int exchange(bool writes, std::uint64_t address, std::byte* data, std::size_t bytes, bool few_cores) {
    if (state_.load(std::memory_order_acquire) == kAbandoned) return ETIMEDOUT;
    few_cores_.store(few_cores, std::memory_order_relaxed);
    writes_ = writes, address_ = address, bytes_ = bytes;
    // Copied, because the thread may return long after the caller has reused its buffer.
    if (writes) std::memcpy(buffer_, data, bytes);
    if (state_.exchange(kPosted, std::memory_order_acq_rel) == kThreadSleeps) futex_wake(state_);
    if (!wait(few_cores)) return ETIMEDOUT;
    if (reached_ && !writes) std::memcpy(data, buffer_, bytes);
    return reached_ ? 0 : EFAULT;
  }

  /// False: the wait was given up.
  bool wait(bool few_cores) {
    const auto done = [this] { return state_.load(std::memory_order_acquire) <= kThreadSleeps; };
    if (few_cores ? done() : spin_until(done)) return true;
    std::uint32_t expected = kPosted;
    if (!state_.compare_exchange_strong(expected, kCallerSleeps)) return true;
    WaitLimit limit(*stall_budget_, kLooksWithoutProcessor);
    const Nanos begun = monotonic_now();
    for (Nanos looked = begun;;) {
      const Nanos wait = looked == begun ? kFirstLook : WaitLimit::kLook;
      futex_wait(state_, kCallerSleeps, wait);
      if (done()) return true;
      const Nanos now = monotonic_now();
      if (now - looked < wait) continue;  // a signal
      if (!limit.goes_on(is_blocked_in_kernel(id_.load()), now - looked, now)) return !give_up();
      looked = now;
    }
  }

  /// False: it completed at that moment.
  bool give_up() {
    stall_budget_->stuck.fetch_add(1);
    std::uint32_t expected = kCallerSleeps;
    if (state_.compare_exchange_strong(expected, kAbandoned)) return true;
    stall_budget_->stuck.fetch_sub(1);
    return false;
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "indirect");
    platform::set_sched_slice(platform::SchedSlice::kShort);
    // A killed daemon remains as a process as long as one of its threads is stuck. Its sockets must not stay open
    // with it, so this thread gets a descriptor table without them.
    const auto fd = static_cast<unsigned>(memory_);
    ::syscall(SYS_close_range, fd + 1, ~0u, CLOSE_RANGE_UNSHARE);
    if (fd > 3) ::syscall(SYS_close_range, 3u, fd - 1, 0);
    id_.store(static_cast<pid_t>(::syscall(SYS_gettid)));
    while (wait_for_work()) {
      reached_ = copy(memory_, writes_, address_, buffer_, bytes_);
      std::uint32_t now = state_.load(std::memory_order_acquire);
      while (now != kStopped) {
        if (state_.compare_exchange_weak(now, kIdle, std::memory_order_acq_rel)) break;
      }
      if (now == kCallerSleeps) futex_wake(state_);
      // No other state is possible when it is stopped: a caller that waits has the turn.
      if (now == kAbandoned || now == kStopped) stall_budget_->stuck.fetch_sub(1);
    }
  }

  /// False: stopped.
  bool wait_for_work() {
    const auto called = [this] { return state_.load(std::memory_order_acquire) > kThreadSleeps; };
    if (few_cores_.load(std::memory_order_relaxed) || !spin_until(called)) {
      std::uint32_t expected = kIdle;
      state_.compare_exchange_strong(expected, kThreadSleeps, std::memory_order_acq_rel);
      while (!called()) futex_wait(state_, kThreadSleeps, kNever);
    }
    return state_.load(std::memory_order_acquire) != kStopped;
  }

  const int memory_;
  const std::shared_ptr<StallBudget> stall_budget_;
  std::thread thread_;
  std::atomic<pid_t> id_{0};
  base::Spinlock turn_;
  alignas(64) std::atomic<std::uint32_t> state_{kIdle};
  std::atomic<bool> few_cores_{true};
  bool writes_ = false, reached_ = false;
  std::uint64_t address_ = 0;
  std::size_t bytes_ = 0;
  std::byte buffer_[kChunk];
};

ProcMemAccess::ProcMemAccess(MemoryFiles files, std::shared_ptr<StallBudget> stall_budget,
                             const std::atomic<bool>& few_cores)
    : files_(std::move(files)),
      few_cores_(few_cores),
      access_thread_(std::make_shared<AccessThread>(files_.memory.get(), std::move(stall_budget))) {
  if (!AccessThread::start(access_thread_)) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  io_.context = this;
  io_.read = [](void* context, std::uint64_t address, std::byte* to, std::size_t bytes) {
    return static_cast<ProcMemAccess*>(context)->transfer(false, address, to, bytes) == 0;
  };
  io_.write = [](void* context, std::uint64_t address, const std::byte* from, std::size_t bytes) {
    return static_cast<ProcMemAccess*>(context)->transfer(true, address, const_cast<std::byte*>(from), bytes) == 0;
  };
}

ProcMemAccess::~ProcMemAccess() { access_thread_->stop(); }

int ProcMemAccess::transfer(bool writes, std::uint64_t address, std::byte* data, std::size_t bytes) {
  // No process has memory at addresses that off_t cannot represent.
  if (address > INT64_MAX - bytes) return EFAULT;
  const bool few = few_cores_.load(std::memory_order_relaxed);
  for (std::size_t at = 0; at < bytes; at += kChunk) {
    const std::size_t part = std::min(bytes - at, kChunk);
    if (files_.pagemap.look(address + at, part) == Pages::kPresent) {
      if (!copy(files_.memory.get(), writes, address + at, data + at, part)) return EFAULT;
    } else if (const int error = access_thread_->transfer(writes, address + at, data + at, part, few)) {
      return error;
    }
  }
  return 0;
}

int ProcMemAccess::probe(std::uint64_t address) {
  std::byte byte{};
  return transfer(false, address, &byte, 1);
}

}  // namespace uroce::mapping
