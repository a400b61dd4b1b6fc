// Writes the frames of all workers' Capture devices to one pcapng file (draft-ietf-opsawg-pcapng) on a thread of
// its own. A worker only copies a frame into its ring; when the disk is too slow it drops the copy and counts it in
// the file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "drivers/packet/pcap/byte_ring.h"

namespace uroce::pcap {

enum class Direction : std::uint32_t { kInbound = 1, kOutbound = 2 };  ///< bits of epb_flags

/// The frames of one worker. The worker calls add() and commit(), the recorder everything else.
class Tap {
 public:
  /// Copies a frame. It is written once commit() has been called with the number of frames since the last commit.
  void add(const base::Frame& frame, Direction direction, std::uint64_t time_ns);
  /// Keeps the first `frames` of those added, forgets the others.
  void commit(std::size_t frames);

 private:
  friend class Recorder;
  ByteRing ring_;
  std::uint64_t next_ = 0;
  std::vector<std::uint64_t> ends_;  // position after each frame that was added
  std::atomic<std::uint64_t> dropped_{0};
};

class Recorder {
 public:
  explicit Recorder(std::string interface) : interface_(std::move(interface)) {}
  ~Recorder() { stop(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Begins a file. Returns an error that names the remedy; empty: recording.
  std::string start(const std::string& path);
  /// The same into an open file, which it closes at the end and on an error.
  std::string start(int file, const std::string& path);
  /// Ends it; an error when not all could be written.
  std::string stop();

  /// Workers: the tap of worker `index` while recording, else nullptr. One load when off.
  Tap* tap(std::uint32_t index) const {
    // Pairs with the release in start(): a tap is whole when it is seen.
    return on_.load(std::memory_order_acquire) && index < kTaps ? taps_[index].load(std::memory_order_acquire)
                                                                : nullptr;
  }
  /// Before the workers run: makes room for worker `index`.
  void expect(std::uint32_t index);

  std::vector<std::pair<std::string, std::string>> describe() const;

 private:
  static constexpr std::uint32_t kTaps = 64;

  std::string begin(std::FILE* file, const std::string& path);
  void run();
  bool drain();
  void write_header();
  void write_packet(std::span<const std::byte> record);
  void write_statistics();

  std::string interface_;
  mutable std::mutex mutex_;
  std::string path_;
  std::FILE* file_ = nullptr;
  std::thread thread_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::uint32_t expected_ = 0;
  std::vector<std::unique_ptr<Tap>> owned_;
  std::atomic<Tap*> taps_[kTaps] = {};
  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace uroce::pcap
