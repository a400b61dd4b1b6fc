#include "counters_page.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "abi/counters_page.h"
#include "base/counter_info.h"
#include "base/printable.h"
#include "platform/clock.h"

namespace uroce::ctl {
namespace {

constexpr std::string_view kExtension = ".counters";
constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr std::uint32_t kMostNames = 4096, kMostWorkers = 1024;

/// The text in a field that ends with a zero, or with the field.
template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return base::printable(std::string(field, ::strnlen(field, kBytes)));
}

/// Whether root, this user, or the owner of the run directory or of the daemon's socket has made the file: in a
/// directory with the sticky bit anybody may make files.
bool is_trusted(const struct stat& file, const std::string& run_dir, const std::string& device) {
  if (file.st_uid == 0 || file.st_uid == ::geteuid()) return true;
  struct stat info {};
  if (::stat(run_dir.c_str(), &info) == 0 && info.st_uid == file.st_uid) return true;
  return ::lstat((run_dir + "/" + device + ".sock").c_str(), &info) == 0 && info.st_uid == file.st_uid;
}

class Reader {
 public:
  Reader(const std::string& run_dir, const std::string& device, CountersPage& out)
      : path_(run_dir + "/" + device + std::string(kExtension)), run_dir_(run_dir), device_(device), out_(out) {}

  void read() {
    if (!open() || !read_head()) return;
    std::vector<std::uint64_t> of_workers(head_.worker_names), of_control(head_.names - head_.worker_names);
    for (std::uint32_t i = 0; i <= head_.workers && out_.problem.empty(); ++i) {
      const bool control = i == head_.workers;
      read_section(i, control ? "control" : "worker " + std::to_string(i), control ? of_control : of_workers);
    }
    if (!out_.problem.empty()) return;
    add(std::span(names_).first(head_.worker_names), of_workers);
    add(std::span(names_).subspan(head_.worker_names), of_control);
  }

 private:
  bool fail(const std::string& problem) {
    out_.problem = path_ + ": " + problem;
    return false;
  }

  bool is_trusted_file(const struct stat& info) {
    if (is_trusted(info, run_dir_, device_)) return true;
    return fail("belongs to user " + std::to_string(info.st_uid) + ", not to the daemon's");
  }

  /// The path of the file itself: a run directory on a disk has a link to it. Empty: it is not to be opened.
  std::string target() {
    struct stat info {};
    if (::lstat(path_.c_str(), &info) != 0) return fail(std::strerror(errno)), "";
    if (!S_ISLNK(info.st_mode)) return path_;
    if (!is_trusted_file(info)) return "";
    std::error_code error;
    std::string to = std::filesystem::read_symlink(path_, error);
    if (std::filesystem::path(to).parent_path() != "/dev/shm") return fail("is a link to another folder"), "";
    return to;
  }

  bool open() {
    const std::string path = target();
    if (path.empty()) return false;
    file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
    if (!file_.valid() && errno == ENOENT && path != path_) {
      return fail("is a link to " + path + ", which is in the mount namespace of the daemon");
    }
    if (!file_.valid()) return fail(std::strerror(errno));
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0) return fail(std::strerror(errno));
    if (!S_ISREG(info.st_mode)) return fail("is not a file");
    if (!is_trusted_file(info)) return false;
    bytes_ = std::min(static_cast<std::uint64_t>(info.st_size), kMostBytes);
    return true;
  }

  bool copy(std::uint64_t offset, void* to, std::size_t bytes) {
    if (::pread(file_.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes)) return true;
    return fail("ends too early");
  }

  bool read_head() {
    if (!copy(0, &head_, sizeof head_)) return false;
    if (head_.magic != abi::kCountersMagic || head_.version != abi::kCountersVersion || !is_consistent()) {
      return fail("has another format: daemon and urocectl must be of the same build");
    }
    if (text_of(head_.device) != device_) return fail("is the page of " + text_of(head_.device));
    out_.process = head_.process;
    out_.same_clock = head_.started <= monotonic_now();
    names_.resize(head_.names);
    return copy(head_.names_offset, names_.data(), names_.size() * sizeof names_[0]);
  }

  bool is_consistent() const {
    if (head_.names > kMostNames || head_.worker_names > head_.names || head_.workers > kMostWorkers) return false;
    const std::uint64_t values = std::max(head_.worker_names, head_.names - head_.worker_names);
    return head_.names_offset + std::uint64_t{head_.names} * sizeof(abi::CounterName) <= bytes_ &&
           head_.section_bytes >= sizeof(abi::CounterSection) + values * sizeof(std::uint64_t) &&
           head_.sections_offset + (std::uint64_t{head_.workers} + 1) * head_.section_bytes <= bytes_;
  }

