#include "trace_output.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>

#include "base/version.h"
#include "daemon_client.h"
#include "drivers/packet/pcap/pcapng.h"
#include "drivers/packet/pcap/remarks.h"
#include "row_filter.h"
#include "table.h"
#include "wire/dump.h"

namespace uroce::ctl {
namespace {

/// The programs of QPs, which the daemon is asked for when one is needed that is not known.
class Programs {
 public:
  Programs(std::string run_dir, std::string device) : run_dir_(std::move(run_dir)), device_(std::move(device)) {}

  /// "ib_write_bw (pid 4711)"; empty: the daemon does not know the QP.
  std::string of(std::uint32_t qpn) {
    if (const auto known = names_.find(qpn); known != names_.end()) return known->second;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_question_) return {};
    next_question_ = now + std::chrono::milliseconds(200);
    ask_daemon();
    const auto known = names_.find(qpn);
    return known != names_.end() ? known->second : std::string();
  }

 private:
  void ask_daemon() {
    const Answer sessions = ask(run_dir_, device_, {{"command", "show"}, {"what", "sessions"}});
    Answer qps = ask(run_dir_, device_, {{"command", "show"}, {"what", "qps"}});
    if (!sessions.problem.empty() || !qps.problem.empty()) return;
    add_session_columns(qps.json, sessions.json);
    for (const Json& row : qps.json.value("qps", Json::array())) {
      const auto qpn = static_cast<std::uint32_t>(std::strtoul(row.value("qpn", "").c_str(), nullptr, 0));
      names_[qpn] = cell(row.value("program", Json())) + " (pid " + cell(row.value("pid", Json())) + ")";
    }
  }

  std::string run_dir_, device_;
  std::map<std::uint32_t, std::string> names_;
  std::chrono::steady_clock::time_point next_question_{};
};

[[noreturn]] void not_written(const std::string& name) {
  fail(1, "not all could be written to " + name + " (" + std::strerror(errno) + ")");
}

class Lines : public TraceOutput {
 public:
  explicit Lines(pcap::Remarks remarks) : remarks_(std::move(remarks)) {}

