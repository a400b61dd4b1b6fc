// Memory regions of ordinary memory (ibv_reg_mr(3), ibv_rereg_mr(3)).
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/scope_guard.h"
#include "export.h"
#include "memory_region.h"
#include "objects.h"
#include "page_sharing/page_sharing.h"
#include "page_sharing/populate.h"
#include "uroce/dv.h"

namespace uroce::verbs {
namespace {

constexpr unsigned kWritable =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kKnown = kWritable | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                            IBV_ACCESS_ON_DEMAND | UROCE_DV_ACCESS_FLUSH_GLOBAL | UROCE_DV_ACCESS_FLUSH_PERSISTENT;

// Fills the request's pieces and lists each descriptor once. False: more pieces or descriptors than a message
// holds.
bool fill_pieces(const page_sharing::SharedRange& range, uroce_reg_mr_request& request, std::vector<int>& fds) {
  if (range.pieces.size() > UROCE_MAX_MR_PIECES) return false;
  for (const page_sharing::SharedPiece& piece : range.pieces) {
    auto at = std::find(fds.begin(), fds.end(), piece.fd);
    if (at == fds.end()) {
      if (fds.size() == UROCE_MAX_MESSAGE_FDS) return false;
      fds.push_back(piece.fd);
      at = fds.end() - 1;
    }
    const auto fd = static_cast<std::uint32_t>(at - fds.begin());
    request.piece[request.piece_count++] = {fd, 0, piece.offset, piece.bytes};
  }
  return true;
}

// The daemon reaches memory that it cannot map through /proc/PID/mem. Where Yama restricts ptrace, it needs
// PR_SET_PTRACER (Linux Documentation/admin-guide/LSM/Yama.rst).
void allow_daemon(const client::Session& session) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(session.socket(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0) {
    prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0);
  }
}

// Sends a command whose part `mr` describes memory. `range`: the pages as they are shared, or null when the command
// changes something else. Without pieces the daemon must reach the memory through /proc/PID/mem.
int send_pieces(client::Session& session, std::uint32_t command, std::span<const std::byte> body,
                uroce_reg_mr_request& mr, const page_sharing::SharedRange* range, uroce_reg_mr_response& reply) {
  std::vector<int> fds;
  if (range != nullptr && !fill_pieces(*range, mr, fds)) {
    mr.piece_count = 0;
    fds.clear();
  }
  if (range != nullptr && mr.piece_count == 0) allow_daemon(session);
  return session.call(command, body, std::as_writable_bytes(std::span(&reply, 1)), fds);
}

// An implicit region: the whole address space, whose pages are looked up when they are used (ibv_reg_mr(3)).
bool implicit(const void* addr, std::size_t length, unsigned access) {
  return addr == nullptr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) != 0;
}

int check_range(const void* addr, std::size_t length, unsigned access) {
  if (implicit(addr, length, access)) return 0;
  const auto first = reinterpret_cast<std::uintptr_t>(addr);
  return first + length < first ? EINVAL : 0;
}

// A region on demand shares no pages: what is mapped at its addresses may change at any time. Nor does one of 0
// bytes.
bool has_pages(std::size_t length, unsigned access) { return length != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0; }

void unshare_pages(const void* addr, std::size_t length, unsigned access) {
  if (has_pages(length, access)) page_sharing::PageSharing::instance().unshare(addr, length);
}

int share_pages(const void* addr, std::size_t length, unsigned access, page_sharing::SharedRange& range) {
  if (!has_pages(length, access)) return 0;
  int error = page_sharing::PageSharing::instance().share(addr, length, (access & kWritable) != 0, range);
  if (error != 0) return error;
  error = page_sharing::populate(addr, range);
  if (error != 0) unshare_pages(addr, length, access);
  return error;
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  return register_range(pd, addr, length, iova, access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE));
}

