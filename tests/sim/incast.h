// Many hosts and one, through a switch with little memory: what they write or send to it, or it reads from them.
// All data passes one port. Virtual time; a seed determines the whole run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/random.h"
#include "tests/sim/switch.h"

namespace uroce::sim {

struct Load {
  std::uint8_t opcode = UROCE_WR_RDMA_WRITE;  ///< or _SEND, to the one host, or _RDMA_READ by it
  std::uint32_t senders = 1;                  ///< of data
  std::uint32_t bytes = 4096;                 ///< of each message
  std::uint32_t posted = 1;                   ///< messages of each sender at the same time; a power of two
  std::uint8_t timeout = 14;
  SwitchSettings network = {};

  bool reads() const { return opcode == UROCE_WR_RDMA_READ; }
};

class Incast {
 public:
  static constexpr std::uint32_t kMtu = 4096;

  Incast(const Load& load, std::uint64_t seed);

  // Both throw Violation when a work request fails.

  /// One message of each sender, at about the same time. How long the last one takes.
  Nanos round();
  /// Each sender has its number of messages posted, until about that many packets of data are acknowledged in all.
  void keep_busy(std::uint64_t packets);

  Nanos now() const { return now_; }
  const Switch& network() const { return switch_; }
  /// Sums over all hosts.
  proto::Counters counters() const;
  /// Packets of data that are acknowledged, by sender.
  std::vector<std::uint64_t> acknowledged() const;

 private:
  /// When a host runs next. Only its own steps, frames for it and its doorbells change this.
  struct Due {
    bool rung = false, works = false;
    Nanos timeout = kNever;
  };
  void add_qp(std::uint32_t id, std::uint32_t peer);
  std::uint32_t requester_of(std::uint32_t sender) const { return load_.reads() ? 0 : sender; }
  SimQp& requesting(std::uint32_t sender) { return *(load_.reads() ? receiving_ : sending_)[sender - 1]; }
  void post(std::uint32_t sender);
  void post_receive(std::uint32_t sender);
  void step();
  void run(std::uint32_t id);
  void take_completions(std::uint32_t id);

  const Load load_;
  Random random_;
  Switch switch_;
  std::vector<std::byte> memory_;
  std::vector<std::unique_ptr<Host>> hosts_;  // the receiver of data is the first
  std::vector<Key> keys_;
  std::vector<std::unique_ptr<SimQp>> receiving_, sending_;
  std::vector<std::uint32_t> order_;
  std::vector<Due> due_;  // by host
  Nanos now_ = 0;
  std::uint64_t done_ = 0;
  bool repeat_ = false;  // a message follows each one that is complete
};

}  // namespace uroce::sim
