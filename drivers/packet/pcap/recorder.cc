#include "drivers/packet/pcap/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

namespace uroce::pcap {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kEnhancedPacket = 6, kStatistics = 5;
constexpr std::size_t kFileBuffer = std::size_t{1} << 20;
constexpr auto kPause = std::chrono::milliseconds(2);

/// Header of a frame in the ring.
struct Record {
  std::uint64_t time_ns;
  std::uint32_t direction;
  std::uint32_t length;
};

/// One block of the file, assembled in memory.
class Block {
 public:
  explicit Block(std::uint32_t type) {
    u32(type);
    u32(0);  // its length, at the end
  }
  Block& u16(std::uint16_t value) { return raw(&value, sizeof(value)); }
  Block& u32(std::uint32_t value) { return raw(&value, sizeof(value)); }
  Block& u64(std::uint64_t value) { return raw(&value, sizeof(value)); }
  Block& raw(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
    return *this;
  }
  Block& pad() {
    bytes_.resize((bytes_.size() + 3) / 4 * 4);
    return *this;
  }
  Block& option(std::uint16_t code, const void* data, std::size_t bytes) {
    return u16(code).u16(static_cast<std::uint16_t>(bytes)).raw(data, bytes).pad();
  }
  void write(std::FILE* file) {
    u32(0);  // end of options
    const auto length = static_cast<std::uint32_t>(bytes_.size() + 4);
    u32(length);
    std::memcpy(bytes_.data() + 4, &length, sizeof(length));
    std::fwrite(bytes_.data(), 1, bytes_.size(), file);
  }

 private:
  std::vector<char> bytes_;
};

Block& timestamp(Block& block, std::uint64_t time_ns) {
  return block.u32(static_cast<std::uint32_t>(time_ns >> 32)).u32(static_cast<std::uint32_t>(time_ns));
}

/// Fills in the IPv4 header checksum, which the port would fill in.
void fix_checksum(std::byte* frame, std::size_t bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(frame[i]); };
  const std::size_t ip = bytes >= 18 && at(12) == 0x81 && at(13) == 0 ? 18 : 14;
  if (bytes < ip + 20 || at(ip) != 0x45) return;
  frame[ip + 10] = frame[ip + 11] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = ip; i < ip + 20; i += 2) sum += at(i) << 8 | at(i + 1);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~(sum + (sum >> 16));
  frame[ip + 10] = static_cast<std::byte>(sum >> 8 & 0xff);
  frame[ip + 11] = static_cast<std::byte>(sum & 0xff);
}

std::uint64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void Tap::add(const base::Frame& frame, Direction direction, std::uint64_t time_ns) {
  if (ends_.empty()) next_ = ring_.head();
  const std::span<std::byte> room = ring_.reserve(next_, sizeof(Record) + frame.length);
  if (room.empty()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  } else {
    const Record record{time_ns, static_cast<std::uint32_t>(direction), frame.length};
    std::memcpy(room.data(), &record, sizeof(record));
    std::memcpy(room.data() + sizeof(record), frame.data, frame.length);
    if ((frame.flags & base::kIpChecksumNeeded) != 0) fix_checksum(room.data() + sizeof(record), frame.length);
  }
  ends_.push_back(next_);
}

void Tap::commit(std::size_t frames) {
  if (frames != 0) ring_.publish(ends_[frames - 1]);
  ends_.clear();
}

void Recorder::expect(std::uint32_t index) {
  std::lock_guard lock(mutex_);
  expected_ = std::max(expected_, std::min(index + 1, kTaps));
}

std::string Recorder::start(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) return "a capture to " + path_ + " is running: stop it first";
  return begin(std::fopen(path.c_str(), "wbe"), path);
}

