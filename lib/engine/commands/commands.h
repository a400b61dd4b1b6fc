// One function for each control command (abi/control.h); one file for each group. They return 0 or an errno and
// fill the reply. What a client sent is in `body`: each command copies it once, checks the copy, and uses only
// that.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "engine/conductor.h"

namespace uroce::engine::commands {

struct Call {
  Conductor& conductor;
  Session& session;
  std::span<const std::byte> body;
  std::vector<UniqueFd>& fds;
  Reply& reply;

  /// The body as T. False: not of exactly that size.
  template <class T>
  bool read(T& out) const {
    if (body.size() != sizeof(T)) return false;
    std::memcpy(&out, body.data(), sizeof(T));
    return true;
  }
};

int hello(Call& call);
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
int admin(Call& call);

/// Path of an address vector. 0, EINVAL, ETIMEDOUT, EHOSTUNREACH, or kParked while the neighbour is being asked.
int resolve_path(Conductor& conductor, const uroce_av& av, wire::PathAddress& out);

/// Everything that a session owns, workers first.
void release_all(Conductor& conductor, Session& session);

}  // namespace uroce::engine::commands
