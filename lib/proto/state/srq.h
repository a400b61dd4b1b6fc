// A shared receive queue. Made and kept by the conductor, used by the QPs of any worker at once.
//
// Contract. Workers call take(); the conductor set_limit(), limit(), resize() at any time. It outlives its
// registration with every transport (Transport::set_srq).
#pragma once

#include <cstdint>

#include "base/spinlock.h"
#include "base/types.h"
#include "queue/work_queue.h"

namespace uroce::proto {

struct ReceiveWqe;
enum class FetchResult : std::uint8_t;

/// The ring's entries are uroce_rq_entry; they were checked to be as large as its shape says.
struct SrqCreate {
  SrqId id;  ///< of an XRC SRQ also its number on the wire, 24 bits
  PdId pd;   ///< of the memory that receives name, and of what XRC peers name
  std::uint64_t owner = 0;
  bool xrc = false;
  std::uint32_t xrcd = 0;
  CqId cq;  ///< of an XRC SRQ: where its receives complete
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

  /// Copies the next receive WQE out and checks it, like take_receive(). `limit_reached`: fewer are left than
  /// set_limit() said, for the first time since.
  FetchResult take(ReceiveWqe& out, bool& limit_reached);

  /// 0: no event. One event a call. True: already fewer are posted, and the event is the caller's to raise.
  bool set_limit(std::uint32_t limit) {
    const base::SpinGuard guard(lock_);
    limit_ = limit;
    return reaches_limit();
  }
  /// As set; 0 once it was reached.
  std::uint32_t limit() const {
    const base::SpinGuard guard(lock_);
    return limit_;
  }
  /// Goes on with another ring, to which the posted entries are copied under their indices; the client posts
  /// nothing meanwhile. False: more are posted than it has entries.
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
