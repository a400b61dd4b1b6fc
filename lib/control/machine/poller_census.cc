#include "control/machine/poller_census.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "control/machine/run_dir.h"

namespace uroce::control {
namespace {

struct flock slot_lock(short type, std::uint32_t slot, std::size_t slot_bytes) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(slot * slot_bytes);
  lock.l_len = 1;
  return lock;
}

std::uint32_t load(const std::uint32_t& word) {
  return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_relaxed);
}
void store(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

}  // namespace

PollerCensus::~PollerCensus() {
  if (slots_ == nullptr) return;
  publish(0, 0);
  ::munmap(slots_, kSlots * sizeof(Slot));
}

absl::Status PollerCensus::open(const std::string& path) {
  UniqueFd fd;
  if (absl::Status status = open_run_file(path, fd); !status.ok()) return status;
  if (::ftruncate(fd.get(), kSlots * sizeof(Slot)) != 0) return absl::ErrnoToStatus(errno, "ftruncate " + path);
  // A store into a page for which the file system has no room raises SIGBUS.
  if (const int error = ::posix_fallocate(fd.get(), 0, kSlots * sizeof(Slot)); error != 0) {
    return absl::ErrnoToStatus(error, "allocate " + path + ": give the run directory room, or use --run-dir");
  }
  void* map = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap " + path);
  fd_ = std::move(fd);
  slots_ = static_cast<Slot*>(map);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    struct flock lock = slot_lock(F_WRLCK, i, sizeof(Slot));
    if (::fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0) continue;
    own_ = i;
    store(slots_[i].pid, static_cast<std::uint32_t>(::getpid()));
    publish(0, 0);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("more than 64 daemons use this run directory; stop one or use another");
}

void PollerCensus::publish(std::uint32_t workers, std::uint32_t sessions) {
  if (own_ >= kSlots) return;
  store(slots_[own_].workers, workers);
  store(slots_[own_].sessions, sessions);
}

bool PollerCensus::locked_by_other(std::uint32_t slot) const {
  struct flock lock = slot_lock(F_WRLCK, slot, sizeof(Slot));
  return ::fcntl(fd_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Pollers PollerCensus::total() const {
  Pollers sum;
  for (std::uint32_t i = 0; slots_ != nullptr && i < kSlots; ++i) {
    if (load(slots_[i].workers) == 0) continue;
    if (i != own_ && !locked_by_other(i)) continue;
    ++sum.daemons;
    sum.workers += load(slots_[i].workers);
    sum.sessions += load(slots_[i].sessions);
    if (i < own_ && load(slots_[i].sessions) != 0) sum.before += load(slots_[i].workers);
  }
  return sum;
}

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&set));
}

}  // namespace uroce::control
