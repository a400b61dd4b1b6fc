// The control command that carries urocectl's requests (UROCE_CMD_ADMIN).
#pragma once

#include "admin/query.h"
#include "control/commands/command.h"

namespace uroce::admin {

/// 0 or an errno. The answer travels in a memfd, as it may be longer than a message; the descriptor of
/// a trace comes after it.
int admin_command(const AdminContext& context, control::commands::Call& call);

}  // namespace uroce::admin
