// A connection between two ends through its lives: connect, random work, an ending, checks, and perhaps once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/end.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"

namespace uroce::sim {

/// What every pair of a world shares.
struct Setting {
  Network* network = nullptr;
  Host* host[2] = {};
  bool harmless = true;      ///< the network loses and reorders nothing
  bool mortal = false;       ///< the network will die
  bool sleepy = false;       ///< packets may wait in a host
  bool only_normal = false;  ///< no connection ends in an error
  Nanos longest_trip = 0;    ///< one way, for the choice of timeouts
  std::uint32_t largest_message = 1024;
  std::function<void(const std::string&)> trace;  ///< may be empty
};

class Pair {
 public:
  Pair(const Setting& setting, std::uint32_t index, std::uint64_t seed);
  ~Pair();

  /// Connects both ends, with new PSNs, limits and an ending.
  void begin(Nanos now);
  Nanos next_action() const;
  /// Lets the clients that are due post, receive and change states.
  void act(Nanos now);
  /// A completion out of a CQ of `host`. True: it was this pair's.
  bool on_completion(const Host& host, CqId cq, const uroce_cqe& cqe);
  void on_event(const Host& host, const proto::Event& event, Nanos now);
  /// Everything that had to complete has completed.
  bool done() const;
  /// Checks both memories, and takes the connection down. True: it lives on, begun anew.
  bool finish(Nanos now, const std::function<void()>& poll);
  bool closed() const { return closed_; }
  /// One line for a report.
  std::string describe() const;

  End& end(int side) { return ends_[side]; }
  bool ended_normally() const { return ending_ == Ending::kNormal; }
  std::uint64_t completions() const { return completions_; }

 private:
  enum class Drain : std::uint8_t { kNone, kPlanned, kRequested, kDrained, kOver };

  void set_up_ends();
  bool is_xrc() const { return ends_[0].qp->sizes.type == proto::QpType::kXrcSend; }
  /// Keys that works have made valid may be used and invalidated.
  static void take_new_keys(End& end, std::size_t from);
  void connect_ends(Nanos now);
  bool post_works(int side);  ///< true: something was posted
  bool post_receives(int side);
  void change_states(int side, Nanos now);
  bool works_done(const End& end) const;
  bool side_done(int side) const;
  Surroundings surroundings(int side) const;
  int side_of(const Host& host, std::uint32_t qpn) const;
  void trace(const std::string& text) const {
    if (setting_.trace) setting_.trace(text);
  }

  const Setting setting_;
  const std::uint32_t index_;
  Random random_;
  End ends_[2];
  WorkLimits limits_[2];
  Ending ending_ = Ending::kNormal;
  int bad_side_ = 0;
  std::size_t bad_at_ = 0;  ///< works or receives of the bad side before the ending
  bool eager_receives_ = false;
  std::uint32_t mtu_ = 1024;
  std::uint32_t lives_left_ = 0;
  Drain drain_ = Drain::kNone;
  int drain_side_ = 0;
  std::size_t drained_at_ = 0;  ///< works complete when the send queue was drained
  Nanos drain_until_ = 0;
  bool closed_ = false;
  std::uint64_t completions_ = 0;
};

}  // namespace uroce::sim
