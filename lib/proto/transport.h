// The transport of one worker: all its QPs as state machines, sans-IO.
//
// Contract. The owner, always on one thread, in any order:
//   receive(packet, now)   packets in: accepted by wire::parse, steered here by destination QPN; returns the final
//   verdict doorbell(qp)           a client published send queue entries advance(now, ...)      time in: fires the
//   timers that are due; next_timeout() says when that is worth while transmit(burst, now)   packets out: fills
//   frames, QPs in round-robin order, each within its budget; call it
//                          again while it fills the burst
//   create / modify / query / destroy, set_cq, set_srq, set_address_handle ...: the conductor's commands
// receive() and advance() only change state: acknowledges, READ responses and requests all leave in transmit().
// Completions go into the CQs as they come about; touched_cqs() lists those that may owe an event. Asynchronous
// events come out of take_events(). Nothing here reads a clock, makes a system call (but through a Region's
// IndirectIo), allocates after construction and create(), logs or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"
#include "memory/table.h"
#include "proto/state/attributes.h"
#include "proto/state/counters.h"
#include "proto/state/types.h"
#include "queue/completion_queue.h"
#include "wire/packet.h"

namespace uroce::proto {

class Srq;

class Transport {
 public:
  static constexpr std::size_t kResponderResourceBytes = 64;  ///< each
  static constexpr std::uint8_t kMaxRdAtomic = proto::kMaxRdAtomic;

  Transport(const TransportConfig& config, memory::Table& memory);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Objects that QPs refer to. nullptr removes. The pointed-to queue outlives its registration.
  void set_cq(CqId id, queue::CqProducer* cq, std::uint64_t owner);
  void set_srq(SrqId id, Srq* srq);
  /// A QP of another PD may not use it.
  void set_address_handle(AhId id, PdId pd, const wire::PathAddress* path);
  /// Bytes: 256, 512, 1024, 2048 or 4096.
  void set_port_mtu(std::uint32_t bytes);
  /// As TransportConfig::max_frame.
  void set_max_frame(std::uint32_t bytes);

  /// errno: 0, EINVAL (no UD QP, no group, or for detach not attached), ENOMEM. Attaching twice counts once.
  int attach_multicast(QpIndex qp, const wire::Address& group);
  int detach_multicast(QpIndex qp, const wire::Address& group);
  /// Whether a QP of this worker is attached to the group.
  bool wants_multicast(const wire::Address& group) const;

  /// errno: 0, ENOMEM (table full), EEXIST (QPN in use).
  int create(const QpCreate& create, QpIndex& out);
  /// Checks with check_modify() and applies. Entering ERR flushes, entering RESET empties both queues.
  ModifyVerdict modify(QpIndex qp, const QpAttr& attr, std::uint32_t mask, Nanos now);
  bool query(QpIndex qp, QpSnapshot& out) const;
  /// How far a UD QP's send queue has been sent. All of it where there is no such QP, or it doesn't send now.
  SendProgress datagrams(QpIndex qp) const;
  /// What it had executed is acknowledged for a while yet (proto/rc/destroyed_qps.h).
  void destroy(QpIndex qp, Nanos now);

  /// The packet's final verdict: kBadIcrc when the ICRC was pending and is bad (nothing was done), otherwise kOk.
  /// A packet that is dropped before its ICRC matters is kOk, and counted in counters() by the reason.
  wire::ParseVerdict receive(wire::RxPacket& packet, Nanos now);
  /// A frame that a flow sends to a raw packet QP or a WQ. Dropped and counted like a datagram.
  void receive_frame(QpIndex qp, const ReceivedFrame& frame, Nanos now);
  /// A packet for this QPN will come in soon: starts to bring what says where the QP is into the cache, and the
  /// state of the QP that the call before named. Worth while a few packets ahead.
  void prefetch(Qpn qpn);
  void doorbell(QpIndex qp);
  /// `behind`: more may have arrived than was received, so nobody is said to be late.
  void advance(Nanos now, bool behind = false);
  /// kNever: no timer runs.
  Nanos next_timeout() const;
  /// Fills frames until the burst is full or no QP may send now. True: some QP still wants to send.
  bool transmit(TxBurst& burst, Nanos now);
  bool wants_transmit() const;

  /// CQs that got an entry since the last call; valid until the next call of a member function.
  std::span<const CqId> touched_cqs();
  /// Copies out up to out.size() events; the rest stay.
  std::size_t take_events(std::span<Event> out);

  const Counters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::proto
