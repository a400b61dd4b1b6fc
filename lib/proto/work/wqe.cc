#include "proto/work/wqe.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/probe.h"
#include "proto/work/faults.h"
#include "proto/work/held_completions.h"

namespace uroce::proto {
namespace {

using wire::Operation;
using Extra = SendRow::Extra;

/// By uroce_wr_opcode. Those that send one packet, or none, have no more than `only`.
constexpr auto kSendRows = [] {
  std::array<SendRow, UROCE_WR_REG_MR + 2> rows{};
  rows[UROCE_WR_RDMA_WRITE] = {Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLast,
                               Operation::kWriteOnly};
  rows[UROCE_WR_RDMA_WRITE_WITH_IMM] = {Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLastImm,
                                        Operation::kWriteOnlyImm, Extra::kImmediate};
  rows[UROCE_WR_SEND] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLast, Operation::kSendOnly};
  rows[UROCE_WR_SEND_WITH_IMM] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastImm,
                                  Operation::kSendOnlyImm, Extra::kImmediate};
  rows[UROCE_WR_SEND_WITH_INV] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastInvalidate,
                                  Operation::kSendOnlyInvalidate, Extra::kInvalidate};
  rows[UROCE_WR_RDMA_READ].only = Operation::kReadRequest;
  rows[UROCE_WR_ATOMIC_CMP_AND_SWP].only = Operation::kCompareSwap;
  rows[UROCE_WR_ATOMIC_FETCH_AND_ADD].only = Operation::kFetchAdd;
  rows[UROCE_WR_FLUSH].only = Operation::kFlush;
  rows[UROCE_WR_ATOMIC_WRITE].only = Operation::kAtomicWrite;
  return rows;
}();

std::uint8_t refuse(std::uint64_t& counter, std::uint8_t failure) {
  ++counter;
  return failure;
}

/// Bytes after the list.
std::uint32_t trailer_bytes(const Wqe& wqe) { return wqe.kind == Kind::kSegments ? wqe.tso.header_bytes : 0u; }

/// Copies a list of that many bytes, except for what came with the header. False: the ring's entries are too small
/// for it.
[[gnu::always_inline]] inline bool copy_list(const Qp& qp, const std::byte* ring_entry, Wqe& wqe,
                                             std::uint32_t bytes) {
  const std::uint32_t all = bytes + trailer_bytes(wqe);
  if (all > qp.requester.ring.stride() - wqe.list_at) return false;
  const std::uint32_t end = wqe.list_at + all;
  if (end > sizeof(Wqe)) std::memcpy(static_cast<void*>(&wqe + 1), ring_entry + sizeof(Wqe), end - sizeof(Wqe));
  return true;
}

/// Copies the scatter/gather list and adds up its lengths.
[[gnu::always_inline]] inline std::uint8_t take_sges(Context& context, const Qp& qp, const std::byte* ring_entry,
                                                     Wqe& wqe) {
  const std::uint32_t bytes = wqe.num_sge * static_cast<std::uint32_t>(sizeof(uroce_sge));
  if (wqe.num_sge > qp.settings.max_send_sge || !copy_list(qp, ring_entry, wqe, bytes)) {
    return refuse(context.counters.bad_wqe_sge_count, UROCE_FAIL_SEND_LIST);
  }
  std::uint64_t length = 0;
  for (std::uint32_t i = 0; i < wqe.num_sge; ++i) length += wqe.sges()[i].length;
  if (length > kMaxMessage) return refuse(context.counters.bad_wqe_length, UROCE_FAIL_MESSAGE_LENGTH);
  wqe.length = static_cast<std::uint32_t>(length);
  return 0;
}

constexpr std::uint32_t kLeastFrame = 14;  // an Ethernet header

/// Whether this port and QP accept a raw packet's length and, for a TSO, its header and segment size.
bool frame_fits(const Context& context, const Qp& qp, const Wqe& wqe) {
  if (wqe.kind != Kind::kSegments) return wqe.length >= kLeastFrame && wqe.length <= context.max_frame;
  const std::uint32_t header = wqe.tso.header_bytes, mss = wqe.tso.mss;
  return header >= kLeastFrame && header <= qp.settings.max_tso_header && mss != 0 &&
         header + mss <= context.max_frame && wqe.length <= UROCE_MAX_TSO;
}

/// Whether an operation that takes a certain length has it.
bool operand_fits(const Wqe& wqe) {
  switch (wqe.kind) {
    case Kind::kAtomic:
    case Kind::kAtomicWrite: return wqe.length == 8;
    case Kind::kFlush: return wqe.length == 0 && wqe.flush.length <= kMaxMessage;
    default: return true;
  }
}

/// Checks the length, which is known by now, against the operation and the QP.
[[gnu::always_inline]] inline std::uint8_t check_length(Context& context, const Qp& qp, Wqe& wqe) {
  if (qp.common.type == QpType::kUd && wqe.length > context.port_mtu) {
    return refuse(context.counters.bad_wqe_length, UROCE_FAIL_DATAGRAM_LENGTH);
  }
  if (qp.common.type == QpType::kRawPacket) {
    if (frame_fits(context, qp, wqe)) return 0;
    return refuse(context.counters.bad_wqe_length, UROCE_FAIL_FRAME_LENGTH);
  }
  if (wqe.has(abi::kLocal)) wqe.length = 0;  // its scatter/gather list is ignored
  if (operand_fits(wqe)) return 0;
  return refuse(context.counters.bad_wqe_length, UROCE_FAIL_OPERAND_LENGTH);
}

