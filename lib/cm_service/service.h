// Connection management for clients: the ids of the RDMA CM on top of the port's connection manager. The kernel's
// ucma does this for librdmacm.
//
// Call contract. The conductor's thread only. run() executes one control command. step() takes some messages from
// the GSI and advances some timers; call it when GsiPort::fd() is readable and when next_timeout() is due.
// release() tears down everything of a session, peers included; release_some() its ids, in slices. Events go to the
// clients' channels, in order.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/chacha20.h"
#include "cm/manager.h"
#include "cm_service/port_space.h"
#include "control/commands/command_table.h"
#include "control/link/link_control.h"
#include "control/machine/port.h"
#include "control/session/cm_id.h"
#include "control/state/state.h"
#include "worker/gsi_channel.h"

namespace uroce::control::commands {
struct Call;
}

namespace uroce::cm_service {

class CmService {
 public:
  CmService(const control::Port& port, control::Quotas& quotas, worker::GsiPort& gsi, control::LinkControl& link,
            std::uint64_t seed);

  /// errno of the command.
  int run(std::uint32_t command, control::commands::Call& call);
  static constexpr std::size_t kMessages = 64;  ///< that a step takes
  void step(Nanos now);
  Nanos next_timeout() const;
  /// Removes at most `budget` ids of the session, and takes them off the budget. Whether it has none left.
  static constexpr std::size_t kSlice = 256;  ///< ids that are removed without serving others
  bool release_some(control::Session& session, std::size_t& budget, Nanos now);
  void release(control::Session& session, Nanos now);
  /// Sends RDMA_CM_EVENT_DEVICE_REMOVAL to every id.
  void device_gone(const control::Sessions& sessions);
  const cm::Manager& manager() const { return manager_; }
  std::uint64_t events_lost() const { return events_lost_; }

 private:
  static constexpr Nanos kRetry = 2 * kMillisecond;  ///< of events for which a channel had no room

  using Handler = int (CmService::*)(control::commands::Call&, Nanos);
  static const control::CommandRow<Handler> kCommands[];

  // Commands (commands.cc).
  /// Runs a command or the rest of one, and passes on what it has caused.
  template <class Command>
  int run(Command&& command);
  int open_channel(control::commands::Call& call, Nanos now);
  int close_channel(control::commands::Call& call, Nanos now);
  int close_some(control::commands::Call& call, std::uint32_t handle, Nanos now);
  int create_id(control::commands::Call& call, Nanos now);
  int destroy_id(control::commands::Call& call, Nanos now);
  int resolve_address(control::commands::Call& call, Nanos now);
  int resolve_route(control::commands::Call& call, Nanos now);
  int listen(control::commands::Call& call, Nanos now);
  int connect(control::commands::Call& call, Nanos now);
  int accept(control::commands::Call& call, Nanos now);
  int reject(control::commands::Call& call, Nanos now);
  int establish(control::commands::Call& call, Nanos now);
  int disconnect(control::commands::Call& call, Nanos now);
  int migrate(control::commands::Call& call, Nanos now);
  int join(control::commands::Call& call, Nanos now);
  int post(control::commands::Call& call, Nanos now);
  int connect_datagram(control::commands::Call& call, control::CmId& id, const uroce_cm_parameters& parameters,
                       Nanos now);
  int accept_datagram(control::commands::Call& call, control::CmId& id, const uroce_cm_parameters& parameters,
                      Nanos now);
  /// Does what Call::instead says in the place of a command that its checks would let begin now. errno of it.
  int replace(const control::commands::Call& call, control::CmId& id, std::uint64_t context = 0);
  /// The id that a uroce_handle request names.
  control::CmId* id_of(control::commands::Call& call) const;
  /// Chooses source address and port of an id that is to reach `destination`.
  int bind_towards(const control::commands::Call& call, control::CmId& id, const uroce_cm_address& source,
                   const wire::Address& destination);

  // Ids (service.cc).
  /// nullptr: the user has too many. `usage`: of an id, and of what it will have from the start.
  control::CmId* add_id(control::Session& session, control::CmChannel& channel, const control::Usage& usage);
  /// False: the user has too many connections.
  bool admit_connection(control::CmId& id);
  void remove_id(control::CmId& id, Nanos now);
  void attach(control::CmId& id, cm::ConnectionId connection);
  void detach(control::CmId& id);
  void set_source(control::CmId& id, const wire::Address& address, std::uint16_t port);
  std::uint16_t vlan_of(const wire::Address& own) const;
  std::uint32_t random24();
  void on_resolved(control::CmId& id, net::Resolution resolution);
  void send_messages();

  // Events (events.cc).
  void drain();
  void on_event(const cm::Event& event);
  void on_request(const cm::Event& event);
  void on_datagram_request(const cm::Event& event);
  void on_response(control::CmId& id, const cm::Event& event);
  void on_datagram_response(control::CmId& id, const cm::Event& event);
  /// A new id for a request to `listener`, with addresses from the IP CM header; nullptr: refuse it so.
  control::CmId* id_for_request(control::CmId& listener, const cm::Event& event,
                                std::span<const std::byte, cm::IpCmHeader::kBytes> ip, cm::RejReason& refuse);
  uroce_cm_event record(const control::CmId& id, std::uint32_t type, int status) const;
  bool report(const control::CmId& id, std::uint32_t type, int status = 0) {
    return write(*id.channel, record(id, type, status));
  }
  /// False: the session has too many unread events; this one is lost, and counted.
  bool write(control::CmChannel& channel, const uroce_cm_event& event);
  /// False: an id that the event names was destroyed. A request that its listener can't receive is rejected.
  bool still_wanted(const control::CmChannel& channel, const uroce_cm_event& event, Nanos now);
  void write_owed(Nanos now);

  const control::Port& port_;
  control::Quotas& quotas_;
  worker::GsiPort& gsi_;
  control::LinkControl& link_;
  cm::Manager manager_;
  CmPorts ports_;
  const std::uint16_t first_unprivileged_port_;
  std::unordered_map<std::uint32_t, control::CmId*> by_connection_;
  std::unordered_map<std::uint32_t, control::Charge>
      abandoned_;  ///< by connection: its id is gone, its place still taken
  std::unordered_map<std::uint64_t, control::CmId*> listeners_;  ///< by cookie
  std::vector<cm::Message> received_;                            ///< and not handled yet; the oldest is the last
  std::vector<control::CmChannel*> owing_;
  Nanos retry_at_ = kNever;  ///< of owing_
  std::uint64_t events_lost_ = 0;
  std::uint64_t last_cookie_ = 0;
  base::ChaCha20 random_;  // of PSNs: a peer that has seen some must not know the next
  cm::Event event_;        // a member, as it is too large for the stack
  Nanos now_ = 0;
};

}  // namespace uroce::cm_service
