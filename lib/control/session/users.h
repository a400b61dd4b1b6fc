// What the clients of each user have in common: the budget of the time that they may keep others waiting, and the
// thread that closes their descriptors.
//
// Call contract. The control thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>

#include "control/session/quotas.h"
#include "mapping/stall_budget.h"
#include "platform/unique_fd.h"

namespace uroce::control {

class Users {
 public:
  explicit Users(Quotas& quotas) : quotas_(quotas) {}
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;

  /// The budget of the user's sessions.
  std::shared_ptr<mapping::StallBudget> stall_budget(uid_t user);

  /// Charges a user for what clients have left, but is still in use: descriptors that are not closed yet, and
  /// threads that are blocked.
  void count_closing(uid_t user);
  void count_closing();
  /// Starts the closers that found no thread before.
  void retry_closers();
  /// Closes the socket of a client that is refused: here unless a message waits in it, else on the user's closer. A
  /// user that fills its budget with such sockets gets no further descriptors of the daemon that way.
  void close_refused(uid_t user, UniqueFd socket);

 private:
  struct User {
    std::shared_ptr<mapping::StallBudget> stall_budget = std::make_shared<mapping::StallBudget>();
    Charge closing;
  };
  User& user_of(uid_t user);
  void count_closing(uid_t uid, User& user);

  Quotas& quotas_;
  std::map<uid_t, User> users_;
};

}  // namespace uroce::control
