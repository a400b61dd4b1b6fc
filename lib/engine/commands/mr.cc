// REG_MR, DEREG_MR.
#include "engine/commands/commands.h"
#include "engine/log.h"

namespace uroce::engine::commands {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kWritingAccess = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteAtomic;
constexpr std::uint32_t kKnownAccess =
    kWritingAccess | memory::kRemoteRead | memory::kMwBind | memory::kZeroBased;
// IBV_ACCESS_OPTIONAL_RANGE: hints that a device may ignore (relaxed ordering).
constexpr std::uint32_t kOptionalAccess = 0x3ff00000;
constexpr std::uint32_t kHugetlbAccess = 1u << 7;

// The body may end behind the last piece that it counts.
bool read_request(const Call& call, uroce_reg_mr_request& out) {
  constexpr std::size_t kHead = offsetof(uroce_reg_mr_request, piece);
  if (call.body.size() < kHead || call.body.size() > sizeof(out)) return false;
  out = {};
  std::memcpy(&out, call.body.data(), call.body.size());
  return out.reserved == 0 && out.piece_count <= UROCE_MAX_MR_PIECES &&
         call.body.size() >= kHead + out.piece_count * sizeof(uroce_mr_piece);
}

int check(const uroce_reg_mr_request& request) {
  const std::uint32_t access = request.access & ~(kOptionalAccess | kHugetlbAccess);
  if ((access & memory::kOnDemand) != 0) return EOPNOTSUPP;
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  // Remote write and atomic need local write (IBTA vol. 1, 10.6.3.1; ibv_reg_mr(3)).
  if ((access & (memory::kRemoteWrite | memory::kRemoteAtomic)) != 0 && (access & memory::kLocalWrite) == 0) {
    return EINVAL;
  }
  if (request.length == 0 || request.length > kMaxMrBytes) return EINVAL;
  if (request.addr + request.length < request.addr || request.iova + request.length < request.iova) return EINVAL;
  if (request.piece_count == 0) return 0;
  const std::uint64_t first = request.addr / kPage * kPage;
  const std::uint64_t end = request.addr + request.length;
  if (end > ~std::uint64_t{0} - kPage) return EINVAL;
  const std::uint64_t span = (end + kPage - 1) / kPage * kPage - first;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < request.piece_count; ++i) {
    if (request.piece[i].reserved != 0 || request.piece[i].bytes > span - total) return EINVAL;
    total += request.piece[i].bytes;
  }
  return total == span ? 0 : EINVAL;
}

int locate(Call& call, const uroce_reg_mr_request& request, MrObject& mr, memory::Region& region) {
  Session& session = call.session;
  if (request.piece_count == 0) {
    if (session.indirect == nullptr) return EOPNOTSUPP;
    if (const int error = session.indirect->probe(request.addr)) {
      log(LogLevel::kWarning,
          "memory of %s can't be reached through the kernel (%s); run the daemon as root, or as the program's user "
          "with "
          "kernel.yama.ptrace_scope=0",
          session.program.c_str(), std::strerror(error));
      return error == EFAULT ? EFAULT : EPERM;
    }
    mr.indirect = true;
    region.client_address = request.addr;
    region.indirect = &session.indirect->io();
    return 0;
  }
  const bool writable = (request.access & kWritingAccess) != 0;
  const std::span pieces(request.piece, request.piece_count);
  if (const int error = session.memory.map(pieces, call.fds, writable, mr.hold)) return error;
  region.base = mr.hold.base() + request.addr % kPage;
  region.client_address = request.addr;
  return 0;
}

}  // namespace

int reg_mr(Call& call) {
  uroce_reg_mr_request request;
  if (!read_request(call, request)) return EINVAL;
  if (const int error = check(request)) return error;
  Session& session = call.session;
  PdObject* pd = session.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  const Usage usage{.mrs = 1};
  if (const int error = call.conductor.charge(session, usage)) return error;
  auto mr = std::make_unique<MrObject>();
  memory::Region region;
  region.pd = pd->id;
  region.access = request.access & kKnownAccess;
  region.iova = (request.access & memory::kZeroBased) != 0 ? 0 : request.iova;
  region.length = request.length;
  int error = locate(call, request, *mr, region);
  if (error == 0) {
    const auto key = call.conductor.memory().insert(region);
    if (key) {
      mr->key = *key;
    } else {
      session.memory.unmap(mr->hold);
      error = ENOMEM;
    }
  }
  if (error != 0) {
    call.conductor.refund(session, usage);
    return error;
  }
  mr->pd = pd;
  mr->addr = request.addr;
  mr->length = request.length;
  mr->access = region.access;
  ++pd->users;
  const std::uint32_t key = mr->key.value;
  call.reply.put(uroce_reg_mr_response{session.mrs.add(std::move(mr)), key, key, 0});
  return 0;
}

int dereg_mr(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  MrObject* mr = session.mrs.find(request.handle);
  if (mr == nullptr) return EINVAL;
  call.conductor.memory().retire(mr->key);
  call.conductor.quiesce();
  call.conductor.memory().release(mr->key);
  session.memory.unmap(mr->hold);
  --mr->pd->users;
  session.mrs.erase(request.handle);
  call.conductor.refund(session, {.mrs = 1});
  return 0;
}

}  // namespace uroce::engine::commands
