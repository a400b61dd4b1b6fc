// READs, atomics, FLUSH and ATOMIC WRITE: executed or recorded in sequence, answered from the record, again if the
// request is repeated (IBTA vol. 1, 9.7.5: duplicate requests). The ring of records is as long as the peer may have
// outstanding requests; a new one replaces the oldest.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/probe.h"
#include "proto/rc/responder.h"
#include "proto/work/by_reference.h"
#include "proto/work/completion_counters.h"
#include "proto/work/gather.h"
#include "wire/extended_headers.h"

namespace uroce::proto::responder {
namespace {

std::uint8_t after(const Qp& qp, std::uint8_t at) {
  return static_cast<std::uint8_t>(at + 1 == qp.answers.count ? 0 : at + 1);
}
std::uint8_t before(const Qp& qp, std::uint8_t at) {
  return static_cast<std::uint8_t>(at == 0 ? qp.answers.count - 1 : at - 1);
}
/// How long ago a slot was filled: 1 is the newest.
std::uint32_t age(const Qp& qp, std::uint8_t at) {
  const int distance = int{qp.answers.next} - int{at};
  return static_cast<std::uint32_t>(distance > 0 ? distance : distance + qp.answers.count);
}

/// The slot for a new READ or atomic, which the plan has found room for.
Resource& new_resource(Qp& qp) {
  const std::uint8_t at = qp.answers.next;
  Resource& slot = qp.answers.ring[at];
  if (qp.answers.used == qp.answers.count) {
    if (slot.pending) --qp.responder.answers_pending;
    if (qp.answers.at == at) qp.answers.at = after(qp, at);  // the answers that remain keep their order
  } else {
    ++qp.answers.used;
  }
  slot = Resource{};
  qp.answers.next = after(qp, at);
  return slot;
}

/// Schedules the response; responses are sent in PSN order.
void queue_answer(Context& context, Qp& qp, Resource& resource) {
  const auto at = static_cast<std::uint8_t>(&resource - qp.answers.ring);
  const bool idle = qp.responder.answers_pending == 0;
  if (!resource.pending) {
    resource.pending = 1;
    ++qp.responder.answers_pending;
  }
  if (idle || age(qp, at) > age(qp, qp.answers.at)) qp.answers.at = at;
  context.activate(qp);
}

Resource* find_resource(Qp& qp, Psn psn) {
  std::uint8_t at = qp.answers.next;
  for (std::uint32_t i = 0; i < qp.answers.used; ++i) {
    at = before(qp, at);
    Resource& resource = qp.answers.ring[at];
    if (psns_between(Psn(resource.first_psn), psn) < resource.psn_count) return &resource;
  }
  return nullptr;
}

void note(const Qp& qp, Resource& resource, std::uint64_t address, Key rkey, std::uint32_t length) {
  resource.address = address;
  resource.rkey = rkey.value;
  resource.length = resource.end_offset = length;
  resource.psn_count = length == 0 ? 1 : ((length - 1) >> qp.common.mtu_shift) + 1;
  resource.first_psn = resource.next_psn = resource.start_psn = qp.responder.epsn.value();
  resource.end_psn = (qp.responder.epsn + resource.psn_count).value();
  resource.msn = qp.responder.msn.value();
  resource.pd = qp.common.pd.value;
}

/// Consumes the PSNs of the request; its response also acknowledges earlier requests.
void accept_answered(Context& context, Qp& qp, std::uint32_t psns) {
  qp.responder.epsn = qp.responder.epsn + (psns - 1);
  accept(context, qp, false);
  qp.responder.owed = PendingAck::kNothing;
}

/// Held around the read and the write of memory without atomic instructions, which other workers may access too.
base::Spinlock& lock_of(Context& context, const memory::Span& span) {
  return span.data == nullptr && span.indirect != nullptr ? span.indirect->atomics : context.memory.atomics();
}

std::uint64_t execute(Context& context, const memory::Span& span, bool swap, const wire::AtomicEth& request,
                      bool& reached) {
  reached = true;
  const auto result_of = [&](std::uint64_t old) {
    if (!swap) return old + request.swap_or_add;
    return old == request.compare ? request.swap_or_add : old;
  };
  if (span.data != nullptr && reinterpret_cast<std::uintptr_t>(span.data) % 8 == 0) {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(span.data));
    std::uint64_t old = request.compare;
    if (swap) {
      word.compare_exchange_strong(old, request.swap_or_add);
    } else {
      old = word.fetch_add(request.swap_or_add);
    }
    reached = span.reached(0, sizeof old);
    return old;
  }
  const base::SpinGuard guard(lock_of(context, span));
  std::uint64_t old = 0;
  reached = span.read(0, reinterpret_cast<std::byte*>(&old), sizeof old);
  const std::uint64_t updated = result_of(old);
  if (reached) reached = span.write(0, reinterpret_cast<const std::byte*>(&updated), sizeof updated);
  return old;
}

bool store_word(Context& context, const memory::Span& span, const std::byte* from) {
  if (span.data != nullptr && reinterpret_cast<std::uintptr_t>(span.data) % 8 == 0) {
    std::uint64_t value;
    std::memcpy(&value, from, sizeof value);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(span.data)).store(value, std::memory_order_release);
    return span.reached(0, sizeof value);
  }
  const base::SpinGuard guard(lock_of(context, span));
  return span.write(0, from, sizeof(std::uint64_t));
}

