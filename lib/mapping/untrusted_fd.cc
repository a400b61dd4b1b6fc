#include "mapping/untrusted_fd.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "mapping/helper_thread.h"
#include "mapping/thread_state.h"
#include "mapping/wait_limit.h"
#include "platform/clock.h"

namespace uroce::mapping {
namespace {

constexpr int kLooksWithoutProcessor = 1000;

// The pages of an overlay are those of a file in a lower layer, which any user may have provided. A file system
// that reports where a file lies on disk (FIEMAP) is local.
bool is_on_disk(int fd) {
  fiemap map;  // no braces: it ends with a flexible array
  std::memset(&map, 0, sizeof(map));
  map.fm_length = 4096;
  return ::ioctl(fd, FS_IOC_FIEMAP, &map) == 0;
}

int ask(int fd, FileFacts& out) {
  struct stat info {};
  struct statfs system {};
  if (::fstat(fd, &info) != 0 || ::fstatfs(fd, &system) != 0) return EBADF;
  const auto magic = static_cast<std::uint32_t>(system.f_type);
  const bool known = magic != OVERLAYFS_SUPER_MAGIC || is_on_disk(fd);
  out = {info.st_dev,
         info.st_ino,
         known ? magic : 0,
         static_cast<std::uint64_t>(system.f_bsize),
         static_cast<std::uint64_t>(info.st_size),
         S_ISREG(info.st_mode)};
  return 0;
}

struct Answer {
  std::mutex mutex;
  std::condition_variable given;
  int error = 0;
  bool done = false, given_up = false;
  FileFacts facts;
  std::atomic<pid_t> thread{0};  ///< the helper thread
};

/// False: the wait was given up.
bool wait_for(Answer& answer, StallBudget& stall_budget) {
  WaitLimit limit(stall_budget, kLooksWithoutProcessor);
  std::unique_lock lock(answer.mutex);
  while (
      !answer.given.wait_for(lock, std::chrono::nanoseconds(WaitLimit::kLook), [&answer] { return answer.done; })) {
    lock.unlock();  // otherwise the thread could be blocked on this lock
    const bool blocked = is_blocked_in_kernel(answer.thread.load());
    lock.lock();
    if (answer.done) break;
    answer.given_up = !limit.goes_on(blocked, WaitLimit::kLook, monotonic_now());
    if (answer.given_up) {
      stall_budget.stuck.fetch_add(1);
      return false;
    }
  }
  return true;
}

}  // namespace

// Only files of shared memory have seals.
bool is_memory_file(int fd) { return ::fcntl(fd, F_GET_SEALS) >= 0; }

int examine(int fd, const std::shared_ptr<StallBudget>& stall_budget, FileFacts& out) {
  if (is_memory_file(fd)) return ask(fd, out);
  if (stall_budget->stuck.load() >= StallBudget::kMaxStuck) return ETIMEDOUT;
  const auto copy = std::make_shared<ForeignFd>(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), stall_budget);
  if (!copy->valid()) return errno == EMFILE ? EMFILE : EBADF;
  const auto answer = std::make_shared<Answer>();
  const bool started = start_helper_thread([answer, copy, stall_budget] {
    answer->thread.store(static_cast<pid_t>(::syscall(SYS_gettid)));
    FileFacts facts;
    const int error = ask(copy->get(), facts);
    bool late = false;
    {
      const std::lock_guard lock(answer->mutex);
      late = answer->given_up;
      answer->facts = facts, answer->error = error, answer->done = true;
    }
    answer->given.notify_one();
    if (late) stall_budget->stuck.fetch_sub(1);
  });
  if (!started) return ETIMEDOUT;
  if (!wait_for(*answer, *stall_budget)) return ETIMEDOUT;
  out = answer->facts;
  return answer->error;
}

}  // namespace uroce::mapping
