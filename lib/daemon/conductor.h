// The control thread: sessions and their objects, one request at a time.
//
// Call contract. One thread for everything. listen() and serve() are the daemon; open_session(), handle() and
// close_session() are the same without sockets, for tests and fuzzing. Worker-owned state is changed only through
// WorkerCore::call, so a request that returns has taken effect, and what a worker may still read is freed only
// after that worker has run a command.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "cm_service/service.h"
#include "control/config.h"
#include "control/id_pool.h"
#include "control/kernel_addresses.h"
#include "control/poller_census.h"
#include "control/port.h"
#include "control/qpn.h"
#include "control/quotas.h"
#include "control/rejections.h"
#include "control/reply.h"
#include "control/session.h"
#include "memory/table.h"
#include "net/link_stack.h"
#include "worker/worker.h"

namespace uroce::daemon {

class Conductor {
 public:
  Conductor(const DaemonConfig& config, const net::DeviceInfo& device, WorkerShared& workers, memory::Table& memory,
            std::uint64_t seed);
  ~Conductor();
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  absl::Status listen(const std::string& path);
  void serve(const std::atomic<bool>& stop, PollerCensus* census);
  /// Marks every session's device dead and closes all.
  void shut_down();

  Session& open_session(Peer peer, UniqueFd socket);
  /// Executes one message: header and body of a request. The reply's status is kParked when the answer must wait.
  Reply handle(Session& session, std::span<const std::byte> message, std::vector<UniqueFd> fds);
  void close_session(Session& session);

  // For the commands (commands/*.cc) and admin.cc.
  const DaemonConfig& config() const { return config_; }
  const Port& port() const { return port_; }
  /// Asks the device whether the link is up, and tells all clients when that has changed.
  void refresh_link();
  /// What urocectl link does. `enabled` false: nothing passes the port until it is true again.
  void enable_link(bool enabled);
  /// False: as GidTable says. Clients are told that the table has changed.
  bool add_address(const net::InterfaceAddress& address);
  bool remove_address(const wire::Address& address);
  /// Of packets that are sent from now on; QPs keep the path MTU that they have. False: as Port says.
  bool set_mtu(std::uint32_t bytes);
  WorkerShared& workers() { return workers_; }
  memory::Table& memory() { return memory_; }
  Quotas& accounts() { return accounts_; }
  CmService& cm() { return cm_; }
  Rejections& rejections() { return rejections_; }
  QpnAllocator& qpns(std::uint32_t worker) { return qpns_[worker]; }
  const std::unordered_map<std::uint64_t, std::unique_ptr<Session>>& sessions() const { return sessions_; }

  /// nullptr: no such session.
  Session* session(std::uint64_t id);

  /// One member more, or less, of a group: the port joins with the first and leaves with the last. False: the
  /// device has no room for another group.
  bool join_group(const wire::Address& group);
  void leave_group(const wire::Address& group);

  /// Charges the session's user: 0 or ENOMEM, with a log line that names the limit.
  int charge(Session& session, const Usage& more);
  void refund(Session& session, const Usage& less);

  /// nullptr: no session has one of this file.
  std::shared_ptr<XrcDomain> find_xrc_domain(dev_t device, ino_t inode) const;
  std::shared_ptr<XrcDomain> new_xrc_domain();
  void publish_xrc_domain(const std::shared_ptr<XrcDomain>& domain);

  PdId new_pd() { return {++last_pd_}; }
  std::uint64_t new_flow() { return ++last_flow_; }
  /// One for each QP that answers READs and atomics.
  BlockPool& responder_slots() { return responder_slots_; }
  IdPool& cq_ids() { return cq_ids_; }
  IdPool& srq_ids() { return srq_ids_; }
  IdPool& ah_ids() { return ah_ids_; }
  /// The worker with the fewest QPs.
  std::uint32_t choose_worker() const;
  std::uint32_t& qps_of_worker(std::uint32_t worker) { return qp_counts_[worker]; }
  /// Runs `function` on every worker: afterwards none holds anything from before.
  void on_all_workers(const Mailbox::Function& function);
  void quiesce() {
    on_all_workers([](WorkerCore&) {});
  }

  // Asynchronous events find their object by number.
  struct EventTarget {
    Session* session = nullptr;
    std::uint64_t cookie = 0;
  };
  using EventTargets = std::unordered_multimap<std::uint32_t, EventTarget>;
  EventTargets& qp_targets() { return qp_targets_; }  ///< an XRC target has one for each user
  EventTargets& cq_targets() { return cq_targets_; }
  EventTargets& srq_targets() { return srq_targets_; }
  void forget_qp(const Session& session, const QpObject& qp);
  void send_event(Session& session, const uroce_async_event& event);
  /// Who polls has changed: say so at once.
  void heartbeat_now() { next_heartbeat_ = 0; }
  Nanos started() const { return started_; }

 private:
  const std::shared_ptr<StallBudget>& stall_budget(uid_t user);
  void execute(Session& session, std::span<const std::byte> message, std::vector<UniqueFd>& fds, Reply& reply);
  void accept_all();
  void read_session(Session& session);
  bool answer(Session& session, const uroce_request& request, Reply& reply);
  void retry_parked(Nanos now);
  void gids_changed();
  void tell_workers_addresses();
  void share_with_kernel();
  EventTargets& targets_of(proto::AsyncEvent type);
  void deliver_worker_events();
  void broadcast_event(std::uint32_t event);
  void heartbeat(Nanos now, PollerCensus* census);
  void close_pending_sessions();
  void watch(int fd, std::uint64_t tag, bool readable);

  const DaemonConfig& config_;
  WorkerShared& workers_;
  memory::Table& memory_;
  Port port_;
  Quotas accounts_;
  std::map<uid_t, std::shared_ptr<StallBudget>> stall_budget_;  ///< with all sessions of a user together
  Rejections rejections_;
  CmService cm_;
  std::vector<QpnAllocator> qpns_;
  std::vector<std::uint32_t> qp_counts_;
  IdPool cq_ids_, srq_ids_, ah_ids_;
  BlockPool responder_slots_{proto::Transport::kResponderResourceBytes * proto::Transport::kMaxRdAtomic};
  std::uint32_t last_pd_;
  std::uint64_t last_flow_ = 0;
  std::uint64_t last_session_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  EventTargets qp_targets_, cq_targets_, srq_targets_;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<XrcDomain>> xrc_domains_;  ///< of files
  std::uint32_t last_xrc_domain_ = 0;
  std::map<wire::Address, std::uint32_t> groups_;  ///< members
  KernelAddresses kernel_addresses_;
  UniqueFd epoll_, listener_;
  std::size_t parked_ = 0;
  Nanos next_heartbeat_ = 0, next_link_check_ = 0;
  bool accept_paused_ = false;
  Nanos started_;
};

}  // namespace uroce::daemon
