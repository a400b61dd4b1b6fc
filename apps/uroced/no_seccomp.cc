// A build without libseccomp.
#include "apps/uroced/confine.h"

namespace uroce::uroced {

std::string filter_system_calls(const Settings&) { return "system calls not filtered (built without libseccomp)"; }

}  // namespace uroce::uroced
