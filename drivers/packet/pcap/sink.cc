#include "drivers/packet/pcap/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace uroce::pcap {
namespace {

constexpr std::size_t kBatch = std::size_t{256} << 10;
constexpr int kPipeBytes = 1 << 20;
constexpr int kPatienceMs = 100;
constexpr int kLooksAtTheEnd = 20;  // that long a reader may take nothing once the capture ends

}  // namespace

bool FileSink::packet(const Record& record, std::span<const std::byte> bytes) {
  writer_.packet(record, bytes, remarks_.about(record, bytes));
  return std::ferror(file_) == 0;
}

bool FileSink::flush() { return std::fflush(file_) == 0; }

bool FileSink::end(std::uint64_t lost) {
  writer_.end(lost);
  return std::fflush(file_) == 0 && std::ferror(file_) == 0;
}

PipeSink::PipeSink(int pipe, const std::atomic<bool>& stopping) : pipe_(pipe), stopping_(stopping) {
  ::fcntl(pipe_, F_SETFL, O_NONBLOCK);
  ::fcntl(pipe_, F_SETPIPE_SZ, kPipeBytes);  // less where the user's limit is reached
  buffer_.reserve(2 * kBatch);
}

PipeSink::~PipeSink() { ::close(pipe_); }

void PipeSink::add(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
}

bool PipeSink::packet(const Record& record, std::span<const std::byte> bytes) {
  add(&record, sizeof record);
  add(bytes.data(), bytes.size());
  return buffer_.size() < kBatch || flush();
}

bool PipeSink::flush() {
  std::size_t written = 0;
  int looks = 0;
  while (written < buffer_.size()) {
    const ssize_t n = ::write(pipe_, buffer_.data() + written, buffer_.size() - written);
    if (n >= 0) {
      written += static_cast<std::size_t>(n);
      looks = 0;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd writable{pipe_, POLLOUT, 0};
    ::poll(&writable, 1, kPatienceMs);
    if (stopping_.load(std::memory_order_relaxed) && ++looks > kLooksAtTheEnd) return false;
  }
  buffer_.clear();
  pollfd reader{pipe_, 0, 0};
  return ::poll(&reader, 1, 0) == 0;  // POLLERR: it has no reader left
}

bool PipeSink::end(std::uint64_t lost) {
  Record last;
  last.end = 1;
  last.lost = lost;
  add(&last, sizeof last);
  return flush();
}

}  // namespace uroce::pcap
