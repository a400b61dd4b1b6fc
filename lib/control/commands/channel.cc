// CREATE_CHANNEL, DESTROY_CHANNEL.
#include "control/commands/command.h"
#include "platform/record_socket.h"

namespace uroce::daemon::commands {

int create_channel(Call& call) {
  if (!call.no_body()) return EINVAL;
  auto channel = std::make_unique<ChannelObject>();
  channel->charge = call.state.charge(call.session, {.descriptors = 1});
  if (!channel->charge) return EMFILE;
  if (!open_record_socket(channel->writer, call.reply.fds.emplace_back())) {
    call.reply.fds.clear();
    return EMFILE;
  }
  call.reply.put(uroce_handle{call.session.channels.add(std::move(channel)), 0});
  return 0;
}

int destroy_channel(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const ChannelObject* channel = call.session.channels.find(request.handle);
  if (channel == nullptr) return EINVAL;
  if (channel->users != 0) return EBUSY;
  call.session.channels.erase(request.handle);
  return 0;
}

}  // namespace uroce::daemon::commands
