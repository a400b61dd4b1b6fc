#include "drivers/packet/pcap/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>

#include "drivers/packet/fault/marks.h"

namespace uroce::pcap {
namespace {

constexpr std::size_t kFileBuffer = std::size_t{1} << 20;
constexpr auto kPause = std::chrono::milliseconds(2);

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

}  // namespace

std::byte* Tap::copy(const base::Frame& frame, Direction direction, std::uint64_t time_ns) {
  // A frame without payload was sent before the capture began.
  if ((frame.flags & base::kByReference) != 0 || !filter_.matches(frame, direction)) return nullptr;
  const std::uint32_t kept = std::min(frame.length, filter_.snaplen);
  const std::span<std::byte> room = ring_.reserve(next_, sizeof(Record) + kept);
  if (room.empty()) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const Record record{.time_ns = time_ns,
                      .length = frame.length,
                      .kept = kept,
                      .qpn = direction == Direction::kOutbound ? frame.sender & 0xffffff : 0,
                      .direction = direction};
  std::memcpy(room.data(), &record, sizeof(record));
  std::memcpy(room.data() + sizeof(record), frame.data, kept);
  if ((frame.flags & base::kIpChecksumNeeded) != 0) fix_checksum(room.data() + sizeof(record), kept);
  return room.data();
}

void Tap::add(std::span<const base::Frame> frames, Direction direction, std::uint64_t time_ns) {
  if (const std::uint32_t version = shared_.version(); version != seen_) {
    seen_ = version;
    filter_ = shared_.filter();
  }
  next_ = ring_.head();
  for (const base::Frame& frame : frames) {
    std::byte* const record = copy(frame, direction, time_ns);
    added_.push_back({next_, record});
  }
}

void Tap::commit(std::span<const base::Frame> frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::uint32_t marks = frames[i].flags & fault::kMarks;
    if (marks != 0 && added_[i].record != nullptr) {
      std::memcpy(added_[i].record + offsetof(Record, marks), &marks, sizeof marks);
    }
  }
  if (!frames.empty()) ring_.publish(added_[frames.size() - 1].end);
  added_.clear();
}

Recorder::~Recorder() { finish(); }

void Recorder::expect(std::uint32_t index) {
  std::lock_guard lock(mutex_);
  expected_ = std::max(expected_, std::min(index + 1, kTaps));
}

std::string Recorder::running() const {
  return ended_.load(std::memory_order_acquire) ? "" : "a capture to " + name_ + " is running: stop it first";
}

std::string Recorder::start(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (std::string problem = running(); !problem.empty()) return problem;
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr)
    return "can't write " + path + " (" + std::strerror(errno) + "): give a file that can be written";
  to_file_ = true;
  std::setvbuf(file, nullptr, _IOFBF, kFileBuffer);
  return begin(std::make_unique<FileSink>(file, InterfaceText{.name = interface_, .program = "uroced"}), {}, path);
}

std::string Recorder::start(const Filter& filter, std::string_view filter_text, int& reader) {
  std::lock_guard lock(mutex_);
  if (std::string problem = running(); !problem.empty()) return problem;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::string("no pipe for the capture: ") + std::strerror(errno);
  to_file_ = false;
  std::string problem = begin(std::make_unique<PipeSink>(ends[1], stopping_), filter,
                              filter_text.empty() ? "urocectl" : "urocectl (" + std::string(filter_text) + ")");
  if (problem.empty()) {
    reader = ends[0];
  } else {
    ::close(ends[0]);
  }
  return problem;
}

std::string Recorder::begin(std::unique_ptr<Sink> sink, const Filter& filter, std::string name) {
  if (thread_.joinable()) thread_.join();  // it closes its sink, at most
  sink_ = std::move(sink);
  name_ = std::move(name);
  filter_.set(filter);
  written_.store(0, std::memory_order_relaxed);
  stopping_.store(false);
  incomplete_.store(false);
  try {
    while (owned_.size() < expected_) {
      owned_.push_back(std::make_unique<Tap>(filter_));
      taps_[owned_.size() - 1].store(owned_.back().get(), std::memory_order_release);
    }
    forget_late_frames();
    ended_.store(false);
    on_.store(true, std::memory_order_release);
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& error) {
    on_.store(false, std::memory_order_release);
    ended_.store(true);
    sink_.reset();
    return std::string("no memory or no thread for the capture (") + error.what() + "); end other programs";
  }
  return {};
}

void Recorder::forget_late_frames() {
  for (const auto& tap : owned_) {
    while (!tap->ring_.front().empty()) tap->ring_.pop();  // frames that came too late for the previous capture
    tap->lost_.store(0, std::memory_order_relaxed);
  }
}

std::string Recorder::stop() {
  std::lock_guard lock(mutex_);
  if (ended_.load(std::memory_order_acquire)) return "no capture is running";
  on_.store(false, std::memory_order_release);
  stopping_.store(true);
  wake_.notify_all();
  return {};
}

void Recorder::finish() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void Recorder::run() {
  bool taken = true;
  while (taken && !stopping_.load()) {
    bool some = false;
    taken = drain(some) && (some || sink_->flush());
    std::unique_lock lock(mutex_);
    if (taken && !some) wake_.wait_for(lock, kPause, [this] { return stopping_.load(); });
  }
  on_.store(false, std::memory_order_release);
  bool some = false;
  const bool all = taken && drain(some) && sink_->end(lost_frames());
  incomplete_.store(to_file_ && !all);            // the reader of a pipe may leave
  ended_.store(true, std::memory_order_release);  // before a reader sees the end, and starts another capture
  sink_.reset();
}

bool Recorder::drain(bool& some) {
  for (const auto& tap : owned_) {
    for (std::span<const std::byte> bytes = tap->ring_.front(); !bytes.empty(); bytes = tap->ring_.front()) {
      Record record;
      std::memcpy(&record, bytes.data(), sizeof(record));
      record.lost = lost_frames();
      if (!sink_->packet(record, bytes.subspan(sizeof record))) return false;
      tap->ring_.pop();
      written_.fetch_add(1, std::memory_order_relaxed);
      some = true;
    }
  }
  return true;
}

void Recorder::lost(std::uint32_t index, const base::Frame& frame) {
  Tap* const tap = this->tap(index);
  if (tap == nullptr) return;
  base::Frame marked = frame;
  marked.flags |= fault::kMarkDropped;
  tap->add(std::span(&marked, 1), Direction::kInbound, realtime_ns());
  tap->commit(std::span(&marked, 1));
}

std::uint64_t Recorder::lost_frames() const {
  std::uint64_t lost = 0;
  for (const auto& tap : owned_) lost += tap->lost_.load(std::memory_order_relaxed);
  return lost;
}

std::vector<std::pair<std::string, std::string>> Recorder::describe() const {
  std::lock_guard lock(mutex_);
  const bool on = on_.load(std::memory_order_relaxed);
  return {{"capture", on                   ? name_
                      : incomplete_.load() ? "off: not all could be written to " + name_
                                           : "off"},
          {"capture_written", std::to_string(written_.load(std::memory_order_relaxed))},
          {"capture_dropped", std::to_string(lost_frames())}};
}

}  // namespace uroce::pcap
