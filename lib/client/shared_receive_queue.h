// The client side of a shared receive queue: a ring from which any number of QPs receive.
//
// Contract. A thread that posts holds `lock` from reserve() to publish(). Any number of entries takes one
// publication. There is no doorbell: workers read the ring when a message needs an entry.
#pragma once

#include <cstdint>

#include "base/spinlock.h"
#include "client/session.h"
#include "queue/work_queue.h"

namespace uroce::client {

class SharedReceiveQueue {
 public:
  /// errno: the daemon's answer to CREATE_SRQ. `out` keeps a pointer to the session.
  static int create(Session& session, const uroce_create_srq_request& request, SharedReceiveQueue& out);
  int destroy() { return session_->release(UROCE_CMD_DESTROY_SRQ, made_.handle); }

  /// Fills in `request.handle`. errno: the daemon's answer to MODIFY_SRQ.
  int modify(uroce_modify_srq_request request);
  /// errno: the daemon's answer to QUERY_SRQ.
  int query(uroce_query_srq_response& out);

  Session& session() const { return *session_; }
  const uroce_create_srq_response& made() const { return made_; }

  /// nullptr: the ring is full.
  uroce_rq_entry* reserve() { return reinterpret_cast<uroce_rq_entry*>(ring_.next()); }
  void commit() { ring_.advance(); }
  void publish() { ring_.publish(); }

  /// When the daemon is gone: returns each work request that never completed, in order, once. False: no more.
  bool flush(std::uint64_t& wr_id);
  bool outstanding();

  base::OptionalSpinlock lock;

 private:
  bool map_ring(const uroce_place& place, std::uint32_t entries, queue::RingShape& out) const;

  Session* session_ = nullptr;
  queue::WorkProducer ring_;
  std::uint32_t flushed_ = 0;  ///< entries handed out by flush(), counted from the consumer
  uroce_create_srq_response made_{};
};

}  // namespace uroce::client