  std::string name() const override { return "standard output"; }
  bool is_text() const override { return true; }
  /// "10:42:01.123456789 > 192.0.2.1 ...", "<" for frames that arrive.
  void packet(const pcap::Record& record, std::span<const std::byte> frame) override {
    char time[16] = "", line[wire::kDumpBytes];
    const auto seconds = static_cast<std::time_t>(record.time_ns / 1'000'000'000u);
    std::tm local{};
    std::strftime(time, sizeof time, "%H:%M:%S", localtime_r(&seconds, &local));
    const std::string_view text = wire::dump(frame, line);
    const std::string remark = remarks_.about(record, frame);
    std::printf("%s.%09u %c %.*s%s%s\n", time, static_cast<unsigned>(record.time_ns % 1'000'000'000u),
                record.direction == pcap::Direction::kOutbound ? '>' : '<', static_cast<int>(text.size()),
                text.data(), remark.empty() ? "" : "  # ", remark.c_str());
  }
  void flush() override {
    if (std::fflush(stdout) != 0) not_written(name());
  }
  void end(std::uint64_t) override { flush(); }

 private:
  pcap::Remarks remarks_;
};

/// A strftime(3) pattern at this time.
std::string at_time(const std::string& pattern, std::uint64_t time_ns) {
  char text[4096];
  const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000u);
  std::tm local{};
  if (std::strftime(text, sizeof text, pattern.c_str(), localtime_r(&seconds, &local)) != 0) return text;
  fail(2, "--write " + pattern + ": it makes no name; see strftime(3)");
}

/// One file or, with a limit of bytes or of seconds, one after the other: FILE, FILE1, FILE2 as tcpdump(1) names
/// them, or with a limit of bytes and one of files FILE0 to FILE9, which then begin again. With a limit of seconds
/// FILE may be a pattern of strftime(3), and a limit of files ends the trace.
class Files : public TraceOutput {
 public:
  Files(const Options& options, const std::string& device, pcap::Remarks remarks)
      : options_(options.trace),
        interface_{device, "urocectl " UROCE_VERSION, filter_text(options), options.trace.snaplen},
        remarks_(std::move(remarks)) {
    open(0, pcap::realtime_ns());
  }
  ~Files() override {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string name() const override { return to_stdout() ? "standard output" : name_; }
  bool is_text() const override { return false; }

  bool takes(const pcap::Record& record) override {
    const bool last = options_.rotate_s != 0 && options_.files != 0 && number_ == options_.files;
    return !last || !is_complete(record);
  }
  void packet(const pcap::Record& record, std::span<const std::byte> frame) override {
    const std::string remark = remarks_.about(record, frame);
    if (is_complete(record)) {
      end(lost_);
      open(lost_, record.time_ns);
    }
    if (writer_->packets() == 0) began_ns_ = record.time_ns;
    writer_->packet(record, frame, remark);
    lost_ = record.lost;
  }
  void flush() override {
    if (std::fflush(file_) != 0) not_written(name());
  }
  void end(std::uint64_t lost) override {
    writer_->end(lost);
    flush();
    if (to_stdout()) return;
    if (std::fclose(std::exchange(file_, nullptr)) != 0) not_written(name());
  }

 private:
  bool to_stdout() const { return options_.file == "-"; }

  /// Whether the next file begins with this frame. The time is that of the frames: without any, none begins.
  bool is_complete(const pcap::Record& record) const {
    if (writer_->packets() == 0) return false;
    if (options_.file_bytes != 0 && writer_->bytes() >= options_.file_bytes) return true;
    return options_.rotate_s != 0 && record.time_ns >= began_ns_ + options_.rotate_s * std::uint64_t{1'000'000'000};
  }

  std::string next_name(std::uint64_t time_ns) {
    const unsigned number = number_++;
    if (options_.rotate_s != 0 && options_.file.find('%') != std::string::npos) {
      const std::string at = at_time(options_.file, time_ns);
      repeated_ = at == at_ ? repeated_ + 1 : 0;
      at_ = at;
      return repeated_ == 0 ? at : at + std::to_string(repeated_);
    }
    const bool again = options_.rotate_s == 0 && options_.files != 0;  // from the first one on
    if (!again) return number == 0 ? options_.file : options_.file + std::to_string(number);
    const std::size_t digits = std::to_string(options_.files - 1).size();
    const std::string text = std::to_string(number % options_.files);
    return options_.file + std::string(digits - text.size(), '0') + text;
  }

  void open(std::uint64_t lost, std::uint64_t time_ns) {
    name_ = to_stdout() ? options_.file : next_name(time_ns);
    file_ = to_stdout() ? stdout : std::fopen(name_.c_str(), "wbe");
    if (file_ == nullptr) fail(1, name_ + ": " + std::strerror(errno) + "; give a file that can be written");
    writer_.emplace(file_, interface_, lost);
    flush();
  }

  TraceOptions options_;
  pcap::InterfaceText interface_;
  pcap::Remarks remarks_;
  std::FILE* file_ = nullptr;
  std::string name_;
  std::optional<pcap::PcapngWriter> writer_;
  std::string at_;  // the last name that a pattern made
  unsigned number_ = 0, repeated_ = 0;
  std::uint64_t began_ns_ = 0;  // time of the first frame in this file
  std::uint64_t lost_ = 0;
};

}  // namespace

std::string filter_text(const Options& options) {
  const std::string snaplen = options.trace.snaplen == 0 ? "" : "snaplen=" + std::to_string(options.trace.snaplen);
  return options.trace.filter + (options.trace.filter.empty() || snaplen.empty() ? "" : ",") + snaplen;
}

std::unique_ptr<TraceOutput> make_output(const Options& options, const std::string& device) {
  const auto programs = std::make_shared<Programs>(options.run_dir, device);
  pcap::Remarks remarks([programs](std::uint32_t qpn) { return programs->of(qpn); });
  if (options.trace.file.empty()) return std::make_unique<Lines>(std::move(remarks));
  return std::make_unique<Files>(options, device, std::move(remarks));
}

}  // namespace uroce::ctl
