// The objects of a sequence, real and as a model says that they are. Each operation calls verbs, and compares what
// they answer, what completes, the bytes that moved, and the events that wait, with the model.
//
// The model decides how a work request ends when it is posted: what it needs at the other end is known, since
// nothing changes while requests are under way. Whatever could make a difference (another request to the same
// bytes, the end of a region, a change of state) first waits until all that is decided has completed: settle().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../conformance/fixtures.h"
#include "differences.h"
#include "operation.h"

namespace verbs_sequences {

using conformance::Bench;
using conformance::End;
using conformance::Failed;

constexpr std::size_t kArena = 32768;
constexpr std::uint32_t kQkey = 0x22222222;
constexpr std::uint32_t bit(ibv_wc_status status) { return 1u << status; }

struct Qp;

struct Pd {
  ibv_pd* real;
  int users = 0;
};
struct Mr {
  ibv_mr* real;
  Pd* pd;
  std::size_t begin, length;
  int access;
  int windows = 0;
};
struct Mw {
  ibv_mw* real;
  Pd* pd;
  Mr* mr = nullptr;  ///< bound to this
  std::size_t begin = 0, length = 0;
  unsigned access = 0;
};
struct Channel {
  ibv_comp_channel* real;
  int users = 0;
};
/// kLoose: armed when it may have had entries; whether and when these cause an event depends on the device.
enum class Armed : std::uint8_t { kNo, kSolicited, kAny, kLoose };
struct Cq {
  ibv_cq* real;
  Channel* channel;
  int users = 0;
  Armed armed = Armed::kNo;
  unsigned least = 0, most = 0;  ///< waiting events
  unsigned entries = 0;          ///< decided and not yet polled
};

struct Piece {
  std::size_t begin;
  std::uint32_t length, lkey;
};
struct Work {
  std::uint64_t id = 0;
  bool signaled = true, solicited = false, inlined = false, has_imm = false;
  bool decided = false;
  bool counted = false;       ///< will have an entry in the CQ
  bool unknown = false;       ///< what it carries was changed while it waited
  std::uint32_t allowed = 0;  ///< bits of statuses, once decided
  ibv_wr_opcode opcode = IBV_WR_SEND;
  ibv_wc_opcode done_as = IBV_WC_SEND;
  std::uint32_t length = 0, imm = 0, rkey = 0;
  std::uint32_t source_qp = 0;  ///< of a received datagram
  std::vector<Piece> pieces{};
  std::vector<std::uint8_t> data{};  ///< inline
  std::size_t remote = 0;
  std::uint64_t compare = 0, swap = 0;
  Qp* target = nullptr;  ///< of a datagram
  ibv_ah* ah = nullptr;
};
struct Srq {
  ibv_srq* real;
  Pd* pd;
  std::uint32_t capacity, elements, limit = 0;
  std::deque<Work> queue{};
  Qp* last = nullptr;  ///< took the latest one
  unsigned taken = 0;  ///< by messages whose completion was not polled
  int users = 0;
  unsigned least = 0, most = 0;  ///< waiting limit events
};
struct Ah {
  ibv_ah* real;
  Pd* pd;
  int to;  ///< side
};
struct Qp {
  ibv_qp* real;
  int side;
  ibv_qp_type type;
  Pd* pd;
  Cq *send_cq, *recv_cq;
  Srq* srq;
  ibv_qp_cap cap;
  bool signal_all;
  ibv_qp_state state = IBV_QPS_RESET;
  Qp* peer = nullptr;    ///< connected with it; both name each other
  bool nowhere = false;  ///< its destination does not exist
  unsigned access = 0;
  std::uint32_t mtu = 256;  ///< of its path
  std::uint8_t rnr_retry = 7;
  std::deque<Work> sends{}, receives{};
  std::vector<std::uint8_t> groups{};
  bool may_event = false;       ///< asynchronous events of other types may wait
  unsigned last_wqe = 0;        ///< the number of "last WQE reached" that may wait;
  bool last_wqe_waits = false;  ///< one must

