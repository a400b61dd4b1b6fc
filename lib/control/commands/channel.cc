// CREATE_CHANNEL, DESTROY_CHANNEL.
#include <fcntl.h>
#include <unistd.h>

#include "control/commands/command.h"

namespace uroce::daemon::commands {

int create_channel(Call& call) {
  if (!call.no_body()) return EINVAL;
  Charge charge = call.state.charge(call.session, {.descriptors = 1});
  if (!charge) return EMFILE;
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return EMFILE;
  auto channel = std::make_unique<ChannelObject>();
  channel->write_end.reset(pipe_fds[1]);
  channel->charge = std::move(charge);
  call.reply.fds.emplace_back(pipe_fds[0]);
  // Each end has its own file status flags: the client cannot change this end's.
  ::fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
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
