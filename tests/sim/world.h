// One simulated world: two hosts, a network, a few connections, one seed. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/network.h"
#include "tests/sim/pair.h"

namespace uroce::sim {

/// Faults of the harness itself: each must be noticed, or the simulation could not fail.
enum class Mutation : std::uint8_t {
  kNone,
  kDropCompletion,
  kDoubleCompletion,
  kSwapCompletions,
  kStatus,     ///< a success becomes an error
  kStrayByte,  ///< one byte outside every buffer changes
  kForge,      ///< one payload byte of a SEND changes on the way, ICRC made good
};
inline constexpr int kMutations = 7;
const char* name_of(Mutation mutation);

struct WorldOptions {
  std::uint64_t seed = 1;
  bool trace = false;
  Mutation mutation = Mutation::kNone;
  bool one_host = false;  ///< both ends on one host; else in one world of ten
  bool switched = false;  ///< the hosts are devices of one process, between which payload may be named
};

struct WorldReport {
  std::string failure;  ///< empty: all is as the model says
  std::uint64_t frames = 0, harmed = 0, completions = 0, damaged = 0;
  Nanos virtual_time = 0;
  bool mutated = false;
};

WorldReport run_world(const WorldOptions& options);
/// Both ends on one host, whose frames may name their payload.
WorldReport run_one_host_world(const WorldOptions& options);
WorldReport run_switched_world(const WorldOptions& options);

/// What a report says of hosts and network.
WorldReport count_frames(const std::vector<std::unique_ptr<Host>>& hosts, const Network& network);

/// Runs a world to its end, or to a Violation.
template <class AnyWorld>
WorldReport run_one(const WorldOptions& options) {
  AnyWorld world(options);
  std::string failure;
  try {
    world.run();
  } catch (const Violation& violation) {
    failure = violation.what();
    if constexpr (requires { world.describe(); }) failure += '\n' + world.describe();
  }
  WorldReport report = world.report();
  report.failure = failure;
  return report;
}

class World {
 public:
  explicit World(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;
  std::string describe() const;

 private:
  void step();
  Nanos next_moment() const;
  void deliver();
  void run_hosts();
  bool sleeps(std::uint32_t host) const { return awake_at_[host] > now_; }
  void send(std::uint32_t from, std::span<const std::byte> frame);
  void poll();
  void dispatch(Host& host, std::uint32_t cq, const uroce_cqe& cqe);
  void take_events();
  void finish_pairs();
  void check_end() const;
  bool strike();
  bool send_forged(std::uint32_t to, std::span<const std::byte> frame);
  void trace(const char* what, std::span<const std::byte> frame) const;
  bool all_closed() const;

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0;
  bool one_host_ = false, mortal_ = false, harmless_ = false, plain_ = true;
  Nanos death_at_ = kNever;
  bool sleepy_ = false;  ///< hosts are now and then not scheduled
  Random sleep_;         ///< of its own: the other draws are the same in worlds without it
  Nanos awake_at_[2] = {};
  NetworkSettings network_settings_;
  Switched switched_;  // before the hosts that join it
  std::vector<std::unique_ptr<Host>> hosts_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::uint64_t may_be_refused_ = 0;  ///< damaged frames that arrived
  std::uint32_t mutation_countdown_ = 0;
  bool mutated_ = false;
  std::vector<uroce_cqe> held_;
  std::uint64_t steps_ = 0;
};

}  // namespace uroce::sim
