// Data of streams: sent through the send buffer into the peer's targets, received from the receive buffer, and
// written directly into the peer's mappings (riowrite).
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rsocket/stream.h"

namespace uroce::rdmacm {
namespace {

// The size of work requests doubles from the first on, so that the transfer begins while the rest is copied.
constexpr std::uint32_t kFirstChunk = 2048, kMostChunk = 65536;
// Received bytes are copied in parts, so that the peer gets credits back earlier.
constexpr std::size_t kCopyChunk = 65536;
constexpr std::uint32_t kMostInline = 512;

std::uint32_t next_chunk(std::size_t left, std::uint32_t& chunk) {
  if (left <= chunk) return static_cast<std::uint32_t>(left);
  return std::exchange(chunk, std::min(chunk * 2, kMostChunk));
}

}  // namespace

int Stream::await_room(std::unique_lock<std::mutex>& lock, bool nonblock) {
  if (writable_ && flow_.can_send()) return 0;
  const auto over = [this] { return flow_.can_send() || !writable_; };
  if (const int failed = wait(lock, nonblock, over)) return failed;
  return writable_ ? 0 : send_error();
}

// Copies and posts the data of `w`. The lock is released during the copy.
int Stream::post_copied(BufferCursor& cursor, const StreamFlow::Write& w, std::unique_lock<std::mutex>& lock,
                        bool with_imm) {
  std::byte* const buffer = endpoint_.send_buffer();
  lock.unlock();
  cursor.copy_out(buffer + w.source.offset, w.source.first);
  cursor.copy_out(buffer, w.source.second);
  lock.lock();
  if (state_ != State::kConnected) return send_error();
  return endpoint_.post(w, with_imm);
}

int Stream::post_data(BufferCursor& cursor, std::uint32_t length, std::unique_lock<std::mutex>& lock) {
  const bool inline_data = length <= std::min(endpoint_.config().inline_size, kMostInline);
  const StreamFlow::Write w = flow_.send(length, inline_data);
  if (!inline_data) return post_copied(cursor, w, lock, true);
  std::array<std::byte, kMostInline> data;
  cursor.copy_out(data.data(), length);
  return endpoint_.post_inline(w, data.data(), length, true);
}

ssize_t Stream::send(const Buffers& from, int flags, const sockaddr* to, socklen_t) {
  if (to != nullptr) return -EISCONN;
  const bool nonblock = nonblocking(flags);
  const std::size_t total = from.total();
  const std::lock_guard sending(send_mutex_);
  std::unique_lock lock(mutex_);
  if (const int failed = await_connection(lock, nonblock)) return failed;
  if (mappings_to_announce_) {
    if (const int failed = announce_mappings(lock, nonblock)) return failed;
  }
  BufferCursor cursor(from);
  std::uint32_t chunk = kFirstChunk;
  std::size_t sent = 0;
  while (sent < total) {
    int failed = await_room(lock, nonblock);
    if (failed == 0) {
      const std::uint32_t length = std::min(next_chunk(total - sent, chunk), flow_.room());
      failed = post_data(cursor, length, lock);
      if (failed == 0) sent += length;
    }
    if (failed != 0) return sent > 0 ? static_cast<ssize_t>(sent) : failed;
  }
  return static_cast<ssize_t>(sent);
}

ssize_t Stream::receive(const Buffers& to, int flags, sockaddr* from, socklen_t* from_length) {
  const bool nonblock = nonblocking(flags);
  const std::size_t total = to.total();
  const std::lock_guard receiving(receive_mutex_);
  std::unique_lock lock(mutex_);
  if (const int failed = await_connection(lock, nonblock)) return failed;
  if (from != nullptr && from_length != nullptr) copy_address(rdma_get_peer_addr(id_), from, from_length);
  BufferCursor cursor(to);
  std::size_t got = 0;
  int failed = 0;
  while (got < total) {
    // Polling the CQ may add data, so that the call returns more at once.
    if (flow_.readable() < total - got) progress();
    if (flow_.readable() == 0) {
      if (got > 0 && (flags & MSG_WAITALL) == 0) break;
      failed = wait(lock, nonblock, [this] { return flow_.readable() > 0 || !readable_; });
      if (failed != 0) break;
      if (flow_.readable() == 0) {
        if (state_ == State::kFailed) failed = -failure_;
        break;
      }
    }
    const bool peek = (flags & MSG_PEEK) != 0;
    const auto part = flow_.peek(0, peek ? total : std::min(total - got, kCopyChunk));
    const std::byte* const buffer = endpoint_.receive_buffer();
    lock.unlock();
    cursor.copy_in(buffer + part.offset, part.first);
    cursor.copy_in(buffer, part.second);
    lock.lock();
    got += part.total();
    if (state_ == State::kClosed) return -EBADF;
    if (peek) break;
    flow_.consume(part.total());
    send_updates();
  }
  return got > 0 ? static_cast<ssize_t>(got) : failed;
}

off_t Stream::map(void* buffer, std::size_t length, int protection, off_t offset) {
  const std::lock_guard lock(mutex_);
  if (!endpoint_.exists() || (protection & ~PROT_WRITE) != 0) return -EINVAL;
  const bool remote = (protection & PROT_WRITE) != 0;
  int index = -1;
  if (remote) {
    const auto taken = [&](int i) {
      return std::any_of(mappings_.begin(), mappings_.end(), [&](const Mapping& m) { return m.index == i; });
    };
    for (index = 0; taken(index);) ++index;
    if (static_cast<std::uint32_t>(index) >= peer_iomap_entries_) return -ENOMEM;
  }
  const int access = IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0);
  ibv_mr* mr = ibv_reg_mr(endpoint_.pd(), buffer, length, access);
  if (mr == nullptr) return -errno;
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(buffer));
  mappings_.push_back({mr, buffer, length, offset, index, !remote});
  mappings_to_announce_ = mappings_to_announce_ || remote;
  return offset;
}

