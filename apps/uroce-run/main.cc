// uroce-run: starts a program with uroce's libraries in LD_LIBRARY_PATH, and with the device files in /sys and /dev
// where that has no side effects.
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/version.h"
#include "cdi.h"
#include "cluster.h"
#include "container_hook.h"
#include "device_view.h"
#include "environment.h"
#include "execute.h"
#include "own_daemon.h"
#include "platform/run_dir.h"
#include "rdma_bytes.h"
#include "signals.h"
#include "urocectl/daemon_client.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    R"(uroce-run [-d NAME]... [OPTIONS] PROGRAM [ARGS...]
uroce-run --hosts N [PROGRAM [ARGS...]]
uroce-run --on HOST PROGRAM [ARGS...]

Starts PROGRAM with uroce's libibverbs and librdmacm in place of the system's, which are not changed.

  -d, --device NAME   show only this device to the program; repeat for several, in this order (default: all)
  --run-dir DIR       where the daemons listen (default: $UROCE_RUN_DIR, else $XDG_RUNTIME_DIR/uroce or
                      /tmp/uroce-UID if the user's own daemons listen there, else )" UROCE_SYSTEM_RUN_DIR R"()
  --view MODE         whether the devices appear in /dev/infiniband and /sys/class/infiniband, for programs that
                      read these folders (UCX, Open MPI, NCCL): `auto` (default) shows them if a mount namespace
                      has no side effects, that is as root; `always` also creates a user namespace, in which the
                      user is the same but setuid programs gain no rights; `never` changes neither folder
  --own               start a daemon for this program, with a device uroce0 at 192.0.2.1 and 2001:db8::1, and end
                      both with it; needs no other daemon and no rights
  --hosts N           make N hosts (2 to 32) on this machine, node1, node2, ..., run PROGRAM (default: the shell) on
                      node1, and end all of it with PROGRAM. Each host has the device uroce0 at 192.0.2.K and
                      2001:db8::K, and for the kernel an interface eth0 with the same addresses.
                      `ssh node2 COMMAND`, and therefore mpirun, run programs on the others. Needs no rights where
                      users may make user namespaces and open /dev/net/tun. There is no other network
  --on HOST           in such a cluster: run PROGRAM on that host, given by name or address, with this environment
                      and in this folder
  --require-rdma      fail if PROGRAM ends with 0 and its devices have sent no packet, as after a silent fall-back
                      to TCP. Those of other programs on the same devices count; --own excludes them
  --cdi               print a specification of the Container Device Interface (CDI) for these devices, for engines
                      such as podman: in /etc/cdi/uroce.json it makes them known as uroce/rdma=NAME and, unless -d
                      selects some, all as uroce/rdma=all. The daemons of -d need not run yet, but the run directory
                      must exist when a container starts
  --container-hook    what that specification has the engine start; it shows the devices in /sys and /dev of a
                      container
  --print-libdir      print the folder of the two libraries and exit
  --print-env         print what a shell must evaluate to start programs without uroce-run, and exit
  --version           print the version
  -h, --help          this text

Environment of PROGRAM: that folder first in LD_LIBRARY_PATH, UROCE_RUN_DIR, UROCE_DEVICES (-d), and the path of
libibverbs.so.1 for libraries that load it by a variable of their own, unless that is set: NCCL_IBVERBS_LIB (NCCL,
RCCL), MSCCLPP_IBV_SO, IBVERBX_IBVERBS_SO. With --hosts also a folder with `ssh` and these programs first in PATH,
and defaults for mpirun and mpiexec (OMPI_MCA_..., HYDRA_...).
With UROCE_LOG=info the libraries print a line for each call that fails, with the reason; with debug for each call;
info:FILE and debug:FILE write to a file.
Exit status: that of PROGRAM; 1 no daemon or no hosts, 2 wrong usage, 3 no RDMA (--require-rdma), 126 PROGRAM can't
be started, 127 PROGRAM not found.
)";

enum class View { kAuto, kAlways, kNever };