  /// Adds the values of one thread to `sums`.
  void read_section(std::uint32_t index, std::string name, std::vector<std::uint64_t>& sums) {
    const std::uint64_t offset = head_.sections_offset + std::uint64_t{index} * head_.section_bytes;
    abi::CounterSection section{};
    std::vector<std::uint64_t> values(sums.size());
    const std::size_t bytes = values.size() * sizeof(std::uint64_t);
    // A thread that ended while it wrote leaves an odd number: the last copy has to do.
    bool whole = false;
    for (int attempt = 0; attempt < kAttempts && !whole; ++attempt) {
      if (attempt != 0) ::usleep(kPause);
      std::uint64_t sequence = 0;
      const bool read = copy(offset, &section, sizeof section) &&
                        copy(offset + sizeof section, values.data(), bytes) &&
                        copy(offset + offsetof(abi::CounterSection, sequence), &sequence, sizeof sequence);
      if (!read) return;
      whole = sequence % 2 == 0 && sequence == section.sequence;
    }
    const bool of_workers = index != head_.workers;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto kind = static_cast<CounterKind>(names_[of_workers ? i : head_.worker_names + i].kind);
      const bool counts_up = kind == CounterKind::kTotal || kind == CounterKind::kDuration;
      sums[i] = counts_up ? sums[i] + values[i] : std::max(sums[i], values[i]);
    }
    out_.threads.push_back(state_of(section, std::move(name)));
    out_.threads.back().whole = whole;
  }

  static PageThread state_of(const abi::CounterSection& section, std::string name) {
    const Nanos now = monotonic_now();
    const Nanos since = section.since & ~abi::CounterSection::kSleeps;
    PageThread out;
    out.name = std::move(name);
    out.thread = section.thread;
    out.sleeps = section.since != since;
    out.since = since == 0 ? 0 : time_since(since, now);
    out.age = section.published == 0 ? 0 : time_since(section.published, now);
    if (section.command_since == 0) return out;
    char text[sizeof section.command];
    std::memcpy(text, section.command, sizeof text);
    out.command = text_of(text);
    out.command_started = section.command_started != 0;
    out.command_since = time_since(section.command_since, now);
    out.session = section.session;
    return out;
  }

  void add(std::span<const abi::CounterName> names, const std::vector<std::uint64_t>& values) {
    const Nanos now = monotonic_now();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto kind = static_cast<CounterKind>(names[i].kind);
      out_.counters[text_of(names[i].group)][stat_name(text_of(names[i].name), kind)] =
          stat_value(values[i], kind, now);
    }
  }

  static constexpr int kAttempts = 100;
  static constexpr useconds_t kPause = 100;

  const std::string path_;
  const std::string &run_dir_, &device_;
  CountersPage& out_;
  UniqueFd file_;
  std::uint64_t bytes_ = 0;
  abi::CountersPage head_{};
  std::vector<abi::CounterName> names_;
};

std::string seconds_text(Nanos duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(duration) / static_cast<double>(kSecond));
  return text;
}

/// What keeps the thread, if it has not moved for `limit`.
std::string hang_of(const PageThread& thread, Nanos limit) {
  const bool control = thread.name == "control";
  const std::string who = control ? "the control thread" : thread.name;
  if (thread.thread == 0) return {};
  if (!thread.command.empty() && thread.command_since >= limit) {
    std::string what = " has not ended the command ";
    if (!control && !thread.command_started) what = " has not begun with the command ";
    const std::string session = thread.session == 0 ? "" : " of session " + std::to_string(thread.session);
    return who + what + thread.command + session + " for " + seconds_text(thread.command_since);
  }
  if (thread.since < limit) return {};
  const std::string duration = seconds_text(thread.since);
  // The control thread wakes up at least twice a second.
  if (thread.sleeps) return control ? who + " has not run for " + duration : "";
  return who + " has been in one " + (control ? "round" : "duty cycle") + " for " + duration;
}

}  // namespace

CountersPage read_counters(const std::string& run_dir, const std::string& device) {
  CountersPage page;
  Reader(run_dir, device, page).read();
  return page;
}

std::vector<std::string> devices_with_pages(const std::string& run_dir) {
  constexpr std::size_t kLongest = 31;
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_dir, error), end; at != end && !error; at.increment(error)) {
    const std::string name = at->path().stem();
    // In a shared directory others choose names.
    const bool valid = name.size() <= kLongest && base::printable(name) == name;
    if (valid && at->path().extension() == kExtension) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string hanging_thread(const CountersPage& page, Nanos limit) {
  if (!page.same_clock) return {};
  for (const PageThread& thread : page.threads) {
    if (std::string text = hang_of(thread, limit); !text.empty()) return text;
  }
  return {};
}

Json threads_json(const CountersPage& page) {
  Json rows = Json::array();
  for (const PageThread& thread : page.threads) {
    const bool waits = !thread.command.empty() && !thread.command_started;
    rows.push_back({{"thread", thread.name},
                    {"tid", thread.thread},
                    {"state", thread.thread == 0 ? "starts"
                              : thread.sleeps    ? "sleeps"
                                                 : "runs"},
                    {"state_ms", thread.since / kMillisecond},
                    {"command", thread.command.empty() ? "-" : thread.command},
                    {"command_state", thread.command.empty() ? "-"
                                      : waits                ? "waits"
                                                             : "runs"},
                    {"command_ms", thread.command_since / kMillisecond},
                    {"session", thread.session},
                    {"values_ms", thread.age / kMillisecond}});
  }
  return rows;
}

}  // namespace uroce::ctl
