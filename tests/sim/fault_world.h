// A world of faults: connections between two hosts, most of which suffer something once in each of their lives
// (keys that go, memory that fails, states that change, a hostile or dead peer), and hosts that restart. Packets of
// earlier lives arrive late, under QPNs that are in use again. Connections that suffer nothing must notice nothing;
// the others must end at both ends, with the errors that their fault explains.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/fault_link.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace uroce::sim {

WorldReport run_fault_world(const WorldOptions& options);

class FaultWorld {
 public:
  explicit FaultWorld(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;
  std::string describe() const;

 private:
  using Frame = std::vector<std::byte>;

  Nanos next_moment() const;
  bool all_closed() const;
  void step();
  void deliver();
  void act();
  void attack();
  void run_hosts();
  void send(std::uint32_t from, std::span<const std::byte> frame);
  void poll();
  void dispatch(std::uint32_t host, CqId cq, const uroce_cqe& cqe);
  void apply(FaultLink& link);
  void restart(std::uint32_t host);
  void check_end();
  void trace(const char* what, std::span<const std::byte> frame) const;

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0, restart_at_ = kNever;
  HostSettings host_settings_[2];
  std::array<std::unique_ptr<Host>, 2> hosts_;
  std::vector<std::unique_ptr<SimQp>> graveyard_;
  NetworkSettings network_settings_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<FaultLink>> links_;
  std::multimap<Nanos, std::pair<std::uint32_t, Frame>> late_;  ///< second copies, by arrival
  std::vector<std::pair<std::uint32_t, Frame>> recent_;         ///< a few frames, with their destination
  double ghosts_ = 0, strangers_ = 0;
  std::uint64_t frames_before_restart_ = 0, completions_ = 0, steps_ = 0;
  bool mutated_ = false;
  std::uint32_t mutation_countdown_ = 0;
};

}  // namespace uroce::sim
