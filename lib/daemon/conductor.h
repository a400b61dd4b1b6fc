// A device on the control thread: it reads the clients' requests from their sockets and dispatches them, one at a
// time, to the control commands, the CM service and the administration.
//
// Call contract. One thread for everything. ControlLoop calls listen(), advance() and serve_events();
// open_session(), handle() and close_session() do the same without sockets, for tests and fuzzing.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "admin/query.h"
#include "cm_service/service.h"
#include "control/commands/reply.h"
#include "control/diagnosis/command_times.h"
#include "control/link/link_control.h"
#include "control/state/event_router.h"
#include "control/state/process.h"
#include "control/state/state.h"

namespace uroce::daemon {

class Conductor {
 public:
  /// Where the descriptors are watched, and what is added to the tags of their events.
  struct Watches {
    int epoll = -1;
    std::uint64_t tag = 0;
  };

  Conductor(control::Process& process, const control::DaemonConfig& config, const net::DeviceInfo& device,
            worker::WorkerShared& workers, memory::Table& memory, std::uint64_t seed);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  absl::Status listen(const std::string& path, const Watches& watches);
  /// Does what is due at `now`: heartbeat, timers, sessions to close, a slice of a request. Returns when it has to
  /// be called again.
  Nanos advance(Nanos now);
  /// `events`: with tags as this object gave them.
  void serve_events(std::span<const epoll_event> events);
  /// The session, if it is one of this device, removed pages of its queues, and is closed; or of a registered file.
  void close_truncated(std::uint64_t session);
  void note_loss(std::uint64_t session);
  /// Posts a command to each worker, and whether all have run it.
  void ping_workers();
  bool pings_answered() const;
  /// Marks every session's device dead and closes all.
  void shut_down();

  /// nullptr: the user has too many.
  control::Session* open_session(platform::Peer peer, UniqueFd socket) {
    return state_.open_session(std::move(peer), std::move(socket));
  }
  /// Executes one message: header and body of a request. The reply's status is kPending if the command waits for a
  /// neighbour; answer_later() then completes it. It is kUnfinished if the command has begun; finish_later() does
  /// the rest.
  control::Reply handle(control::Session& session, std::span<const std::byte> message, std::vector<UniqueFd> fds);
  /// Completes a pending command when its neighbour is known or does not answer, and sends the reply on the
  /// session's socket. Until then no other request is read from the session.
  void answer_later(control::Session& session, const uroce_request& request, control::NeighbourWait wait);
  /// Executes the rest of a command in slices, and then sends the reply. Until then no other request is read from
  /// the session.
  void finish_later(control::Session& session, const uroce_request& request,
                    std::function<int(control::commands::Call&)> rest);
  /// Runs one slice, of the request that has waited longest. False: none is unfinished.
  bool run_slice();
  /// Handles the events that the workers have reported.
  void take_worker_events();
  /// A line in the log for each QP that has failed since the last call.
  void log_failures();
  void close_session(control::Session& session);

  control::ControlState& state() { return state_; }
  control::EventRouter& events() { return events_; }
  control::LinkControl& link() { return link_; }
  cm_service::CmService& cm() { return cm_; }
  control::CommandTimes& command_times() { return command_times_; }
  /// The state that urocectl's requests read and change.
  admin::AdminContext admin() { return {state_, link_, cm_, command_times_}; }

 private:
  static constexpr std::string_view kCloseName = "close_session";  ///< among the times of commands
  static constexpr Nanos kPendingLimit = 5 * kSecond;              ///< for a neighbour, or for discarding a message
  static constexpr std::size_t kMaxDiscards = 1u << 16;
  // Tags of epoll events: the listener, the descriptors of workers and closers, a session (its socket or its
  // process).
  static constexpr std::uint64_t kListenerTag = 0, kWorkersTag = 1, kGsiTag = 2, kNeighboursTag = 3,
                                 kDiscardedTag = 4, kLinkTag = 5, kFirstSessionTag = 6;
  static constexpr std::uint64_t tag_of(std::uint64_t session, bool process) {
    return kFirstSessionTag + session * 2 + static_cast<std::uint64_t>(process);
  }

  /// Closes the descriptors of a message. `used`: by a command that succeeded.
  void close_attached(control::Session& session, std::vector<UniqueFd> fds, bool used);
  /// Runs a command or the rest of one, with the session as the cause of what it logs and of the time it takes.
  template <class Command>
  void run_for(control::Session& session, const uroce_request& request, control::Reply& reply, Command&& command);
  void execute(control::Session& session, std::span<const std::byte> message, std::vector<UniqueFd>& fds,
               control::Reply& reply);
  /// What the reason for a refusal is taken from, where the command does not say.
  struct Marks {
    std::uint64_t unknown_handles = 0, quota_refusals = 0;
  };
  Marks marks(const control::Session& session) const {
    return {session.unknown_handles.count, state_.quotas().refusals()};
  }
  /// Keeps a refused request with its reason, and empties its reply.
  void close_refused(control::Session& session, const uroce_request& request, const Marks& before,
                     control::Reply& reply);
  void explain_refusal(control::Session& session, const uroce_request& request, const Marks& before,
                       control::Reply& reply);
  void keep_refusal(control::Session& session, const uroce_request& request, int error, control::Rejection reason,
                    std::string text);
  void accept_all();
  void serve_own_event(std::uint64_t tag);
  control::Session* serve_event(const epoll_event& event);
  void read_session(control::Session& session);
  /// Refuses a request whose descriptors do not fit into the daemon's table, as soon as it is out of the socket.
  void discard(control::Session& session, const uroce_request& request);
  void finish_discards();
  bool answer(control::Session& session, const uroce_request& request, control::Reply& reply);
  void resume(control::Session& session, const control::NeighbourWait& wait, const control::Neighbour& neighbour);
  void heartbeat(Nanos now);
  /// Once a second: what programs read as files, and the control thread's part of the page of counters.
  void publish_counters(Nanos now);
  void link_event();
  /// Publishes the number of pollers that compete for cores. True: there are more pollers than cores.
  bool publish_pollers(std::uint32_t active_sessions);
  void close_stalled();
  /// Closes marked sessions. Those with many objects lose a slice of them, and are closed in a later round.
  void close_pending_sessions();
  /// Whether nothing is left to release. `cm_ids`: how many may be removed.
  bool close_slice(control::Session& session, std::size_t& cm_ids, Nanos now, Nanos end);
  /// The user's closer is full: the session is closed at the end of the round.
  void close_for_backlog(control::Session& session);
  void watch(int fd, std::uint64_t tag, bool readable);

  control::ControlState state_;
  control::EventRouter events_;
  control::LinkControl link_;
  cm_service::CmService cm_;
  control::CommandTimes command_times_;
  Watches watches_;
  UniqueFd listener_;
  std::shared_ptr<worker::Channel<std::uint64_t>> discarded_;  ///< sessions whose message a closer has discarded
  Nanos next_heartbeat_ = 0, next_link_check_ = 0, last_link_change_ = 0, next_counters_ = 0;
  bool accept_paused_ = false;
  std::deque<std::uint64_t> unfinished_;  ///< sessions with a request that is executed in slices
  bool closing_ = false;                  ///< a session is being closed in slices
  std::uint64_t next_to_close_ = 0;       ///< the session that gets the first slice, or one after it
  std::vector<std::unique_ptr<worker::Mailbox::Entry>> pings_;  ///< by worker
  control::worker_commands::Quiesce ping_;
  std::uint32_t polling_ = 0;  ///< sessions, as the process knows
};

}  // namespace uroce::daemon
