// What a packet is for an RC or XRC QP: decided once, before anything changes, and for packets that may be placed
// directly before their ICRC is known. Placement, responder and completer act on the plan and do not repeat its
// checks. tests/unit/proto/acceptance_table.txt lists the plans.
#pragma once

#include <cstdint>

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto {

/// What becomes of a packet (IBTA vol. 1, 9.7.4 and 9.7.5 for requests, 9.7.6 for responses).
enum class Action : std::uint8_t {
  // A request that is expected next is executed,
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kAtomicWrite,
  kFlush,
  // or refused.
  kNakInvalidRequest,
  kNakBadSrq,  ///< as an invalid request: an XRC packet names an SRQ that its QP may not use
  kNakRemoteAccess,
  // Requests out of sequence.
  kDuplicate,
  kNakSequence,  ///< requests before it are missing
  kDropEarly,    ///< as above, and the NAK was sent before
  kDropHeld,     ///< the SEND before it waits (HeldSend)
  // Responses.
  kAcknowledge,  ///< or a NAK; it may pass a READ that was not answered, which the completer finds
  kReadResponse,
  kAtomicResponse,
  kImpliedNak,      ///< the response to an earlier request is missing
  kFailKind,        ///< the request fails: the response is of another kind,
  kFailLength,      ///< or has another length
  kDropUnexpected,  ///< to a request that has completed, or to none
  // Both.
  kDropBadState,  ///< the QP serves no requests, or no more, or has sent none
};

/// The packet of a READ response with a PSN, or with several from that one on.
struct ResponsePart {
  std::uint32_t index;  ///< in the response to the whole WQE
  std::uint32_t bytes;
  bool last;  ///< of the WQE
  bool ends;  ///< the last of a request
};

/// Where a request is executed.
struct RequestTarget {
  wire::Reth reth;      ///< kRead, kAtomicWrite, kFlush; kWrite: the rest of the WRITE, this packet included
  memory::Span memory;  ///< kWrite with payload, kAtomic, kAtomicWrite: from reth.address on
};

/// What the action has no use for is not set, which would cost each packet.
struct Plan {
  Plan() {}  // NOLINT(modernize-use-equals-default): a union with constructors

  Action action;
  /// The request takes a receive before it is executed, or refused for its key or length. Without a receive it is
  /// answered with an RNR NAK.
  bool takes_receive;
  const Srq* srq;  ///< of the first packet of an XRC message; nullptr: that of the QP stays
  union {
    RequestTarget target;
    ResponsePart part;  ///< kReadResponse
  };
};

/// Changes nothing but the cache of keys. For packets of the QP's service.
void make_plan(Context& context, const Qp& qp, const wire::RxPacket& packet, Plan& plan);

}  // namespace uroce::proto