struct Options {
  std::vector<std::string> devices;
  std::string run_dir;
  View view = View::kAuto;
  bool print_libdir = false, print_env = false, cdi = false, container_hook = false, own = false,
       require_rdma = false;
  unsigned hosts = 0;
  std::string on;
  char** program = nullptr;
};

[[noreturn]] void fail(int status, const std::string& message) {
  std::fprintf(stderr, "uroce-run: %s\n", message.c_str());
  std::exit(status);
}

View parse_view(const std::string& text) {
  if (text == "auto") return View::kAuto;
  if (text == "always") return View::kAlways;
  if (text == "never") return View::kNever;
  fail(2, "--view " + text + ": give auto, always or never");
}

unsigned parse_hosts(const std::string& text) {
  unsigned hosts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hosts);
  if (error == std::errc{} && end == text.data() + text.size() && hosts >= kLeastHosts && hosts <= kMostHosts) {
    return hosts;
  }
  fail(2, "--hosts " + text + ": give a number from " + std::to_string(kLeastHosts) + " to " +
              std::to_string(kMostHosts));
}

/// --own, --hosts and --on name the devices themselves: neither each other nor `other` can be added.
void check_combination(const Options& options, const char* other) {
  std::vector<std::string> given;
  if (options.own) given.emplace_back("--own");
  if (options.hosts != 0) given.emplace_back("--hosts");
  if (!options.on.empty()) given.emplace_back("--on");
  if (given.empty()) return;
  if (given.size() == 1 && other != nullptr) given.emplace_back(other);
  if (given.size() == 1) return;
  const std::string does = given[0] == "--on" ? " uses the daemon of that host" : " starts a daemon of its own";
  fail(2, given[0] + does + ": give it without " + given[1]);
}

enum {
  kRunDir = 256,
  kOwn,
  kHosts,
  kOn,
  kViewMode,
  kRequireRdma,
  kPrintLibdir,
  kPrintEnv,
  kCdi,
  kContainerHook,
  kVersion
};
constexpr option kLongOptions[] = {{"device", required_argument, nullptr, 'd'},
                                   {"run-dir", required_argument, nullptr, kRunDir},
                                   {"hosts", required_argument, nullptr, kHosts},
                                   {"on", required_argument, nullptr, kOn},
                                   {"view", required_argument, nullptr, kViewMode},
                                   {"own", no_argument, nullptr, kOwn},
                                   {"require-rdma", no_argument, nullptr, kRequireRdma},
                                   {"print-libdir", no_argument, nullptr, kPrintLibdir},
                                   {"print-env", no_argument, nullptr, kPrintEnv},
                                   {"cdi", no_argument, nullptr, kCdi},
                                   {"container-hook", no_argument, nullptr, kContainerHook},
                                   {"version", no_argument, nullptr, kVersion},
                                   {"help", no_argument, nullptr, 'h'},
                                   {nullptr, 0, nullptr, 0}};

Options parse_options(int argc, char** argv) {
  Options options;
  options.run_dir = client_run_dir();
  const char* other_daemon = nullptr;
  int option = 0;
  while ((option = getopt_long(argc, argv, "+:d:h", kLongOptions, nullptr)) != -1) {
    switch (option) {
      case 'd':
        options.devices.emplace_back(optarg);
        other_daemon = "--device";
        break;
      case kRunDir:
        options.run_dir = optarg;
        other_daemon = "--run-dir";
        break;
      case kOwn: options.own = true; break;
      case kHosts: options.hosts = parse_hosts(optarg); break;
      case kOn: options.on = optarg; break;
      case kViewMode: options.view = parse_view(optarg); break;
      case kRequireRdma: options.require_rdma = true; break;
      case kPrintLibdir: options.print_libdir = true; break;
      case kPrintEnv:
        options.print_env = true;
        other_daemon = "--print-env";
        break;
      case kCdi:
        options.cdi = true;
        other_daemon = "--cdi";
        break;
      case kContainerHook: options.container_hook = true; break;
      case kVersion: std::puts("uroce-run " UROCE_VERSION); std::exit(0);
      case 'h': std::fputs(kHelp, stdout); std::exit(0);
      case ':': fail(2, std::string(argv[optind - 1]) + " needs a value; see uroce-run --help");
      default: fail(2, std::string(argv[optind - 1]) + ": no such option; see uroce-run --help");
    }
  }
  check_combination(options, other_daemon);
  if (options.require_rdma && (options.hosts != 0 || !options.on.empty())) {
    fail(2, "--require-rdma looks at the devices of one host: give it to a uroce-run on that host");
  }
  if (optind < argc) options.program = argv + optind;
  if (options.cdi && options.program != nullptr) fail(2, "--cdi starts no PROGRAM, so give none");
  const bool starts_nothing = options.print_libdir || options.print_env || options.cdi || options.container_hook;
  if (options.program == nullptr && !starts_nothing && options.hosts == 0) {
    fail(2, "no PROGRAM given; see uroce-run --help");
  }
  return options;
}

