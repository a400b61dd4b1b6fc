// Memory regions of ordinary memory.
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "export.h"
#include "objects.h"
#include "page_sharing/page_sharing.h"
#include "uroce/dv.h"

namespace uroce::verbs {
namespace {

constexpr unsigned kWritable =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kKnown = kWritable | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                            IBV_ACCESS_ON_DEMAND | UROCE_DV_ACCESS_FLUSH_GLOBAL | UROCE_DV_ACCESS_FLUSH_PERSISTENT;

// Fills the request's pieces, joined where they adjoin, and lists each descriptor once. False: more pieces or
// descriptors than a message holds.
bool describe(const client::SharedRange& range, uroce_reg_mr_request& request, std::vector<int>& fds) {
  for (const client::SharedPiece& piece : range.pieces) {
    auto at = std::find(fds.begin(), fds.end(), piece.fd);
    if (at == fds.end()) {
      if (fds.size() == UROCE_MAX_MESSAGE_FDS) return false;
      fds.push_back(piece.fd);
      at = fds.end() - 1;
    }
    const auto fd = static_cast<std::uint32_t>(at - fds.begin());
    if (request.piece_count != 0) {
      uroce_mr_piece& last = request.piece[request.piece_count - 1];
      if (last.fd == fd && last.offset + last.bytes == piece.offset) {
        last.bytes += piece.bytes;
        continue;
      }
    }
    if (request.piece_count == UROCE_MAX_MR_PIECES) return false;
    request.piece[request.piece_count++] = {fd, 0, piece.offset, piece.bytes};
  }
  return true;
}

// Indirect access is /proc/PID/mem, opened by the daemon; where Yama restricts that, it needs this permission.
void allow_daemon(const client::Session& session) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(session.socket(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0) {
    prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0);
  }
}

int announce(client::Session& session, std::uint32_t command, uroce_reg_mr_request& request,
             const client::SharedRange& range, uroce_reg_mr_response& reply) {
  std::vector<int> fds;
  if (!describe(range, request, fds)) {
    request.piece_count = 0;
    fds.clear();
  }
  if (request.piece_count == 0) allow_daemon(session);
  return session.call(command, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(&reply, 1)),
                      fds);
}

// The whole address space, of which pages are looked up when they are used.
bool implicit(const void* addr, std::size_t length, unsigned access) {
  return addr == nullptr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) != 0;
}

int check_range(const void* addr, std::size_t length, unsigned access) {
  if (implicit(addr, length, access)) return 0;
  const auto first = reinterpret_cast<std::uintptr_t>(addr);
  return length == 0 || first + length < first ? EINVAL : 0;
}

// Takes the pages, or none of a region on demand: what is mapped there may change at any time.
int take(const void* addr, std::size_t length, unsigned access, client::SharedRange& range) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  return client::PageSharing::instance().share(addr, length, (access & kWritable) != 0, range);
}

void give_back(void* addr, std::size_t length, unsigned access) {
  if ((access & IBV_ACCESS_ON_DEMAND) == 0) client::PageSharing::instance().unshare(addr, length);
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  return register_range(pd, addr, length, iova, access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE));
}

// Which of ibv_rereg_mr's arguments can't be (ibv_rereg_mr(3)); 0: none.
int check_rereg(const Mr& mr, int flags, const ibv_pd* pd, const void* addr, std::size_t length, unsigned access) {
  if (mr.kind != MrKind::kShared || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || flags == 0) return EINVAL;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (moves && addr == nullptr) return EINVAL;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context != mr.mr.context)) return EINVAL;
  if (!changes_access) return access != 0 ? EINVAL : moves ? check_range(addr, length, mr.access) : 0;
  if (!moves && ((access ^ mr.access) & IBV_ACCESS_ON_DEMAND) != 0) return EINVAL;
  if (const int error = check_access(access); error != 0) return error;
  return moves ? check_range(addr, length, access) : 0;
}

struct Range {
  void* addr;
  std::size_t length;
  unsigned access;
};

