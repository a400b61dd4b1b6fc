// A simulated world of UC and UD: connections, datagrams, a group, receive queues shared or not, windows. What the
// network does to a packet shows: messages vanish or come twice. But what completes must be whole, and must be what
// was sent; and where nothing was harmed and receives sufficed, all of it, in order.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/model.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace uroce::sim {

WorldReport run_unreliable_world(const WorldOptions& options);

class UnreliableWorld {
 public:
  explicit UnreliableWorld(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;

 private:
  /// A message, from its posting on.
  struct Message {
    std::uint32_t from = 0, to = 0;  ///< endpoints; to kGroup: those attached
    std::uint8_t opcode = 0;
    std::vector<std::byte> payload;
    std::size_t target = 0;  ///< of a WRITE, in the arena of the peer's host
    bool immediate = false;
    bool right_qkey = true;
    bool flushed = false;  ///< its work failed: nothing may arrive
    std::uint32_t deliveries = 0;
  };
  /// A receive, from its posting until it completes.
  struct Receive {
    std::size_t at = 0;
    bool done = false;
  };
  struct Posted {
    std::uint64_t wr_id = 0;
    std::uint8_t completes_as = 0;
    bool signaled = false, bad = false;
    std::uint32_t message = 0;  ///< number; 0: none
  };
  /// A QP and what its client knows.
  struct Endpoint {
    std::uint32_t host = 0;
    std::uint32_t peer = 0;  ///< of UC
    std::unique_ptr<SimQp> qp;
    proto::QpType type{};
    Connection connection;
    std::deque<Posted> posted;
    std::deque<std::uint64_t> receives;  ///< own ones, in order
    std::uint32_t works_left = 0;
    bool attached = false, bad_due = false, flushing = false;
    Key window;                                     ///< over the host's targets, for the peer; 0: none
    Key window_asked;                               ///< the bind isn't complete
    std::map<std::uint32_t, std::uint32_t> newest;  ///< by sender: number of the message that arrived last
  };
  struct Side {
    std::vector<std::byte> arena, initial;
    Key source, receive, target;
    std::size_t source_used = 0, receive_used = 0, target_used = 0;
    std::vector<Receive> receives;  ///< by wr_id
    std::unique_ptr<SimSrq> srq;
    std::uint32_t srq_posted = 0, srq_taken = 0, limits_set = 0, limits_told = 0;
  };

  void set_up_host(std::uint32_t id, bool ipv6, bool shared);
  void add_endpoint(std::uint32_t host, proto::QpType type);
  void add_receive(Endpoint& end, std::uint32_t bytes);
  void connect_all();
  void ask_for_window(Endpoint& end);
  void act();
  void post_receives(Endpoint& end);
  void post_work(std::uint32_t index);
  bool draw(Endpoint& end, Message& message, uroce_sq_entry& entry, uroce_sge& sge);
  void draw_datagram(Message& message, uroce_sq_entry& entry);
  void put(Endpoint& end, const uroce_sq_entry& entry, const uroce_sge& sge, const Posted& posted);
  void send(std::uint32_t from, std::span<const std::byte> frame);
  void step();
  bool quiet() const;
  void poll();
  /// A receive completion, or what the mutation makes of it.
  void hand_on(std::uint32_t index, const uroce_cqe& cqe);
  void take_events();
  void on_send(Endpoint& end, const uroce_cqe& cqe);
  void on_receive(std::uint32_t index, const uroce_cqe& cqe);
  Message& identify(const uroce_cqe& cqe, const std::byte* payload);
  void check_message(std::uint32_t index, const uroce_cqe& cqe, const Receive& receive);
  void check_deliveries() const;
  void finish();
  void check_memory(std::uint32_t host) const;

  static constexpr std::uint32_t kGroup = ~0u;

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0;
  bool harmless_ = false, duplicates_ = false, ample_ = false, ending_ = false, mutated_ = false;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Side> sides_;
  std::vector<Endpoint> ends_;
  std::vector<Message> messages_;
  std::unique_ptr<Network> network_;
  std::uint32_t largest_ = 0;
  std::uint64_t completions_ = 0, steps_ = 0;
  std::uint64_t may_be_refused_ = 0;  ///< damaged frames that arrived
};

}  // namespace uroce::sim
