// Protection domains and memory regions.
#include "client/memory_share.h"

#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

constexpr unsigned kWritable =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kKnown = kWritable | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

int check_access(unsigned access) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  if ((access & ~kKnown) != 0) return EINVAL;
  // Whoever lets others write must be able to write (ibv_reg_mr(3)).
  const bool remote_writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return remote_writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

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

// Indirect access is process_vm_readv by the daemon; where Yama restricts that, it needs this permission.
void allow_daemon(const client::Session& session) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(session.socket(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0) {
    prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0);
  }
}

int announce(client::Session& session, uroce_reg_mr_request& request, const client::SharedRange& range,
             uroce_reg_mr_response& reply) {
  std::vector<int> fds;
  if (!describe(range, request, fds)) {
    request.piece_count = 0;
    fds.clear();
  }
  if (request.piece_count == 0) allow_daemon(session);
  return session.call(UROCE_CMD_REG_MR, std::as_bytes(std::span(&request, 1)),
                      std::as_writable_bytes(std::span(&reply, 1)), fds);
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if (const int error = check_access(access); error != 0) return null_with(error);
  const auto first = reinterpret_cast<std::uintptr_t>(addr);
  if (length == 0 || first + length < first) return null_with(EINVAL);
  client::Session& session = session_of(pd->context);
  if (session.lost()) return null_with(session.presence() == client::Presence::kForked ? ENODEV : EIO);
  auto mr = std::make_unique<Mr>();
  mr->writable = (access & kWritable) != 0;
  client::MemoryShare& share = client::MemoryShare::instance();
  client::SharedRange range;
  if (const int error = share.share(addr, length, mr->writable, range); error != 0) return null_with(error);
  uroce_reg_mr_request request{};
  request.pd = pd->handle;
  request.access = access;
  request.addr = first;
  request.length = length;
  request.iova = iova;
  uroce_reg_mr_response reply{};
  int error;
  try {
    error = announce(session, request, range, reply);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    share.unshare(addr, length);
    return null_with(error);
  }
  mr->mr = {pd->context, pd, addr, length, reply.handle, reply.lkey, reply.rkey};
  return &mr.release()->mr;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_pd* alloc_pd(ibv_context* context) {
  return guarded<ibv_pd*>(nullptr, [&]() -> ibv_pd* {
    auto pd = std::make_unique<Pd>();
    uroce_handle reply{};
    const int error =
        session_of(context).call(UROCE_CMD_ALLOC_PD, {}, std::as_writable_bytes(std::span(&reply, 1)));
    if (error != 0) return null_with(error);
    pd->pd = {context, reply.handle};
    return &pd.release()->pd;
  });
}
UROCE_VERSIONS_1_0_AND_1_1(alloc_pd, ibv_alloc_pd);

UROCE_EXPORT int dealloc_pd(ibv_pd* pd) {
  const int error = session_of(pd->context).release(UROCE_CMD_DEALLOC_PD, pd->handle);
  if (error == 0) delete reinterpret_cast<Pd*>(pd);
  return failed(error);
}
UROCE_VERSIONS_1_0_AND_1_1(dealloc_pd, ibv_dealloc_pd);

UROCE_EXPORT ibv_mr* reg_mr_1_1(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return guarded<ibv_mr*>(nullptr, [&] {
    return reg_mr(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), static_cast<unsigned>(access));
  });
}
UROCE_VERSIONS_1_0_AND_1_1(reg_mr_1_1, ibv_reg_mr);

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return guarded<ibv_mr*>(nullptr,
                          [&] { return reg_mr(pd, addr, length, iova, static_cast<unsigned>(access)); });
}

UROCE_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                                      unsigned access) {
  return guarded<ibv_mr*>(nullptr, [&] { return reg_mr(pd, addr, length, iova, access); });
}

UROCE_EXPORT int dereg_mr(ibv_mr* mr) {
  client::Session& session = session_of(mr->context);
  if (const int error = session.release(UROCE_CMD_DEREG_MR, mr->handle); error != 0) return failed(error);
  // In a forked child the pages are its own already.
  if (session.presence() != client::Presence::kForked) {
    client::MemoryShare::instance().unshare(mr->addr, mr->length);
  }
  delete reinterpret_cast<Mr*>(mr);
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(dereg_mr, ibv_dereg_mr);

UROCE_EXPORT int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, std::size_t, int) {
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;  // the region is as it was
}

UROCE_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  return null_with(EOPNOTSUPP);
}
