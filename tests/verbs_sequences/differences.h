// What Linux rxe does otherwise than the model. docs/rxe-differences.md says what.
#pragma once

#include <cstdint>

#include "../sequences/differences.h"

namespace verbs_sequences {

enum class Rxe : std::uint8_t {
  kDrainedEvent,
  kErrorBehindRnr,
  kForcedPages,
  kInvalidateAcknowledged,
  kLowBits,
  kNoLastWqe,
  kNoRereg,
  kOpcodesUnchecked,
  kPostsInError,
  kQpErrorStatus,
  kReadOutlivesReset,
  kRefusedStays,
  kRemoteErrorFirst,
  kSizesAsAsked,
  kSolicitedErrors,
  kSqdWaits,
  kSrqDomain,
  kWindows,
  kCount
};

using Differences = sequences::Differences<Rxe>;

inline constexpr Differences::Rows kDifferences{{
    {Rxe::kDrainedEvent, "drained_event"},
    {Rxe::kErrorBehindRnr, "error_behind_rnr"},
    {Rxe::kForcedPages, "forced_pages"},
    {Rxe::kInvalidateAcknowledged, "invalidate_acknowledged"},
    {Rxe::kLowBits, "low_bits"},
    {Rxe::kNoLastWqe, "no_last_wqe"},
    {Rxe::kNoRereg, "no_rereg"},
    {Rxe::kOpcodesUnchecked, "opcodes_unchecked"},
    {Rxe::kPostsInError, "posts_in_error"},
    {Rxe::kQpErrorStatus, "qp_error_status"},
    {Rxe::kReadOutlivesReset, "read_outlives_reset"},
    {Rxe::kRefusedStays, "refused_stays"},
    {Rxe::kRemoteErrorFirst, "remote_error_first"},
    {Rxe::kSizesAsAsked, "sizes_as_asked"},
    {Rxe::kSolicitedErrors, "solicited_errors"},
    {Rxe::kSqdWaits, "sqd_waits"},
    {Rxe::kSrqDomain, "srq_domain"},
    {Rxe::kWindows, "windows"},
}};
static_assert(Differences::in_order(kDifferences));

}  // namespace verbs_sequences
