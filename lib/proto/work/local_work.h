// Work requests that change keys and send nothing: invalidate, bind a window, register fast.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// Executes a WQE for which is_local(kind) holds. False: it fails with UROCE_WC_MW_BIND_ERR.
bool execute_locally(Context& context, const Qp& qp, const Wqe& wqe);

}  // namespace uroce::proto