  bool accepts() const {
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
  }
  unsigned undecided() const;
};

/// Objects of one kind: places that are free or in use.
template <class T, std::size_t N>
struct Table {
  std::array<std::optional<T>, N> places;
  /// The object at the place, or the next one; nullptr if there is none.
  T* find(unsigned place) {
    for (std::size_t i = 0; i < N; ++i) {
      if (auto& at = places[(place + i) % N]) return &*at;
    }
    return nullptr;
  }
  std::optional<T>* free_place() {
    for (auto& at : places) {
      if (!at) return &at;
    }
    return nullptr;
  }
  void remove(T* object) {
    for (auto& at : places) {
      if (at && &*at == object) at.reset();
    }
  }
};

struct Side {
  const End* end = nullptr;
  std::uint8_t* memory = nullptr;
  std::vector<std::uint8_t> expected{};
  Table<Pd, 2> pds{};
  Table<Mr, 5> mrs{};
  Table<Mw, 3> mws{};
  Table<Channel, 2> channels{};
  Table<Cq, 3> cqs{};
  Table<Srq, 2> srqs{};
  Table<Ah, 3> ahs{};
  Table<Qp, 5> qps{};
};

/// What outlives sequences: the devices, the memory, and a pair of QPs that tells when all packets have arrived.
struct Ground {
  Ground(Bench& bench, bool trace);
  ~Ground();
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;
  Bench& bench;
  bool trace;
  Differences differs{kDifferences};
  std::uint8_t* memory[2];
  std::uint8_t* hole;        ///< no access
  std::uint8_t* short_file;  ///< two pages of a file of one page
  std::uint8_t* read_only;
  /// Sends a datagram and returns when it has arrived.
  void marker(std::size_t from, std::size_t to);

  struct Marker;
  std::unique_ptr<Marker> markers[2];
  std::uint64_t calls = 0, posted = 0, completed = 0, failed_requests = 0, refused = 0, events = 0;
};

/// A multicast GID.
ibv_gid group_gid(std::uint8_t which);

class World {
 public:
  explicit World(Ground& ground);
  void run(const Operation& operation);
  /// Brings all QPs to ERR, waits for all that is outstanding, and destroys all.
  void finish();
  /// Destroys all without comparing, after a failure.
  void abandon();

 private:
  struct Use {
    int side;
    std::size_t begin, end;
    bool write;
  };
  /// What becomes of the bytes of a message: all are placed, or some of them, or nobody can predict them.
  enum class Placed : std::uint8_t { kAll, kSome, kUnknown };
  /// Each of these bytes is there, or the one that was there before.
  struct Partial {
    int side;
    std::size_t begin;
    std::vector<std::uint8_t> data;
  };
  struct Prepared {
    ibv_send_wr wr;
    std::vector<ibv_sge> list;
  };

  using Allowed = std::initializer_list<int>;
  /// The answer of a call that returns an errno, or -1 and errno. Returns the errno.
  int expect(int answer, Allowed allowed, const char* call);
  /// The same for a call that returns a pointer.
  template <class T>
  T* expect_made(T* made, Allowed allowed, const char* call) {
    expect(made != nullptr ? 0 : errno, allowed, call);
    return made;
  }
  [[noreturn]] void fail(const std::string& what) const { throw Failed{what}; }

  // world_objects.cc
  void alloc_pd(Side& side);
  void dealloc_pd(Side& side, const Operation& op);
  void reg_mr(Side& side, const Operation& op, Random& random);
  void reg_bad_mr(Side& side, const Operation& op, Random& random);
  void rereg_mr(Side& side, const Operation& op, Random& random);
  bool waits_for(const Side& side, const Mr& mr) const;
  void dereg_mr(Side& side, const Operation& op);
  void create_channel(Side& side);
  void destroy_channel(Side& side, const Operation& op);
  void create_cq(Side& side, const Operation& op, Random& random);
  void create_bad_cq(Side& side, const Operation& op, Random& random);
  void destroy_cq(Side& side, const Operation& op);
  void resize_cq(Side& side, const Operation& op, Random& random);
  void create_srq(Side& side, const Operation& op, Random& random);
  void create_bad_srq(Side& side, const Operation& op, Random& random);
  void destroy_srq(Side& side, const Operation& op);
  void modify_srq(Side& side, const Operation& op, Random& random);
  void query_srq(Side& side, const Operation& op);
  void create_ah(Side& side, const Operation& op, Random& random);
  void create_bad_ah(Side& side, const Operation& op, Random& random);
  void destroy_ah(Side& side, const Operation& op);
  void query_port(Side& side, Random& random);

  // world_events.cc
  void arm(Side& side, const Operation& op, Random& random);
  void poll_some(Side& side, const Operation& op, Random& random);
  void take_event(Side& side, const Operation& op);
  /// Compares what poll(2) says of the channel; returns whether an event may wait.
  bool check_channel(Side& side, Channel& channel);
  bool take_async_event(Side& side);
  bool poll_one(Side& side, Cq& cq);
  void check_completion(Side& side, Cq& cq, const ibv_wc& wc);
  void entry(Cq& cq, bool solicited, bool failed);
  void limit_reached(Srq& srq);

