#include "control/session/users.h"

#include <utility>

#include "platform/clock.h"

namespace uroce::control {

std::shared_ptr<mapping::StallBudget> Users::stall_budget(uid_t uid) {
  User& user = user_of(uid);
  count_closing(uid, user);
  return user.stall_budget;
}

Users::User& Users::user_of(uid_t uid) {
  const Nanos now = monotonic_now();
  // A user without sessions whose budget is full again needs no entry.
  std::erase_if(users_, [&](const auto& entry) {
    mapping::StallBudget& budget = *entry.second.stall_budget;
    return entry.first != uid && entry.second.stall_budget.use_count() == 1 && budget.is_full(now) &&
           budget.closer().backlog() == 0;
  });
  return users_[uid];
}

void Users::count_closing(uid_t uid, User& user) {
  mapping::StallBudget& budget = *user.stall_budget;
  const std::uint64_t threads = budget.stuck.load(), descriptors = budget.closer().backlog() + threads;
  const Usage& counted = user.closing.amount();
  if (counted.descriptors == descriptors && counted.threads == threads) return;
  user.closing =
      descriptors == 0 ? Charge() : quotas_.record(uid, {.descriptors = descriptors, .threads = threads});
}

void Users::count_closing(uid_t uid) {
  if (const auto it = users_.find(uid); it != users_.end()) count_closing(uid, it->second);
}

void Users::count_closing() {
  for (auto& [uid, user] : users_) count_closing(uid, user);
}

void Users::retry_closers() {
  for (const auto& [uid, user] : users_) user.stall_budget->closer().retry();
}

void Users::close_refused(uid_t uid, UniqueFd socket) {
  if (!socket.valid() || !mapping::Closer::holds_messages(socket.get())) return;
  if (!quotas_.has_room(uid, {.descriptors = 1})) return;
  User& user = user_of(uid);
  user.stall_budget->closer().close_socket(std::move(socket));
  count_closing(uid, user);
}

}  // namespace uroce::control
