#include "mapping/sigbus_guard.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "platform/unique_fd.h"

// Missing from older headers.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace uroce::mapping {
namespace {

struct Range {
  std::atomic<std::uintptr_t> base{0};  // 0: free; published last
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::uint64_t> session{0};
  std::atomic<memory::Loss*> loss{nullptr};
  std::atomic<bool> split{false};  // only its end was replaced, perhaps
};
using SessionList = std::atomic<std::uint64_t>[16];

// A range of which only the end is replaced is one mapping more, of which there are few (vm.max_map_count).
constexpr std::uint32_t kMaxSplit = 4096;
constexpr std::uintptr_t kPageMask = ~std::uintptr_t{4095};

// Reached from a signal handler: static storage, nothing but lock-free atomics.
Range g_ranges[SigbusGuard::kMaxRanges];
std::atomic<std::uint32_t> g_used{0};  // entries from here on were never used
std::atomic<std::uint32_t> g_split{0};
SessionList g_offenders, g_losers;
std::mutex g_writers;
// Under the lock: the entry of each base, and entries that are free again.
std::unordered_map<std::uintptr_t, std::uint32_t> g_entries;
std::vector<std::uint32_t> g_free;
struct sigaction g_previous;
UniqueFd g_userfault;  // invalid: holes are not guarded

void report(SessionList& sessions, std::uint64_t session) {
  for (auto& slot : sessions) {
    std::uint64_t expected = 0;
    if (slot.load() == session || slot.compare_exchange_strong(expected, session)) return;
  }
}

std::uint64_t take(SessionList& sessions) {
  for (auto& slot : sessions) {
    if (const std::uint64_t session = slot.exchange(0)) return session;
  }
  return 0;
}

bool put_zeroes(std::uintptr_t begin, std::uintptr_t end) {
  return ::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void* spare_mapping() { return ::mmap(nullptr, 4096, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }

// With vm.max_map_count mappings the kernel splits one more, and then refuses each further mmap(2), also one in the
// place of another mapping. Two mappings that are not joined show that a split leaves room.
bool has_room_for_split() {
  void* const first = spare_mapping();
  if (first == MAP_FAILED) return false;
  void* const second = spare_mapping();
  ::munmap(first, 4096);
  if (second == MAP_FAILED) return false;
  ::munmap(second, 4096);
  return true;
}

// Comes before put_zeroes(). Its change of the page tables interrupts other threads, so that one that has accessed
// a zero page sees the store.
void lose(memory::Loss& loss, std::uintptr_t from) {
  std::uintptr_t before = loss.from.load();
  while (from < before && !loss.from.compare_exchange_weak(before, from)) {
  }
}

// What follows a page past the end of the file is past it, too. The part cannot be replaced alone when no mapping
// is left, or if it begins within a hugepage.
bool replace_end(Range& range, memory::Loss& loss, std::uintptr_t address) {
  const std::uintptr_t base = range.base.load(), end = base + range.bytes.load(), from = address & kPageMask;
  if ((range.split.exchange(true) || g_split.fetch_add(1) < kMaxSplit) && has_room_for_split()) {
    lose(loss, from);
    if (put_zeroes(from, end)) return true;
  }
  lose(loss, base);
  return put_zeroes(base, end);
}

bool patch(std::uintptr_t address) {
  const std::uint32_t used = g_used.load(std::memory_order_acquire);
  for (Range& range : std::span(g_ranges, used)) {
    const std::uintptr_t base = range.base.load(std::memory_order_acquire);
    if (base == 0 || address < base || address - base >= range.bytes.load()) continue;
    memory::Loss* const loss = range.loss.load();
    if (loss != nullptr ? !replace_end(range, *loss, address) : !put_zeroes(base, base + range.bytes.load())) {
      return false;
    }
    report(loss != nullptr ? g_losers : g_offenders, range.session.load());
    return true;
  }
  return false;
}

void on_sigbus(int, siginfo_t* info, void*) {
  const int error = errno;  // a refused spare mapping sets it
  const bool patched = patch(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = error;
  if (patched) return;
  // Not a guarded range: the instruction runs again, with the previous handler.
  ::sigaction(SIGBUS, &g_previous, nullptr);
}

// Page faults at holes raise SIGBUS, and system calls that cause them fail. Nobody reads the descriptor.
UniqueFd open_userfault() {
  // Any process may have the faults of user mode; before Linux 5.11 a right was needed.
  UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (!fd.valid()) fd.reset(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS;
  if (fd.valid() && ::ioctl(fd.get(), UFFDIO_API, &api) != 0) fd.reset();
  return fd;
}

}  // namespace

SigbusGuard& SigbusGuard::instance() {
  static SigbusGuard guard;
  return guard;
}

void SigbusGuard::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &g_previous);
    g_userfault = open_userfault();
  });
}

bool SigbusGuard::guards_holes() const { return g_userfault.valid(); }

bool SigbusGuard::guard_holes(void* base, std::size_t bytes) const {
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uintptr_t>(base), bytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return g_userfault.valid() && ::ioctl(g_userfault.get(), UFFDIO_REGISTER, &range) == 0;
}

bool SigbusGuard::add(const void* base, std::size_t bytes, std::uint64_t session, memory::Loss* loss) {
  std::lock_guard lock(g_writers);
  const std::uint32_t used = g_used.load();
  if (g_free.empty() && used == kMaxRanges) return false;
  const std::uint32_t i = g_free.empty() ? used : g_free.back();
  g_entries.emplace(reinterpret_cast<std::uintptr_t>(base), i);
  g_free.reserve(g_entries.size() + g_free.size());  // so that remove() never allocates
  if (!g_free.empty()) g_free.pop_back();
  g_ranges[i].bytes.store(bytes);
  g_ranges[i].session.store(session);
  g_ranges[i].loss.store(loss);
  g_ranges[i].base.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
  g_used.store(std::max(used, i + 1), std::memory_order_release);
  return true;
}

void SigbusGuard::remove(const void* base) {
  std::lock_guard lock(g_writers);
  const auto entry = g_entries.find(reinterpret_cast<std::uintptr_t>(base));
  if (entry == g_entries.end()) return;
  Range& range = g_ranges[entry->second];
  range.base.store(0, std::memory_order_release);
  if (range.split.exchange(false)) g_split.fetch_sub(1);
  g_free.push_back(entry->second);
  g_entries.erase(entry);
}

void SigbusGuard::revoke(std::uint64_t session) {
  // remove() comes before munmap(2), so what is in the table is mapped as long as the lock is held.
  std::lock_guard lock(g_writers);
  for (Range& range : std::span(g_ranges, g_used.load())) {
    const std::uintptr_t base = range.base.load();
    if (base == 0 || range.session.load() != session) continue;
    if (memory::Loss* const loss = range.loss.load()) lose(*loss, base);
    // A whole range is replaced without a further mapping, so this succeeds.
    static_cast<void>(put_zeroes(base, base + range.bytes.load()));
  }
}

std::uint64_t SigbusGuard::take_offender() { return take(g_offenders); }
std::uint64_t SigbusGuard::take_loser() { return take(g_losers); }

}  // namespace uroce::mapping
