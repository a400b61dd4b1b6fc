// The ids and channels of a sequence, real and as a model says that they are. Each operation calls librdmacm, and
// compares what it answers, and the events that wait, with the model.
//
// The model decides what a call causes when it is made. Before the next call that could notice the difference, the
// messages between the ids arrive: settle().
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "differences.h"
#include "operation.h"

namespace cm_sequences {

struct Failed {
  std::string what;
};

using Data = std::vector<std::uint8_t>;

// Bytes of private data in a message. Messages do not carry the length: an event has all of them.
constexpr std::size_t kInReq = 56, kInRep = 196, kInRej = 148, kInSidrReq = 180, kInSidrRep = 136;
// Reasons of a REJ, and statuses of a SIDR_REP.
constexpr int kTimedOut = 4, kNoListener = 8, kConsumerDefined = 28, kNoService = 1, kRefused = 2;
constexpr std::uint16_t kFirstPort = 7300, kPorts = 4, kNobodysPort = 7310;

/// kAccepted: has accepted, and waits for the RTU. kResponded: the peer has accepted.
enum class State : std::uint8_t {
  kIdle,
  kBound,
  kResolved,
  kRouted,
  kListening,
  kConnecting,
  kResponded,
  kRequested,
  kAccepted,
  kConnected,
  kClosed
};

struct Id;

struct Channel {
  rdma_event_channel* real;
  bool may_hold_more = false;  ///< events that the library does not deliver, after a CONNECT_ERROR
};

/// An event that must come. The events of one id come in their order.
struct Expected {
  rdma_cm_event_type type;
  int status = 0;
  std::size_t length = 0;   ///< of the private data
  Data data{};              ///< how it begins; the rest is 0
  Id* request = nullptr;    ///< the new id
  rdma_conn_param param{};  ///< of a request or an answer
  int or_status = 0;        ///< another status that is allowed, if not 0
};

struct Id {
  rdma_cm_id* real;  ///< nullptr: a connection request that was not taken
  Channel* channel;
  rdma_port_space space;
  State state = State::kIdle;
  bool owns_port = false, any_address = false, reuse = false;
  std::size_t side = 0, peer_side = 0;
  std::uint16_t port = 0, peer_port = 0;
  std::uint32_t backlog = 0;
  Id* listener = nullptr;  ///< that it was made by
  Id* peer = nullptr;      ///< the other end of its connection
  std::deque<Expected> events{};
  unsigned exits = 0;          ///< TIMEWAIT_EXITs that come when their time has come
  bool qp_error = false;       ///< the QP is in ERR
  bool was_connected = false;  ///< or has sent a DREQ
  bool failed = false;         ///< has had a CONNECT_ERROR
  bool requested = false;      ///< was made for a request
  bool answered = false;       ///< which was accepted or rejected
  bool awaits_reply = false;   ///< its DREQ was not answered
  bool moved = false;          ///< its listener has moved to another channel before it was taken

  bool datagrams() const { return space == RDMA_PS_UDP; }
  bool has_qp() const { return real != nullptr && real->qp != nullptr; }
};

/// What outlives sequences.
struct Ground {
  Ground(const std::vector<std::string>& ends, bool trace);
  ~Ground();
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;
  sockaddr_storage address(std::size_t side, std::uint16_t port) const;
  sockaddr_storage any(std::uint16_t port) const;
  /// But for the port.
  static bool same_address(const sockaddr* left, const sockaddr_storage& right);
  /// Asks `to` for a service that nobody offers, and returns with the answer: what was sent before, and what that
  /// caused, has arrived.
  void marker(std::size_t from, std::size_t to);

  bool trace;
  std::size_t sides;
  Differences differs{kDifferences};
  std::uint64_t calls = 0, refused = 0, events = 0, connections = 0;

 private:
  void take(rdma_cm_event_type type, int status);

  std::array<sockaddr_storage, 2> addresses_{};
  rdma_event_channel* channel_ = nullptr;
};

class World {
 public:
  explicit World(Ground& ground) : ground_(ground) {}
  void run(const Operation& operation);
  /// Takes all events and destroys all; no port stays bound.
  void finish();
  /// Destroys all without comparing, after a failure.
  void abandon();

