// The client side of a queue pair: the rings that work requests are written to, and the doorbell.
//
// Contract. A sender holds `sq_lock` from reserve_send() to ring_doorbell(), a receiver `rq_lock` from
// reserve_receive() to publish_receives(). Any number of entries takes one publication and at most one doorbell.
#pragma once

#include <cstdint>

#include "base/spinlock.h"
#include "client/session.h"
#include "queue/doorbell.h"
#include "queue/work_queue.h"

namespace uroce::client {

class SharedReceiveQueue;

class QueuePair {
 public:
  /// errno: the daemon's answer to CREATE_QP. `out` keeps a pointer to the session.
  static int create(Session& session, const uroce_create_qp_request& request, QueuePair& out);
  /// Opens an existing XRC target QP (OPEN_QP). errno: the daemon's answer.
  static int open(Session& session, const uroce_open_qp_request& request, QueuePair& out);
  /// An RSS QP (CREATE_RSS): it distributes frames over work queues and has a number but no queues of its own.
  static int create_rss(Session& session, const uroce_create_rss_request& request, QueuePair& out);
  /// The rings stay mapped until the session is closed.
  int destroy() { return session_->release(destroy_command_, made_.handle); }

  Session& session() const { return *session_; }
  const uroce_create_qp_response& made() const { return made_; }

  uroce_sq_entry* reserve_send() { return reinterpret_cast<uroce_sq_entry*>(sq_.next()); }
  void commit_send() { sq_.advance(); }
  void abort_sends() { sq_.rewind(); }
  void ring_doorbell() {
    sq_.publish();
    if (const std::uint32_t sleep = bell_.ring(made_.doorbell_bit); sleep != 0) session_->wake(made_.worker, sleep);
  }

  uroce_rq_entry* reserve_receive() { return reinterpret_cast<uroce_rq_entry*>(rq_.next()); }
  void commit_receive() { rq_.advance(); }
  void publish_receives() { rq_.publish(); }

  /// To be called after the daemon has moved the QP to RESET.
  void reset();

  /// When the daemon is gone: returns each work request that never completed, in order, once. False: no more.
  bool flush_send(std::uint64_t& wr_id);
  bool flush_receive(std::uint64_t& wr_id);

  bool sends_outstanding();
  bool receives_outstanding();

  /// The SRQ whose receives flush_receive() returns. To be called before anything completes.
  void set_srq(SharedReceiveQueue* srq) { srq_ = srq; }

  base::OptionalSpinlock sq_lock, rq_lock;

 private:
  static int adopt(Session& session, std::uint32_t max_tso_header, QueuePair& out);

  Session* session_ = nullptr;
  std::uint32_t destroy_command_ = UROCE_CMD_DESTROY_QP;
  SharedReceiveQueue* srq_ = nullptr;
  queue::WorkProducer sq_, rq_;
  queue::DoorbellRinger bell_;
  std::uint32_t sq_flushed_ = 0, rq_flushed_ = 0;  ///< entries handed out by flush_*, counted from the consumer
  uroce_create_qp_response made_{};
};

}  // namespace uroce::client
