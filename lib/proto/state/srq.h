// A shared receive queue (IBTA vol. 1, 10.2.9). Created by the conductor, used concurrently by QPs of all workers.
//
// Contract. Workers call take(); the conductor calls set_limit(), limit() and resize() at any time. It outlives its
// registration with every transport (Transport::set_srq).
#pragma once

#include <cstdint>

#include "base/spinlock.h"
#include "base/types.h"
#include "queue/work_queue.h"

namespace uroce::proto {

struct ReceiveWqe;
enum class FetchResult : std::uint8_t;

/// The ring's entries are uroce_rq_entry; the caller checked that the ring is large enough for its shape.
struct SrqCreate {
  SrqId id;  ///< of an XRC SRQ also its number in the XRCETH, 24 bits (annex A14)
  PdId pd;   ///< of the memory in its receives, and of the memory that XRC peers access
  std::uint64_t owner = 0;
  bool xrc = false;
  std::uint32_t xrcd = 0;
  CqId cq;  ///< of an XRC SRQ: the CQ for its receives
  queue::WorkConsumer ring;
  std::uint32_t max_sge = 1;
};

class Srq {
 public:
  explicit Srq(const SrqCreate& create)
      : id(create.id),
        pd(create.pd),
        owner(create.owner),
        xrc(create.xrc),
        xrcd(create.xrcd),
        cq(create.cq),
        max_sge(create.max_sge),
        ring_(create.ring) {}
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  const SrqId id;
  const PdId pd;
  const std::uint64_t owner;
  const bool xrc;
  const std::uint32_t xrcd;
  const CqId cq;
  const std::uint32_t max_sge;

  /// Copies the next receive WQE and checks it as take_receive() does. `limit_reached`: fewer WQEs are posted than
  /// set_limit() gave, for the first time since.
  FetchResult take(ReceiveWqe& out, bool& limit_reached);

  /// 0: no event. Each call arms one event. True: fewer are posted already, and the caller raises the event.
  bool set_limit(std::uint32_t limit) {
    const base::SpinGuard guard(lock_);
    limit_ = limit;
    return reaches_limit();
  }
  /// The limit as set; 0 once it was reached.
  std::uint32_t limit() const {
    const base::SpinGuard guard(lock_);
    return limit_;
  }
  /// Continues with another ring, to which the posted entries were copied under their indices; the client must not
  /// post during the call. False: more are posted than the new ring has entries.
  bool resize(const queue::WorkConsumer& ring) {
    const base::SpinGuard guard(lock_);
    return ring_.move_to(ring);
  }
  std::uint32_t posted() const {
    const base::SpinGuard guard(lock_);
    return ring_.available();
  }

 private:
  bool reaches_limit() {
    if (limit_ == 0 || ring_.available() >= limit_) return false;
    limit_ = 0;
    return true;
  }

  mutable base::Spinlock lock_;
  queue::WorkConsumer ring_;
  std::uint32_t limit_ = 0;
};

}  // namespace uroce::proto
