#include "own_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "execute.h"
#include "signals.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;

constexpr int kReadyTimeoutMs = 20'000;

/// In the child. The daemon stays when Ctrl-C ends the command, and ends when this process is gone.
[[noreturn]] void become_daemon(const fs::path& program, const std::string& run_dir, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  act_on_signals();
  // Standard input and output are the command's alone.
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  ::execl(program.c_str(), "uroced", "--name", "uroce0", "--port", "loopback", "--ip", "192.0.2.1/24", "--ip",
          "2001:db8::1/64", "--run-dir", run_dir.c_str(), "--log-level", "warning", static_cast<char*>(nullptr));
  std::fprintf(stderr, "uroce-run: %s: %s\n", program.c_str(), std::strerror(errno));
  ::_exit(127);
}

/// Whether a daemon accepts connections on this socket.
bool answers(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const bool ok = fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) ::close(fd);
  return ok;
}

}  // namespace

fs::path daemon_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path() / "uroced";
}

bool wait_until_served(pid_t& daemon, const std::string& socket, int limit_ms) {
  for (int waited = 0; waited < limit_ms && kept_signal() == 0; waited += 10) {
    if (answers(socket)) return true;
    if (::waitpid(daemon, nullptr, WNOHANG) == daemon) {
      daemon = -1;
      return false;
    }
    ::poll(nullptr, 0, 10);
  }
  return false;
}

OwnDaemon::OwnDaemon(std::string& problem) {
  keep_signals();
  const char* base = ::secure_getenv("TMPDIR");
  std::string folder = std::string(base != nullptr && *base == '/' ? base : "/tmp") + "/uroce-own-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    problem = folder + ": " + std::strerror(errno) + "; set TMPDIR to a folder that you may write";
    return;
  }
  run_dir_ = folder;
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become_daemon(daemon_path(), run_dir_, parent);
  if (pid_ < 0) {
    problem = std::string("no further process: ") + std::strerror(errno);
  } else if (!wait_until_served(pid_, run_dir_ + "/uroce0.sock", kReadyTimeoutMs)) {
    problem = daemon_path().string() + " did not become ready; it says why above";
  }
}

OwnDaemon::~OwnDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::error_code error;
  if (run_dir_.empty()) return;
  // What a daemon that was killed has left in memory (control/machine/counters_file.h). The folder is the user's
  // own.
  const std::string page = run_dir_ + "/uroce0.counters";
  if (const fs::path target = fs::read_symlink(page, error); target.parent_path() == "/dev/shm") {
    fs::remove(target, error);
  }
  fs::remove_all(run_dir_, error);
}

int run_and_wait(char** program) {
  keep_signals();
  const pid_t child = ::fork();
  if (child < 0) {
    std::fprintf(stderr, "uroce-run: no further process: %s\n", std::strerror(errno));
    return 126;
  }
  if (child == 0) {
    act_on_signals();
    execute(program);
  }
  pass_signals_to(child);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace uroce::run
