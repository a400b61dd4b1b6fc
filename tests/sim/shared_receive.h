// A simulated world of RC QPs that share receive queues: several QPs take from each SRQ, some of them fail amid a
// message, receives run short and are posted again when the limit event says so. Each message must arrive once,
// whole and in the order of its QP, each receive must be used once and none be passed over.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/model.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace uroce::sim {

WorldReport run_shared_receive_world(const WorldOptions& options);

class SharedReceiveWorld {
 public:
  explicit SharedReceiveWorld(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;

 private:
  struct Message {
    std::uint8_t opcode = 0;
    std::vector<std::byte> payload;
    std::size_t target = 0;  ///< of a WRITE, in the arena of the peer's host
    std::uint32_t immediate = 0;
    bool delivered = false, acknowledged = false;
  };
  struct Posted {
    std::uint64_t wr_id = 0;
    bool signaled = false;
    std::size_t message = 0;
  };
  struct Receive {
    std::size_t at = 0;
    std::uint32_t capacity = 0;
    bool done = false, harmed = false;  ///< harmed: what a message that was cut off left there isn't defined
  };
  struct Queue {
    std::unique_ptr<SimSrq> srq;
    std::uint32_t users = 0;
    std::vector<Receive> receives;
    std::size_t first_open = 0, past_done = 0;
    std::uint32_t armed = 0;  ///< the limit that is set
    std::uint32_t limits_due = 0, limits_told = 0;
    std::uint32_t to_post = 0;
  };
  struct Side {
    std::vector<std::byte> arena, initial;
    Key source, receive, target;
    std::size_t source_used = 0, receive_used = 0, target_used = 0;
    std::vector<Queue> queues;
  };
  struct Endpoint {
    std::uint32_t host = 0, peer = 0, queue = 0;
    std::unique_ptr<SimQp> qp;
    Connection connection;
    std::deque<Posted> posted;
    std::deque<std::size_t> due;                 ///< messages that must be reported to this end, in order
    std::size_t next_receive = 0;                ///< of its queue: no receive before it may be this QP's
    std::uint32_t works_left = 0, moves_at = 0;  ///< works left when its client moves it to ERR; 0: never
    bool moved = false, too_short = false, flushed_receive = false;
    bool send_failed = false, flushed = false, blames_peer = false;
    std::uint32_t last_wqes = 0;
  };

  void set_up_host(std::uint32_t id, bool ipv6);
  void add_pair();
  void connect_all();
  void add_receive(std::uint32_t host, Queue& queue);
  void set_limit(Queue& queue);
  void act();
  void post_receives(std::uint32_t host, Queue& queue);
  void post_work(Endpoint& end);
  void step();
  bool quiet() const;
  void poll();
  static void check_order(Queue& queue);
  void hand_on(Endpoint& end, const uroce_cqe& cqe);
  void take_events();
  void on_send(Endpoint& end, const uroce_cqe& cqe);
  void on_receive(Endpoint& end, const uroce_cqe& cqe);
  void check_message(const Endpoint& end, const uroce_cqe& cqe, const Receive& receive, Message& message);
  bool in_error(const Endpoint& end) const;
  void check_end(const Endpoint& end) const;
  void check_memory(std::uint32_t host) const;
  void finish();

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0;
  bool by_event_ = false, harsh_ = false, mutated_ = false;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Side> sides_;
  std::vector<Endpoint> ends_;
  std::vector<Message> messages_;
  std::unique_ptr<Network> network_;
  Nanos longest_trip_ = 0;
  std::uint32_t largest_ = 0, mtu_ = 0;
  std::uint64_t completions_ = 0, steps_ = 0;
  std::uint64_t may_be_refused_ = 0;  ///< damaged frames that arrived
};

}  // namespace uroce::sim