/// The users that may open a socket which this one may not, and what to do.
std::string remedy_for(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "this user may not look into the run directory";
  const group* const by = (info.st_mode & S_IWGRP) != 0 ? getgrgid(info.st_gid) : nullptr;
  if (by != nullptr) {
    const std::string name = by->gr_name;
    const passwd* const self = getpwuid(geteuid());
    return "members of the group " + name + " may use it: as root `usermod -aG " + name + " " +
           (self != nullptr ? self->pw_name : "USER") + "`, then log in again";
  }
  return "user " + std::to_string(info.st_uid) +
         " alone may use it: start uroced with --socket-group or --socket-mode";
}

struct Probe {
  std::string problem;  ///< empty: a daemon serves
  bool forbidden = false;
};

Probe probe(const std::string& run_dir, const std::string& name) {
  const std::string path = run_dir + "/" + name + ".sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return {path + ": longer than the path of a Unix socket may be"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return {std::strerror(errno)};
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int problem = errno;
  close(fd);
  if (result == 0) return {};
  if (problem == EACCES) return {path + ": " + std::strerror(problem) + "; " + remedy_for(path), true};
  return {path + ": " + std::strerror(problem)};
}

[[noreturn]] void fail_forbidden(const Probe& probe) {
  fail(1, probe.problem + ", or give the program a device of its own with `uroce-run --own`");
}

void check_daemons(const Options& options) {
  const std::string remedy = "; start one with `uroced --name " +
                             (options.devices.empty() ? "uroce0" : options.devices.front()) +
                             " --port loopback --ip 192.0.2.1/24`, two with `quickstart.sh up`, or one for this "
                             "program alone with `uroce-run --own`";
  for (const std::string& name : options.devices) {
    const Probe found = probe(options.run_dir, name);
    if (found.forbidden) fail_forbidden(found);
    if (!found.problem.empty()) fail(1, "no daemon serves " + name + " (" + found.problem + ")" + remedy);
  }
  if (!options.devices.empty()) return;
  std::error_code error;
  Probe forbidden;
  for (const auto& entry : fs::directory_iterator(options.run_dir, error)) {
    if (entry.path().extension() != ".sock") continue;
    Probe found = probe(options.run_dir, entry.path().stem());
    if (found.problem.empty()) return;
    if (found.forbidden) forbidden = std::move(found);
  }
  if (forbidden.forbidden) fail_forbidden(forbidden);
  if (error == std::errc::permission_denied) fail(1, options.run_dir + ": " + error.message());
  fail(1, "no daemon listens in " + options.run_dir + remedy);
}

Environment environment_of(const Options& options, const std::string& libraries) {
  return {.libraries = libraries, .run_dir = options.run_dir, .devices = options.devices};
}

void set_environment(const Options& options, const std::string& libraries) {
  environment_of(options, libraries).set();
}

