// The network of a cluster, built with ip(8).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cluster.h"
#include "cluster_host.h"
#include "namespaces.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;

// RoCE's largest path MTU, 4096, needs 4176. Frames of up to 8192 bytes take half the memory of larger ones.
constexpr char kMtu[] = "4200";

/// The path of ip(8), which users' PATH need not include; empty if there is none.
std::string ip_program() {
  const char* const given = std::getenv("PATH");
  std::istringstream path(std::string(given != nullptr ? given : "") + ":/usr/sbin:/sbin:/usr/bin:/bin");
  for (std::string folder; std::getline(path, folder, ':');) {
    const std::string program = folder + "/ip";
    if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

/// The contents of a file, on one line.
std::string line_of(int fd) {
  std::string text(4096, '\0');
  const ssize_t bytes = ::pread(fd, text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "; ");
  return text;
}

/// Executes commands of ip(8), one per line. Returns empty on success.
std::string run_ip(const std::string& commands) {
  const int input = ::memfd_create("ip-commands", MFD_CLOEXEC), output = ::memfd_create("ip-errors", MFD_CLOEXEC);
  if (input < 0 || output < 0 || ::write(input, commands.data(), commands.size()) < 0 ||
      ::lseek(input, 0, SEEK_SET) != 0) {
    return failed("no memory file");
  }
  const std::string program = ip_program();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::execl(program.c_str(), "ip", "-batch", "-", static_cast<char*>(nullptr));
    std::perror(program.c_str());
    ::_exit(127);
  }
  int status = -1;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string problem;
  if (status != 0) {
    problem = "`ip -batch` cannot build the network (" + line_of(output) +
              "); does the kernel have veth and bridge (modprobe veth bridge)?";
  }
  ::close(input);
  ::close(output);
  return problem;
}

}  // namespace

std::string host_name(unsigned host) { return "node" + std::to_string(host); }
std::string host_address(unsigned host) { return "192.0.2." + std::to_string(host); }

std::string host_address6(unsigned host) {
  char text[32];
  std::snprintf(text, sizeof(text), "2001:db8::%x", host);
  return text;
}

std::string check_network_tools() {
  if (!ip_program().empty()) return {};
  return "--hosts needs the program ip, which is neither in PATH nor in /usr/sbin: apt install iproute2";
}

std::string connect_hosts(const pid_t* holders, unsigned hosts) {
  // The bridge has no addresses, and sends nothing of its own.
  write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
  std::string commands = "link set lo up\nlink add switch mtu " + std::string(kMtu) +
                         " type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set switch up\n";
  for (unsigned host = 1; host <= hosts; ++host) {
    char mac[18];
    std::snprintf(mac, sizeof(mac), "02:00:c0:00:02:%02x", host);
    const std::string port = host_name(host);
    commands += "link add " + port + " mtu " + kMtu + " type veth peer name eth0 mtu " + kMtu + " address " + mac +
                " netns " + std::to_string(holders[host - 1]) + "\nlink set " + port + " master switch up\n";
  }
  return run_ip(commands);
}

std::string configure_interface(unsigned host) {
  const std::string settings = "/proc/sys/net/ipv6/conf/";
  std::error_code error;
  const bool ipv6 = fs::exists(settings, error);
  for (const char* interface : {"all", "lo", "eth0"}) {
    write_file(settings + interface + "/disable_ipv6", "0");
  }
  write_file(settings + "eth0/accept_dad",
             "0");  // no address is used twice, and the link-local one is ready at once
  write_file(settings + "eth0/accept_ra", "0");
  return run_ip("link set lo up\nlink set eth0 up\naddr add " + host_address(host) + "/24 dev eth0\n" +
                (ipv6 ? "addr add " + host_address6(host) + "/64 dev eth0 nodad\n" : std::string()));
}

}  // namespace uroce::run
