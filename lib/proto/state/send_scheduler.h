// Which QP sends next: deficit round robin over users, over each user's sessions, and turns among the QPs of a
// session (M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", 1995). A user of
// weight w has w times the turns of one of weight 1. A user or session that is alone has all turns. A user that had
// nothing to send comes before those that did, once a round (RFC 8290, 4.2): a single small message does not wait
// for the others' turns.
//
// Call contract. attach() and detach() frame the life of a QP. A QP is in the list from activate() until take()
// returns it or remove(). charge() follows take(), with what the QP's turn has cost. No allocation after
// construction.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

#include "base/fixed_index.h"

namespace uroce::proto {

class SendScheduler {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// QPs chosen ahead of their turns, so that their state can be prefetched.
  static constexpr std::uint32_t kLookahead = 8;
  /// Cost that a user of weight 1, and a session, may cause in a round.
  static constexpr std::int32_t kQuantum = 16 << 10;
  static constexpr std::uint32_t kMaxWeight = 100;

  SendScheduler(std::uint32_t max_qps, std::pmr::memory_resource* resource)
      : qps_(max_qps, resource),
        sessions_(max_qps, resource),
        users_(max_qps, resource),
        session_index_(max_qps),
        user_index_(max_qps) {}

  /// `session` 0: QPs without a session; each user has such a list. `weight`: of the user, 1 to kMaxWeight; that of
  /// its first QP counts.
  void attach(std::uint32_t qp, std::uint64_t session, std::uint64_t user, std::uint32_t weight = 1);
  /// After remove().
  void detach(std::uint32_t qp);

  /// Adds a QP that is not in the list, after those of its session.
  void activate(std::uint32_t qp) {
    append(qp);
    ++active_;
  }
  /// Adds a QP that is not in the list, before those of its session.
  void activate_first(std::uint32_t qp) {
    prepend(qp);
    ++active_;
  }
  bool any() const { return active_ != 0; }
  /// Whether several sessions have QPs. If not, costs need not be charged.
  bool is_shared() const { return attached_sessions_ > 1; }
  /// How often the user who is charged changed.
  std::uint32_t user_changes() const { return user_changes_; }

  /// Removes the QP that is next. kNone: there is none.
  std::uint32_t take() {
    if (active_ == 0) return kNone;
    if (active_ == 1 && chosen_count_ == 0) {
      active_ = 0;
      return choose();
    }
    // Another user's QP would wait for the turns that were chosen before it.
    const std::uint32_t ahead = attached_users_ > 1 ? 1 : kLookahead + 1;
    while (chosen_count_ < ahead && chosen_count_ < active_) {
      chosen_[(chosen_first_ + chosen_count_++) % chosen_.size()] = choose();
    }
    const std::uint32_t qp = chosen_[chosen_first_ % chosen_.size()];
    ++chosen_first_, --chosen_count_, --active_;
    return qp;
  }
  /// The QP that take() returns after `ahead` others; kNone: not chosen yet.
  std::uint32_t peek(std::uint32_t ahead) const {
    return ahead < chosen_count_ ? chosen_[(chosen_first_ + ahead) % chosen_.size()] : kNone;
  }
  void charge(std::uint32_t qp, std::uint32_t cost) {
    Session& session = sessions_[qps_[qp].session];
    session.deficit -= static_cast<std::int32_t>(cost);
    users_[session.user].deficit -= static_cast<std::int32_t>(cost);
    const std::uint32_t before = std::exchange(charged_user_, session.user);
    user_changes_ += before != session.user && before != kNone;
  }
  void remove(std::uint32_t qp);

 private:
  struct QpEntry {
    std::uint32_t next = kNone, previous = kNone;
    std::uint32_t session = kNone;
    bool listed = false;  ///< in its session's list; otherwise chosen, or not in the list
  };
  struct Session {
    std::uint32_t first = kNone, last = kNone;  ///< QPs
    std::uint32_t next = kNone;                 ///< of the user's listed sessions
    std::uint32_t user = kNone;
    std::int32_t deficit = 0;
    bool listed = false;
    std::uint32_t qps = 0;
    std::uint64_t number = 0;
  };
  struct User {
    std::uint32_t first = kNone, last = kNone;  ///< listed sessions
    std::uint32_t next = kNone;                 ///< of the listed users
    std::int32_t deficit = 0;
    std::int32_t quantum = kQuantum;
    bool listed = false;
    bool early = false;  ///< listed before the others, and not yet behind them
    std::uint32_t sessions = 0;
    std::uint64_t number = 0;
  };

  // A debt stays; what was not used does not.
  static std::int32_t renewed(std::int32_t deficit, std::int32_t quantum) { return std::min(deficit, 0) + quantum; }

  void append(std::uint32_t qp) {
    QpEntry& entry = qps_[qp];
    Session& session = sessions_[entry.session];
    entry.next = kNone, entry.previous = session.last, entry.listed = true;
    (session.last == kNone ? session.first : qps_[session.last].next) = qp;
    session.last = qp;
    if (!session.listed) list(entry.session);
  }
  void prepend(std::uint32_t qp) {
    QpEntry& entry = qps_[qp];
    Session& session = sessions_[entry.session];
    entry.next = session.first, entry.previous = kNone, entry.listed = true;
    (session.first == kNone ? session.last : qps_[session.first].previous) = qp;
    session.first = qp;
    if (!session.listed) list(entry.session);
  }
  void unlink(std::uint32_t qp) {
    QpEntry& entry = qps_[qp];
    Session& session = sessions_[entry.session];
    (entry.previous == kNone ? session.first : qps_[entry.previous].next) = entry.next;
    (entry.next == kNone ? session.last : qps_[entry.next].previous) = entry.previous;
    entry.listed = false;
  }
  void list(std::uint32_t session);
  std::uint32_t choose();

  /// Moves the first of a list to its end.
  template <class List, class Items>
  static void rotate(List& list, Items& items) {
    if (list.first == list.last) return;
    const std::uint32_t moved = list.first;
    list.first = items[moved].next;
    items[moved].next = kNone;
    items[list.last].next = moved;
    list.last = moved;
  }

  std::pmr::vector<QpEntry> qps_;       ///< by QP slot
  std::pmr::vector<Session> sessions_;  ///< the first sessions_made_ have been used
  std::pmr::vector<User> users_;
  base::FixedIndex session_index_, user_index_;
  std::uint32_t free_session_ = kNone, free_user_ = kNone;  ///< by `next`
  std::uint32_t sessions_made_ = 0, users_made_ = 0;
  std::uint32_t first_user_ = kNone, last_user_ = kNone;
  std::uint32_t attached_sessions_ = 0, attached_users_ = 0;
  std::uint32_t active_ = 0;
  std::uint32_t charged_user_ = kNone, user_changes_ = 0;
  std::array<std::uint32_t, 16> chosen_{};  ///< a ring
  std::uint32_t chosen_first_ = 0, chosen_count_ = 0;
};

}  // namespace uroce::proto
