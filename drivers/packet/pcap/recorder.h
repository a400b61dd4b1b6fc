// Takes the frames of all workers' Capture devices to a Sink, on a thread of its own. A worker only copies a frame
// into its ring; when the sink is too slow it drops the copy and counts it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "drivers/packet/fault/plan.h"
#include "drivers/packet/pcap/byte_ring.h"
#include "drivers/packet/pcap/filter.h"
#include "drivers/packet/pcap/record.h"
#include "drivers/packet/pcap/sink.h"

namespace uroce::pcap {

/// The frames of one worker. The worker calls add() and commit(), the recorder everything else.
class Tap {
 public:
  explicit Tap(const SharedFilter& filter) : shared_(filter) {}

  /// Copies those frames of a burst that the filter selects.
  void add(std::span<const base::Frame> frames, Direction direction, std::uint64_t time_ns);
  /// After add(): keeps those of `frames`, which are the first of that burst, with the marks that they have now.
  void commit(std::span<const base::Frame> frames);

 private:
  friend class Recorder;
  struct Added {
    std::uint64_t end;  ///< position in the ring after the frame
    std::byte* record;  ///< nullptr: it was not copied
  };
  std::byte* copy(const base::Frame& frame, Direction direction, std::uint64_t time_ns);

  ByteRing ring_;
  const SharedFilter& shared_;
  Filter filter_;
  std::uint32_t seen_ = ~0u;  // version of filter_
  std::uint64_t next_ = 0;
  std::vector<Added> added_;
  std::atomic<std::uint64_t> lost_{0};
};

class Recorder : public fault::LossObserver {
 public:
  explicit Recorder(std::string interface) : interface_(std::move(interface)) {}
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Begins a pcapng file with all frames. Returns an error that names the remedy; empty: recording.
  std::string start(const std::string& path);
  /// Begins a stream of records, whose reading end the caller gets. The capture ends with that end's last copy,
  /// too.
  std::string start(const Filter& filter, std::string_view filter_text, int& reader);
  /// Begins the end: what the rings hold is still written, which nobody waits for. An error when nothing runs.
  std::string stop();
  /// stop(), and waits for the end.
  void finish();

  /// Workers: the tap of worker `index` while recording, else nullptr. One load when off.
  Tap* tap(std::uint32_t index) const {
    // Pairs with the release in begin(): a tap is whole when it is seen.
    return on_.load(std::memory_order_acquire) && index < kTaps ? taps_[index].load(std::memory_order_acquire)
                                                                : nullptr;
  }
  /// Before the workers run: makes room for worker `index`.
  void expect(std::uint32_t index);

  /// Of worker `index`: the injector has dropped a frame that arrived.
  void lost(std::uint32_t index, const base::Frame& frame) override;

  std::vector<std::pair<std::string, std::string>> describe() const;

 private:
  static constexpr std::uint32_t kTaps = 64;

  std::string running() const;
  /// An error if there is no memory or no thread for it.
  std::string begin(std::unique_ptr<Sink> sink, const Filter& filter, std::string name);
  /// Those that a worker published after the end of the capture before.
  void forget_late_frames();
  void run();
  bool drain(bool& some);
  std::uint64_t lost_frames() const;

  std::string interface_;
  mutable std::mutex mutex_;
  std::string name_;
  std::unique_ptr<Sink> sink_;
  bool to_file_ = false;
  SharedFilter filter_;
  std::thread thread_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::uint32_t expected_ = 0;
  std::vector<std::unique_ptr<Tap>> owned_;
  std::atomic<Tap*> taps_[kTaps] = {};
  std::atomic<bool> on_{false};
  std::atomic<bool> ended_{true};        // the thread has nothing left to do but to close its sink
  std::atomic<bool> incomplete_{false};  // the last file did not take all
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace uroce::pcap