/// Checks the fields of an operation that the QP's type has, and copies the rest of the entry. It and what it calls
/// are always inlined: with a second caller gcc would call them for each request.
[[gnu::always_inline]] inline std::uint8_t check_fields(Context& context, const Qp& qp,
                                                        const abi::Operation& operation,
                                                        const std::byte* ring_entry, std::uint32_t inline_length,
                                                        Wqe& wqe) {
  if (wqe.is_inline()) {
    if (!operation.has(abi::kPayload)) return refuse(context.counters.bad_wqe_flags, UROCE_FAIL_INLINE_OPCODE);
    if (inline_length > qp.settings.max_inline || !copy_list(qp, ring_entry, wqe, inline_length)) {
      return refuse(context.counters.bad_wqe_inline, UROCE_FAIL_INLINE_LENGTH);
    }
    wqe.length = inline_length;
    return check_length(context, qp, wqe);
  }
  const std::uint8_t failure = take_sges(context, qp, ring_entry, wqe);
  return failure == 0 ? check_length(context, qp, wqe) : failure;
}

/// An operation that the QP's type has not, or one of a QP with rules.
[[gnu::noinline, gnu::cold]] std::uint8_t check_diverted(Context& context, Qp& qp, const abi::Operation& operation,
                                                         const std::byte* ring_entry, std::uint32_t inline_length,
                                                         Wqe& wqe) {
  if (!operation.of_type(static_cast<std::uint32_t>(qp.common.type))) {
    return refuse(context.counters.bad_wqe_opcode, UROCE_FAIL_OPCODE);
  }
  const bool completes = (wqe.flags & UROCE_SEND_SIGNALED) != 0 || (qp.requester.reports & kAllReports) != 0;
  const Judgement judged = judge(context, qp, std::uint64_t{1} << wqe.opcode, completes);
  if (judged.failure != 0) return judged.failure;
  choose_completion(qp, qp.requester.fetched, judged.completion);
  return check_fields(context, qp, operation, ring_entry, inline_length, wqe);
}

/// Checks the header in `wqe` (wqe.length still has the inline length) and copies the rest of the entry.
std::uint8_t check(Context& context, Qp& qp, const abi::Operation& operation, const std::byte* ring_entry,
                   Wqe& wqe) {
  const std::uint32_t inline_length = wqe.length;
  wqe.length = 0;
  if ((operation.qp_types & qp.settings.operations_of) == 0) [[unlikely]] {
    return check_diverted(context, qp, operation, ring_entry, inline_length, wqe);
  }
  return check_fields(context, qp, operation, ring_entry, inline_length, wqe);
}

std::uint32_t packets_of(const Qp& qp, std::uint32_t bytes) {
  return bytes == 0 ? 1 : ((bytes - 1) >> qp.common.mtu_shift) + 1;
}

}  // namespace

const SendRow& send_row(std::uint8_t opcode) {
  return kSendRows[std::min<std::size_t>(opcode, kSendRows.size() - 1)];
}

bool fetch_wqe(Context& context, Qp& qp) {
  if (qp.requester.known == 0) qp.requester.known = qp.requester.ring.available();
  // A client that publishes more than the ring holds must not overwrite WQEs that are still in use.
  if (qp.requester.known == 0 || qp.requester.fetched - qp.requester.head >= qp.requester.ring.count())
    return false;
  const std::byte* const ring_entry = qp.requester.ring.peek_address();
  // With thousands of QPs the entries are not in the cache; the time of two messages hides the miss.
  const std::byte* const later = qp.requester.ring.peek_address(2);
  __builtin_prefetch(later);
  __builtin_prefetch(later + 64);
  Wqe& wqe = qp.wqe(qp.requester.fetched);
  static_assert(offsetof(Wqe, num_sge) == offsetof(uroce_sq_entry, num_sge));
  static_assert(offsetof(Wqe, length) == offsetof(uroce_sq_entry, inline_length));
  static_assert(offsetof(Wqe, atomic) == offsetof(uroce_sq_entry, atomic));
  static_assert(offsetof(Wqe, remote_srqn) == offsetof(uroce_sq_entry, remote_srqn));
  static_assert(offsetof(Wqe, list_at) >= offsetof(uroce_sq_entry, reserved));
  // First the header, then as much of the rest as the private copy states: each byte is read once.
  qp.requester.ring.copy_next(&wqe, sizeof(uroce_sq_entry));
  const abi::Operation& operation = abi::operation_of(wqe.opcode);
  wqe.kind = operation.kind;
  wqe.traits = operation.traits;
  wqe.list_at = operation.list_at;
  wqe.failure = check(context, qp, operation, ring_entry, wqe);
  wqe.psn_count = wqe.has(abi::kLocal) ? 0 : wqe.has(abi::kSinglePsn) ? 1 : packets_of(qp, wqe.length);
  --qp.requester.known;
  ++qp.requester.fetched;
  UROCE_PROBE(post, qp.common.qpn.value, wqe.wr_id, wqe.opcode, wqe.length);
  return true;
}

}  // namespace uroce::proto