// Gives the region what `now` says. The pages of the old range are the caller's to give back.
int change(Mr& mr, int flags, ibv_pd* pd, const Range& now, bool with_pages) {
  client::Session& session = session_of(mr.mr.context);
  client::SharedRange range;
  if (with_pages) {
    if (const int error = take(now.addr, now.length, now.access, range); error != 0) return error;
  }
  uroce_rereg_mr_request request{};
  request.handle = mr.mr.handle;
  request.mask = static_cast<std::uint32_t>(flags);
  request.mr.pd = ((flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr.mr.pd)->handle;
  request.mr.access = now.access;
  request.mr.addr = reinterpret_cast<std::uintptr_t>(now.addr);
  request.mr.length = now.length;
  request.mr.iova = request.mr.addr;
  uroce_reg_mr_response reply{};
  std::vector<int> fds;
  if (!describe(range, request.mr, fds)) {
    request.mr.piece_count = 0;
    fds.clear();
  }
  if (with_pages && request.mr.piece_count == 0) allow_daemon(session);
  const int error = session.call(UROCE_CMD_REREG_MR, std::as_bytes(std::span(&request, 1)),
                                 std::as_writable_bytes(std::span(&reply, 1)), fds);
  if (error != 0) {
    if (with_pages) give_back(now.addr, now.length, now.access);
    return error;
  }
  forget_mr(mr);
  mr.mr.lkey = reply.lkey;
  mr.mr.rkey = reply.rkey;
  return 0;
}

int rereg(Mr& mr, int flags, ibv_pd* pd, void* addr, std::size_t length, unsigned access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const Range before{mr.addr, mr.mr.length, mr.access};
  const Range now{moves ? addr : mr.addr, moves ? length : mr.mr.length,
                  (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : mr.access};
  const bool with_pages = moves || ((now.access & kWritable) != 0 && (before.access & kWritable) == 0);
  if (const int error = change(mr, flags, pd, now, with_pages); error != 0) return error;
  if (with_pages) give_back(before.addr, before.length, before.access);
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
  // Whoever lets others write must be able to write (ibv_reg_mr(3)).
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
  client::Session& session = session_of(pd->context);
  if (session.lost()) return null_with(lost_error(session));
  auto mr = std::make_unique<Mr>();
  mr->kind = fast ? MrKind::kFast : MrKind::kShared;
  mr->access = access;
  mr->addr = addr;
  mr->iova = iova;
  client::SharedRange range;
  if (const int error = take(addr, length, access, range); error != 0) return null_with(error);
  uroce_reg_mr_request request{};
  request.pd = pd->handle;
  request.access = access;
  request.addr = reinterpret_cast<std::uintptr_t>(addr);
  request.length = length;
  request.iova = iova;
  uroce_reg_mr_response reply{};
  int error;
  try {
    error = announce(session, fast ? UROCE_CMD_ALLOC_FAST_MR : UROCE_CMD_REG_MR, request, range, reply);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    give_back(addr, length, access);
    return null_with(error);
  }
  return finish_mr(std::move(mr), pd, addr, length, reply);
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_mr* reg_mr_1_1(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return guarded<ibv_mr*>(nullptr, [&] {
    return reg_mr(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), static_cast<unsigned>(access));
  });
}
UROCE_VERSIONS_1_0_AND_1_1(reg_mr_1_1, ibv_reg_mr);

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return guarded<ibv_mr*>(nullptr, [&] { return reg_mr(pd, addr, length, iova, static_cast<unsigned>(access)); });
}

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                                      unsigned access) {
  return guarded<ibv_mr*>(nullptr, [&] { return reg_mr(pd, addr, length, iova, access); });
}

UROCE_EXPORT int dereg_mr(ibv_mr* mr) {
  auto* const freed = reinterpret_cast<Mr*>(mr);
  client::Session& session = session_of(mr->context);
  if (!freed->imported) {
    if (const int error = session.release(UROCE_CMD_DEREG_MR, mr->handle); error != 0) return failed(error);
  }
  // In a forked child the pages are its own already.
  if (freed->kind != MrKind::kNotOwned && session.connection_state() != client::ConnectionState::kForked) {
    give_back(freed->addr, mr->length, freed->access);
  }
  forget_mr(*freed);
  if (freed->dm != nullptr) freed->dm->users.fetch_sub(1);
  as_pd(mr->pd)->users.fetch_sub(1);
  delete freed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(dereg_mr, ibv_dereg_mr);

UROCE_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
  const unsigned wanted = static_cast<unsigned>(access) & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  Mr& changed = *reinterpret_cast<Mr*>(mr);
  int error = check_rereg(changed, flags, pd, addr, length, wanted);
  if (error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;
  }
  error = guarded_errno([&] { return rereg(changed, flags, pd, addr, length, wanted); });
  if (error == 0) return 0;
  errno = error;
  return IBV_REREG_MR_ERR_CMD;  // the region is as it was
}