  // world_qp.cc
  void create_qp(Side& side, const Operation& op, Random& random);
  void create_bad_qp(Side& side, const Operation& op, Random& random);
  void destroy_qp(Side& side, const Operation& op);
  void connect(Side& side, const Operation& op, Random& random);
  void drain(Qp& qp, bool notify);
  void modify(Side& side, const Operation& op, Random& random);
  void modify_bad(Side& side, const Operation& op, Random& random);
  void query_qp(Qp& qp);
  void attach(Side& side, const Operation& op, Random& random);
  void detach(Side& side, const Operation& op, Random& random);
  void leave_groups(Qp& qp);
  void go_to_error(Qp& qp);
  void go_to_reset(Qp& qp);
  void fill(const Qp& qp, ibv_qp_state to, Random& random, ibv_qp_attr& attr);
  /// The model's part of the error state.
  void enter_error(Qp& qp);
  /// Ends what others have to do with a QP that no longer answers.
  void part(Qp& qp);

  // world_posts.cc
  void post_send(Side& side, const Operation& op, Random& random);
  void post_bad_send(Side& side, const Operation& op, Random& random);
  void post_recv(Side& side, const Operation& op, Random& random);
  void post_srq_recv(Side& side, const Operation& op, Random& random);
  bool draw_work(Side& side, Qp& qp, Random& random, Work& work);
  bool draw_pieces(Side& side, Pd* pd, Random& random, std::uint32_t most, bool bad_key, Work& work);
  void draw_remote(Qp& qp, Random& random, Work& work);
  bool predictable(Qp& qp, Work& work);
  bool local_error_is_predictable(Qp& qp, const Work& work, bool reachable);
  static void signal(Work& work, Prepared& prepared);
  void post_to_full_queue(Qp& qp);
  void after_traffic(Qp& qp);
  void draw_receive(Side& side, const Qp& qp, Random& random, bool may_be_bad, Work& work);
  Prepared prepare(const Qp& qp, const Work& work) const;
  void show(const Qp& qp, const Work& work, bool receive) const;

  // world_traffic.cc
  void decide(Qp& qp, Work& work, bool receive, std::uint32_t allowed);
  void before_failure();
  void progress(Qp& qp);
  bool execute(Qp& qp, Work& work);
  void invalidate(Qp& qp, Work& work, Qp& to);
  bool execute_rc(Qp& qp, Work& work);
  void wait_for_turn(Qp& to);
  bool receive(Qp& qp, Work& work, Qp& to, bool place);
  void end_both(Qp& qp, Work& work, std::uint32_t allowed);
  void put(int side, const std::vector<Piece>& pieces, std::size_t skip, const std::vector<std::uint8_t>& data,
           Placed placed);
  void put_first(Qp& qp, Work& work, int side, const std::vector<Piece>& pieces, std::vector<std::uint8_t> data,
                 std::uint32_t most);
  void place_before_failure(Qp& qp, Work& work);
  void fail_locally(Qp& qp, Work& work);
  std::vector<std::uint8_t> get(const Qp& qp, const Work& work);
  bool claim(const std::vector<Use>& ranges);
  std::uint32_t accessible(const Qp& qp, const Work& work, bool write, std::uint32_t needed) const;
  bool local_access(const Qp& qp, const Work& work, bool write, std::uint32_t needed) const;
  bool remote_access(const Qp& to, const Work& work, std::uint32_t length, int access) const;

  void submit();
  void settle();
  void let_arrive();
  void compare_memory();
  void finish_breaks();

  // world_windows.cc
  void alloc_mw(Side& side, const Operation& op, Random& random);
  void bind_mw(Side& side, const Operation& op, Random& random);
  void bind_nothing(Side& side, Qp& qp, const Mr& mr);
  void dealloc_mw(Side& side, const Operation& op);

  int side_of(const Side& side) const { return &side == &sides_[0] ? 0 : 1; }
  Qp* find_qp(Side& side, std::uint32_t number);

  Ground& ground_;
  std::array<Side, 2> sides_;
  std::uint64_t next_id_ = 1;
  std::vector<Use> uses_{};     ///< of what is under way
  std::vector<Use> unknown_{};  ///< bytes that nobody can predict: taken over by settle()
  std::vector<Partial> partial_{};
  std::vector<Prepared> chain_{};  ///< to be posted with one call
  Qp* chain_qp_ = nullptr;
  std::vector<Qp*> breaks_{};   ///< to be brought to ERR, because their peers no longer answer
  bool unreliable_[2][2] = {};  ///< [from][to]: what nobody acknowledges is under way
  bool dropped_ = false;        ///< a message that finds no receive is under way
  bool building_ = false;       ///< a chain is being built: the request at hand is not posted yet
  bool failing_ = false;        ///< a request that fails is under way
  unsigned under_way_ = 0;      ///< decided, counted, not polled
};

}  // namespace verbs_sequences
