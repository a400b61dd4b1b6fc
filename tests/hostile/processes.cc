#include "tests/hostile/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "platform/clock.h"

namespace uroce::hostile {
namespace {

constexpr int kReadyMs = 30'000, kStopMs = 10'000;

/// A moment on the monotonic clock.
Nanos after_ms(int milliseconds) { return monotonic_now() + static_cast<Nanos>(milliseconds) * kMillisecond; }

void nap() { ::usleep(2000); }

/// waitpid(2) with a limit. False: it still runs.
bool wait_for(pid_t pid, int timeout_ms, int& status) {
  const Nanos end = after_ms(timeout_ms);
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    if (monotonic_now() > end) return false;
    nap();
  }
  return true;
}

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

std::size_t entries_of(const std::string& folder) {
  std::size_t count = 0;
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return 0;
  while (const dirent* entry = ::readdir(open)) count += entry->d_name[0] != '.';
  ::closedir(open);
  return count;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool is_root() { return ::geteuid() == 0; }

void* allocate_shared(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void release_shared(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

Child::Child(uid_t user, const std::function<int()>& work) {
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (is_root()) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) {
      ::_exit(255);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of the user clears it
  }
  ::_exit(work());
}

Child::Child(Child&& from) noexcept
    : pid_(std::exchange(from.pid_, -1)), ended_(from.ended_), status_(from.status_) {}

Child& Child::operator=(Child&& from) noexcept {
  end();
  pid_ = std::exchange(from.pid_, -1);
  ended_ = from.ended_;
  status_ = from.status_;
  return *this;
}

bool Child::running() {
  if (pid_ < 0 || ended_) return false;
  ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

int Child::wait(int timeout_ms) {
  if (pid_ < 0) return -1;
  if (!ended_) ended_ = wait_for(pid_, timeout_ms, status_);
  return ended_ ? exit_code(status_) : -1;
}

void Child::end() {
  if (pid_ < 0 || ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
  ended_ = true;
}

DaemonProcess::DaemonProcess(const std::vector<std::string>& flags, int error_output) {
  char folder[] = "/tmp/uroce-hostile-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return;
  ::chmod(folder, 0755);
  run_dir_ = folder;
  log_.reset(::open((run_dir_ + "/log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600));
  const char* program = std::getenv("UROCED");
  std::vector<std::string> words{program != nullptr ? program : "build/apps/uroced",
                                 "--name",
                                 "uroce0",
                                 "--port",
                                 "loopback",
                                 "--ip",
                                 "192.0.2.1/24",
                                 "--run-dir",
                                 run_dir_,
                                 "--socket-mode",
                                 "0666",  // for children of other users, where there is a group rdma
                                 "--no-hugepages"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(log_.get(), STDOUT_FILENO);
    ::dup2(error_output >= 0 ? error_output : log_.get(), STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  const Nanos end = after_ms(kReadyMs);
  while (!ready_ && running() && monotonic_now() < end) {
    ready_ = log().find("uroced: uroce0 ready") != std::string::npos;  // a socket that is there may not listen yet
    nap();
  }
}

DaemonProcess::~DaemonProcess() {
  stop();
  std::error_code ignored;
  if (!run_dir_.empty()) std::filesystem::remove_all(run_dir_, ignored);
}

bool DaemonProcess::running() {
  int status = 0;
  return pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == 0;
}

int DaemonProcess::stop() {
  if (pid_ <= 0) return -1;
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  ::kill(pid, SIGTERM);
  if (wait_for(pid, kStopMs, status)) return exit_code(status);
  ::kill(pid, SIGKILL);
  wait_for(pid, kStopMs, status);  // a thread in uninterruptible sleep may keep it
  return -1;
}

std::string DaemonProcess::log() const { return content(run_dir_ + "/log"); }

std::size_t DaemonProcess::threads() const { return entries_of("/proc/" + std::to_string(pid_) + "/task"); }

std::size_t DaemonProcess::descriptors() const { return entries_of("/proc/" + std::to_string(pid_) + "/fd"); }

std::size_t DaemonProcess::mappings() const {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

std::string DaemonProcess::thread_states() const {
  std::string states;
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(folder, error)) {
    const std::string text = content(task.path() / "stat");
    const std::size_t after = text.rfind(')');
    if (after != std::string::npos && after + 2 < text.size()) states += text[after + 2];
  }
  return states;
}

bool DaemonProcess::stuck() const {
  for (int i = 0; i < 200; ++i) {
    if (thread_states().find('D') == std::string::npos) return false;
    ::usleep(10'000);
  }
  return true;
}

}  // namespace uroce::hostile
