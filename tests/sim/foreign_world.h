// A world of one RC connection between a host of ours and the foreign peer (tests/sim/foreign_peer.h), both of
// which request and respond, over a network that loses, duplicates, reorders and damages. The last request of
// either side may be one that the other must refuse, with the NAK that the specification names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/foreign_peer.h"
#include "tests/sim/host.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace uroce::sim {

WorldReport run_foreign_world(const WorldOptions& options);

class ForeignWorld {
 public:
  explicit ForeignWorld(const WorldOptions& options);
  /// Throws Violation.
  void run();
  WorldReport report() const;
  std::string describe() const;

 private:
  struct OurWork {
    uroce_sq_entry entry{};
    std::vector<std::byte> payload;  ///< leaves, or must land
    std::size_t local = 0, target = 0;
    std::uint32_t length = 0;
  };
  struct Expected {  ///< a message of the peer's
    std::vector<std::byte> payload;
    std::uint32_t length = 0, immediate = 0;
    bool write = false, with_immediate = false;
    std::size_t at = 0;  ///< of a WRITE, in our arena
  };

  void set_up_host();
  void connect_qp();
  void step();
  Nanos next_moment() const;
  void post_ours();
  void post_theirs();
  void post_receives();
  OurWork draw_ours();
  ForeignWork draw_theirs();
  void write_entry(const OurWork& work);
  void poll();
  void on_send(const uroce_cqe& cqe);
  void on_receive(const uroce_cqe& cqe);
  bool good_part_done() const;
  void post_bad_one();
  void post_bad_ours();
  void post_bad_theirs();
  bool done() const;
  void check_end();
  bool in_error();
  void trace(const char* what, std::span<const std::byte> frame) const;

  const WorldOptions options_;
  Random random_;
  Nanos now_ = 0;
  NetworkSettings network_settings_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ForeignPeer> peer_;
  SimQp qp_;
  std::uint32_t mtu_ = 0, largest_ = 0;
  std::uint32_t our_psn_ = 0, their_psn_ = 0;
  std::vector<std::byte> arena_, initial_;
  std::vector<std::uint8_t> their_initial_;
  Key source_, target_, landing_, receive_;
  std::size_t landing_used_ = 0, receive_used_ = 0, target_used_ = 0, their_target_used_ = 0;
  std::vector<OurWork> works_;
  std::vector<std::size_t> messages_;              ///< of works_, that the peer must receive
  std::vector<Expected> expected_;                 ///< WRITEs without immediate too
  std::vector<std::size_t> consuming_, receives_;  ///< of expected_; places of receives in the arena
  std::size_t completed_ = 0, received_ = 0;
  std::uint64_t our_sum_ = 0, their_sum_ = 0;
  std::uint32_t ours_left_ = 0, theirs_left_ = 0;
  int bad_ = 0;  ///< 0: none; 1: ours; 2: theirs
  bool bad_posted_ = false;
  std::uint32_t bad_status_ = 0;
  bool failed_ = false;
  std::uint64_t completions_ = 0, steps_ = 0;
  bool mutated_ = false;
};

}  // namespace uroce::sim
