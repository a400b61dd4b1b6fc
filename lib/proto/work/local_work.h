// Work requests that change keys and send nothing: LOCAL_INV, BIND_MW, REG_MR (IBTA vol. 1, 10.6: Memory
// Management).
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// Executes a WQE that is abi::kLocal. False: it fails with UROCE_FAIL_KEY_CHANGE.
bool execute_locally(Context& context, const Qp& qp, const Wqe& wqe);

}  // namespace uroce::proto
