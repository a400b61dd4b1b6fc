#include "client/completion_queue.h"

#include <algorithm>
#include <bit>

namespace uroce::client {
namespace {

const uroce_cqe* ring_at(const Session& session, const uroce_place& place, std::uint32_t entries) {
  const bool plausible = std::has_single_bit(entries) && entries <= (1u << 26);
  return plausible ? static_cast<const uroce_cqe*>(session.at(place, entries * sizeof(uroce_cqe))) : nullptr;
}

}  // namespace

int CompletionQueue::create(Session& session, const uroce_create_cq_request& request, CompletionQueue& out) {
  uroce_create_cq_response& made = out.made_;
  if (const int error = session.call_and_map(UROCE_CMD_CREATE_CQ, request, made); error != 0) return error;
  out.session_ = &session;
  auto* const client = static_cast<uroce_cq_client_block*>(session.at(made.client, sizeof(uroce_cq_client_block)));
  const uroce_cqe* const ring = ring_at(session, made.ring, made.entries);
  if (client == nullptr || ring == nullptr) {
    out.destroy();
    return EPROTO;
  }
  out.consumer_ = {ring, made.entries, client};
  return 0;
}

int CompletionQueue::resize(std::uint32_t entries) {
  const uroce_resize_cq_request request{made_.handle, entries};
  uroce_resize_cq_response reply{};
  const std::lock_guard lock(lock_);
  // The daemon would count entries that were popped but not published as unpolled.
  consumer_.publish();
  if (const int error = session_->call_and_map(UROCE_CMD_RESIZE_CQ, request, reply); error != 0) return error;
  const uroce_cqe* const ring = ring_at(*session_, reply.ring, reply.entries);
  if (ring == nullptr) {
    session_->set_dead();  // the daemon already uses a ring that this process can't map
    return EPROTO;
  }
  consumer_.move_to(ring, reply.entries);
  made_.entries = reply.entries;
  made_.ring = reply.ring;
  return 0;
}

const uroce_cqe* CompletionQueue::front() {
  if (flushed_waiting_) return &flushed_;
  if (const uroce_cqe* const entry = next(); entry != nullptr) return entry;
  if (session_->connection_state() == ConnectionState::kDead && next_flushed(flushed_)) {
    flushed_waiting_ = true;
    return &flushed_;
  }
  empty_polls_.count();
  return nullptr;
}

void CompletionQueue::pop() {
  if (flushed_waiting_) {
    flushed_waiting_ = false;
  } else {
    consumer_.pop();
  }
}

void CompletionQueue::attach(QueuePair* qp, bool sends, bool receives) {
  const std::lock_guard lock(lock_);
  users_.push_back({qp, sends, receives});
}

void CompletionQueue::detach(QueuePair* qp) {
  const std::lock_guard lock(lock_);
  std::erase_if(users_, [qp](const User& user) { return user.qp == qp; });
}

void CompletionQueue::purge(std::uint32_t qpn) {
  const std::lock_guard lock(lock_);
  const std::uint32_t end = consumer_.produced();
  if (end == consumer_.popped()) return;
  purged_.push_back({qpn, end});
  has_purged_ = true;
  next();
}

const uroce_cqe* CompletionQueue::skip_purged(const uroce_cqe* entry) {
  bool popped = false;
  while (true) {
    std::erase_if(
        purged_, [at = consumer_.popped()](const Purged& p) { return static_cast<std::int32_t>(p.end - at) <= 0; });
    has_purged_ = !purged_.empty();
    const bool skipped = entry != nullptr && std::any_of(purged_.begin(), purged_.end(),
                                                         [&](const Purged& p) { return p.qpn == entry->qpn; });
    if (!skipped) break;
    consumer_.pop();
    popped = true;
    entry = consumer_.peek();
  }
  if (popped) consumer_.publish();
  return entry;
}

bool CompletionQueue::has_flushed() {
  const std::lock_guard lock(lock_);
  if (flushed_waiting_ || next() != nullptr) return true;
  return std::any_of(users_.begin(), users_.end(), [](const User& user) {
    return (user.sends && user.qp->sends_outstanding()) || (user.receives && user.qp->receives_outstanding());
  });
}

bool CompletionQueue::next_flushed(uroce_cqe& out) {
  for (const User& user : users_) {
    out = {};
    out.status = UROCE_WC_WR_FLUSH_ERR;
    out.vendor_err = UROCE_FAIL_NO_DAEMON;
    out.qpn = user.qp->made().qpn;
    out.opcode = UROCE_WC_SEND;
    if (user.sends && user.qp->flush_send(out.wr_id)) return true;
    out.opcode = UROCE_WC_RECV;
    if (user.receives && user.qp->flush_receive(out.wr_id)) return true;
  }
  return false;
}

}  // namespace uroce::client
