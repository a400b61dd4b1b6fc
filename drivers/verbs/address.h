// Address vectors between verbs and the daemon.
#pragma once

#include <infiniband/verbs.h>

#include "abi/control.h"

namespace uroce::verbs {

uroce_av to_av(const ibv_ah_attr& attr);
void from_av(const uroce_av& av, ibv_ah_attr& out);

}  // namespace uroce::verbs
