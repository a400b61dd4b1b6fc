// QUERY_DEVICE, QUERY_PORT, QUERY_GID.
#include "control/commands/command.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {

int query_device(Call& call) {
  if (!call.no_body()) return EINVAL;
  call.reply.put(call.state.port().device());
  return 0;
}

int query_port(Call& call) {
  if (!call.no_body()) return EINVAL;
  call.link.refresh();
  uroce_port_response response = call.state.port().port();
  worker_commands::CountBadKeys bad;
  call.state.on_all_workers(bad);
  response.bad_pkeys += static_cast<std::uint32_t>(bad.pkeys);
  response.bad_qkeys += static_cast<std::uint32_t>(bad.qkeys);
  call.reply.put(response);
  return 0;
}

int query_gid(Call& call) {
  uroce_gid_request request;
  uroce_gid_response response;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if (!call.state.port().gid(request.index, response)) {
    return call.refuse(EINVAL, "the table of GIDs has no index %u (`urocectl show devices`)", request.index);
  }
  call.reply.put(response);
  return 0;
}

}  // namespace uroce::control::commands