int print_cdi(const Options& options, const std::string& libraries) {
  if (options.run_dir.empty()) fail(2, "--run-dir: give the folder in which the daemons listen");
  if (options.devices.empty() && ctl::served_devices(options.run_dir).empty()) check_daemons(options);
  std::error_code error;
  Environment environment = environment_of(options, libraries);
  const fs::path run_dir = fs::absolute(options.run_dir, error);
  if (!error) environment.run_dir = fs::weakly_canonical(run_dir, error);
  if (error) fail(2, "--run-dir " + options.run_dir + ": " + error.message());
  std::string problem;
  const std::string text = cdi_specification(environment, fs::read_symlink("/proc/self/exe", error), problem);
  if (!problem.empty()) fail(2, problem);
  std::fputs(text.c_str(), stdout);
  return 0;
}

void show_devices(const Options& options) {
  std::error_code error;
  const bool root = geteuid() == 0;
  if (options.view == View::kNever || (options.view == View::kAuto && !root)) return;
  const std::string problem = enter_device_view(fs::absolute(options.run_dir, error), !root);
  if (problem.empty() || options.view == View::kAuto) return;
  std::fprintf(stderr,
               "uroce-run: note: the program does not see the devices in /dev and /sys (%s); "
               "most programs need neither\n",
               problem.c_str());
}

/// The program's exit status, or kNoRdma.
int run_and_look(const Options& options) {
  constexpr int kNoRdma = 3;
  if (!options.require_rdma) return run_and_wait(options.program);
  const RdmaBytes bytes(options.run_dir, options.devices);
  const int status = run_and_wait(options.program);
  std::string problem;
  if (status != 0 || bytes.since(problem) != 0) return status;
  std::fprintf(stderr, "uroce-run: %s ended with 0, but %s\n", options.program[0],
               problem.empty()
                   ? (bytes.names() + " sent no packet: the program used something else, such as TCP").c_str()
                   : (problem + ": no proof that it used RDMA").c_str());
  return kNoRdma;
}

int run_with_own_daemon(Options& options, const std::string& libraries) {
  std::string problem;
  const OwnDaemon daemon(problem);
  if (const int signal = kept_signal(); signal != 0) return 128 + signal;
  if (problem.empty()) {
    options.run_dir = daemon.run_dir();
    set_environment(options, libraries);
    show_devices(options);
    return run_and_look(options);
  }
  std::fprintf(stderr, "uroce-run: %s\n", problem.c_str());
  return 1;
}

int run_on_hosts(Options& options, const std::string& libraries) {
  options.run_dir = kHostRunDir;
  return run_cluster({.hosts = options.hosts,
                      .program = options.program,
                      .show_devices = options.view != View::kNever,
                      .set_environment = [&] { set_environment(options, libraries); }});
}

[[noreturn]] void run_on_another(Options& options, const std::string& libraries) {
  if (const std::string problem = enter_host(options.on); !problem.empty()) fail(1, problem);
  options.run_dir = kHostRunDir;
  set_environment(options, libraries);
  execute(options.program);
}

bool is_remote_shell(const char* name) {
  const fs::path program = fs::path(name).filename();
  return program == "ssh" || program == "rsh";
}

}  // namespace
}  // namespace uroce::run

int main(int argc, char** argv) {
  using namespace uroce::run;
  if (argc > 0 && is_remote_shell(argv[0])) return remote_shell(argc, argv);
  Options options = parse_options(argc, argv);
  if (options.container_hook) return run_container_hook(options.run_dir);
  std::string problem;
  const std::string libraries = find_libraries(problem);
  if (libraries.empty()) fail(1, problem);
  if (options.print_libdir) {
    std::printf("%s\n", libraries.c_str());
    return 0;
  }
  if (options.print_env) {
    std::fputs(environment_of(options, libraries).text().c_str(), stdout);
    return 0;
  }
  if (options.cdi) return print_cdi(options, libraries);
  if (options.own) return run_with_own_daemon(options, libraries);
  if (options.hosts != 0) return run_on_hosts(options, libraries);
  if (!options.on.empty()) run_on_another(options, libraries);
  check_daemons(options);
  set_environment(options, libraries);
  show_devices(options);
  if (options.require_rdma) return run_and_look(options);
  execute(options.program);
}
