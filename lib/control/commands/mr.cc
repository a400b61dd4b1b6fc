// REG_MR, REREG_MR, ALLOC_NULL_MR, ALLOC_FAST_MR, DEREG_MR.
#include <bit>
#include <system_error>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::control::commands {

using platform::log;
using platform::LogLevel;

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kWholeAddressSpace = ~std::uint64_t{0};
// For which memory is mapped for writing. As in the library and the kernel's ib_access_writable().
constexpr std::uint32_t kWritingAccess =
    memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteAtomic | memory::kMwBind;
constexpr std::uint32_t kKnownAccess = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead |
                                       memory::kRemoteAtomic | memory::kMwBind | memory::kZeroBased |
                                       memory::kOnDemand |
                                       memory::kFlushGlobal;  // FLUSH_PERSISTENT: no memory here is persistent
// IBV_ACCESS_OPTIONAL_RANGE: hints that a device may ignore (relaxed ordering).
constexpr std::uint32_t kOptionalAccess = 0x3ff00000;
constexpr std::uint32_t kHugetlbAccess = 1u << 7;

// The body may end after the last piece that it counts.
bool parse(const Call& call, std::span<const std::byte> body, uroce_reg_mr_request& out) {
  constexpr std::size_t kHead = offsetof(uroce_reg_mr_request, piece);
  if (body.size() < kHead || body.size() > sizeof(out)) return call.malformed();
  out = {};
  std::memcpy(&out, body.data(), body.size());
  if (out.reserved != 0 || out.piece_count > UROCE_MAX_MR_PIECES) return false;
  return body.size() >= kHead + out.piece_count * sizeof(uroce_mr_piece) || call.malformed();
}

int check_access(const Call& call, std::uint32_t requested) {
  const std::uint32_t access = requested & ~(kOptionalAccess | kHugetlbAccess);
  if ((access & ~kKnownAccess) != 0) {
    return call.refuse(EINVAL, "access flags 0x%x are not supported", access & ~kKnownAccess);
  }
  // Remote write and atomic need local write (IBTA vol. 1, 10.6.3.1; ibv_reg_mr(3)).
  if ((access & (memory::kRemoteWrite | memory::kRemoteAtomic)) != 0 && (access & memory::kLocalWrite) == 0) {
    return call.refuse(EINVAL, "access 0x%x: REMOTE_WRITE and REMOTE_ATOMIC take LOCAL_WRITE as well", access);
  }
  return 0;
}

bool is_implicit(const uroce_reg_mr_request& request) {
  return (request.access & memory::kOnDemand) != 0 && request.addr == 0 && request.iova == 0 &&
         request.length == kWholeAddressSpace && request.piece_count == 0;
}