// What rdma-core checks before the kernel does (libibverbs/verbs.c, ibv_rereg_mr). errno.
int check_rereg_input(const Mr& mr, int flags, const void* addr, std::size_t length, unsigned access) {
  if (mr.kind != MrKind::kShared || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return EINVAL;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0 && (addr == nullptr || length == 0)) return EINVAL;
  return (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0 && access != 0 ? EINVAL : 0;
}

// The rest of the checks. errno.
int check_rereg(const Mr& mr, int flags, const ibv_pd* pd, const void* addr, std::size_t length, unsigned access) {
  if (flags == 0) return EINVAL;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context != mr.mr.context)) return EINVAL;
  if (!changes_access) return moves ? check_range(addr, length, mr.access) : 0;
  if (!moves && ((access ^ mr.access) & IBV_ACCESS_ON_DEMAND) != 0) return EINVAL;
  if (const int error = check_access(access); error != 0) return error;
  return moves ? check_range(addr, length, access) : 0;
}

struct Range {
  void* addr;
  std::size_t length;
  unsigned access;
};

// Makes the region cover `now` (REREG_MR). The caller unshares the pages of the old range.
int send_rereg_mr(Mr& mr, int flags, ibv_pd* pd, const Range& now, bool with_pages) {
  page_sharing::SharedRange range;
  if (with_pages) {
    if (const int error = share_pages(now.addr, now.length, now.access, range); error != 0) return error;
  }
  base::ScopeGuard undo([&] {
    if (with_pages) unshare_pages(now.addr, now.length, now.access);
  });
  uroce_rereg_mr_request request{};
  request.handle = mr.mr.handle;
  request.mask = static_cast<std::uint32_t>(flags);
  request.mr.pd = ((flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr.mr.pd)->handle;
  request.mr.access = now.access;
  request.mr.addr = reinterpret_cast<std::uintptr_t>(now.addr);
  request.mr.length = now.length;
  request.mr.iova = request.mr.addr;
  uroce_reg_mr_response reply{};
  const int error =
      send_pieces(session_of(mr.mr.context), UROCE_CMD_REREG_MR, std::as_bytes(std::span(&request, 1)), request.mr,
                  with_pages ? &range : nullptr, reply);
  if (error != 0) return error;
  undo.dismiss();
  forget_mr(mr);
  mr.mr.lkey = reply.lkey;
  mr.mr.rkey = reply.rkey;
  return 0;
}

// REG_MR, or ALLOC_FAST_MR for a region that work requests open parts of.
int send_reg_mr(const ibv_pd& pd, const Mr& mr, std::size_t length, const page_sharing::SharedRange& range,
                uroce_reg_mr_response& reply) {
  uroce_reg_mr_request request{};
  request.pd = pd.handle;
  request.access = mr.access;
  request.addr = reinterpret_cast<std::uintptr_t>(mr.addr);
  request.length = length;
  request.iova = mr.iova;
  const std::uint32_t command = mr.kind == MrKind::kFast ? UROCE_CMD_ALLOC_FAST_MR : UROCE_CMD_REG_MR;
  return send_pieces(session_of(pd.context), command, std::as_bytes(std::span(&request, 1)), request, &range,
                     reply);
}

int rereg(Mr& mr, int flags, ibv_pd* pd, void* addr, std::size_t length, unsigned access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const Range before{mr.addr, mr.mr.length, mr.access};
  const Range now{moves ? addr : mr.addr, moves ? length : mr.mr.length,
                  (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : mr.access};
  const bool with_pages =
      moves || (now.length != 0 && (now.access & kWritable) != 0 && (before.access & kWritable) == 0);
  if (const int error = send_rereg_mr(mr, flags, pd, now, with_pages); error != 0) return error;
  if (with_pages) unshare_pages(before.addr, before.length, before.access);
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    as_pd(mr.mr.pd)->users.fetch_sub(1);
    as_pd(pd)->users.fetch_add(1);
    mr.mr.pd = pd;
  }
  mr.addr = now.addr;
  mr.mr.addr = now.addr;
  mr.mr.length = now.length;
  mr.access = now.access;
  if (moves) mr.iova = reinterpret_cast<std::uintptr_t>(addr);
  remember_mr(mr);
  return 0;
}

}  // namespace

