// The life of a cluster: uroce-run waits for the first process of a PID namespace, which builds the hosts and then
// waits for the program.
#include "cluster.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "cluster_daemon.h"
#include "cluster_host.h"
#include "execute.h"
#include "namespaces.h"
#include "signals.h"

namespace uroce::run {
namespace {

constexpr int kBuildTimeoutMs = 90'000;

/// Programs of an ordinary user keep the user, and all rights over the namespaces of the cluster.
void keep_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return;
  for (__user_cap_data_struct& half : data) half.inheritable = half.permitted;
  if (::syscall(SYS_capset, &header, data) != 0) return;
  for (int i = 0; i <= CAP_LAST_CAP; ++i) ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0);
}

/// Descriptors that a caller has closed would be given to pipes and files that have other uses.
void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

std::string enter_cluster_namespaces() {
  constexpr int kFlags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC;
  if (::geteuid() == 0 && ::unshare(kFlags) == 0) return {};
  return enter_namespaces(kFlags | CLONE_NEWUSER);
}

/// The first process of the cluster.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options) : options_(options) {}

  /// Returns empty, or what failed.
  std::string build();
  /// Ends with the program. Returns its exit status.
  int run();

 private:
  std::string start_hosts();
  std::string wait_for_hosts(char state);
  std::string write_list() const;
  [[noreturn]] void become_program() const;

  const ClusterOptions& options_;
  mode_t umask_ = 0;  ///< of the program
  std::vector<pid_t> holders_;
  std::vector<int> channels_;
  pid_t daemon_ = -1;
  std::string note_;
};

std::string Cluster::build() {
  umask_ = ::umask(022);  // other users of the cluster read its files
  if (std::string problem = mount_cluster_files(options_.hosts); !problem.empty()) return problem;
  if (std::string problem = start_hosts(); !problem.empty()) return problem;
  if (std::string problem = wait_for_hosts(kHostExists); !problem.empty()) return problem;
  if (std::string problem = start_cluster_daemon(holders_, daemon_); !problem.empty()) return problem;
  for (const int channel : channels_) {
    if (::send(channel, &kDeviceServed, 1, MSG_NOSIGNAL) != 1) return "a host is gone";
  }
  if (std::string problem = wait_for_hosts(kHostReady); !problem.empty()) return problem;
  for (const int channel : channels_) ::close(channel);
  if (!note_.empty()) {
    std::fprintf(stderr,
                 "uroce-run: note: programs do not see the devices in /dev and /sys (%s); most need neither\n",
                 note_.c_str());
  }
  return write_list();
}

std::string Cluster::start_hosts() {
  for (unsigned host = 1; host <= options_.hosts; ++host) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return failed("no channel for a host");
    const pid_t holder = ::fork();
    if (holder < 0) return failed("no further process");
    if (holder == 0) {
      ::close(ends[0]);
      act_on_signals();
      hold_host(host, options_.show_devices, ends[1]);
    }
    ::close(ends[1]);
    holders_.push_back(holder);
    channels_.push_back(ends[0]);
  }
  return {};
}

/// Waits until each host has reported this.
std::string Cluster::wait_for_hosts(char state) {
  std::vector<pollfd> waiting;
  for (const int channel : channels_) waiting.push_back({channel, POLLIN, 0});
  std::size_t missing = waiting.size();
  for (int waited = 0; missing > 0 && waited < kBuildTimeoutMs; waited += 100) {
    if (kept_signal() != 0) return "interrupted";
    ::poll(waiting.data(), waiting.size(), 100);
    for (pollfd& each : waiting) {
      if (each.fd < 0 || each.revents == 0) continue;
      std::string text(4096, '\0');
      const ssize_t bytes = ::read(each.fd, text.data(), text.size());
      if (bytes <= 0) return "a host ended while it was built";
      text.resize(static_cast<std::size_t>(bytes));
      if (text[0] != state) return text.substr(1);
      if (note_.empty()) note_ = text.substr(1);
      each.fd = -1;
      --missing;
    }
  }
  return missing == 0 ? ""
                      : std::to_string(missing) + " of the hosts are not ready after " +
                            std::to_string(kBuildTimeoutMs / 1000) + " s; try fewer --hosts";
}

