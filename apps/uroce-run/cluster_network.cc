// The names and addresses of a cluster's hosts, and the network of each.
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cluster.h"
#include "cluster_host.h"
#include "namespaces.h"

namespace uroce::run {
namespace {

std::string set_loopback_up() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  std::string problem;
  if (socket < 0 || ::ioctl(socket, SIOCGIFFLAGS, &request) != 0) problem = failed("no interface lo");
  request.ifr_flags |= IFF_UP;
  if (problem.empty() && ::ioctl(socket, SIOCSIFFLAGS, &request) != 0) problem = failed("cannot set lo up");
  if (socket >= 0) ::close(socket);
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

std::string prepare_network() {
  const std::string settings = "/proc/sys/net/ipv6/conf/";
  for (const char* interface : {"all", "default", "lo"}) write_file(settings + interface + "/disable_ipv6", "0");
  // No address is used twice: the link-local one of the interface to come is ready at once.
  write_file(settings + "default/accept_dad", "0");
  write_file(settings + "default/accept_ra", "0");
  return set_loopback_up();
}

}  // namespace uroce::run