/// The memory of a word went away before it was accessed.
void refuse_lost_word(Context& context, Qp& qp) {
  refuse_fatally(context, qp, wire::Nak::kRemoteOperational, AsyncEvent::kQpAccessError, qp.responder.epsn);
}

/// A FLUSH or ATOMIC WRITE was executed (annex A19).
void confirm(Context& context, Qp& qp, const wire::Reth& reth) {
  Resource& resource = new_resource(qp);
  ++qp.responder.msn;
  note(qp, resource, reth.address, reth.rkey, 0);
  resource.answer = ResponseKind::kConfirmation;
  accept_answered(context, qp, 1);
  queue_answer(context, qp, resource);
}

void count_response(Context& context, Qp& qp, const base::WireCost& on_wire) {
  UROCE_PROBE(respond, qp.common.qpn.value, on_wire.bytes);
  context.counters.sent_pkts += on_wire.packets;
  qp.counters.sent_pkts += on_wire.packets;
  context.counters.sent_bytes += on_wire.bytes;
}

/// Starts `packets` of a READ response with `payload` bytes after their headers. FIRST, LAST and ONLY carry an
/// AETH. False: they are larger than the frame.
[[gnu::always_inline]] inline bool start_read_response(PacketBuilder& builder, base::Frame& frame, const Qp& qp,
                                                       const Resource& resource, std::uint32_t packets,
                                                       std::uint32_t payload) {
  const Psn psn(resource.next_psn);
  const bool first = resource.next_psn == resource.start_psn;
  const bool last = psn + packets == Psn(resource.end_psn);
  using wire::Operation;
  const Operation operation = first ? (last ? Operation::kReadResponseOnly : Operation::kReadResponseFirst)
                                    : (last ? Operation::kReadResponseLast : Operation::kReadResponseMiddle);
  const wire::Bth bth{.opcode = wire::opcode(qp.common.service, operation),
                      .pkey = qp.common.pkey,
                      .dest_qpn = qp.common.dest_qpn,
                      .psn = psn};
  const bool aeth = first || last;
  if (!builder.start(frame, qp.path, bth, aeth ? wire::Aeth::kBytes : 0, payload)) return false;
  if (aeth) emit_aeth(builder.extended(), ack_syndrome(qp), Msn(resource.msn));
  return true;
}

/// Where the payload of the next packet begins in the response.
std::uint32_t next_offset(const Qp& qp, const Resource& resource) {
  return psns_between(Psn(resource.first_psn), Psn(resource.next_psn)) << qp.common.mtu_shift;
}

/// One packet of a READ response. False: the memory is gone.
bool send_read_response(Context& context, Qp& qp, Resource& resource, TxBurst& burst) {
  const std::uint32_t offset = next_offset(qp, resource);
  const std::uint32_t bytes = std::min(qp.common.mtu(), resource.end_offset - offset);
  memory::Span span;
  if (bytes != 0 && context.resolve(Key{resource.rkey}, PdId{resource.pd}, resource.address + offset, bytes,
                                    memory::kRemoteRead, span, qp.common.qpn) != memory::Verdict::kOk) {
    return false;
  }
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (start_read_response(builder, frame, qp, resource, 1, bytes)) {
    builder.seal(qp.header_crc);
    if (bytes != 0 && !copy_out(context, span, bytes, builder)) return false;
    builder.finish();
    ++burst.count;
    count_response(context, qp, {1, frame.length});
  } else {
    ++context.counters.drop_too_large;
  }
  resource.next_psn = (Psn(resource.next_psn) + 1).value();
  return true;
}

