// HELLO: the client's shared memory, wake descriptors and event channel.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/printable.h"
#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "mapping/sigbus_guard.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/record_socket.h"

namespace uroce::control::commands {
namespace {

std::string program_name(const char (&field)[32]) {
  return base::printable(std::string(field, ::strnlen(field, sizeof(field))));
}

// The client gets a duplicate of the daemon's descriptor.
bool give(const UniqueFd& fd, std::vector<UniqueFd>& fds) {
  fds.emplace_back(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  return fds.back().valid();
}

struct DoorbellMapping {
  mapping::SharedBlock bells, header;
};

int make_ports(Session& session, const DoorbellMapping& doors, std::uint32_t workers) {
  auto* bells = reinterpret_cast<uroce_doorbells*>(doors.bells.data);
  session.bits.resize(workers);
  for (std::uint32_t i = 0; i < workers; ++i) {
    UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wake.valid()) return EMFILE;
    auto port = std::make_unique<worker::SessionPort>();
    port->session = session.id;
    port->bells = queue::DoorbellReader(bells + i);
    port->line = &session.header->worker[i];
    port->eventfd = wake.get();
    session.ports.push_back(std::move(port));
    session.eventfds.push_back(std::move(wake));
  }
  return 0;
}

// Closes a session whose HELLO failed; the workers do not know it yet.
int fail(Session& session, int error) {
  session.ports.clear();
  session.eventfds.clear();
  session.events.reset();
  session.header = nullptr;
  session.close_pending = true;
  return error;
}

}  // namespace

int hello(Call& call) {
  Session& session = call.session;
  uroce_hello_request request;
  if (!call.read(request) || session.hello_done || session.header != nullptr) return EINVAL;
  session.program = program_name(request.program);
  if (request.version != UROCE_ABI_VERSION) {
    platform::log(
        platform::LogLevel::kWarning,
        "%s uses version %u of the shared-memory layout, this daemon uses %u; install both from the same build",
        session.program.c_str(), request.version, UROCE_ABI_VERSION);
    return call.refuse(EPROTO,
                       "the library uses version %u of the shared-memory layout, the daemon %u; install both from "
                       "the same build",
                       request.version, UROCE_ABI_VERSION);
  }
  const auto workers = static_cast<std::uint32_t>(call.state.worker_count());
  DoorbellMapping doors;
  const std::size_t bell_bytes = sizeof(uroce_doorbells) * workers;
  const auto bells = session.arena.allocate(mapping::ChunkKind::kClientWrites, bell_bytes + session.cookie.size());
  const auto header = session.arena.allocate(mapping::ChunkKind::kDaemonWrites, sizeof(uroce_session_header));
  if (!bells || !header) return fail(session, ENOMEM);
  doors = {*bells, *header};
  if (::getrandom(session.cookie.data(), session.cookie.size(), 0) != ssize_t{sizeof(session.cookie)})
    return fail(session, EAGAIN);
  std::memcpy(bells->data + bell_bytes, session.cookie.data(), session.cookie.size());
  session.cookie_offset = bells->place.offset + bell_bytes;
  session.header = reinterpret_cast<uroce_session_header*>(header->data);
  if (const int error = make_ports(session, doors, workers)) return fail(session, error);
  UniqueFd event_writer, event_reader;
  if (!platform::open_record_socket(event_writer, event_reader)) return fail(session, EMFILE);
  session.events = {std::move(event_writer), session.stall_budget};

  uroce_session_header& h = *session.header;
  h.workers = workers;
  h.magic = UROCE_ABI_MAGIC;
  h.heartbeat_ns = monotonic_now();
  h.yield = call.state.workers().few_cores.load(std::memory_order_relaxed);
  h.packet_bytes = call.state.port().active_mtu_bytes();
  std::atomic_ref(h.version).store(UROCE_ABI_VERSION, std::memory_order_release);

  uroce_hello_response response{};
  response.version = UROCE_ABI_VERSION;
  response.workers = workers;
  response.session = static_cast<std::uint32_t>(session.id);
  response.header = doors.header.place;
  response.doorbells = doors.bells.place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  for (const UniqueFd& wake : session.eventfds) {
    if (!give(wake, call.reply.fds)) return fail(session, EMFILE);
  }
  call.reply.fds.push_back(std::move(event_reader));
  session.hello_done = true;
  platform::log(platform::LogLevel::kInfo, "%s: session %llu is open (%s, process %d, user %u)",
                call.state.config().name.c_str(), static_cast<unsigned long long>(session.id),
                session.program.c_str(), static_cast<int>(session.peer.pid),
                static_cast<unsigned>(session.peer.uid));
  for (std::uint32_t i = 0; i < workers; ++i) {
    call.state.worker(i).call(worker_commands::AttachSession{*session.ports[i]});
  }
  call.reply.put(response);
  return 0;
}

int explain(Call& call) {
  if (!call.no_body()) return EINVAL;
  const Session::Explained& latest = call.session.explained;
  uroce_explain_response response{};
  response.command = latest.request.command;
  response.sequence = latest.request.sequence;
  response.status = latest.error;
  latest.text.copy(response.text, sizeof(response.text) - 1);
  call.reply.put(response);
  return 0;
}

}  // namespace uroce::control::commands