/// For enter_host().
std::string Cluster::write_list() const {
  const std::string path = kClusterDir + std::string("/list");
  std::ofstream list(path);
  for (unsigned host = 1; host <= options_.hosts; ++host) {
    list << host_name(host) << ' ' << holders_[host - 1] << ' ' << host_address(host) << ' ' << host_address6(host)
         << '\n';
  }
  list.close();
  return list.good() ? "" : failed(path);
}

/// Values that the user has set already stay.
void set_default(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); }

void Cluster::become_program() const {
  act_on_signals();
  ::umask(umask_);
  if (const std::string problem = enter_host(host_name(1)); !problem.empty()) {
    std::fprintf(stderr, "uroce-run: %s\n", problem.c_str());
    ::_exit(1);
  }
  ::unsetenv("UROCE_DEVICES");
  options_.set_environment();
  const std::string shared = kClusterDir, shell = shared + "/bin/ssh";
  const char* const path = std::getenv("PATH");
  ::setenv("PATH", (shared + "/bin:" + (path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin")).c_str(), 1);
  set_default("OMPI_MCA_plm_rsh_agent", shell);
  set_default("OMPI_MCA_orte_default_hostfile", shared + "/mpi-hosts");
  set_default("HYDRA_LAUNCHER", "ssh");
  set_default("HYDRA_LAUNCHER_EXEC", shell);
  set_default("HYDRA_HOST_FILE", shared + "/names");
  // A rank that polls keeps the core from the others and from the daemon.
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2L * options_.hosts) set_default("OMPI_MCA_mpi_yield_when_idle", "1");
  if (options_.program != nullptr) execute(options_.program);
  const char* const given = std::getenv("SHELL");
  const std::string program = given != nullptr && *given == '/' ? given : "/bin/sh";
  if (::isatty(STDIN_FILENO) != 0) {
    std::fprintf(stderr, "uroce-run: this is node1 of %u hosts; `ssh node2` enters another one, `exit` ends all\n",
                 options_.hosts);
  }
  char* const arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  execute(arguments);
}

int Cluster::run() {
  const pid_t program = ::fork();
  if (program == 0) become_program();
  if (program < 0) {
    std::fprintf(stderr, "uroce-run: %s\n", failed("no further process").c_str());
    return 126;
  }
  pass_signals_to(program);
  for (;;) {  // orphans of the PID namespace are ours
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == program) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended == daemon_) {
      std::fprintf(stderr, "uroce-run: uroced ended (%s %d): the hosts have no devices now\n",
                   WIFSIGNALED(status) ? "signal" : "exit status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      daemon_ = -1;
    }
    if (ended < 0 && errno != EINTR) return 126;
  }
}

[[noreturn]] void become_cluster(const ClusterOptions& options, const int parent[2]) {
  // The kernel ends every process of a PID namespace with its first one.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(parent[1]);
  pollfd gone{parent[0], 0, 0};
  if (::poll(&gone, 1, 0) > 0) ::_exit(1);  // a signal interrupts it
  ::close(parent[0]);
  if (::geteuid() != 0) keep_capabilities();
  Cluster cluster(options);
  const std::string problem = cluster.build();
  if (const int signal = kept_signal(); signal != 0) ::_exit(128 + signal);
  if (!problem.empty()) {
    std::fprintf(stderr, "uroce-run: --hosts %u: %s\n", options.hosts, problem.c_str());
    ::_exit(1);
  }
  std::fflush(nullptr);
  ::_exit(cluster.run());
}

}  // namespace

int run_cluster(const ClusterOptions& options) {
  open_standard_descriptors();
  std::string problem = enter_cluster_namespaces();
  int parent[2];  // reading it ends with this process
  if (problem.empty() && ::pipe2(parent, O_CLOEXEC) != 0) problem = failed("no pipe");
  if (!problem.empty()) {
    std::fprintf(stderr, "uroce-run: %s\n", problem.c_str());
    return 1;
  }
  keep_signals();
  const pid_t first = ::fork();
  if (first == 0) become_cluster(options, parent);
  if (first < 0) {
    std::fprintf(stderr, "uroce-run: %s\n", failed("no further process").c_str());
    return 1;
  }
  pass_signals_to(first);
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace uroce::run
