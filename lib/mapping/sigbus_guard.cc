#include "mapping/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace uroce::daemon {
namespace {

struct Range {
  std::atomic<std::uintptr_t> base{0};  // 0: free; published last
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::uint64_t> session{0};
};

// Reached from a signal handler: static storage, nothing but lock-free atomics.
Range g_ranges[SigbusGuard::kMaxRanges];
std::atomic<std::uint32_t> g_used{0};  // entries from here on were never used
std::atomic<std::uint64_t> g_offenders[16];
std::mutex g_writers;
// Under the lock: the entry of each base, and entries that are free again.
std::unordered_map<std::uintptr_t, std::uint32_t> g_entries;
std::vector<std::uint32_t> g_free;
struct sigaction g_previous;

void report(std::uint64_t session) {
  for (auto& slot : g_offenders) {
    std::uint64_t expected = 0;
    if (slot.load() == session || slot.compare_exchange_strong(expected, session)) return;
  }
}

bool patch(std::uintptr_t address) {
  const std::uint32_t used = g_used.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uintptr_t base = g_ranges[i].base.load(std::memory_order_acquire);
    if (base == 0 || address < base || address - base >= g_ranges[i].bytes.load()) continue;
    // The whole range: a part of it would need further mappings, of which none may be left (vm.max_map_count).
    if (::mmap(reinterpret_cast<void*>(base), g_ranges[i].bytes.load(), PROT_READ | PROT_WRITE,
               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      return false;
    }
    report(g_ranges[i].session.load());
    return true;
  }
  return false;
}

void on_sigbus(int, siginfo_t* info, void*) {
  if (patch(reinterpret_cast<std::uintptr_t>(info->si_addr))) return;
  // Not a guarded range: the instruction runs again, with the previous handler.
  ::sigaction(SIGBUS, &g_previous, nullptr);
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
  });
}

bool SigbusGuard::add(const void* base, std::size_t bytes, std::uint64_t session) {
  std::lock_guard lock(g_writers);
  const std::uint32_t used = g_used.load();
  if (g_free.empty() && used == kMaxRanges) return false;
  const std::uint32_t i = g_free.empty() ? used : g_free.back();
  g_entries.emplace(reinterpret_cast<std::uintptr_t>(base), i);
  g_free.reserve(g_entries.size() + g_free.size());  // so that remove() never allocates
  if (!g_free.empty()) g_free.pop_back();
  g_ranges[i].bytes.store(bytes);
  g_ranges[i].session.store(session);
  g_ranges[i].base.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
  g_used.store(std::max(used, i + 1), std::memory_order_release);
  return true;
}

void SigbusGuard::remove(const void* base) {
  std::lock_guard lock(g_writers);
  const auto entry = g_entries.find(reinterpret_cast<std::uintptr_t>(base));
  if (entry == g_entries.end()) return;
  g_ranges[entry->second].base.store(0, std::memory_order_release);
  g_free.push_back(entry->second);
  g_entries.erase(entry);
}

void SigbusGuard::revoke(std::uint64_t session) {
  // remove() comes before munmap(2), so what is in the table is mapped as long as the lock is held.
  std::lock_guard lock(g_writers);
  for (Range& range : std::span(g_ranges, g_used.load())) {
    const std::uintptr_t base = range.base.load();
    if (base == 0 || range.session.load() != session) continue;
    // A whole range is replaced without a further mapping, so this succeeds.
    static_cast<void>(::mmap(reinterpret_cast<void*>(base), range.bytes.load(), PROT_READ | PROT_WRITE,
                             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
}

std::uint64_t SigbusGuard::take_offender() {
  for (auto& slot : g_offenders) {
    if (const std::uint64_t session = slot.exchange(0)) return session;
  }
  return 0;
}

}  // namespace uroce::daemon
