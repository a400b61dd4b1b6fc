// Counters of the transport, with the names of rxe and mlx5 where those have one (rdma-statistic(8)). One list
// generates the struct and the names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace uroce::proto {

// clang-format off
#define UROCE_PROTO_COUNTERS(X)                                                                        \
  X(sent_pkts) X(rcvd_pkts) X(sent_bytes) X(rcvd_bytes)                                                \
  X(rdma_sends) X(rdma_recvs) X(rx_write_requests) X(rx_read_requests) X(rx_atomic_requests)           \
  X(duplicate_request) X(out_of_sequence) X(packet_seq_err) X(implied_nak_seq_err) X(roce_adp_retrans) \
  X(rnr_nak_sent) X(rnr_nak_rcvd) X(rnr_nak_retry_err) X(local_ack_timeout_err) X(retry_exceeded_err)  \
  X(retransmitted_pkts) X(ack_deferred) X(acks_sent) X(acks_rcvd)                                      \
  X(req_cqe_error) X(req_cqe_flush_error) X(req_remote_access_errors) X(req_remote_invalid_request)    \
  X(resp_cqe_error) X(resp_cqe_flush_error) X(resp_remote_access_errors) X(resp_local_length_error)    \
  X(resp_invalid_requests)                                                                             \
  X(np_cnp_sent) X(rp_cnp_handled) X(np_ecn_marked_roce_packets)                                       \
  X(drop_no_qp) X(drop_bad_state) X(drop_wrong_service) X(drop_bad_pkey) X(drop_wrong_source)          \
  X(drop_bad_qkey) X(drop_no_receive) X(drop_too_long) X(drop_unexpected)                              \
  X(bad_wqe_opcode) X(bad_wqe_sge_count) X(bad_wqe_inline) X(bad_wqe_length) X(bad_wqe_flags)          \
  X(bad_wqe_ah)                                                                                        \
  X(bad_wqe_key)  /* an L_Key that is unknown or ends before the range does, or lacks the right */     \
  X(bad_wqe_bind) /* a window, fast registration or invalidation that may not be */                    \
  X(drop_bad_srq) X(drop_too_large) X(drop_reference) X(sent_by_reference)                             \
  X(sent_frames) X(rcvd_frames) /* of raw packet QPs */
// clang-format on

struct Counters {
#define UROCE_COUNTER_FIELD(name) std::uint64_t name = 0;
  UROCE_PROTO_COUNTERS(UROCE_COUNTER_FIELD)
#undef UROCE_COUNTER_FIELD
};

inline constexpr std::string_view kCounterNames[] = {
#define UROCE_COUNTER_NAME(name) #name,
    UROCE_PROTO_COUNTERS(UROCE_COUNTER_NAME)
#undef UROCE_COUNTER_NAME
};
inline constexpr std::size_t kCounterCount = sizeof(kCounterNames) / sizeof(kCounterNames[0]);
static_assert(sizeof(Counters) == kCounterCount * sizeof(std::uint64_t));

/// The few counters that each QP has.
struct QpCounters {
  std::uint64_t sent_pkts = 0, rcvd_pkts = 0, retransmitted_pkts = 0;
  std::uint32_t duplicate_request = 0, out_of_sequence = 0, packet_seq_err = 0, local_ack_timeout_err = 0,
                rnr_nak_retry_err = 0;
};

}  // namespace uroce::proto
