#include "trace.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "daemon_client.h"
#include "drivers/packet/pcap/filter.h"
#include "drivers/packet/pcap/record.h"
#include "platform/unique_fd.h"
#include "stop_signal.h"
#include "trace_output.h"

namespace uroce::ctl {
namespace {

/// The records that the daemon writes into its pipe.
class Stream {
 public:
  enum class Read : std::uint8_t { kSome, kNothing, kEnd };

  explicit Stream(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  /// Waits 100 ms at most.
  Read read() {
    pollfd readable{pipe_.get(), POLLIN, 0};
    if (poll(&readable, 1, 100) <= 0) return Read::kNothing;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
    const std::size_t before = bytes_.size();
    bytes_.resize(before + kBatch);
    const ssize_t n = ::read(pipe_.get(), bytes_.data() + before, kBatch);
    bytes_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0) return errno == EINTR ? Read::kNothing : Read::kEnd;
    return n == 0 ? Read::kEnd : Read::kSome;
  }

  /// The next whole record; its bytes are valid until read().
  bool next(pcap::Record& record, std::span<const std::byte>& frame) {
    const std::size_t there = bytes_.size() - at_;
    if (there < sizeof record) return false;
    std::memcpy(&record, bytes_.data() + at_, sizeof record);
    if (record.kept > pcap::Filter::kMostSnaplen || record.kept > record.length) {
      fail(1, "the trace has another format: daemon and urocectl must be of the same build");
    }
    if (there < sizeof record + record.kept) return false;
    frame = std::span(bytes_).subspan(at_ + sizeof record, record.kept);
    at_ += sizeof record + record.kept;
    return true;
  }

 private:
  static constexpr std::size_t kBatch = std::size_t{1} << 20;
  UniqueFd pipe_;
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

class Trace {
 public:
  Trace(const Options& options, const std::string& device, UniqueFd pipe)
      : options_(options), device_(device), stream_(std::move(pipe)), output_(make_output(options, device)) {}

  int run() {
    stop_on_signal();
    if (!options_.quiet) {
      std::fprintf(stderr, "%s: tracing to %s; Ctrl-C ends it\n", device_.c_str(), output_->name().c_str());
    }
    while (take()) {
      const int signals = g_stop.load();
      if (signals > 1) break;
      if (signals == 1 && !std::exchange(stopped_, true)) stop();
      show_progress();
    }
    return report();
  }

 private:
  /// What has arrived. False: that was all.
  bool take() {
    const Stream::Read read = stream_.read();
    pcap::Record record;
    std::span<const std::byte> frame;
    while (stream_.next(record, frame)) {
      lost_ = record.lost;
      whole_ = record.end != 0;
      if (whole_) return false;
      const bool takes = output_->takes(record);
      if (takes) output_->packet(record, frame);
      if (!takes || ++frames_ == options_.trace.count) {
        whole_ = true;
        stop();
        return false;
      }
    }
    output_->flush();
    return read != Stream::Read::kEnd;
  }

  void stop() {
    ask(options_.run_dir, device_, {{"command", "trace"}, {"stop", true}});  // it may have ended meanwhile
  }

  void show_progress() const {
    if (options_.quiet || isatty(STDERR_FILENO) == 0 || output_->is_text()) return;
    std::fprintf(stderr, "\r%llu frames ", static_cast<unsigned long long>(frames_));
  }

  int report() {
    output_->end(lost_);
    if (!options_.quiet) {
      std::fprintf(stderr, "%s%s: %llu frames in %s, %llu missing\n", isatty(STDERR_FILENO) != 0 ? "\r" : "",
                   device_.c_str(), static_cast<unsigned long long>(frames_), output_->name().c_str(),
                   static_cast<unsigned long long>(lost_));
    }
    if (!whole_ && g_stop.load() == 0) fail(1, device_ + ": the daemon has ended");
    if (lost_ == 0) return 0;
    std::fprintf(
        stderr,
        "urocectl: frames passed faster than they were written; trace fewer, with a filter such as op=ACK, or "
        "less of each, with --snaplen 96\n");
    return 3;
  }

  const Options& options_;
  std::string device_;
  Stream stream_;
  std::unique_ptr<TraceOutput> output_;
  std::uint64_t frames_ = 0, lost_ = 0;
  bool stopped_ = false, whole_ = false;
};

}  // namespace

int trace(const Options& options, const std::string& device) {
  if (options.argument == "stop") {
    const Answer answer = ask(options.run_dir, device, {{"command", "trace"}, {"stop", true}});
    if (!answer.problem.empty()) fail(1, device + ": " + answer.problem);
    std::printf("%s: trace stopped\n", device.c_str());
    return 0;
  }
  Answer answer = ask(options.run_dir, device, {{"command", "trace"}, {"filter", filter_text(options)}});
  if (!answer.problem.empty()) fail(1, device + ": " + answer.problem);
  if (!answer.stream.valid())
    fail(1, device + ": no descriptor came; daemon and urocectl must be of the same build");
  return Trace(options, device, std::move(answer.stream)).run();
}

}  // namespace uroce::ctl
