// The state of a device that control commands read and change: its configuration and port, its sessions, and the
// allocators of its numbers. Sockets and the dispatch of commands are in lib/daemon.
//
// Call contract. The control thread only. Worker-owned state is changed only through WorkerCore::call, so a command
// that returns has taken effect, and what a worker may still read is freed only after that worker has run a
// command.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "control/diagnosis/rejections.h"
#include "control/diagnosis/stall_watch.h"
#include "control/machine/config.h"
#include "control/machine/port.h"
#include "control/session/id_pool.h"
#include "control/session/session.h"
#include "control/state/process.h"
#include "control/state/qpn.h"
#include "control/state/verb_faults.h"
#include "memory/table.h"
#include "net/device.h"
#include "worker/worker.h"

namespace uroce::control {

/// By session number.
using Sessions = std::map<std::uint64_t, std::unique_ptr<Session>>;

/// What the configuration grants a user.
struct GrantedShare {
  std::uint32_t weight = 1;
  proto::UserRateLimit limit;  ///< kbps 0: none
};

class ControlState {
 public:
  ControlState(Process& process, const DaemonConfig& config, const net::DeviceInfo& device,
               worker::WorkerShared& workers, memory::Table& memory, std::uint64_t seed);
  ControlState(const ControlState&) = delete;
  ControlState& operator=(const ControlState&) = delete;

  const DaemonConfig& config() const { return config_; }
  Port& port() { return port_; }
  const Port& port() const { return port_; }
  memory::Table& memory() { return memory_; }
  /// What the device has in common with the others of the daemon.
  Process& process() const { return process_; }
  Quotas& quotas() { return process_.quotas(); }
  const Quotas& quotas() const { return process_.quotas(); }
  Rejections& rejections() { return rejections_; }
  const Rejections& rejections() const { return rejections_; }
  Nanos started() const { return started_; }

  // Workers.
  worker::WorkerShared& workers() const { return workers_; }
  std::uint32_t worker_count() const { return static_cast<std::uint32_t>(workers_.workers.size()); }
  worker::WorkerCore& worker(std::uint32_t index) const { return *workers_.workers[index]; }
  /// The worker that owns the link stack, and receives frames that are not RoCE.
  worker::WorkerCore& link_worker() const { return worker(worker::kLinkWorker); }
  /// Runs the command on one worker after the other. When it returns, no worker holds a reference that it took
  /// before.
  template <class Command>
  void on_all_workers(Command&& command) const {
    for (worker::WorkerCore* worker : workers_.workers) worker->call(command);
  }
  /// The worker with the fewest QPs.
  std::uint32_t choose_worker() const;
  std::uint32_t& qps_of_worker(std::uint32_t worker) { return qp_counts_[worker]; }
  std::uint32_t qps_of_worker(std::uint32_t worker) const { return qp_counts_[worker]; }

  bool measures_latency() const { return measures_latency_; }
  void measure_latency(bool on);
  bool records_events() const { return records_events_; }
  void record_events(bool on);

  // Sessions.
  const Sessions& sessions() const { return sessions_; }
  /// nullptr: the user has too many, or too many descriptors that do not close; see Quotas::last_refusal().
  Session* open_session(platform::Peer peer, UniqueFd socket);
  /// nullptr: no such session.
  Session* session(std::uint64_t id) const;
  void erase_session(std::uint64_t id) { sessions_.erase(id); }
  /// Sessions with connected QPs, whose clients poll.
  std::uint32_t polling_sessions() const;
  /// A session got its first connected QP, or lost its last one: the next heartbeat is due at once.
  void note_pollers_changed() { pollers_changed_ = true; }
  /// Whether that happened since the last call.
  bool take_pollers_changed() { return std::exchange(pollers_changed_, false); }

  /// Charges the session's user; see Quotas::charge().
  Charge charge(const Session& session, const Usage& more) {
    if (more.descriptors != 0 || more.threads != 0) process_.users().count_closing(session.peer.uid);
    return quotas().charge(session.peer.uid, more);
  }

  /// The user's share of the workers, for its QPs.
  proto::UserShare share_of(uid_t user);
  const std::map<uid_t, GrantedShare>& grants() const { return grants_; }

  StallWatch& stall_watch() { return stall_watch_; }
  VerbFaults& verb_faults() { return verb_faults_; }
  const VerbFaults& verb_faults() const { return verb_faults_; }

  // Numbers and blocks.
  QpnAllocator& qpns(std::uint32_t worker) { return qpns_[worker]; }
  /// The number of a QP of this tenant; nullopt: all are in use.
  std::optional<Qpn> allocate_qpn(std::uint32_t worker, const platform::Tenant& owner);
  void release_qpn(std::uint32_t worker, Qpn qpn);
  void set_qp_owner(Qpn qpn, const platform::Tenant& owner) { qp_owners_[qpn.value] = owner; }
  /// Whether a QP with this number exists and belongs to the tenant.
  bool owns_qp(const platform::Tenant& tenant, Qpn qpn) const;
  /// nullptr: all numbers are in use.
  std::shared_ptr<const PdNumber> new_pd();
  std::uint64_t new_flow() { return ++last_flow_; }
  /// PDs of sessions that are being closed while windows of other sessions are bound to their memory.
  std::multiset<std::uint32_t>& closing_pds() { return closing_pds_; }
  IdPool& cq_ids() { return cq_ids_; }
  IdPool& srq_ids() { return srq_ids_; }
  IdPool& ah_ids() { return ah_ids_; }
  /// One block for each QP that answers READs and atomics.
  mapping::BlockPool& responder_slots() { return responder_slots_; }

  // XRC domains of files, which sessions share.
  /// nullptr: no session has a domain of this file.
  std::shared_ptr<XrcDomain> find_xrc_domain(dev_t device, ino_t inode) const;
  std::shared_ptr<XrcDomain> new_xrc_domain();
  void publish_xrc_domain(const std::shared_ptr<XrcDomain>& domain);

 private:
  Process& process_;
  const DaemonConfig& config_;
  worker::WorkerShared& workers_;
  memory::Table& memory_;
  Port port_;
  std::map<uid_t, GrantedShare> grants_;  ///< of users that have any
  std::multiset<std::uint32_t> closing_pds_;
  Rejections rejections_;
  StallWatch stall_watch_;
  VerbFaults verb_faults_;
  std::vector<QpnAllocator> qpns_;
  std::unordered_map<std::uint32_t, platform::Tenant> qp_owners_;  ///< by QPN
  std::vector<std::uint32_t> qp_counts_;
  IdPool pd_ids_, cq_ids_, srq_ids_, ah_ids_;
  mapping::BlockPool responder_slots_{proto::Transport::kResponderResourceBytes * proto::Transport::kMaxRdAtomic};
  std::uint64_t last_flow_ = 0;
  Sessions sessions_;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<XrcDomain>> xrc_domains_;  ///< of files
  std::uint32_t last_xrc_domain_ = 0;
  bool pollers_changed_ = false;
  bool measures_latency_ = false;
  bool records_events_ = false;
  Nanos started_;
};

}  // namespace uroce::control