/// Several packets by reference, which use up `budget` but for the one that the caller takes. False: they have to
/// carry their payload.
[[gnu::noinline]] bool send_named_response(Context& context, Qp& qp, Resource& resource, TxBurst& burst,
                                           std::uint32_t& budget) {
  const std::uint32_t offset = next_offset(qp, resource);
  const auto reference =
      refer(context, qp, resource, resource.address + offset, resource.end_offset - offset, budget + 1);
  if (!reference) return false;
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (!start_read_response(builder, frame, qp, resource, reference->packets, sizeof *reference)) return false;
  builder.refer(frame, *reference);
  ++burst.count;
  burst.use_up(reference->packets - 1);
  budget -= reference->packets - 1;
  ++context.counters.sent_by_reference;
  count_response(context, qp, base::wire_cost(frame));
  resource.next_psn = (Psn(resource.next_psn) + reference->packets).value();
  return true;
}

void send_atomic_response(Context& context, Qp& qp, Resource& resource, TxBurst& burst) {
  const wire::Bth bth{.opcode = wire::opcode(qp.common.service, wire::Operation::kAtomicAcknowledge),
                      .pkey = qp.common.pkey,
                      .dest_qpn = qp.common.dest_qpn,
                      .psn = Psn(resource.first_psn)};
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (builder.start(frame, qp.path, bth, wire::Aeth::kBytes + wire::AtomicAckEth::kBytes, 0)) {
    emit_aeth(builder.extended(), ack_syndrome(qp), Msn(resource.msn));
    wire::AtomicAckEth{resource.result}.emit(builder.extended() + wire::Aeth::kBytes);
    builder.seal();
    builder.finish();
    ++burst.count;
    count_response(context, qp, {1, frame.length});
  } else {
    ++context.counters.drop_too_large;
  }
  resource.next_psn = resource.end_psn;
}

/// Whether an answer may name its memory. Not if READs are counted: who sees the count may reuse the memory.
bool may_name(const Context& context, const Qp& qp) { return !qp.responder.counted && may_refer(context, qp); }

/// The answer has left.
void finish_answer(Qp& qp, Resource& resource) {
  resource.pending = 0;
  --qp.responder.answers_pending;
  if (!qp.responder.counted || resource.counted || resource.answer != ResponseKind::kData) return;
  if (Psn(resource.end_psn) != Psn(resource.first_psn) + resource.psn_count) return;  // a part of it, again
  resource.counted = 1;
  count_done(qp, CountedOperation::kRemoteRead, resource.length);
}

}  // namespace

bool resource_after(const Qp& qp, Psn psn) {
  if (qp.answers.used == 0) return false;
  // Both precede epsn. The newest resource may be so old that it cannot be compared with the PSN itself.
  const Psn newest(qp.answers.ring[before(qp, qp.answers.next)].first_psn);
  return psns_between(newest, qp.responder.epsn) < psns_between(psn, qp.responder.epsn);
}

std::uint32_t answers_needed(const Qp& qp) {
  std::uint32_t oldest = 0;
  for (std::uint8_t at = 0; at < qp.answers.used; ++at) {
    if (qp.answers.ring[at].pending) oldest = std::max(oldest, age(qp, at));
  }
  return oldest;
}

void resize_answers(Qp& qp, std::uint8_t count) {
  Answers& answers = qp.answers;
  if (count == answers.count) return;
  // The oldest comes first, and then the oldest beyond `count` are forgotten.
  if (answers.used == answers.count)
    std::rotate(answers.ring, answers.ring + answers.next, answers.ring + answers.used);
  const auto kept = std::min(answers.used, count);
  std::copy(answers.ring + (answers.used - kept), answers.ring + answers.used, answers.ring);
  answers.count = count;
  answers.used = kept;
  answers.next = kept == count ? std::uint8_t{0} : kept;
  answers.at = 0;
  while (answers.at + 1 < kept && !answers.ring[answers.at].pending) ++answers.at;
}

bool answer_uses(const Qp& qp, Key key) {
  if (qp.responder.answers_pending == 0) return false;
  const auto uses = [key](const Resource& resource) { return resource.pending && resource.rkey == key.value; };
  return std::any_of(qp.answers.ring, qp.answers.ring + qp.answers.used, uses);
}

void execute_read(Context& context, Qp& qp, const Plan& plan) {
  Resource& resource = new_resource(qp);
  ++qp.responder.msn;
  ++context.counters.rx_read_requests;
  note(qp, resource, plan.target.reth.address, plan.target.reth.rkey, plan.target.reth.length);
  accept_answered(context, qp, resource.psn_count);
  queue_answer(context, qp, resource);
}

