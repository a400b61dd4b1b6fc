// A connection that suffers: two ends with simple works, each of which uses bytes of its own, so that what must
// come out is known without executing the works in a model. tests/sim/fault_world.h applies the faults.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/model.h"
#include "tests/sim/random.h"

namespace uroce::sim {

enum class Fault : std::uint8_t {
  kNone,
  kDeregister,  ///< the MR over a zone goes
  kWindow,      ///< the window over the target zone goes
  kMemory,      ///< accesses to a zone fail, the first of them in the middle
  kToError,     ///< a client moves its QP to ERR,
  kToReset,     ///< or to RESET,
  kDestroy,     ///< or destroys it
  kPartition,   ///< nothing arrives any more
  kHostile,     ///< forged packets in the name of the peer
};
inline constexpr int kFaults = 9;

enum ZoneKind : std::uint8_t { kSourceZone, kTargetZone, kLandingZone, kReceiveZone, kZones };

/// Memory that is reached by calls, as by lib/mapping, and that may fail after a number of bytes.
struct CalledMemory {
  std::byte* bytes = nullptr;
  std::uint64_t client_address = 0;
  std::size_t size = 0;
  std::size_t left = ~std::size_t{0};  ///< until accesses fail
  memory::IndirectIo io;
};

/// Part of an end's arena with an MR over it.
struct FaultZone {
  std::size_t at = 0, size = 0, used = 0;
  std::uint64_t iova = 0;
  Key key;
  bool registered = false;
  std::vector<std::byte> frozen;  ///< after deregistration: what must stay
  std::unique_ptr<CalledMemory> called;
};

struct FaultWork {
  uroce_sq_entry entry{};
  std::vector<std::byte> payload;  ///< leaves, or must land
  std::size_t local = 0, target = 0;
  std::uint32_t length = 0;
  std::uint64_t result = 0;  ///< of an atomic
  bool signaled = false, consumes = false;
  bool must_fail = false;  ///< the peer was silent already
};

struct FaultReceive {
  std::uint64_t wr_id = 0;
  std::size_t at = 0;
  std::uint32_t capacity = 0;
  bool filled = false;
};

struct FaultEnd {
  std::uint32_t host = 0;
  Qpn base;  ///< the number asked for
  PdId pd;
  CqId send_cq, recv_cq;
  std::unique_ptr<SimQp> qp;    ///< none: destroyed, or its host restarted
  std::unique_ptr<SimSrq> srq;  ///< anew in each life; none: the QP has its own receive queue
  bool connected = false;       ///< not since RESET
  std::vector<std::byte> arena, initial;
  std::array<FaultZone, kZones> zones;
  /// Over the target zone, for WRITEs and atomics; over the source zone, for READs.
  Key window, read_window;
  bool window_allocated = false, read_window_allocated = false;
  Psn psn;

  std::vector<FaultWork> works;
  std::vector<std::size_t> consuming;  ///< of `works`
  std::size_t completed = 0, succeeded = 0;
  bool failed = false;
  std::uint64_t added = 0;  ///< by atomics so far, at the peer
  std::vector<FaultReceive> receives;
  std::size_t received = 0, received_ok = 0;
  bool receive_failed = false, probed = false;
  std::uint32_t works_left = 0;
};

/// What a queue that was destroyed is filled with; nothing may change it any more.
inline constexpr unsigned char kPoison = 0xd5;
bool is_untouched(const SimQp& destroyed);

/// What all links of a world share.
struct FaultSetting {
  std::array<std::unique_ptr<Host>, 2>* hosts = nullptr;
  Nanos longest_trip = 0;
  std::uint32_t largest = 64;
  bool calm = false;  ///< no faults
  bool wrap = false;  ///< ring indices begin just before 2^32
  std::function<void(const std::string&)> trace;
  std::vector<std::unique_ptr<SimQp>>* graveyard = nullptr;
};

class FaultLink {
 public:
  FaultLink(const FaultSetting& setting, std::uint32_t index, std::uint64_t seed);