int check_range(const Call& call, const uroce_reg_mr_request& request) {
  if (is_implicit(request)) return 0;
  if (!call.within("length", request.length, 0, kMaxMrBytes)) return EINVAL;
  if (request.length == 0 && request.piece_count != 0) return EINVAL;
  if (request.addr + request.length < request.addr || request.iova + request.length < request.iova) {
    return call.refuse(EINVAL,
                       "address 0x%llx or iova 0x%llx with %llu bytes goes beyond the end of the address space",
                       static_cast<unsigned long long>(request.addr), static_cast<unsigned long long>(request.iova),
                       static_cast<unsigned long long>(request.length));
  }
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

int start_indirect(Call& call) {
  Session& session = call.session;
  if (session.indirect != nullptr) return 0;
  if (session.stall_budget->stuck.load() >= mapping::StallBudget::kMaxStuck) return EAGAIN;
  Charge charge = call.state.charge(session, {.descriptors = 2, .threads = 1, .mappings = 2});
  if (!charge) return ENOMEM;
  mapping::MemoryFiles files;
  if (const int error = mapping::open_memory(session.peer, files)) return error;
  try {
    session.indirect = std::make_unique<mapping::ProcMemAccess>(std::move(files), session.stall_budget,
                                                                call.state.workers().few_cores);
    session.indirect_charge = std::move(charge);
  } catch (const std::system_error&) {  // the limit of threads is reached
    return EAGAIN;
  }
  return 0;
}

int setup_proc_mem_access(Call& call, const uroce_reg_mr_request& request) {
  Session& session = call.session;
  const char* program = session.program.c_str();
  if (!call.state.config().indirect || !session.peer.pidfd.valid()) {
    log(LogLevel::kWarning,
        "memory of %s cannot be shared with the daemon and is refused; set memory.indirect in uroced.toml to allow "
        "it",
        program);
    return call.refuse(EOPNOTSUPP,
                       "this memory cannot be shared with the daemon, and memory.indirect is off in "
                       "uroced.toml");
  }
  // The addresses would be those of the process that opened the session.
  if (!session.from_peer) return EPERM;
  int error = start_indirect(call);
  if (error == 0) error = session.indirect->probe(request.addr);
  // On-demand memory may be mapped later, before it is used.
  if (error == 0 || (error == EFAULT && (request.access & memory::kOnDemand) != 0)) return 0;
  if (error == EAGAIN || error == ETIMEDOUT) {
    log(LogLevel::kWarning,
        "memory of %s is refused: page faults of user %u don't end (%u threads wait for them, %u may); look for "
        "what should serve them: a FUSE file system, or userfaultfd",
        program, static_cast<unsigned>(session.peer.uid), session.stall_budget->stuck.load(),
        mapping::StallBudget::kMaxStuck);
    return call.refuse(error,
                       "page faults of this memory do not end; look for what should serve them: a FUSE file "
                       "system, or userfaultfd");
  }
  // SO_PEERCRED has 0 for a process outside the daemon's PID namespace.
  if (session.peer.pid == 0) {
    log(LogLevel::kWarning,
        "memory of %s can't be shared, and the daemon does not see the program, which has another PID namespace; "
        "start both in one (podman run --pid=container:NAME, or shareProcessNamespace: true), or the daemon on the "
        "host",
        program);
    return call.refuse(EPERM,
                       "the daemon does not see this process in its PID namespace; start both in one (podman run "
                       "--pid=container:NAME), or the daemon on the host");
  }
  log(LogLevel::kWarning,
      "memory of %s can't be reached through the kernel (%s); run the daemon as root, or as the program's user "
      "with kernel.yama.ptrace_scope=0; a program that gave up privileges has to call prctl(PR_SET_DUMPABLE, 1)",
      program, std::strerror(error));
  if (error == EFAULT) {
    return call.refuse(EFAULT, "address 0x%llx is not mapped", static_cast<unsigned long long>(request.addr));
  }
  return call.refuse(EPERM,
                     "the daemon may not read this process (ptrace(2)): run it as root or as the same user with "
                     "kernel.yama.ptrace_scope=0; or call prctl(PR_SET_DUMPABLE, 1)");
}

/// Whether each descriptor holds a piece. Closing a file that no mapping keeps may take long.
bool all_used(const Call& call, const uroce_reg_mr_request& request) {
  std::uint64_t used = 0;
  for (const uroce_mr_piece& piece : std::span(request.piece, request.piece_count)) {
    if (piece.fd < call.fds.size()) used |= std::uint64_t{1} << piece.fd;
  }
  return static_cast<std::size_t>(std::popcount(used)) == call.fds.size();
}

/// Memory that reads as zeroes and forgets what is written.
constexpr memory::IndirectIo kNothing{
    .read =
        [](void*, std::uint64_t, std::byte* to, std::size_t bytes) {
          std::memset(to, 0, bytes);
          return true;
        },
    .write = [](void*, std::uint64_t, const std::byte*, std::size_t) { return true; }};

int locate_indirectly(Call& call, const uroce_reg_mr_request& request, MrObject& mr, memory::Region& region) {
  if (const int error = setup_proc_mem_access(call, request)) return error;
  mr.indirect = true;
  region.indirect = &call.session.indirect->io();
  return 0;
}

/// Maps the pieces of the region; ClientMemory::kWouldWait: it must be reached indirectly.
int map_pieces(Call& call, const uroce_reg_mr_request& request, MrObject& mr, memory::Region& region) {
  Session& session = call.session;
  if (session.stall_budget->in_debt(monotonic_now())) {
    log(LogLevel::kWarning, "memory of %s is refused for now: user %u has made the daemon wait for its memory",
        session.program.c_str(), static_cast<unsigned>(session.peer.uid));
    return call.refuse(EAGAIN, "memory of this user has made the daemon wait; try again later");
  }
  mr.writable = (request.access & kWritingAccess) != 0;
  const std::span pieces(request.piece, request.piece_count);
  mr.hold_charge = call.state.charge(session, {.registered_bytes = request.length});
  if (!mr.hold_charge) return ENOMEM;
  const mapping::ClientMemory::Use use{mr.writable, (request.access & memory::kOnDemand) != 0,
                                       is_privileged(session.peer.uid)};
  if (const int error = session.memory.map(pieces, call.fds, use, mr.hold)) {
    mr.hold_charge = {};
    if (error == mapping::ClientMemory::kWouldWait) return error;
    if (error == EFAULT) return call.refuse(EFAULT, "a part of this memory is past the end of its file");
    return call.refuse(error, "the daemon cannot map the files of this memory%s",
                       mr.writable ? " for writing" : "");
  }
  region.base = mr.hold.base() + request.addr % kPage;
  region.loss = mr.hold.loss();
  return 0;
}

int locate(Call& call, const uroce_reg_mr_request& request, MrObject& mr, memory::Region& region) {
  if (!all_used(call, request)) return EINVAL;
  region.client_address = request.addr;
  if (request.length == 0) {
    region.indirect = &kNothing;
    return 0;
  }
  if (request.piece_count == 0) return locate_indirectly(call, request, mr, region);
  const int error = map_pieces(call, request, mr, region);
  if (error != mapping::ClientMemory::kWouldWait) return error;
  // A dma-buf is registered by offset: its region has no address in the program.
  if (request.addr < kPage) {
    return call.refuse(EOPNOTSUPP, "page faults of this file may wait, and the region has no address");
  }
  mr.writable = false;
  return locate_indirectly(call, request, mr, region);
}

memory::Region describe(const uroce_reg_mr_request& request, const PdObject& pd) {
  memory::Region region;
  region.pd = pd.id;
  region.access = request.access & kKnownAccess;
  region.iova = (request.access & memory::kZeroBased) != 0 ? 0 : request.iova;
  region.length = request.length;
  return region;
}

void remember(MrObject& mr, const uroce_reg_mr_request& request, PdObject& pd, Key key) {
  mr.key = key;
  mr.pd = &pd;
  mr.addr = request.addr;
  mr.length = request.length;
  mr.iova = request.iova;
  mr.access = request.access & kKnownAccess;
}

// Adds the object to the session, which has been charged for it.
int add(Call& call, std::unique_ptr<MrObject> mr, const uroce_reg_mr_request& request, PdObject& pd,
        const memory::Region& region) {
  Session& session = call.session;
  memory::Table& table = call.state.memory();
  const auto key = mr->kind == MrKind::kFast ? table.allocate_fast(region) : table.insert(region);
  if (!key) {
    session.memory.unmap(mr->hold);
    return ENOMEM;
  }
  remember(*mr, request, pd, *key);
  ++pd.users;
  call.reply.put(uroce_reg_mr_response{session.mrs.add(std::move(mr)), key->value, key->value, 0});
  return 0;
}

int make(Call& call, MrKind kind) {
  uroce_reg_mr_request request;
  if (!parse(call, call.body, request)) return EINVAL;
  if (const int error = check_access(call, request.access)) return error;
  if (const int error = check_range(call, request)) return error;
  Session& session = call.session;
  PdObject* pd = session.pds.find(request.pd);
  if (pd == nullptr) return EINVAL;
  auto mr = std::make_unique<MrObject>();
  mr->charge = call.state.charge(session, {.mrs = 1});
  if (!mr->charge) return ENOMEM;
  mr->kind = kind;
  memory::Region region = describe(request, *pd);
  if (const int error = locate(call, request, *mr, region)) return error;
  return add(call, std::move(mr), request, *pd, region);
}

/// False: memory windows are bound to the region.
bool withdraw(ControlState& state, Key key) {
  if (!state.memory().retire(key)) return false;
  state.on_all_workers(worker_commands::Quiesce{});
  state.memory().release(key);
  return true;
}

bool parse_rereg(const Call& call, uroce_rereg_mr_request& out) {
  constexpr std::size_t kHead = offsetof(uroce_rereg_mr_request, mr);
  if (call.body.size() < kHead) return call.malformed();
  std::memcpy(&out, call.body.data(), kHead);
  return parse(call, call.body.subspan(kHead), out.mr);
}

// Attributes outside the mask keep their values.
void fill_from(const MrObject& mr, std::uint32_t mask, uroce_reg_mr_request& request) {
  if ((mask & UROCE_REREG_ACCESS) == 0) request.access = mr.access;
  if ((mask & UROCE_REREG_TRANSLATION) != 0) return;
  request.addr = mr.addr;
  request.length = mr.length;
  request.iova = mr.iova;
}

// Fills `next` and `region` with the new state of the region.
int relocate(Call& call, const uroce_rereg_mr_request& request, const MrObject& mr, MrObject& next,
             memory::Region& region) {
  if ((request.mask & UROCE_REREG_TRANSLATION) != 0 || request.mr.piece_count != 0) {
    return locate(call, request.mr, next, region);
  }
  const bool writes = (request.mr.access & kWritingAccess) != 0;
  if (!call.fds.empty()) return EINVAL;
  if (writes && !mr.writable && !mr.indirect && mr.length != 0) {
    return call.refuse(EINVAL, "the region was registered without write access and its pages were not given again");
  }
  next.hold = mr.hold;
  next.indirect = mr.indirect;
  next.writable = mr.writable;
  region.client_address = mr.addr;
  if (mr.length == 0) {
    region.indirect = &kNothing;
  } else if (mr.indirect) {
    if (!call.session.from_peer) return EPERM;
    region.indirect = &call.session.indirect->io();
  } else {
    region.base = mr.hold.base() + mr.addr % kPage;
    region.loss = mr.hold.loss();
  }
  return 0;
}

}  // namespace

