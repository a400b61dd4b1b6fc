// The client's end of an SRQ: a ring that any number of QPs receive from.
//
// Contract. Posters hold `lock` from next() to publish(): one publication for any number of entries. There is no
// doorbell: workers look into the ring when a message needs an entry.
#pragma once

#include <cstdint>

#include "base/spinlock.h"
#include "client/session.h"
#include "queue/work_queue.h"

namespace uroce::client {

class SharedReceiveQueue {
 public:
  /// errno: what the daemon says to CREATE_SRQ. `out` keeps a pointer to the session.
  static int create(Session& session, const uroce_create_srq_request& request, SharedReceiveQueue& out);
  int destroy() { return session_->release(UROCE_CMD_DESTROY_SRQ, made_.handle); }

  /// `request.handle` is filled in. errno: what the daemon says to MODIFY_SRQ.
  int modify(uroce_modify_srq_request request);
  /// errno: what the daemon says to QUERY_SRQ.
  int query(uroce_query_srq_response& out);

  Session& session() const { return *session_; }
  const uroce_create_srq_response& made() const { return made_; }

  /// nullptr: as many entries are posted as the SRQ was made for.
  uroce_rq_entry* next() { return reinterpret_cast<uroce_rq_entry*>(ring_.next()); }
  void keep() { ring_.advance(); }
  void publish() { ring_.publish(); }

  /// With the daemon gone: the work requests that never completed, one after the other, each once. False: no more.
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
