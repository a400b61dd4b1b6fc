// One function for each control command (abi/control.h); one file for each group. They return 0, an errno
// or kPending, and fill the reply. The request is in `body`: each command copies it once, checks the copy, and uses
// only the copy.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "control/commands/reply.h"
#include "control/link/link_control.h"
#include "control/state/event_router.h"
#include "control/state/state.h"
#include "control/state/verb_faults.h"
#include "wire/frame_template.h"

namespace uroce::control::commands {

/// One request, and the services that a command may use.
struct Call {
  ControlState& state;
  EventRouter& events;
  LinkControl& link;
  Session& session;
  std::span<const std::byte> body;
  std::vector<UniqueFd>& fds;
  Reply& reply;
  /// A rule whose event, `cm`, takes the place of this command of connection management; nullptr: none.
  const VerbFault* instead = nullptr;

  /// The body as T. False: not of exactly that size.
  template <class T>
  bool read(T& out) const {
    if (body.size() != sizeof(T)) return malformed();
    std::memcpy(&out, body.data(), sizeof(T));
    return true;
  }
  /// Whether the body is empty, as it must be for this command.
  bool no_body() const { return body.empty() || malformed(); }
  /// Returns `error`, and keeps what to tell the client's user, as printf does.
  [[nodiscard, gnu::format(printf, 3, 4)]] int refuse(int error, const char* format, ...) const;
  /// Whether a value of the request is in its range; the reply explains a refusal.
  bool within(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) const;
  /// An object that others use.
  [[nodiscard]] int in_use(const char* kind, std::uint32_t users, const char* by) const;
  /// Sets the reason for the refusal.
  bool malformed() const {
    reply.reason = Rejection::malformed;
    return false;
  }
};

int hello(Call& call);
int explain(Call& call);
int query_device(Call& call);
int query_port(Call& call);
int query_gid(Call& call);
int alloc_pd(Call& call);
int dealloc_pd(Call& call);
int reg_mr(Call& call);
int dereg_mr(Call& call);
int create_channel(Call& call);
int destroy_channel(Call& call);
int create_cq(Call& call);
int destroy_cq(Call& call);
int create_qp(Call& call);
int modify_qp(Call& call);
int query_qp(Call& call);
int destroy_qp(Call& call);
int create_ah(Call& call);
int destroy_ah(Call& call);
int create_srq(Call& call);
int modify_srq(Call& call);
int query_srq(Call& call);
int destroy_srq(Call& call);
int open_xrcd(Call& call);
int close_xrcd(Call& call);
int open_qp(Call& call);
int attach_mcast(Call& call);
int detach_mcast(Call& call);
int alloc_mw(Call& call);
int dealloc_mw(Call& call);
int rereg_mr(Call& call);
int alloc_null_mr(Call& call);
int alloc_fast_mr(Call& call);
int resize_cq(Call& call);
int modify_cq(Call& call);
int import_device(Call& call);
int import_pd(Call& call);
int import_mr(Call& call);
int resolve_neighbour(Call& call);
int alloc_dm(Call& call);
int free_dm(Call& call);
int import_dm(Call& call);
int create_rss(Call& call);
int destroy_rss(Call& call);
int create_flow(Call& call);
int destroy_flow(Call& call);
int create_counters(Call& call);
int destroy_counters(Call& call);
int read_counters(Call& call);
int create_comp_cntr(Call& call);
int destroy_comp_cntr(Call& call);
int attach_comp_cntr(Call& call);

/// Calls `use` with the path of the address vector: now, or, if the neighbour's address is not known yet
/// (kPending), when it is. Other requests may run in between, so `use` looks its objects up itself. Returns what
/// `use` returns, or EINVAL, ETIMEDOUT, EHOSTUNREACH.
using PathUser = std::function<int(Call&, const wire::PathAddress&)>;
int with_path(Call& call, const uroce_av& av, PathUser use);

/// Removes the destroyed address handles that a QP kept for datagrams which it has now sent or flushed.
void release_sent_handles(ControlState& state, Session& session, QpObject& qp);
/// The QP is destroyed: its completion counters have one user less.
void release_counters(const QpObject& qp);
/// The QP is destroyed: removes all handles that it kept.
void forget_queued_handles(ControlState& state, Session& session, QpObject& qp);

/// An XRC target QP of the session's tenant in the domain, with no users yet. 0 or ENOMEM.
int make_xrc_target(ControlState& state, const Session& session, std::shared_ptr<XrcDomain> domain,
                    std::shared_ptr<XrcTarget>& out);
/// Removes one user; the last one destroys the QP.
void release_xrc_target(ControlState& state, XrcTarget& target);
/// Adds one user: `qp`, with type, xrcd and target set, becomes the session's.
uroce_create_qp_response add_target(EventRouter& events, Session& session, std::unique_ptr<QpObject> qp,
                                    std::uint64_t cookie);

/// Releases what a session owns, on the workers first, until `end` at about. False: there is more, for the next
/// call. No request of the session may be executed after the first call.
bool release_some(ControlState& state, EventRouter& events, LinkControl& link, Session& session, Nanos end);

}  // namespace uroce::control::commands
