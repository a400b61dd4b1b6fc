#include "proto/state/send_scheduler.h"

namespace uroce::proto {
namespace {

std::uint64_t hash_of(std::uint64_t session, std::uint64_t user) { return base::mix(session) ^ user; }

template <class Items>
std::uint32_t allocate(Items& items, std::uint32_t& free, std::uint32_t& made) {
  if (free == SendScheduler::kNone) return made++;
  const std::uint32_t slot = free;
  free = items[slot].next;
  items[slot] = {};
  return slot;
}

}  // namespace

void SendScheduler::attach(std::uint32_t qp, std::uint64_t session, std::uint64_t user, std::uint32_t weight) {
  std::uint32_t owner = user_index_.find(user, [&](std::uint32_t slot) { return users_[slot].number == user; });
  if (owner == kNone) {
    owner = allocate(users_, free_user_, users_made_);
    users_[owner].number = user;
    users_[owner].quantum = static_cast<std::int32_t>(weight) * kQuantum;
    ++attached_users_;
    user_index_.insert(user, owner);
  }
  const std::uint64_t hash = hash_of(session, user);
  std::uint32_t slot = session_index_.find(
      hash, [&](std::uint32_t s) { return sessions_[s].number == session && sessions_[s].user == owner; });
  if (slot == kNone) {
    slot = allocate(sessions_, free_session_, sessions_made_);
    sessions_[slot].number = session;
    ++attached_sessions_;
    sessions_[slot].user = owner;
    ++users_[owner].sessions;
    session_index_.insert(hash, slot);
  }
  ++sessions_[slot].qps;
  qps_[qp] = {};
  qps_[qp].session = slot;
}

void SendScheduler::detach(std::uint32_t qp) {
  const std::uint32_t slot = qps_[qp].session;
  if (slot == kNone) return;
  qps_[qp].session = kNone;
  Session& session = sessions_[slot];
  if (--session.qps != 0) return;
  --attached_sessions_;
  User& user = users_[session.user];
  if (session.listed) {
    // It is empty; choose() would take it off the list later.
    std::uint32_t previous = kNone, at = user.first;
    for (; at != slot; at = sessions_[at].next) previous = at;
    (previous == kNone ? user.first : sessions_[previous].next) = session.next;
    if (user.last == slot) user.last = previous;
  }
  session_index_.erase(hash_of(session.number, user.number), slot);
  const std::uint32_t owner = session.user;
  session.next = free_session_;
  free_session_ = slot;
  if (--user.sessions != 0) return;
  --attached_users_;
  if (user.listed) {
    std::uint32_t previous = kNone, at = first_user_;
    for (; at != owner; at = users_[at].next) previous = at;
    (previous == kNone ? first_user_ : users_[previous].next) = user.next;
    if (last_user_ == owner) last_user_ = previous;
  }
  user_index_.erase(user.number, owner);
  user.next = free_user_;
  free_user_ = owner;
}

void SendScheduler::list(std::uint32_t slot) {
  Session& session = sessions_[slot];
  User& user = users_[session.user];
  session.listed = true;
  session.deficit = renewed(session.deficit, kQuantum);
  session.next = kNone;
  (user.last == kNone ? user.first : sessions_[user.last].next) = slot;
  user.last = slot;
  if (user.listed) return;
  user.listed = true;
  user.deficit = renewed(user.deficit, user.quantum);
  user.early = user.deficit > 0;
  if (user.early) {
    user.next = first_user_;
    first_user_ = session.user;
    if (last_user_ == kNone) last_user_ = session.user;
  } else {
    user.next = kNone;
    (last_user_ == kNone ? first_user_ : users_[last_user_].next) = session.user;
    last_user_ = session.user;
  }
}

// Sessions and users without QPs in the list are taken off it here, not when their last QP is taken: most often
// that one returns after its turn.
std::uint32_t SendScheduler::choose() {
  struct {
    std::uint32_t &first, &last;
  } all{first_user_, last_user_};
  for (;;) {
    User& user = users_[first_user_];
    if (user.first == kNone) {
      if (user.early && first_user_ != last_user_) {
        user.early = false;
        rotate(all, users_);
        continue;
      }
      user.listed = false;
      first_user_ = user.next;
      if (first_user_ == kNone) last_user_ = kNone;
      continue;
    }
    if (user.deficit <= 0) {
      user.deficit += user.quantum;
      user.early = false;
      rotate(all, users_);
      continue;
    }
    Session& session = sessions_[user.first];
    if (session.first == kNone) {
      session.listed = false;
      user.first = session.next;
      if (user.first == kNone) user.last = kNone;
      continue;
    }
    if (session.deficit <= 0) {
      session.deficit += kQuantum;
      rotate(user, sessions_);
      continue;
    }
    const std::uint32_t qp = session.first;
    session.first = qps_[qp].next;
    (session.first == kNone ? session.last : qps_[session.first].previous) = kNone;
    qps_[qp].listed = false;
    return qp;
  }
}

void SendScheduler::remove(std::uint32_t qp) {
  --active_;
  if (qps_[qp].listed) {
    unlink(qp);
    return;
  }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < chosen_count_; ++i) {
    const std::uint32_t other = peek(i);
    if (other != qp) chosen_[(chosen_first_ + kept++) % chosen_.size()] = other;
  }
  chosen_count_ = kept;
}

}  // namespace uroce::proto