 private:
  using Allowed = std::initializer_list<int>;
  /// The answer of a call that returns 0, or -1 and errno. Returns the errno.
  int expect(int answer, Allowed allowed, const char* call);
  [[noreturn]] void fail(const std::string& what) const { throw Failed{what}; }

  /// Of a real id at the place, or at the next; nullptr: there is none for which `matches` holds.
  Id* find(
      unsigned place, const std::function<bool(const Id&)>& matches = [](const Id&) { return true; });
  /// As above, but in most cases one in the state, so that most calls are legal.
  Id* find_in(const Operation& op, std::initializer_list<State> states);
  Channel* find_channel(unsigned place);
  void show(const Id& id) const;
  void for_each(const std::function<void(Id&)>& call);
  Data draw_data(Random& random, std::size_t most) const;

  // world_ids.cc
  void create_channel();
  void destroy_channel(const Operation& op);
  void create_id(const Operation& op, Random& random);
  bool can_be_destroyed(const Id& id);
  void destroy_id(Id& id);
  void bind(Id& id, const Operation& op, Random& random);
  void listen(Id& id, Random& random);
  void resolve_address(Id& id, const Operation& op, Random& random);
  void resolve_route(Id& id);
  void migrate(Id& id, const Operation& op);
  void set_option(Id& id, Random& random);
  void check_addresses(Id& id);
  /// The errno of binding the port, or of listening at it.
  int check_port(const Id& id, std::uint16_t port, bool any_address, std::size_t side, bool may_share) const;
  void check_all_ports_are_free();

  // world_connections.cc
  void create_qp(Id& id);
  void destroy_qp(Id& id);
  void connect(Id& id, Random& random);
  void accept(Id& id, Random& random);
  void reject(Id& id, Random& random);
  void establish(Id& id);
  void disconnect(Id& id);
  void notify(Id& id, Random& random);
  Id* listener_of(const Id& client);
  /// The id no longer takes part in its connection.
  void leave(Id& id);
  void established(Id& client);
  void close_both(Id& id);
  /// Answers the peer's DREQ.
  void reply(Id& id);
  bool drops_dreq(const Id& id);
  bool lacks_device(const Id& id);
  bool has_room(const Id& listener);
  void sent(const Id& id) { under_way_[id.side][id.peer_side] = true; }

  // world_events.cc
  void expect_event(Id& id, Expected expected);
  bool must_hold(const Channel& channel);
  /// Compares what poll(2) says of the channel; returns whether an event may wait.
  bool check(Channel& channel);
  bool take_event(Channel& channel, bool keep);
  void compare(Channel& channel, const rdma_cm_event& event);
  void compare_data(const std::string& title, const rdma_cm_event& event, const Expected& expected);
  void compare_parameters(const std::string& title, const Id& id, const rdma_cm_event& event,
                          const Expected& expected);
  void take_request(Id& listener, const rdma_cm_event& event, Id& request);
  void take_response(Id& id, const rdma_cm_event& event, const std::string& title);
  void acknowledge(std::size_t place);
  void acknowledge_all(const Id& id);
  void take_exits();

  void settle();
  /// Whether the operation may be made while messages are under way: the model knows each outcome.
  bool may_hurry(const Operation& op);
  bool some_under_way() const;

  /// An event that was not acknowledged.
  struct Held {
    rdma_cm_event* event;
    Id* owner;
    Data data;
  };

  Ground& ground_;
  std::array<std::optional<Channel>, 4> channels_{};
  std::vector<std::unique_ptr<Id>> ids_{};       ///< by place
  std::vector<std::unique_ptr<Id>> requests_{};  ///< not taken
  std::vector<Held> held_{};
  bool under_way_[2][2] = {};  ///< messages: [from][to]
  bool in_a_hurry_ = false;    ///< some were under way when the operation began
};

}  // namespace cm_sequences