std::string Recorder::start(int descriptor, const std::string& path) {
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) {
    ::close(descriptor);
    return "a capture to " + path_ + " is running: stop it first";
  }
  std::FILE* const file = ::fdopen(descriptor, "wb");
  const int error = errno;
  if (file == nullptr) ::close(descriptor);
  errno = error;
  return begin(file, path);
}

std::string Recorder::begin(std::FILE* file, const std::string& path) {
  if (file == nullptr)
    return "can't write " + path + " (" + std::strerror(errno) + "): give a file that can be written";
  std::setvbuf(file, nullptr, _IOFBF, kFileBuffer);
  file_ = file;
  path_ = path;
  written_.store(0, std::memory_order_relaxed);
  write_header();
  while (owned_.size() < expected_) {
    owned_.push_back(std::make_unique<Tap>());
    taps_[owned_.size() - 1].store(owned_.back().get(), std::memory_order_release);
  }
  for (const auto& tap : owned_) {
    while (!tap->ring_.front().empty()) tap->ring_.pop();  // frames that came too late for the previous file
    tap->dropped_.store(0, std::memory_order_relaxed);
  }
  stopping_ = false;
  on_.store(true, std::memory_order_release);
  thread_ = std::thread([this] { run(); });
  return {};
}

std::string Recorder::stop() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return "no capture is running";
  on_.store(false, std::memory_order_release);
  stopping_ = true;
  wake_.notify_all();
  lock.unlock();
  thread_.join();
  lock.lock();
  thread_ = {};
  write_statistics();
  const bool bad = std::ferror(file_) != 0;
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  return bad || !closed ? "not all could be written to " + path_ + ": is the disk full?" : "";
}

void Recorder::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const bool some = drain();
    if (!some) std::fflush(file_);
    lock.lock();
    if (!some) wake_.wait_for(lock, kPause, [this] { return stopping_; });
  }
  lock.unlock();
  drain();
}

bool Recorder::drain() {
  bool some = false;
  for (const auto& tap : owned_) {
    for (std::span<const std::byte> record = tap->ring_.front(); !record.empty(); record = tap->ring_.front()) {
      write_packet(record);
      tap->ring_.pop();
      some = true;
    }
  }
  return some;
}

void Recorder::write_header() {
  static constexpr char kProgram[] = "uroced";
  Block(kSectionHeader).u32(0x1a2b3c4d).u16(1).u16(0).u64(~std::uint64_t{0}).option(4, kProgram, 6).write(file_);
  const std::uint8_t nanoseconds = 9;
  Block(kInterface)
      .u16(1)  // Ethernet
      .u16(0)
      .u32(0)
      .option(2, interface_.data(), interface_.size())
      .option(9, &nanoseconds, 1)
      .write(file_);
}

void Recorder::write_packet(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof(record));
  Block block(kEnhancedPacket);
  block.u32(0);
  timestamp(block, record.time_ns).u32(record.length).u32(record.length);
  block.raw(bytes.data() + sizeof(record), record.length).pad().option(2, &record.direction, 4).write(file_);
  written_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::write_statistics() {
  std::uint64_t dropped = 0;
  for (const auto& tap : owned_) dropped += tap->dropped_.load(std::memory_order_relaxed);
  const std::uint64_t received = written_.load(std::memory_order_relaxed) + dropped;
  Block block(kStatistics);
  block.u32(0);
  timestamp(block, realtime_ns()).option(4, &received, 8).option(5, &dropped, 8).write(file_);
}

std::vector<std::pair<std::string, std::string>> Recorder::describe() const {
  std::lock_guard lock(mutex_);
  const bool on = on_.load(std::memory_order_relaxed);
  std::uint64_t dropped = 0;
  for (const auto& tap : owned_) dropped += tap->dropped_.load(std::memory_order_relaxed);
  return {{"capture", on ? path_ : "off"},
          {"capture_written", std::to_string(written_.load(std::memory_order_relaxed))},
          {"capture_dropped", std::to_string(dropped)}};
}

}  // namespace uroce::pcap
