#include "drivers/packet/dpdk/interrupts_held.h"

#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace uroce::dpdk {

InterruptsHeld::InterruptsHeld()
    : event_(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)),
      handle_(rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE)) {
  rte_intr_fd_set(handle_, event_);
  rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT);
  if (rte_intr_callback_register(handle_, on_interrupt, this) != 0) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(2), [this] { return held_; });
}

InterruptsHeld::~InterruptsHeld() {
  {
    std::lock_guard lock(mutex_);
    release_ = true;
  }
  changed_.notify_all();
  rte_intr_callback_unregister_sync(handle_, on_interrupt, this);
  rte_intr_instance_free(handle_);
  ::close(event_);
}

void InterruptsHeld::on_interrupt(void* self) {
  auto& held = *static_cast<InterruptsHeld*>(self);
  std::unique_lock lock(held.mutex_);
  std::uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(held.event_, &count, sizeof(count));
  held.held_ = true;
  held.changed_.notify_all();
  held.changed_.wait(lock, [&held] { return held.release_; });
}

}  // namespace uroce::dpdk
