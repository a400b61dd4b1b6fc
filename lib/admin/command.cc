#include "admin/command.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace uroce::admin {

int admin_command(const AdminContext& context, control::commands::Call& call) {
  control::Session& session = call.session;
  control::AnswerFile& file = session.answer_file;
  if (session.stall_budget->closer().is_full()) {
    return call.refuse(EMFILE, "descriptors that programs of the user passed do not close");
  }
  if (!file.charged()) {
    control::Charge charge = call.state.charge(session, {.descriptors = 1});
    if (!charge) return ENOMEM;
    file.charge(std::move(charge));
  }
  const std::string_view request(reinterpret_cast<const char*>(call.body.data()), call.body.size());
  UniqueFd stream;
  const std::string answer = handle_query(context, session, request, &stream);
  UniqueFd copy;
  if (const int error = file.write(answer, copy); error != 0) return error;
  call.reply.fds.push_back(std::move(copy));
  if (stream.valid()) call.reply.fds.push_back(std::move(stream));
  call.reply.put(uroce_admin_response{answer.size()});
  return 0;
}

}  // namespace uroce::admin