int Stream::unmap(void* buffer, std::size_t length) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(mappings_.begin(), mappings_.end(),
                               [&](const Mapping& m) { return m.buffer == buffer && m.length == length; });
  if (at == mappings_.end()) return -EINVAL;
  if (const int failed = ibv_dereg_mr(at->mr)) return -failed;
  mappings_.erase(at);
  return 0;
}

void Stream::drop_mappings() {
  for (const Mapping& m : mappings_) ibv_dereg_mr(m.mr);
  mappings_.clear();
}

// Writes the entries of new mappings into the peer's list, before data that is sent after riomap().
int Stream::announce_mappings(std::unique_lock<std::mutex>& lock, bool nonblock) {
  while (true) {
    if (const int failed = await_room(lock, nonblock)) return failed;
    const auto at = std::find_if(mappings_.begin(), mappings_.end(), [](const Mapping& m) { return !m.announced; });
    if (at == mappings_.end()) break;
    at->announced = true;
    IomapEntry entry{
        static_cast<std::uint64_t>(at->offset),
        {reinterpret_cast<std::uint64_t>(at->buffer), at->mr->rkey, static_cast<std::uint32_t>(at->length)}};
    if (swap_) entry = swapped(entry);
    const auto index = static_cast<std::uint32_t>(at->index);
    const bool inline_data = endpoint_.config().inline_size >= sizeof(entry);
    StreamFlow::Write w = flow_.send_iomap(index, sizeof(entry), inline_data);
    w.remote_addr = peer_list_.addr + peer_list_.length * sizeof(Target) + index * sizeof(IomapEntry);
    w.key = peer_list_.key;
    int failed = 0;
    if (inline_data) {
      failed = endpoint_.post_inline(w, &entry, sizeof(entry), true);
    } else {
      const iovec vector{&entry, sizeof(entry)};
      const Buffers from{&vector, 1};
      BufferCursor cursor(from);
      failed = post_copied(cursor, w, lock, true);
    }
    if (failed != 0) return failed;
  }
  mappings_to_announce_ = false;
  return 0;
}

// The rest of the peer's mapping that contains `offset`. False: there is none.
bool Stream::find_target(std::uint64_t offset, Target& rest) const {
  const volatile IomapEntry* entries = endpoint_.iomap();
  for (std::uint32_t i = 0; i < endpoint_.config().iomap_entries; ++i) {
    IomapEntry e{entries[i].offset, {entries[i].target.addr, entries[i].target.key, entries[i].target.length}};
    // Entries are in the local byte order: the peer swaps them.
    if (offset < e.offset || offset - e.offset >= e.target.length) continue;
    const std::uint64_t skip = offset - e.offset;
    rest = {e.target.addr + skip, e.target.key, static_cast<std::uint32_t>(e.target.length - skip)};
    return true;
  }
  return false;
}

ssize_t Stream::write_at(const void* from, std::size_t length, off_t offset, int flags) {
  const bool nonblock = nonblocking(flags);
  const std::lock_guard sending(send_mutex_);
  std::unique_lock lock(mutex_);
  if (const int failed = await_connection(lock, nonblock)) return failed;
  if (mappings_to_announce_) {
    if (const int failed = announce_mappings(lock, nonblock)) return failed;
  }
  progress();  // an entry is valid once its message was handled
  const iovec vector{const_cast<void*>(from), length};
  const Buffers buffers{&vector, 1};
  BufferCursor cursor(buffers);
  std::uint32_t chunk = kFirstChunk;
  std::size_t sent = 0;
  while (sent < length) {
    Target target;
    int failed = 0;
    if (!find_target(static_cast<std::uint64_t>(offset) + sent, target)) break;
    if (!flow_.can_write()) {
      failed = wait(lock, nonblock, [this] { return flow_.can_write() || !writable_; });
    }
    if (failed == 0 && !writable_) failed = send_error();
    if (failed == 0) {
      const std::uint32_t part = std::min({next_chunk(length - sent, chunk), flow_.write_room(), target.length});
      StreamFlow::Write w = flow_.write(part, false);
      w.remote_addr = target.addr;
      w.key = target.key;
      failed = post_copied(cursor, w, lock, false);
      if (failed == 0) sent += part;
    }
    if (failed != 0) return sent > 0 ? static_cast<ssize_t>(sent) : failed;
  }
  return static_cast<ssize_t>(sent);
}

}  // namespace uroce::rdmacm