int check_access(unsigned access) {
  if ((access & ~kKnown) != 0) return EINVAL;
  // Remote write access requires local write access (ibv_reg_mr(3)).
  const bool remote_writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return remote_writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

void remember_mr(Mr& mr) {
  Context& owner = *as_context(mr.mr.context);
  const std::lock_guard lock(owner.objects_mutex);
  owner.mrs[mr.mr.lkey] = &mr;
}

void forget_mr(const Mr& mr) {
  Context& owner = *as_context(mr.mr.context);
  const std::lock_guard lock(owner.objects_mutex);
  const auto at = owner.mrs.find(mr.mr.lkey);
  if (at != owner.mrs.end() && at->second == &mr) owner.mrs.erase(at);
}

ibv_mr* finish_mr(std::unique_ptr<Mr> mr, ibv_pd* pd, void* addr, std::size_t length,
                  const uroce_reg_mr_response& made) {
  mr->mr = {pd->context, pd, addr, length, made.handle, made.lkey, made.rkey};
  as_pd(pd)->users.fetch_add(1);
  remember_mr(*mr);
  return &mr.release()->mr;
}

ibv_mr* register_range(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  const bool fast = (access & UROCE_DV_ACCESS_FAST) != 0;
  access &= ~UROCE_DV_ACCESS_FAST;
  if (const int error = check_access(access); error != 0) return null_with(error);
  if (const int error = check_range(addr, length, access); error != 0) return null_with(error);
  if (const client::Session& session = session_of(pd->context); session.lost()) {
    return null_with(lost_error(session));
  }
  auto mr = std::make_unique<Mr>();
  mr->kind = fast ? MrKind::kFast : MrKind::kShared;
  mr->access = access;
  mr->addr = addr;
  mr->iova = iova;
  page_sharing::SharedRange range;
  if (const int error = share_pages(addr, length, access, range); error != 0) return null_with(error);
  base::ScopeGuard undo([&] { unshare_pages(addr, length, access); });
  uroce_reg_mr_response reply{};
  if (const int error = send_reg_mr(*pd, *mr, length, range, reply); error != 0) return null_with(error);
  undo.dismiss();
  return finish_mr(std::move(mr), pd, addr, length, reply);
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_mr* reg_mr_1_1(ibv_pd* pd, void* addr, std::size_t length, int access) {
  const Verb verb("ibv_reg_mr");
  return guarded<ibv_mr*>(nullptr, [&] {
    return reg_mr(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), static_cast<unsigned>(access));
  });
}
UROCE_VERSIONS_1_0_AND_1_1(reg_mr_1_1, ibv_reg_mr);

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  const Verb verb("ibv_reg_mr_iova");
  return guarded<ibv_mr*>(nullptr, [&] { return reg_mr(pd, addr, length, iova, static_cast<unsigned>(access)); });
}

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                                      unsigned access) {
  const Verb verb("ibv_reg_mr_iova2");
  return guarded<ibv_mr*>(nullptr, [&] { return reg_mr(pd, addr, length, iova, access); });
}

UROCE_EXPORT int dereg_mr(ibv_mr* mr) {
  const Verb verb("ibv_dereg_mr");
  auto* const freed = reinterpret_cast<Mr*>(mr);
  client::Session& session = session_of(mr->context);
  if (!freed->imported) {
    if (const int error = session.release(UROCE_CMD_DEREG_MR, mr->handle); error != 0) return failed(error);
  }
  // In a forked child the pages are private already.
  if (freed->kind != MrKind::kNotOwned && session.connection_state() != client::ConnectionState::kForked) {
    unshare_pages(freed->addr, mr->length, freed->access);
  }
  forget_mr(*freed);
  if (freed->dm != nullptr) freed->dm->users.fetch_sub(1);
  as_pd(mr->pd)->users.fetch_sub(1);
  delete freed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(dereg_mr, ibv_dereg_mr);

UROCE_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
  const Verb verb("ibv_rereg_mr");
  const unsigned wanted = static_cast<unsigned>(access) & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  Mr& changed = *reinterpret_cast<Mr*>(mr);
  int error = check_rereg_input(changed, flags, addr, length, wanted);
  if (error != 0) {
    errno = noted(error);
    return IBV_REREG_MR_ERR_INPUT;
  }
  error = check_rereg(changed, flags, pd, addr, length, wanted);
  if (error == 0) error = guarded_errno([&] { return rereg(changed, flags, pd, addr, length, wanted); });
  if (error == 0) return 0;
  errno = noted(error);
  return IBV_REREG_MR_ERR_CMD;  // the region has not changed
}
