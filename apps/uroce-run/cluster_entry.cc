// Moving to another host of a cluster, by option and as a remote shell.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "cluster.h"
#include "cluster_host.h"
#include "execute.h"
#include "namespaces.h"

namespace uroce::run {
namespace {

struct Host {
  std::string name, address, address6;
  pid_t holder = 0;
};

std::vector<Host> list_of_hosts() {
  std::vector<Host> hosts;
  std::ifstream list(kClusterDir + std::string("/list"));
  for (Host host; list >> host.name >> host.holder >> host.address >> host.address6;) hosts.push_back(host);
  return hosts;
}

int ssh_failed(const std::string& problem) {
  std::fprintf(stderr, "ssh (uroce-run): %s\n", problem.c_str());
  return 255;
}

/// The user's shell, for the command line or interactive. Does not return.
int become_shell(const std::string& command) {
  const char* const given = std::getenv("SHELL");
  std::string shell = given != nullptr && *given == '/' ? given : "/bin/sh", option = "-c", line = command;
  char* const arguments[] = {shell.data(), command.empty() ? nullptr : option.data(), line.data(), nullptr};
  execute(arguments);
}

}  // namespace

std::string enter_host(const std::string& name) {
  const std::vector<Host> hosts = list_of_hosts();
  if (hosts.empty()) {
    return "--on " + name + ": this is not a host of a cluster; start one with `uroce-run --hosts N`";
  }
  for (const Host& host : hosts) {
    if (name != host.name && name != host.address && name != host.address6 && name != host.name + "-6") continue;
    char folder[PATH_MAX];
    const bool known = ::getcwd(folder, sizeof(folder)) != nullptr;
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, host.holder, 0));
    if (process < 0) return host.name + " has ended";
    if (::setns(process, host_namespaces()) != 0) return failed("cannot enter " + host.name);
    ::close(process);
    if ((!known || ::chdir(folder) != 0) && ::chdir("/") != 0) return failed("/");
    return {};
  }
  return "there is no host " + name + "; give " + hosts.front().name + " to " + hosts.back().name +
         ", or one of their addresses";
}

int remote_shell(int argc, char** argv) {
  // Options of ssh with a value; the others are accepted without one. Connections are never refused or encrypted,
  // so that none of them matters but -n.
  constexpr char kWithValue[] = "BbcDEeFIiJLlmOopQRSWw";
  std::string host;
  bool no_input = false;
  int at = 1;
  for (; at < argc && argv[at][0] == '-' && argv[at][1] != 0; ++at) {
    if (std::strcmp(argv[at], "--") == 0) {
      ++at;
      break;
    }
    for (const char* letter = argv[at] + 1; *letter != 0; ++letter) {
      no_input |= *letter == 'n';
      if (std::strchr(kWithValue, *letter) == nullptr) continue;
      if (letter[1] == 0) ++at;
      break;
    }
  }
  if (at < argc) host = argv[at++];
  if (host.empty()) return ssh_failed("usage: ssh [OPTIONS] HOST [COMMAND ...], for the hosts of this cluster");
  host.erase(0, host.find('@') + 1);
  std::string command;
  for (; at < argc; ++at) command += (command.empty() ? "" : " ") + std::string(argv[at]);
  if (const std::string problem = enter_host(host); !problem.empty()) return ssh_failed(problem);
  const int nothing = no_input ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  return become_shell(command);
}

}  // namespace uroce::run
