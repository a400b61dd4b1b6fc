#include "drivers/packet/dpdk/link_keeper.h"

#include <pthread.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace uroce::dpdk {
namespace {

constexpr long kHoldMs = 100;        // until the loss of a peer is noticed
constexpr long kDownMs = 10;         // between checks while the link is down
constexpr long kReconnectMs = 100;   // until an absent server is tried again
constexpr long kHandshakeMs = 1000;  // for a server that was reached to complete the handshake

/// All keepers of the process.
struct Registry {
  std::mutex mutex;
  std::vector<LinkKeeper*> keepers;
};
Registry& registry() {
  static Registry all;
  return all;
}

void pause_us(long microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

}  // namespace

LinkKeeper::LinkKeeper(std::uint16_t port, bool client, DriverGate& keeper, std::vector<Gate*> gates,
                       std::function<void(bool up)> on_change)
    : port_(port),
      client_(client),
      keeper_(keeper),
      gates_(std::move(gates)),
      on_change_(std::move(on_change)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      handle_(rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE)) {
  keeper_.closed.store(true, std::memory_order_seq_cst);
  rte_intr_fd_set(handle_, event_);
  rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT);
  {
    std::lock_guard all(registry().mutex);
    registry().keepers.push_back(this);
  }
  rte_intr_callback_register(handle_, on_interrupt, this);
  thread_ = std::thread([this] { run(); });
}

LinkKeeper::~LinkKeeper() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  rte_intr_callback_unregister_sync(handle_, on_interrupt, this);
  rte_intr_instance_free(handle_);
  ::close(event_);
  std::lock_guard all(registry().mutex);
  std::erase(registry().keepers, this);
  keeper_.up.store(false, std::memory_order_relaxed);
  close_gate();
}

void LinkKeeper::on_interrupt(void* self) { static_cast<LinkKeeper*>(self)->hold(); }

void LinkKeeper::wait(std::unique_lock<std::mutex>& lock, long milliseconds) {
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [this] { return stop_; });
}

bool LinkKeeper::link_up() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/// Runs on the interrupt thread and keeps it from handling anything else. The event stays readable while the link
/// is up, so all other events are handled between two calls, with all gates closed. All ports of the process share
/// this thread; therefore each keeper's event opens the gates of all.
void LinkKeeper::hold() {
  std::unique_lock lock(mutex_);
  bool any = false;
  {
    std::lock_guard all(registry().mutex);
    for (LinkKeeper* keeper : registry().keepers) {
      if (!keeper->link_up()) continue;
      keeper->keeper_.up.store(true, std::memory_order_relaxed);
      keeper->keeper_.closed.store(false, std::memory_order_seq_cst);
      any = true;
    }
  }
  if (stop_ || !any || !link_up()) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t n = ::read(event_, &count, sizeof(count));
  } else {
    wait(lock, kHoldMs);
  }
  std::lock_guard all(registry().mutex);
  for (LinkKeeper* keeper : registry().keepers) keeper->close_gate();
}

void LinkKeeper::close_gate() {
  keeper_.closed.store(true, std::memory_order_seq_cst);
  for (Gate* gate : gates_) {
    for (int looks = 0; gate->inside.load(std::memory_order_seq_cst); ++looks) {
      if (looks > 100) pause_us(5);
    }
  }
}

void LinkKeeper::run() {
  ::pthread_setname_np(::pthread_self(), "link-keeper");
  bool was_up = false;
  long until_retry = 0;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool up = link_up();
    if (!up) keeper_.up.store(false, std::memory_order_relaxed);
    if (up != was_up && on_change_) on_change_(up);
    was_up = up;
    if (up) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(event_, &one, sizeof(one));
    } else if (client_ && (until_retry -= kDownMs) <= 0) {
      until_retry = reconnect() ? kHandshakeMs : kReconnectMs;
    }
    wait(lock, up ? kHoldMs : kDownMs);
  }
}

/// Called while the link is down and therefore the gate closed. True: the server accepted the connection.
bool LinkKeeper::reconnect() {
  rte_eth_dev_stop(port_);
  return rte_eth_dev_start(port_) == 0;
}

}  // namespace uroce::dpdk
