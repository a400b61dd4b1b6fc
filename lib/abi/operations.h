// What the operations of a send queue are, one row for each uroce_wr_opcode. The library reads it when it writes
// entries, the daemon when it checks and executes them. How operations appear on the wire: proto/work/wqe.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "abi/queue_entries.h"

namespace uroce::abi {

/// Operations of one kind are executed by the same code.
enum class OperationKind : std::uint8_t {
  kInvalid,
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kAtomicWrite,
  kFlush,
  kLocalInvalidate,
  kBind,
  kRegister,
  kSegments,  ///< TCP segmentation
};

/// As a set.
enum OperationTrait : std::uint8_t {
  kTakesList = 1,  ///< a scatter/gather list; the others ignore it
  kPayload = 2,    ///< data for the peer, which may be inline
  kSinglePsn = 4,  ///< whatever its length. Others take one for each packet of payload or response
  kAnswered = 8,   ///< by a READ response or an atomic acknowledge; max_rd_atomic limits how many at once
  kLocal = 16,     ///< executed by this side, nothing is sent: it takes no PSN
};

struct Operation {
  OperationKind kind = OperationKind::kInvalid;
  std::uint8_t traits = kLocal;
  /// Offset in bytes of the entry's list, of SGEs or inline data: in the place of the fields that only some
  /// operations have, or after them.
  std::uint8_t list_at = offsetof(uroce_sq_entry, atomic);
  std::uint8_t wc_opcode = 0;  ///< uroce_wc_opcode of its completion
  std::uint16_t qp_types = 0;  ///< that have it: a bit for each ibv_qp_type (IBTA vol. 1, 9.4; annexes A14, A19)

  constexpr bool has(std::uint8_t trait) const { return (traits & trait) != 0; }
  constexpr bool of_type(std::uint32_t qp_type) const { return qp_type < 16 && (qp_types >> qp_type & 1) != 0; }
};

namespace detail {

constexpr std::uint16_t kRc = 1u << 2, kUc = 1u << 3, kUd = 1u << 4, kRaw = 1u << 8, kXrc = 1u << 9;
constexpr std::size_t kOperations = UROCE_WR_REG_MR + 1;

constexpr auto make_operations() {
  using enum OperationKind;
  constexpr std::uint8_t kMessage = kTakesList | kPayload, kAtomicTraits = kTakesList | kSinglePsn | kAnswered;
  constexpr std::uint8_t kShort = offsetof(uroce_sq_entry, atomic), kLong = sizeof(uroce_sq_entry);
  constexpr std::uint16_t kConnected = kRc | kXrc | kUc, kReliable = kRc | kXrc;
  std::array<Operation, kOperations + 1> rows{};
  const auto row = [&](uroce_wr_opcode opcode, Operation operation) { rows[opcode] = operation; };
  row(UROCE_WR_RDMA_WRITE, {kWrite, kMessage, kShort, UROCE_WC_RDMA_WRITE, kConnected});
  row(UROCE_WR_RDMA_WRITE_WITH_IMM, {kWrite, kMessage, kShort, UROCE_WC_RDMA_WRITE, kConnected});
  row(UROCE_WR_SEND, {kSend, kMessage, kShort, UROCE_WC_SEND, kConnected | kUd | kRaw});
  row(UROCE_WR_SEND_WITH_IMM, {kSend, kMessage, kShort, UROCE_WC_SEND, kConnected | kUd});
  row(UROCE_WR_SEND_WITH_INV, {kSend, kMessage, kShort, UROCE_WC_SEND, kReliable});
  row(UROCE_WR_RDMA_READ, {kRead, kTakesList | kAnswered, kShort, UROCE_WC_RDMA_READ, kReliable});
  row(UROCE_WR_ATOMIC_CMP_AND_SWP, {kAtomic, kAtomicTraits, kLong, UROCE_WC_COMP_SWAP, kReliable});
  row(UROCE_WR_ATOMIC_FETCH_AND_ADD, {kAtomic, kAtomicTraits, kLong, UROCE_WC_FETCH_ADD, kReliable});
  row(UROCE_WR_ATOMIC_WRITE, {kAtomicWrite, kAtomicTraits | kPayload, kShort, UROCE_WC_ATOMIC_WRITE, kRc});
  row(UROCE_WR_FLUSH, {kFlush, kSinglePsn | kAnswered, kLong, UROCE_WC_FLUSH, kRc});
  row(UROCE_WR_LOCAL_INV, {kLocalInvalidate, kLocal, kShort, UROCE_WC_LOCAL_INV, kConnected});
  row(UROCE_WR_BIND_MW, {kBind, kLocal, kLong, UROCE_WC_BIND_MW, kConnected});
  row(UROCE_WR_REG_MR, {kRegister, kLocal, kLong, UROCE_WC_REG_MR, kConnected});
  row(UROCE_WR_TSO, {kSegments, kMessage | kSinglePsn, kLong, UROCE_WC_TSO, kRaw});
  return rows;
}
inline constexpr auto kAllOperations = make_operations();

}  // namespace detail

/// Opcodes that are none have the kind kInvalid.
constexpr const Operation& operation_of(std::uint32_t opcode) {
  return detail::kAllOperations[std::min<std::size_t>(opcode, detail::kOperations)];
}

}  // namespace uroce::abi
