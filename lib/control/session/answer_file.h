// The file in which a session got its last long answer. Its pages are memory of the daemon, and the client may keep
// it for as long as it likes, also unread in its socket. So it loses them with the next answer, and when the
// session ends. Used by the control thread only.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "control/session/quotas.h"
#include "mapping/stall_budget.h"
#include "platform/unique_fd.h"

namespace uroce::control {

class AnswerFile {
 public:
  /// The user's closer drops the pages: the client may have mapped them many times, which takes long.
  explicit AnswerFile(std::shared_ptr<mapping::StallBudget> user) : user_(std::move(user)) {}
  ~AnswerFile() { drop(); }
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  /// Whether the descriptor that it needs is charged.
  bool charged() const { return static_cast<bool>(charge_); }
  void charge(Charge charge) { charge_ = std::move(charge); }
  /// Replaces the answer before. `copy`: a descriptor for the client. errno: 0, EMFILE, ENOMEM.
  int write(std::string_view text, UniqueFd& copy);

 private:
  void drop();

  std::shared_ptr<mapping::StallBudget> user_;
  UniqueFd file_;
  Charge charge_;
};

}  // namespace uroce::control