  void begin(Nanos now);
  Nanos next_action() const { return next_action_; }
  void act(Nanos now);
  /// Whether the fault of this life is due.
  bool fault_due() const;
  void apply_fault(Nanos now);
  /// After the quiescent point: keys that were retired are released, and their memory is gone.
  void release_retired();
  /// A host lost everything.
  void on_restart(std::uint32_t host);
  /// False: of another link.
  bool on_completion(std::uint32_t host, CqId cq, const uroce_cqe& cqe);
  bool done();
  /// Checks everything and takes both ends down. `poll` hands out completions.
  void finish(Nanos now, const std::function<void()>& poll);
  bool closed() const { return closed_; }
  bool loses_frames() const { return disturbed_ && fault_ == Fault::kPartition; }
  bool is_hostile() const { return disturbed_ && fault_ == Fault::kHostile; }
  /// The end of this QPN at this host; nullptr: none.
  const FaultEnd* end_of(std::uint32_t host, std::uint32_t qpn) const;
  const FaultEnd& end(int side) const { return ends_[side]; }
  std::string describe() const;
  std::uint64_t completions() const { return completions_; }
  /// Mutation: changes a byte that no work may change.
  void harm() { ends_[0].arena[3] ^= std::byte{1}; }

 private:
  Host& host(const FaultEnd& end) const { return *(*setting_.hosts)[end.host]; }
  void register_zones(FaultEnd& end);
  void register_zone(FaultEnd& end, ZoneKind kind);
  void unregister_zones(FaultEnd& end);
  void retire(FaultEnd& end, ZoneKind kind);
  /// Over a whole zone.
  Key bind_window(FaultEnd& end, ZoneKind kind, std::uint32_t access);
  void bind_windows(FaultEnd& end);
  void retire_window(FaultEnd& end, ZoneKind kind);
  void draw_psns();
  void make_qp(FaultEnd& end, Nanos now);
  void make_srq(FaultEnd& end);
  SrqId srq_of(const FaultEnd& end) const { return SrqId{index_ * 2 + end.host + 1}; }
  void destroy(FaultEnd& end, Nanos now);
  void connect_ends(Nanos now);
  bool in_error(const FaultEnd& end) const;
  /// It answers nothing: in ERR, in RESET, destroyed, or cut off.
  bool silent(const FaultEnd& end) const { return !end.connected || in_error(end) || loses_frames(); }
  bool post_works(int side);
  bool post_receives(int side);
  FaultWork draw_work(int side);
  void post_probe(int side);
  bool works_done(const FaultEnd& end) const;
  std::uint32_t allowed_errors(int side) const;
  std::uint32_t allowed_receive_errors(int side) const;
  /// The work that a completion is for; those before it were silently successful.
  FaultWork& work_of(int side, const uroce_cqe& cqe);
  void on_send(int side, const uroce_cqe& cqe);
  void on_receive(int side, const uroce_cqe& cqe);
  void check_success(int side, const FaultWork& work) const;
  void check_memory(int side) const;
  void check_counter(int side) const;
  void check_end(int side) const;

  const FaultSetting setting_;
  const std::uint32_t index_;
  Random random_;
  FaultEnd ends_[2];
  bool shared_ = false;  ///< receives are posted to SRQs
  Fault fault_ = Fault::kNone;
  int fault_side_ = 0;
  ZoneKind fault_zone_ = kSourceZone;
  std::size_t fault_after_ = 0;  ///< completions of this life
  bool disturbed_ = false;       ///< the fault was applied, or a host restarted
  bool restarted_ = false;
  bool ending_ = false;  ///< the clients take the connection down
  std::vector<std::pair<FaultEnd*, ZoneKind>> retired_;
  std::vector<std::pair<FaultEnd*, Key>> retired_windows_;
  std::uint32_t lives_left_ = 0, mtu_ = 256;
  std::uint32_t life_ = 0;  ///< in every wr_id
  std::size_t completions_at_ = 0;
  Nanos began_ = 0, next_action_ = 0, pause_ = 0;
  bool closed_ = false;
  std::uint64_t completions_ = 0;
};

}  // namespace uroce::sim