int reg_mr(Call& call) { return make(call, MrKind::kMemory); }
int alloc_fast_mr(Call& call) { return make(call, MrKind::kFast); }

int alloc_null_mr(Call& call) {
  uroce_handle handle;
  if (!call.read(handle) || handle.reserved != 0) return EINVAL;
  Session& session = call.session;
  PdObject* pd = session.pds.find(handle.handle);
  if (pd == nullptr) return EINVAL;
  auto mr = std::make_unique<MrObject>();
  mr->charge = call.state.charge(session, {.mrs = 1});
  if (!mr->charge) return ENOMEM;
  uroce_reg_mr_request request{};
  request.access = memory::kLocalWrite;
  request.length = kWholeAddressSpace;
  mr->kind = MrKind::kNull;
  memory::Region region = describe(request, *pd);
  region.indirect = &kNothing;
  return add(call, std::move(mr), request, *pd, region);
}

int rereg_mr(Call& call) {
  constexpr std::uint32_t kAll = UROCE_REREG_TRANSLATION | UROCE_REREG_PD | UROCE_REREG_ACCESS;
  uroce_rereg_mr_request request;
  if (!parse_rereg(call, request) || request.mask == 0 || (request.mask & ~kAll) != 0) return EINVAL;
  Session& session = call.session;
  memory::Table& table = call.state.memory();
  MrObject* mr = session.mrs.find(request.handle);
  if (mr == nullptr || mr->kind != MrKind::kMemory) return EINVAL;
  PdObject* pd = (request.mask & UROCE_REREG_PD) != 0 ? session.pds.find(request.mr.pd) : mr->pd;
  if (pd == nullptr) return EINVAL;
  fill_from(*mr, request.mask, request.mr);
  if (const int error = check_access(call, request.mr.access)) return error;
  if (const int error = check_range(call, request.mr)) return error;
  MrObject next;
  memory::Region region = describe(request.mr, *pd);
  if (const int error = relocate(call, request, *mr, next, region)) return error;
  const bool moved = (request.mask & UROCE_REREG_TRANSLATION) != 0 || request.mr.piece_count != 0;
  if (!moved && pd == mr->pd && table.change_access(mr->key, region.access)) {
    mr->access = region.access;
    call.reply.put(uroce_reg_mr_response{request.handle, mr->key.value, mr->key.value, 0});
    return 0;
  }
  const auto key = table.insert(region);
  const bool done = key && withdraw(call.state, mr->key);
  if (!done) {
    if (key) withdraw(call.state, *key);
    if (moved) session.memory.unmap(next.hold);
    if (!key) return ENOMEM;
    return call.refuse(EBUSY, "memory windows are bound to the region; free or rebind them first");
  }
  if (moved) session.memory.unmap(mr->hold);
  --mr->pd->users;
  ++pd->users;
  if (moved) mr->hold_charge = std::move(next.hold_charge);
  mr->hold = next.hold;
  mr->indirect = next.indirect;
  mr->writable = next.writable;
  remember(*mr, request.mr, *pd, *key);
  call.reply.put(uroce_reg_mr_response{request.handle, key->value, key->value, 0});
  return 0;
}

int dereg_mr(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  MrObject* mr = session.mrs.find(request.handle);
  if (mr == nullptr) return ENOENT;
  if (!withdraw(call.state, mr->key)) {
    return call.refuse(EBUSY, "memory windows are bound to the region; free or rebind them first");
  }
  session.memory.unmap(mr->hold);
  --mr->pd->users;
  session.mrs.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
