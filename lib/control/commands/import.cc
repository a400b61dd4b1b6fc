// IMPORT_DEVICE, IMPORT_PD, IMPORT_MR; device memory, which the daemon keeps so that other processes can import it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "control/commands/command.h"
#include "mapping/untrusted_fd.h"

namespace uroce::control::commands {

namespace {

bool has_cookie(int file, const Session& session) {
  std::array<std::byte, sizeof(session.cookie)> found{};
  const auto bytes = static_cast<ssize_t>(found.size());
  if (::pread(file, found.data(), found.size(), static_cast<off_t>(session.cookie_offset)) != bytes) return false;
  // In constant time: the caller must not learn how many bytes are right.
  std::byte difference{};
  for (std::size_t i = 0; i < found.size(); ++i) difference |= found[i] ^ session.cookie[i];
  return difference == std::byte{};
}

}  // namespace

// A process that holds the memfd of a session's first chunk got it from that session's process.
int import_device(Call& call) {
  mapping::FileFacts info;
  if (!call.no_body() || call.fds.size() != 1) return EINVAL;
  const int file = call.fds[0].get();
  if (!mapping::is_memory_file(file)) return ENOENT;
  if (mapping::examine(file, call.session.stall_budget, info) != 0) return EINVAL;
  for (const auto& [id, session] : call.state.sessions()) {
    if (session.get() == &call.session || !session->hello_done) continue;
    if (!session->arena.is_first_chunk(info.device, info.inode) || !has_cookie(file, *session)) continue;
    call.session.imported = id;
    return 0;
  }
  return ENOENT;
}

int import_pd(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const Session* from = call.state.session(call.session.imported);
  const PdObject* pd = from != nullptr ? from->pds.find(request.handle) : nullptr;
  if (pd == nullptr) return EINVAL;
  Charge charge = call.state.charge(call.session, {.pds = 1});
  if (!charge) return ENOMEM;
  auto imported = std::make_unique<PdObject>();
  imported->id = pd->id;
  imported->charge = std::move(charge);
  imported->number = pd->number;
  call.reply.put(uroce_handle{call.session.pds.add(std::move(imported)), 0});
  return 0;
}

int import_mr(Call& call) {
  uroce_import_mr_request request;
  if (!call.read(request)) return EINVAL;
  const PdObject* pd = call.session.pds.find(request.pd);
  const Session* from = call.state.session(call.session.imported);
  const MrObject* mr = pd != nullptr && from != nullptr ? from->mrs.find(request.mr) : nullptr;
  if (mr == nullptr || mr->pd->id != pd->id) return EINVAL;
  call.reply.put(uroce_import_mr_response{mr->key.value, mr->key.value, mr->addr, mr->length});
  return 0;
}

int alloc_dm(Call& call) {
  uroce_alloc_dm_request request;
  struct stat info {};
  if (!call.read(request) || call.fds.size() != 1 || request.length == 0) return EINVAL;
  const int fd = call.fds[0].get();
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0) return EINVAL;
  if (request.length > static_cast<std::uint64_t>(info.st_size)) return EINVAL;
  Charge charge = call.state.charge(call.session, {.descriptors = 1});
  if (!charge) return EMFILE;
  auto dm = std::make_unique<DmObject>();
  dm->memory = {std::move(call.fds[0]), call.session.stall_budget};
  dm->length = request.length;
  dm->charge = std::move(charge);
  call.reply.put(uroce_handle{call.session.dms.add(std::move(dm)), 0});
  return 0;
}

int free_dm(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if (call.session.dms.find(request.handle) == nullptr) return ENOENT;
  call.session.dms.erase(request.handle);
  return 0;
}

int import_dm(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const Session* from = call.state.session(call.session.imported);
  const DmObject* dm = from != nullptr ? from->dms.find(request.handle) : nullptr;
  if (dm == nullptr) return EINVAL;
  UniqueFd copy(::fcntl(dm->memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return EMFILE;
  call.reply.fds.push_back(std::move(copy));
  call.reply.put(uroce_import_dm_response{dm->length});
  return 0;
}

}  // namespace uroce::control::commands