void execute_atomic(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan) {
  const wire::AtomicEth request = wire::AtomicEth::parse(packet.bth_start + packet.info->atomic_eth);
  bool reached = false;
  const std::uint64_t original = execute(context, plan.target.memory,
                                         packet.info->operation == wire::Operation::kCompareSwap, request, reached);
  if (!reached) return refuse_lost_word(context, qp);
  Resource& resource = new_resource(qp);
  ++qp.responder.msn;
  ++context.counters.rx_atomic_requests;
  note(qp, resource, request.address, request.rkey, 0);
  resource.answer = ResponseKind::kAtomic;
  resource.result = original;
  accept_answered(context, qp, 1);
  queue_answer(context, qp, resource);
}

void execute_atomic_write(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan) {
  if (!store_word(context, plan.target.memory, packet.payload)) return refuse_lost_word(context, qp);
  ++context.counters.rx_write_requests;
  confirm(context, qp, plan.target.reth);
}

void execute_flush(Context& context, Qp& qp, const Plan& plan) {
  // All earlier writes are visible to all threads (annex A19: global visibility).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  confirm(context, qp, plan.target.reth);
}

void repeat_confirmation(Context& context, Qp& qp, const wire::RxPacket& packet) {
  Resource* const resource = find_resource(qp, packet.bth.psn);
  const wire::Reth reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  if (resource == nullptr || resource->answer != ResponseKind::kConfirmation || reth.address != resource->address ||
      reth.rkey.value != resource->rkey) {
    ++context.counters.drop_unexpected;
    return;
  }
  resource->replay = 1;
  resource->next_psn = resource->first_psn;
  queue_answer(context, qp, *resource);
}

void repeat_read(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::Reth reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  Resource* const resource = find_resource(qp, packet.bth.psn);
  if (resource == nullptr || resource->answer != ResponseKind::kData) {
    ++context.counters.drop_unexpected;
    return;
  }
  const std::uint32_t offset = psns_between(Psn(resource->first_psn), packet.bth.psn) << qp.common.mtu_shift;
  const bool within = reth.rkey.value == resource->rkey && reth.address == resource->address + offset &&
                      offset <= resource->length && reth.length <= resource->length - offset &&
                      (reth.length != 0 || resource->length == 0);
  if (!within) {
    ++context.counters.drop_unexpected;
    return;
  }
  const Psn end = packet.bth.psn + (reth.length == 0 ? 1 : ((reth.length - 1) >> qp.common.mtu_shift) + 1);
  // What has not left yet comes without being asked for again: the requester probes. If it is what comes next, the
  // requester expects a new response, which begins with FIRST.
  if (resource->pending && !packet.bth.psn.before(Psn(resource->next_psn)) && !end.after(Psn(resource->end_psn))) {
    if (packet.bth.psn == Psn(resource->next_psn)) resource->start_psn = resource->next_psn;
    return;
  }
  resource->replay = 1;
  resource->start_psn = resource->next_psn = packet.bth.psn.value();
  resource->end_offset = offset + reth.length;
  resource->end_psn = end.value();
  queue_answer(context, qp, *resource);
}

void repeat_atomic(Context& context, Qp& qp, const wire::RxPacket& packet) {
  Resource* const resource = find_resource(qp, packet.bth.psn);
  const wire::AtomicEth request = wire::AtomicEth::parse(packet.bth_start + packet.info->atomic_eth);
  if (resource == nullptr || resource->answer != ResponseKind::kAtomic || request.address != resource->address ||
      request.rkey.value != resource->rkey) {
    ++context.counters.drop_unexpected;
    return;
  }
  resource->replay = 1;
  queue_answer(context, qp, *resource);
}

bool run_resources(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  while (qp.responder.answers_pending != 0) {
    Resource& resource = qp.answers.ring[qp.answers.at];
    if (!resource.pending) {
      qp.answers.at = after(qp, qp.answers.at);
      continue;
    }
    if (budget == 0 || burst.full()) return true;
    --budget;
    if (resource.answer == ResponseKind::kAtomic) {
      send_atomic_response(context, qp, resource, burst);
    } else if (may_name(context, qp) && send_named_response(context, qp, resource, burst, budget)) {
      // sent
    } else if (!send_read_response(context, qp, resource, burst)) {
      if (resource.replay) {
        ++context.counters.drop_unexpected;
        resource.pending = 0;
        --qp.responder.answers_pending;
        continue;
      }
      qp.responder.answers_pending = 0;
      ++context.counters.resp_remote_access_errors;
      refuse_fatally(context, qp, wire::Nak::kRemoteAccess, AsyncEvent::kQpAccessError, Psn(resource.next_psn));
      return false;
    }
    if (resource.next_psn == resource.end_psn) finish_answer(qp, resource);
  }
  return false;
}

}  // namespace uroce::proto::responder
