#include "apps/uroced/ports.h"

namespace uroce::uroced {

std::string serve_dpdk(const Settings& settings, Requests&) {
  return "port \"" + settings.port +
         "\" needs DPDK, and this uroced was built without it: install libdpdk-dev and "
         "build again, or use --port udp or loopback";
}

}  // namespace uroce::uroced
