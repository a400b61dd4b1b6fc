// What Linux with rdma-core 44 does otherwise than the model. docs/rxe-differences.md says what.
#pragma once

#include <cstdint>

#include "../sequences/differences.h"

namespace cm_sequences {

enum class Linux : std::uint8_t {
  kAcceptNeedsParameters,
  kAddressesWithEvent,
  kAnswerTakenBack,
  kBacklogOfUntaken,
  kDestroyRejects,
  kDreqAnsweredByProgram,
  kDreqBeforeRtu,
  kEstablishAccepts,
  kLateCalls,
  kListenTwice,
  kLongTimewait,
  kMovedRequests,
  kNoAcceptedDisconnect,
  kNoDevice,
  kNoPathOfDatagram,
  kOtherHost,
  kQpOfEnded,
  kRequestGoneQuietly,
  kWrongAcceptEnds,
  kCount
};

using Differences = sequences::Differences<Linux>;

inline constexpr Differences::Rows kDifferences{{
    {Linux::kAcceptNeedsParameters, "accept_needs_parameters"},
    {Linux::kAddressesWithEvent, "addresses_with_event"},
    {Linux::kAnswerTakenBack, "answer_taken_back"},
    {Linux::kBacklogOfUntaken, "backlog_of_untaken"},
    {Linux::kDestroyRejects, "destroy_rejects"},
    {Linux::kDreqAnsweredByProgram, "dreq_answered_by_program"},
    {Linux::kDreqBeforeRtu, "dreq_before_rtu"},
    {Linux::kEstablishAccepts, "establish_accepts"},
    {Linux::kLateCalls, "late_calls"},
    {Linux::kListenTwice, "listen_twice"},
    {Linux::kLongTimewait, "long_timewait"},
    {Linux::kMovedRequests, "moved_requests"},
    {Linux::kNoAcceptedDisconnect, "no_accepted_disconnect"},
    {Linux::kNoDevice, "no_device"},
    {Linux::kNoPathOfDatagram, "no_path_of_datagram"},
    {Linux::kOtherHost, "other_host"},
    {Linux::kQpOfEnded, "qp_of_ended"},
    {Linux::kRequestGoneQuietly, "request_gone_quietly"},
    {Linux::kWrongAcceptEnds, "wrong_accept_ends"},
}};
static_assert(Differences::in_order(kDifferences));

}  // namespace cm_sequences
