#include "drivers/packet/dpdk/wake_channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace uroce::dpdk {
namespace {

// Bytes of the file whose locks have a meaning.
constexpr off_t kJoinLock = 1 << 20;  // held while a side joins or leaves
constexpr off_t side_lock(unsigned side) { return kJoinLock + 1 + static_cast<off_t>(side); }

struct flock byte_lock(short type, off_t at) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

void drain(int fd) {
  char bytes[64];
  while (::read(fd, bytes, sizeof(bytes)) == static_cast<ssize_t>(sizeof(bytes))) {
  }
}

}  // namespace

std::shared_ptr<WakeChannel> WakeChannel::open(const std::string& base, Side side, std::uint32_t queues,
                                               std::string& why) {
  std::shared_ptr<WakeChannel> channel(new WakeChannel(base, side));
  std::fill_n(channel->own_, kQueues, -1);
  std::fill_n(channel->peer_, kQueues, -1);
  if (queues > kQueues) {
    why = "more than " + std::to_string(kQueues) + " queues";
    return nullptr;
  }
  why = channel->join(queues);
  return why.empty() ? channel : nullptr;
}

std::string WakeChannel::fifo_path(unsigned side, std::uint32_t queue) const {
  return base_ + (side == 0 ? ".server" : ".client") + std::to_string(queue);
}

/// Opens and maps the file, with the join lock held when it succeeds.
std::string WakeChannel::map_file() {
  for (int attempt = 0; attempt < 16; ++attempt) {
    if (file_ >= 0) ::close(file_);
    file_ = ::open(base_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0) return failed(base_);
    struct flock lock = byte_lock(F_WRLCK, kJoinLock);
    if (::fcntl(file_, F_OFD_SETLKW, &lock) != 0) return failed(base_);
    struct stat opened {
    }, named{};
    if (::fstat(file_, &opened) != 0 || !S_ISREG(opened.st_mode)) return base_ + ": not a plain file";
    // The last side to leave removes the file: then others will open another one.
    if (::stat(base_.c_str(), &named) != 0 || named.st_ino != opened.st_ino) continue;
    if (::ftruncate(file_, sizeof(Shared)) != 0) return failed(base_);
    // A store into a page for which the file system has no room raises SIGBUS.
    if (const int error = ::posix_fallocate(file_, 0, sizeof(Shared)); error != 0) {
      errno = error;
      return failed(base_);
    }
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) return failed(base_);
    shared_ = static_cast<Shared*>(memory);
    return {};
  }
  return base_ + ": it comes and goes";
}

std::string WakeChannel::open_fifos(std::uint32_t queues) {
  for (unsigned side = 0; side < 2; ++side) {
    for (std::uint32_t queue = 0; queue < queues; ++queue) {
      const std::string path = fifo_path(side, queue);
      if (::mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) return failed(path);
      const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
      if (fd < 0) return failed(path);
      (side == static_cast<unsigned>(side_) ? own_ : peer_)[queue] = fd;
      struct stat status {};
      if (::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return path + ": not a FIFO";
    }
  }
  return {};
}

std::string WakeChannel::join(std::uint32_t queues) {
  if (std::string error = map_file(); !error.empty()) return error;
  const auto mine = static_cast<unsigned>(side_);
  struct flock own = byte_lock(F_WRLCK, side_lock(mine));
  if (::fcntl(file_, F_OFD_SETLK, &own) != 0) return base_ + ": another daemon has this end of the link";
  if (std::string error = open_fifos(queues); !error.empty()) return error;
  if (!peer_alive()) shared_->magic.store(kMagic, std::memory_order_release);
  if (shared_->magic.load(std::memory_order_acquire) != kMagic) return base_ + ": of another version";
  own_flags_ = shared_->flags[mine];
  peer_flags_ = shared_->flags[1 - mine];
  for (std::uint32_t queue = 0; queue < queues; ++queue) {
    own_flags_[queue].sleeping.store(0, std::memory_order_seq_cst);
    drain(own_[queue]);
  }
  joined_ = true;
  struct flock lock = byte_lock(F_UNLCK, kJoinLock);
  ::fcntl(file_, F_OFD_SETLK, &lock);
  return {};
}

WakeChannel::~WakeChannel() {
  if (joined_) {
    struct flock lock = byte_lock(F_WRLCK, kJoinLock);
    ::fcntl(file_, F_OFD_SETLKW, &lock);
    if (!peer_alive()) {  // the last side removes the files
      for (unsigned side = 0; side < 2; ++side) {
        for (std::uint32_t queue = 0; queue < kQueues; ++queue) ::unlink(fifo_path(side, queue).c_str());
      }
      ::unlink(base_.c_str());
    }
  }
  for (std::uint32_t queue = 0; queue < kQueues; ++queue) {
    if (own_[queue] >= 0) ::close(own_[queue]);
    if (peer_[queue] >= 0) ::close(peer_[queue]);
  }
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
  if (file_ >= 0) ::close(file_);
}

bool WakeChannel::peer_alive() const {
  struct flock lock = byte_lock(F_WRLCK, side_lock(1 - static_cast<unsigned>(side_)));
  return ::fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void WakeChannel::announce_sleep(std::uint32_t queue) {
  own_flags_[queue].sleeping.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
}

void WakeChannel::end_sleep(std::uint32_t queue) { own_flags_[queue].sleeping.store(0, std::memory_order_seq_cst); }

void WakeChannel::wake_peer(std::uint32_t queue) {
  if (peer_[queue] < 0 || peer_flags_[queue].sleeping.exchange(0, std::memory_order_seq_cst) == 0) return;
  const char byte = 1;
  // A full FIFO is not an error: a reader would wake anyway, and a dead peer has no reader.
  [[maybe_unused]] const ssize_t written = ::write(peer_[queue], &byte, 1);
}

ChannelWaker::ChannelWaker(std::shared_ptr<WakeChannel> channel, std::uint32_t queue)
    : channel_(std::move(channel)), queue_(queue), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const int fd : {nap_.fd(), channel_->fifo(queue_)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
}

ChannelWaker::~ChannelWaker() {
  if (epoll_ >= 0) ::close(epoll_);
}

void ChannelWaker::arm(bool quiet) {
  armed_ = true;
  channel_->announce_sleep(queue_);
  timed_ = !channel_->peer_alive();
  if (timed_) nap_.arm(quiet);
}

void ChannelWaker::disarm() {
  if (!armed_) return;
  armed_ = false;
  channel_->end_sleep(queue_);
  drain(channel_->fifo(queue_));  // also the byte of a peer that saw the last sleep's flag
  if (timed_) nap_.disarm();
}

}  // namespace uroce::dpdk
