#include "admin/command.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace uroce::daemon {

int admin_command(const AdminContext& context, commands::Call& call) {
  const std::string_view request(reinterpret_cast<const char*>(call.body.data()), call.body.size());
  const std::string answer = handle_query(context, call.session, request, call.fds);
  UniqueFd file(::memfd_create("uroce-answer", MFD_CLOEXEC));
  if (!file.valid()) return EMFILE;
  std::size_t done = 0;
  while (done < answer.size()) {
    const ssize_t n = ::pwrite(file.get(), answer.data() + done, answer.size() - done, static_cast<off_t>(done));
    if (n <= 0) return ENOMEM;
    done += static_cast<std::size_t>(n);
  }
  call.reply.fds.push_back(std::move(file));
  call.reply.put(uroce_admin_response{answer.size()});
  return 0;
}

}  // namespace uroce::daemon
