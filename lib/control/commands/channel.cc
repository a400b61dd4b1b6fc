// CREATE_CHANNEL, DESTROY_CHANNEL.
#include "control/commands/command.h"
#include "platform/record_socket.h"

namespace uroce::control::commands {

int create_channel(Call& call) {
  if (!call.no_body()) return EINVAL;
  Charge charge = call.state.charge(call.session, {.descriptors = 1});
  if (!charge) return EMFILE;
  UniqueFd writer;
  if (!platform::open_record_socket(writer, call.reply.fds.emplace_back())) {
    call.reply.fds.clear();
    return EMFILE;
  }
  auto channel = std::make_unique<ChannelObject>();
  channel->charge = std::move(charge);
  channel->writer = {std::move(writer), call.session.stall_budget};
  call.reply.put(uroce_handle{call.session.channels.add(std::move(channel)), 0});
  return 0;
}

int destroy_channel(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const ChannelObject* channel = call.session.channels.find(request.handle);
  if (channel == nullptr) return ENOENT;
  if (channel->users != 0) return call.in_use("completion channel", channel->users, "CQs");
  call.session.channels.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
