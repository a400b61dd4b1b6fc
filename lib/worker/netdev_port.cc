#include "worker/netdev_port.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "platform/log.h"
#include "platform/scheduling.h"

namespace uroce::worker {

NetdevPort::NetdevPort(net::Netdev& netdev, const wire::Mac& mac, std::uint32_t frame_bytes)
    : netdev_(netdev),
      mac_(mac),
      frame_bytes_(frame_bytes),
      to_kernel_(frame_bytes, kSlotsToKernel),
      from_kernel_(frame_bytes),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      read_(std::make_unique_for_overwrite<std::byte[]>(KernelFrame::kMost)) {}

bool NetdevPort::start(std::function<void()> wake) {
  if (!wake_fd_.valid()) return false;
  try {
    thread_ = std::thread([this, call = std::move(wake)] { run(call); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void NetdevPort::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_seq_cst);
  wake_thread();
  thread_.join();
}

// ---------------------------------------------------------------- the link worker

bool NetdevPort::is_own(std::span<const std::byte> frame) const {
  return frame.size() >= 2 * sizeof(wire::Mac) && wire::load_mac(frame.data() + sizeof(wire::Mac)) == mac_;
}

bool NetdevPort::deliver(std::span<const std::byte> frame) {
  const bool taken = to_kernel_.push(frame);
  if (taken && sleeping_.load(std::memory_order_seq_cst)) wake_thread();
  return taken;
}

std::size_t NetdevPort::next_frame(std::span<std::byte> to) {
  const std::span<const std::byte> frame = from_kernel_.front();
  const std::size_t bytes = frame.size() <= to.size() ? frame.size() : 0;
  if (frame.empty()) return 0;
  if (bytes != 0) std::memcpy(to.data(), frame.data(), bytes);
  from_kernel_.pop(std::memory_order_seq_cst);
  if (wants_room_.load(std::memory_order_seq_cst) && has_room()) wake_thread();
  return bytes;
}

void NetdevPort::wake_thread() {
  sleeping_.store(false, std::memory_order_relaxed);
  wants_room_.store(false, std::memory_order_relaxed);
  ::eventfd_write(wake_fd_.get(), 1);
}

// ---------------------------------------------------------------- the thread

void NetdevPort::run(const std::function<void()>& wake) {
  platform::name_thread("netdev");
  while (!stopping_.load(std::memory_order_relaxed)) {
    const bool wrote = write_burst();
    if (!read_burst(wake) && !wrote) sleep();
  }
}

bool NetdevPort::write_burst() {
  std::size_t count = 0;
  while (count < kBurst) {
    run_.clear();
    std::uint32_t next = 0;
    for (std::span<const std::byte> frame; !(frame = to_kernel_.peek(next)).empty() && run_.add(frame);) ++next;
    if (next == 0) break;
    // A frame that the kernel does not take, because the interface is down, is lost as on a wire.
    const std::span<const iovec> parts = run_.parts();
    const bool taken = !gone_ && ::writev(netdev_.fd(), parts.data(), static_cast<int>(parts.size())) > 0;
    if (!taken) lost_.fetch_add(next, std::memory_order_relaxed);
    if (!taken && !gone_ && errno == EBADFD) give_up();
    for (; next != 0; --next, ++count) to_kernel_.pop();
  }
  return count != 0;
}

bool NetdevPort::read_frame() {
  while (!gone_) {
    const ssize_t got = ::read(netdev_.fd(), read_.get(), KernelFrame::kMost);
    if (got < 0 && errno == EBADFD) give_up();
    if (got <= 0) return false;
    if (frame_.assign({read_.get(), static_cast<std::size_t>(got)})) return true;
  }
  return false;
}

bool NetdevPort::read_burst(const std::function<void()>& wake) {
  std::size_t count = 0;
  for (; count < kBurst && (frame_.left() != 0 || read_frame()); ++count) {
    const std::size_t bytes = frame_.next_bytes();
    const std::span<std::byte> room = from_kernel_.reserve(bytes);
    if (room.empty() && bytes <= frame_bytes_) break;
    if (room.empty()) {  // longer than the port's MTU: a program with a raw socket
      frame_ = {};
      lost_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    frame_.take(room);
    from_kernel_.commit(bytes);
    wake();
  }
  return count != 0;
}

void NetdevPort::give_up() {
  gone_ = true;
  platform::log(platform::LogLevel::kWarning,
                "the interface %s was deleted; the kernel has none for this port until a restart",
                netdev_.name().c_str());
}

void NetdevPort::sleep() {
  sleeping_.store(true, std::memory_order_seq_cst);
  const bool held = frame_.left() != 0;
  wants_room_.store(held, std::memory_order_seq_cst);
  const bool waits = !held || !has_room();
  if (waits && to_kernel_.empty() && !stopping_.load(std::memory_order_seq_cst)) {
    // After a held frame, no other is read.
    pollfd wait[2] = {{wake_fd_.get(), POLLIN, 0}, {!held && !gone_ ? netdev_.fd() : -1, POLLIN, 0}};
    ::poll(wait, 2, -1);
    eventfd_t count = 0;
    if ((wait[0].revents & POLLIN) != 0) ::eventfd_read(wake_fd_.get(), &count);
  }
  sleeping_.store(false, std::memory_order_relaxed);
  wants_room_.store(false, std::memory_order_relaxed);
}

}  // namespace uroce::worker
