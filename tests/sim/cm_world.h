// Connections by the connection manager, with data: two hosts, each with its lib/cm and its QPs, a network for the
// packets and one for the CM messages, both bad. Programs connect, accept, reject, send a few messages, and
// disconnect, some of them early; a host may restart. Whatever is lost, no half-open connection stays: when all is
// quiet, each is open at both ends, with all messages there, or ended at both.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cm/manager.h"
#include "tests/sim/host.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace uroce::sim {

WorldReport run_cm_world(const WorldOptions& options);

class CmWorld {
 public:
  explicit CmWorld(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;
  std::string describe() const;

 private:
  static constexpr std::uint32_t kMessages = 8, kMessageBytes = 200;

  enum class Stage : std::uint8_t { kConnecting, kOpen, kEnded };
  /// One end of a connection, as a program has it.
  struct Party {
    std::uint32_t connection = 0, host = 0;
    bool active = false;
    cm::ConnectionId id;
    Stage stage = Stage::kConnecting;
    std::unique_ptr<SimQp> qp;
    Qpn peer_qpn;
    Psn psn;
    std::vector<std::byte> arena;
    Key key;
    std::uint32_t to_send = 0, sent = 0, acked = 0, posted = 0, received = 0;
    bool connected = false;  ///< the QP, to a peer
    bool failed = false;
    bool closed = false;     ///< its manager has forgotten it, or its host restarted
    bool abandoned = false;  ///< no events come any more
    Nanos next = 0, leaves_at = kNever;
  };

  void make_host(std::uint32_t id);
  void connect(std::uint32_t connection);
  Party& add_party(std::uint32_t connection, std::uint32_t host, bool active);
  void post_receives(Party& party);
  void connect_qp(Party& party, Connection connection);
  void step();
  Nanos next_moment() const;
  void carry_messages();
  void act(Party& party);
  void send_one(Party& party);
  void on_event(std::uint32_t host, const cm::Event& event);
  void on_request(std::uint32_t host, const cm::Event& event);
  void on_response(Party& party, const cm::Event& event);
  void poll();
  void on_completion(Party& party, const uroce_cqe& cqe);
  /// The program gives the connection up, or hears that it is over.
  void end(Party& party, bool disconnect);
  void restart(std::uint32_t host);
  bool quiet() const;
  void check_pairs();
  void take_down();
  Party* party_of(std::uint32_t host, cm::ConnectionId id);
  std::byte byte_of(const Party& sender, std::uint32_t message, std::uint32_t at) const;
  cm::Peer peer_of(std::uint32_t host) const;
  void trace(const std::string& text) const;

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0, restart_at_ = kNever, longest_trip_ = 0;
  HostSettings host_settings_[2];
  cm::ManagerConfig manager_config_;
  std::array<std::unique_ptr<Host>, 2> hosts_;
  std::array<std::unique_ptr<cm::Manager>, 2> managers_;
  NetworkSettings network_settings_;
  std::unique_ptr<Network> network_;
  double loss_ = 0, duplicate_ = 0, ghosts_ = 0;
  Nanos delay_ = 0;
  std::multimap<Nanos, std::pair<std::uint32_t, cm::Message>> messages_;
  std::deque<Party> parties_;
  std::uint32_t connections_ = 0, next_qpn_ = 0x200;
  std::vector<Nanos> begins_;
  std::uint64_t completions_ = 0, steps_ = 0;
  bool mutated_ = false;
};

}  // namespace uroce::sim
