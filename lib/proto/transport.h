// The transport of one worker: all its QPs as state machines, sans-IO.
//
// Contract. The owner, always on one thread, in any order:
//   receive(packet, now)   packets in: accepted by wire::parse, steered here by destination QPN; returns the final
//                          verdict on the ICRC
//   doorbell(qp)           a client published send queue entries; measured_doorbell(qp, rung) also times them
//   advance(now, ...)      time in: fires the timers that are due; next_timeout() is when the next one is
//   transmit(burst, now)   packets out: fills frames, QPs in round-robin order, each within its budget; call it
//                          again while it fills the burst
//   create / modify / query / destroy, set_cq, set_srq, set_address_handle ...: the conductor's commands
// receive() and advance() only change state: acknowledges, READ responses and requests all leave in transmit().
// Completions are pushed to the CQs at once; touched_cqs() lists the CQs that may owe an event. Asynchronous events
// are read with take_events(). Nothing here reads a clock, makes a system call (except through a Region's
// IndirectIo), allocates after construction and create(), logs or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"
#include "memory/table.h"
#include "proto/state/attributes.h"
#include "proto/state/completion_counters.h"
#include "proto/state/counters.h"
#include "proto/state/latency.h"
#include "proto/state/local_devices.h"
#include "proto/state/memory_in_use.h"
#include "proto/state/qp_events.h"
#include "proto/state/types.h"
#include "queue/completion_queue.h"
#include "wire/address.h"
#include "wire/frame_template.h"
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
  /// A QP of another PD cannot use the handle.
  void set_address_handle(AhId id, PdId pd, const wire::PathAddress* path);
  /// Bytes: 256, 512, 1024, 2048 or 4096.
  void set_port_mtu(std::uint32_t bytes);
  /// Sets TransportConfig::max_frame.
  void set_max_frame(std::uint32_t bytes);

  /// errno: 0, EINVAL (not a UD QP, not a group, or not attached when detaching), ENOMEM. A second attach has no
  /// effect.
  int attach_multicast(QpIndex qp, const wire::Address& group);
  int detach_multicast(QpIndex qp, const wire::Address& group);
  /// Whether a QP of this worker is attached to the group.
  bool wants_multicast(const wire::Address& group) const;

  /// errno: 0, ENOMEM (table full), EEXIST (QPN in use).
  int create(const QpCreate& create, QpIndex& out);
  /// Checks with check_modify() and applies. Entering ERR flushes both queues, entering RESET empties them (IBTA
  /// vol. 1, 10.3.1).
  ModifyVerdict modify(QpIndex qp, const QpAttr& attr, std::uint32_t mask, Nanos now);
  bool query(QpIndex qp, QpSnapshot& out) const;
  /// Rules for the work requests that the QP takes from its rings from now on; nullptr: none. What was set before
  /// is not used any longer. Not for XRC targets, whose receives are taken from SRQs of others.
  void set_faults(QpIndex qp, QpFaults* faults);
  /// `counter` counts these operations (uroce_counted_operation) of the QP from now on, in `table`, which lives
  /// until destroy(). errno: EINVAL unless the QP is in RESET or INIT.
  int attach_counter(QpIndex qp, QpCompletionCounters& table, std::uint32_t operations,
                     const CompletionCounter& counter);
  /// How far a UD QP's send queue has been sent. Everything, if there is no such QP or its WQEs will be flushed.
  SendProgress datagrams(QpIndex qp) const;
  /// As datagrams(). If not everything is sent, kDatagramsSent is raised once what is posted now has been sent or
  /// flushed; a report that was requested before and is outstanding comes first, and replaces this one.
  SendProgress report_sent(QpIndex qp);
  /// Requests that it executed are acknowledged again for some time (proto/rc/destroyed_qps.h).
  void destroy(QpIndex qp, Nanos now);

  /// The packet's final verdict: kBadIcrc if the ICRC was pending and is bad (nothing was done), otherwise kOk.
  /// A packet that is dropped before its ICRC matters is kOk, and counted in counters() by the reason.
  wire::ParseVerdict receive(wire::RxPacket& packet, Nanos now);
  /// A frame that a flow rule directs to a raw packet QP or a WQ. Dropped and counted as a datagram is.
  void receive_frame(QpIndex qp, const ReceivedFrame& frame, Nanos now);
  /// A packet for this QPN will be received soon: prefetches the QPN's table entry, and the state of the QP that
  /// the previous call named. Useful a few packets ahead.
  void prefetch(Qpn qpn);
  void doorbell(QpIndex qp);
  /// As doorbell(), and measures how long a work request takes: proto/work/latency.h. `rung`: when, at the latest.
  void measured_doorbell(QpIndex qp, Nanos rung);
  /// `rx_pending`: packets may have arrived that were not received yet, so no acknowledge counts as missing.
  void advance(Nanos now, bool rx_pending = false);
  /// kNever: no timer is set.
  Nanos next_timeout() const;
  /// Fills frames until the burst is full or no QP can send. True: a QP still has something to send.
  bool transmit(TxBurst& burst, Nanos now);
  bool wants_transmit() const;
  /// `devices`: those that frames reach without a wire. Before a QP is connected.
  void join(LocalDevices& devices);
  /// Whether transmit() may fill frames for QPs of this process with base::PayloadReference instead of payload: the
  /// device hands frames back as they are, and nobody else looks at them. Initially not.
  void allow_references(bool allowed);
  /// Whether several users had turns of late: turns are short then.
  bool users_compete(Nanos now) const;

  /// CQs that got an entry since the last call; valid until the next call of a member function.
  std::span<const CqId> touched_cqs();
  /// Copies out up to out.size() events; the rest stay.
  std::size_t take_events(std::span<Event> out);
  /// QPs that have failed since the last call: the first 16, of which out.size() are copied.
  bool any_failures() const;
  std::size_t take_failures(std::span<QpFailure> out);

  const Counters& counters() const;
  /// Of what measured_doorbell() measured.
  const OperationLatencies& latencies() const;
  void clear_latencies();

  /// What happens to QPs besides the normal course; off at first.
  QpEventLog& qp_events();

  /// Any thread: whose memory is in use, as noted before each packet and each turn of a QP.
  BusyWith busy_with() const;
  void note_busy_with(std::uint64_t mark);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::proto
